package worker_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

// called matches calls of the given command.
func called(name string) func(cmd []string) bool {
	return func(cmd []string) bool { return len(cmd) > 0 && strings.EqualFold(cmd[0], name) }
}

// A worker checks Redis with the caller's client. At the same time it makes connections of its own. So a start takes as many round
// trips as one of the two.
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

// A worker that started before Redis still gets its own connections.
func TestOwnConnectionsAfterAWait(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	proxy.Refuse(true)
	// By default go-redis dials 20 times for a call, with pauses in between.
	rdb := proxy.ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries, o.DialerRetries = -1, 1 })
	w := r.workerOn(rdb, r.config(1))
	ran := r.reporter(w)
	r.start(w)
	// A try with the caller's client takes as long as the one of the own client. Both begin at the same time.
	redistest.Eventually(t, func() bool { return r.log.count("waiting for Redis") > 2 }, "the worker waits")
	proxy.Refuse(false)
	r.works(ran, "a job runs")
	if r.log.count("no connection could be made") > 0 {
		t.Error("the worker has taken the caller's client for all")
	}
}

// Only a hook of the caller's client knows where Redis is, so the worker's own client can't reach it. The worker uses the caller's
// client and logs that.
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

// dialTo is a hook that connects to an address, instead of to that of the client.
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

// A worker that starts while Redis is away leaves the sessions of others alone when it is back, as those do that ran meanwhile: their workers
// could not renew them, and give the jobs back.
func TestStartInAnOutage(t *testing.T) {
	t.Parallel()
	for _, away := range []bool{false, true} {
		r := newRig(t)
		r.add(signalbox.Job{}, signalbox.Job{})
		r.die(2)
		proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
		proxy.Refuse(away)
		w := r.workerOn(proxy.ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries, o.DialerRetries = -1, 1 }), r.lease(1, time.Hour))
		ran := r.reporter(w)
		r.start(w)
		if away {
			redistest.Eventually(t, func() bool { return r.log.count("waiting for Redis") > 0 }, "the worker waits")
			proxy.Refuse(false)
		}
		for range 20 { // each claim's reply tells of the session that is over
			r.works(ran, "a job runs")
		}
		if !away {
			r.log.says(t, "took back the jobs")
		} else if n := r.log.count("took back the jobs"); n != 0 {
			t.Error("the jobs of a session that ended in the outage were taken back at once")
		}
	}
}
