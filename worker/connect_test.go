package worker_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// called matches calls of a command.
func called(name string) func(cmd []string) bool {
	return func(cmd []string) bool { return len(cmd) > 0 && strings.EqualFold(cmd[0], name) }
}

// While a worker looks at Redis with the caller's client, it makes connections of its own: a start takes as many round
// trips as one of both.
func TestConnectsWhileItLooks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	asked, answer := proxy.HoldReplies(called("INFO"))
	w := r.workerOn(proxy.Client(), r.config(1))
	ran := r.reporter(w)
	r.start(w)
	get(t, asked, "the worker looks at Redis")
	redistest.Eventually(t, func() bool { return proxy.Count(called("PING")) > 0 }, "it has reached Redis with its own client")
	answer()
	r.works(ran, "a job runs")
}

// A worker that was there before Redis has connections of its own nevertheless.
func TestOwnConnectionsAfterAWait(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	proxy.Refuse(true)
	w := r.workerOn(proxy.Client(), r.config(1))
	ran := r.reporter(w)
	r.start(w)
	// Each try takes the caller's client as long as the one of its own client, which began with the first.
	redistest.Eventually(t, func() bool { return r.log.count("waiting for Redis") > 2 }, "the worker waits")
	proxy.Refuse(false)
	r.works(ran, "a job runs")
	if r.log.count("no connection could be made") > 0 {
		t.Error("the worker has taken the caller's client for all")
	}
}

// A worker whose own client reaches nobody, since only a hook of the caller's knows where Redis is, works with the
// caller's, and says so.
func TestClientWhoseHookDials(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	rdb := unused(t)
	rdb.AddHook(dialTo(redistest.Start(t).Addr()))
	w := r.workerOn(rdb, r.config(1))
	ran := r.reporter(w)
	r.start(w)
	r.works(ran, "a job runs")
	r.log.says(t, "does a hook of it dial?")
}

// dialTo is a hook that makes connections to an address, whatever that of the client is.
type dialTo string

func (d dialTo) DialHook(redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, string(d))
	}
}

func (dialTo) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (dialTo) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
