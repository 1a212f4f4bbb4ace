package main

import (
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// says checks that a command succeeds and that what it prints has a text.
func (n *night) says(want string, args ...string) {
	n.t.Helper()
	if out := n.ok(args...); !strings.Contains(out, want) {
		n.t.Errorf("%q: %s; want %q", args, out, want)
	}
}

// saysSoon is says for what workers do in their own time.
func (n *night) saysSoon(want string, args ...string) {
	n.t.Helper()
	redistest.Eventually(n.t, func() bool { return strings.Contains(n.ok(args...), want) }, "%q says %q", args, want)
}

// More of what operators do at 3 a.m.: two things at once, the second time, and in the wrong order.
func TestLaterThatNight(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	atNight(t, map[string]func(n *night){
		"the queue is paused twice and resumed twice": func(n *night) {
			n.says("is paused", "queue", "pause", "mail")
			n.says("was paused already", "queue", "pause", "mail")
			n.works(srv)
			id := n.put("")
			n.rests("the queue is paused", id)
			n.says("paused", "queue", "ls", "mail")
			n.ok("queue", "resume", "mail")
			n.gone(id)
			n.says("was not paused", "queue", "resume", "mail")
			n.gone(n.put(""))
		},
		"a quiet worker ends, and its successor works": func(n *night) {
			p := n.works(srv)
			n.passes()
			var got struct{ Queues []queueJSON }
			n.into(&got, "queue", "ls", "mail")
			n.ok("worker", "quiet", got.Queues[0].Workers[0])
			id := n.put("", "--serial", "acme")
			n.rests("all workers of the queue are quiet", id)
			p.stop()
			n.rests("no worker works the queue", id)
			n.works(srv)
			n.gone(id)
		},
		"all dead jobs are retried into a paused tenant": func(n *night) {
			n.works(srv)
			dead := n.put("die", "--serial", "acme", "--max-attempts", "1")
			plain := n.put("die", "--max-attempts", "1")
			n.saysSoon("dead", "job", "show", "mail", dead)
			n.saysSoon("dead", "job", "show", "mail", plain)
			n.ok("queue", "pause", "mail", "--group", "acme")
			n.ok("job", "edit", "mail", dead, "--args", `{}`)
			n.ok("job", "retry", "mail", "--state", "dead", "--yes")
			n.saysSoon("dead", "job", "show", "mail", plain) // again
			n.passes()
			n.rests("its group is paused", dead)
			n.ok("queue", "resume", "mail", "--group", "acme")
			n.gone(dead)
		},
		"a running job of a tenant that is held back is cancelled": func(n *night) {
			p := n.works(srv)
			id := n.put("hold", "--serial", "acme")
			<-p.started
			next := n.put("", "--serial", "acme")
			n.ok("queue", "hold", "mail", "--group", "acme", "--for", "1h")
			n.ok("job", "cancel", "mail", id)
			n.saysSoon("cancelled", "job", "show", "mail", id)
			n.passes()
			n.rests("its group is held back", next)
			n.ok("queue", "hold", "mail", "--group", "acme", "--lift")
			n.gone(next)
		},
		"limits of a queue that nobody works": func(n *night) {
			n.ok("queue", "limit", "mail", "--running", "1")
			first, second := n.put("hold"), n.put("hold")
			n.rests("no worker works the queue", first, second)
			p := n.works(srv)
			<-p.started
			n.rests("limit of 1 running job", second)
			n.says("limited", "queue", "ls", "mail")
			close(p.free)
			n.gone(first, second)
			n.says("active", "queue", "ls", "mail")
		},
		"held back, paused, let go, resumed": func(n *night) {
			n.works(srv)
			n.ok("queue", "hold", "mail", "--group", "acme", "--for", "1h")
			id := n.put("", "--group", "acme")
			n.passes()
			n.rests("its group is held back", id)
			n.ok("queue", "pause", "mail", "--group", "acme")
			n.rests("its group is paused", id)
			n.ok("queue", "hold", "mail", "--group", "acme", "--lift")
			n.passes()
			n.rests("its group is paused", id)
			n.ok("queue", "resume", "mail", "--group", "acme")
			n.gone(id)
		},
		"a maximum below the length, then away": func(n *night) {
			ids := []string{n.put(""), n.put(""), n.put("")}
			n.ok("queue", "limit", "mail", "--length", "2")
			if _, errs, code := n.run("enqueue", "email.welcome", `{}`, "-q", "mail", "--id", "more"); code == 0 || !strings.Contains(errs, "full") {
				n.t.Errorf("%d, %s", code, errs)
			}
			n.ok("job", "cancel", "mail", ids[0])
			n.ok("job", "retry", "mail", ids[0]) // an operator is never refused
			n.works(srv)
			n.gone(ids...)
			n.gone(n.put(""))
		},
		"a job of a paused tenant is put first, and made due": func(n *night) {
			n.ok("queue", "pause", "mail", "--group", "acme")
			n.works(srv)
			last, first := n.put("", "--group", "acme"), n.put("", "--group", "acme", "--after", "20d")
			n.ok("job", "prioritise", "mail", first, "--to", "high")
			n.ok("job", "reschedule", "mail", first, "--after", "0s")
			n.passes()
			n.rests("its group is paused", last, first)
			n.ok("queue", "resume", "mail", "--group", "acme")
			n.gone(first, last)
		},
		"a file is put into a paused queue": func(n *night) {
			n.ok("queue", "pause", "mail")
			n.works(srv)
			id, tenant := n.put(""), n.put("", "--serial", "acme")
			file := n.ok("export", "mail")
			n.ok("job", "rm", "mail", id, tenant, "--yes")
			n.in = file
			n.ok("import", "mail")
			n.rests("the queue is paused", id, tenant)
			n.ok("queue", "resume", "mail")
			n.gone(id, tenant)
		},
		"a tenant's limits are removed while it is paused": func(n *night) {
			n.ok("queue", "limit", "mail", "--group", "acme", "--running", "1")
			p := n.works(srv)
			running := n.put("hold", "--group", "acme")
			<-p.started
			id := n.put("", "--group", "acme")
			n.rests("its group's limit of 1 running job", id)
			n.ok("queue", "pause", "mail", "--group", "acme")
			n.ok("queue", "limit", "mail", "--group", "acme", "--running", "none")
			n.passes()
			n.rests("its group is paused", id)
			n.ok("queue", "resume", "mail", "--group", "acme")
			n.gone(id) // beside the one that runs
			close(p.free)
			n.gone(running)
		},
		"all workers end, and one comes back": func(n *night) {
			p, q := n.works(srv), n.works(srv)
			n.passes()
			p.stop()
			q.stop()
			var got struct{ Queues []queueJSON }
			n.into(&got, "queue", "ls", "mail")
			if len(got.Queues[0].Workers) != 0 {
				n.t.Errorf("workers %v", got.Queues[0].Workers)
			}
			n.ok("worker", "ls")
			id := n.put("")
			n.rests("no worker works the queue", id)
			n.works(srv)
			n.gone(id)
		},
		"a queue is drained and removed": func(n *night) {
			n.ok("enqueue", "email.welcome", `{}`, "-q", "old", "--id", "x")
			if _, errs, code := n.run("queue", "rm", "old"); code == 0 || !strings.Contains(errs, "jobs that haven't ended, 1") {
				n.t.Errorf("%d, %s", code, errs)
			}
			n.ok("job", "rm", "old", "x", "--yes")
			n.ok("queue", "rm", "old")
			if out := n.ok("queue", "ls"); strings.Contains(out, "old") {
				n.t.Error(out)
			}
		},
	})
}
