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
	_, free := proxy.HoldReplies(redistest.Command("evalsha"))
	sh.fails(exitAway, []string{"may be enqueued or not", "--id j1"}, "enqueue", "mail", "--id", "j1", "--after", "1h", "--timeout", "300ms")
	free()
	sh.ok("enqueue", "mail", "--id", "j1", "--after", "1h")
}
