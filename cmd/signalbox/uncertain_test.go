package main

import (
	"testing"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// An enqueue whose reply is lost says how to go on.
func TestEnqueueUncertain(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	sh := newShell(t, proxy)
	held, free := proxy.HoldReplies(redistest.Command("evalsha"))
	sh.unanswered(held, []string{"may be enqueued or not", "--id j1"}, "enqueue", "mail", "--id", "j1", "--after", "1h")
	free()
	sh.ok("enqueue", "mail", "--id", "j1", "--after", "1h")
}
