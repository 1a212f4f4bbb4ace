package main

import (
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// The list of queues says of a queue that it is paused, held back or limited. So does top: TestTopSaysWhatBlocks.
func TestQueueStates(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	sh.ok("enqueue", "email.welcome", `{"do":"hold"}`, "-q", "mail", "--id", "r1")
	p := sh.works(srv)
	<-p.started
	sh.ok("queue", "pause", "mail", "--group", "acme")
	sh.ok("enqueue", "email.welcome", `{}`, "-q", "mail", "--id", "w1", "--group", "acme")
	state := func(want string) {
		t.Helper()
		var got struct{ Queues []queueJSON }
		sh.into(&got, "queue", "ls", "mail")
		if q := got.Queues[0]; q.State != want || want == "held" && q.HeldUntil == nil || q.Paused != (want == "paused") {
			t.Errorf("%+v, want %s", q, want)
		}
		if q := got.Queues[0]; q.PausedGroups != 1 || q.Blocked != 1 {
			t.Errorf("a group is paused: %+v", q)
		}
		if out := sh.ok("queue", "ls", "mail"); !strings.Contains(out, want+" (1 group paused)") || strings.Fields(strings.Split(out, "\n")[1])[1] != want {
			t.Errorf("%s: want %s", out, want)
		}
	}
	state("active")
	sh.ok("enqueue", "email.welcome", `{}`, "-q", "other", "--group", "acme")
	sh.ok("queue", "hold", "other", "--group", "acme", "--for", "1h")
	if out := sh.ok("queue", "ls", "other"); !strings.Contains(out, "active (1 group held)") || !strings.Contains(out, "READY  BLOCKED") || !strings.Contains(out, "      0        1") {
		t.Error(out)
	}
	sh.ok("queue", "limit", "mail", "--running", "1")
	state("active") // the only job that waits, waits for its group
	sh.ok("enqueue", "email.welcome", `{}`, "-q", "mail", "--id", "w2")
	state("limited")
	sh.ok("queue", "hold", "mail", "--for", "1h")
	state("held")
	sh.ok("queue", "pause", "mail")
	state("paused")
	sh.ok("queue", "resume", "mail")
	sh.ok("queue", "hold", "mail", "--lift")
	sh.ok("queue", "limit", "mail", "--running", "none")
	state("active")
	close(p.free)
}
