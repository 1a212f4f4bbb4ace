package main

import (
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// The groups of a queue are listed, the largest first, and jobs say their group where they have one.
func TestQueueGroups(t *testing.T) {
	t.Parallel()
	sh := newShell(t, redistest.Start(t))
	sh.ok("enqueue", "email.welcome", `{}`, "-q", "mail", "--id", "plain")
	if out := sh.ok("job", "ls", "mail"); strings.Contains(out, "GROUP") {
		t.Errorf("without groups: %s", out)
	}
	if _, errs, code := sh.run("queue", "groups", "mail"); code != exitOK || !strings.Contains(errs, "has a group") {
		t.Errorf("without groups: %d, %s", code, errs)
	}
	sh.ok("enqueue", "email.welcome", `{}`, "-q", "mail", "--id", "b1", "--serial", "beta")
	for _, id := range []string{"a1", "a2"} {
		sh.ok("enqueue", "email.welcome", `{}`, "-q", "mail", "--id", id, "--group", "acme")
	}
	sh.ok("queue", "limit", "mail", "--group", "acme", "--running", "5", "--rate", "10/1s")
	sh.ok("queue", "hold", "mail", "--group", "acme", "--for", "1h")
	text := func(args ...string) []string {
		t.Helper()
		lines := strings.Split(strings.TrimSpace(sh.ok(args...)), "\n")
		for i := range lines {
			lines[i] = strings.Join(strings.Fields(lines[i]), " ")
		}
		return lines
	}
	lines := text("queue", "groups", "mail")
	if len(lines) != 3 || lines[0] != "GROUP ORDER RUNNING WAITING LIMIT RATE HELD BACK" || !strings.HasPrefix(lines[1], "acme - 0 2 5 10/1s for 59m") || lines[2] != "beta serial 0 1 1 - -" {
		t.Errorf("%q", lines)
	}
	if lines = text("queue", "groups", "mail", "--limit", "1"); len(lines) != 2 {
		t.Errorf("%q", lines)
	}
	var got struct {
		Queue  string
		Groups []groupJSON
		More   bool
	}
	sh.into(&got, "queue", "groups", "mail", "--limit", "1")
	if got.Queue != "mail" || !got.More || len(got.Groups) != 1 || got.Groups[0].Group != "acme" || got.Groups[0].Waiting != 2 || got.Groups[0].Limits.Running != 5 || got.Groups[0].HeldUntil == nil {
		t.Errorf("%+v", got)
	}
	lines = text("job", "ls", "mail")
	if len(lines) != 5 || !strings.HasPrefix(lines[0], "ID KIND GROUP STATE") || !strings.Contains(lines[1], "plain email.welcome - ready") {
		t.Errorf("%q", lines)
	}
	if lines = text("job", "ls", "mail", "--group", "acme"); len(lines) != 3 || !strings.HasPrefix(lines[1], "a1 email.welcome acme ready") {
		t.Errorf("%q", lines)
	}
	sh.fails(exitUsage, []string{"--limit"}, "queue", "groups", "mail", "--limit", "0")
	sh.fails(exitNotFound, []string{"no such queue"}, "queue", "groups", "mial")
}
