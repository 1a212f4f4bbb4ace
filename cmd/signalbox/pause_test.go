package main

import (
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// A group is paused until it is resumed. All that shows groups says so.
func TestPauseGroup(t *testing.T) {
	t.Parallel()
	sh := newShell(t, redistest.Start(t))
	sh.ok("enqueue", "email.welcome", `{}`, "-q", "mail", "--id", "a1", "--group", "acme")
	sh.ok("enqueue", "email.welcome", `{}`, "-q", "mail", "--id", "a2", "--serial", "acme")
	sh.ok("enqueue", "email.welcome", `{}`, "-q", "mail", "--id", "b1", "--group", "beta")
	same(t, sh.ok("queue", "pause", "mail", "--group", "acme"), "group acme of queue mail is paused; jobs that run go on, and new ones wait")
	same(t, sh.ok("queue", "pause", "mail", "--group", "acme", "--wait"), "group acme of queue mail was paused already")
	same(t, sh.ok("queue", "pause", "mail", "--group", "acme", "-o", "json"), `{"queue":"mail","group":"acme","paused":true,"changed":false}`)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"job", "show", "mail", "a1"}, "its group is paused"},
		{[]string{"job", "show", "mail", "a2"}, "its group is paused"},
		{[]string{"queue", "hold", "mail"}, "group acme"},
		{[]string{"queue", "groups", "mail"}, "paused"},
	} {
		if out := sh.ok(c.args...); !strings.Contains(out, c.want) {
			t.Errorf("%v: %s", c.args, out)
		}
	}
	if out := sh.ok("job", "show", "mail", "b1"); strings.Contains(out, "paused") {
		t.Errorf("another group: %s", out)
	}
	var held struct {
		Queue  string
		Held   []holdJSON
		Paused []pausedJSON
	}
	sh.into(&held, "queue", "hold", "mail")
	if len(held.Held) != 0 || len(held.Paused) != 1 || held.Paused[0].Group != "acme" || held.Paused[0].Since == nil {
		t.Errorf("%+v", held)
	}
	var groups struct {
		Queue  string
		Groups []groupJSON
		More   bool
	}
	sh.into(&groups, "queue", "groups", "mail")
	for _, g := range groups.Groups {
		if g.Paused != (g.Group == "acme") || g.Paused != (g.Since != nil) {
			t.Errorf("%+v", g)
		}
	}
	same(t, sh.ok("queue", "resume", "mail", "--group", "acme"), "group acme of queue mail is resumed")
	same(t, sh.ok("queue", "resume", "mail", "--group", "acme", "-o", "json"), `{"queue":"mail","group":"acme","paused":false,"changed":false}`)
	if _, errs, code := sh.run("queue", "hold", "mail"); code != exitOK || !strings.Contains(errs, "no group of it is paused") {
		t.Errorf("%d, %s", code, errs)
	}
	sh.fails(exitUsage, []string{"--group"}, "queue", "pause", "mail", "--group", "")
	sh.fails(exitUsage, []string{"group"}, "queue", "pause", "mail", "--group", "a b")
	sh.fails(exitNotFound, []string{"no such queue"}, "queue", "resume", "mial", "--group", "acme")
}

// A group may be paused before it has jobs. Then the command says that none is there: its key may be wrong.
func TestPauseGroupWithoutJobs(t *testing.T) {
	t.Parallel()
	sh := newShell(t, redistest.Start(t))
	sh.ok("enqueue", "email.welcome", `{}`, "-q", "mail", "--id", "a", "--serial", "acme")
	const none = "No job of this group is ready or runs now"
	for _, c := range []struct {
		group string
		says  bool
	}{{"acme", false}, {"acne", true}} {
		for range 2 { // the second time it is paused already
			if out, errs, code := sh.run("queue", "pause", "mail", "--group", c.group); code != exitOK || !strings.Contains(out, "paused") || strings.Contains(errs, none) != c.says {
				t.Errorf("%s: %d, %s%s", c.group, code, out, errs)
			}
		}
		out, errs, code := sh.run("queue", "groups", "mail", "--group", c.group)
		if code != exitOK || strings.Contains(out, c.group+" serial ") == c.says && strings.Contains(strings.Join(strings.Fields(out), " "), c.group+" serial 0 1") == c.says || strings.Contains(errs, "is of this group") != c.says {
			t.Errorf("%s: %d, %s%s", c.group, code, out, errs)
		}
	}
	sh.fails(exitUsage, []string{"group"}, "queue", "groups", "mail", "--group", "a{")
	sh.fails(exitNotFound, []string{"no such queue"}, "queue", "groups", "mial", "--group", "acme")
}
