package worker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/worker"
)

// Handlers that run for longer than their lease keep their jobs. One command in each interval renews the lease for all of them. The
// lease is six seconds: even on a loaded machine a renewal comes within that time. The test waits for renewals over a longer time,
// however long they take.
func TestLongHandlersKeepTheirJobs(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := newRig(t)
	proxy := redistest.NewProxy(t, server.Addr())
	const n = 30
	const ttl = shortTTL
	var ran atomic.Int32
	running := make(chan struct{}, n)
	release, open := r.gate()
	handle := func(ctx context.Context, _ *signalbox.Job, _ task) error {
		ran.Add(1)
		running <- struct{}{}
		<-release
		return ctx.Err()
	}
	cfg := r.short(n)
	busy := r.workerOn(proxy.Client(), cfg)
	worker.Handle(busy, handle)
	r.start(busy)
	r.add(make([]signalbox.Job, n)...)
	for range n {
		get(t, running, "all run")
	}
	waiting := r.workerWith(cfg)
	worker.Handle(waiting, handle)
	r.start(waiting)

	begin, before := time.Now(), proxy.Count(r.isRenew())
	renewals := func() int { return proxy.Count(r.isRenew()) - before }
	redistest.Eventually(t, func() bool {
		return renewals() >= 4 && time.Since(begin) > ttl
	}, "the lease is renewed four times, over more than its TTL")
	got, intervals := renewals(), int(time.Since(begin)/(ttl/3))
	open()
	r.completed(n)
	if ran.Load() != n {
		t.Errorf("%d deliveries of %d jobs", ran.Load(), n)
	}
	if c := r.counts(); c.Total.Crashed+c.Total.Returned+c.Total.Retried != 0 {
		t.Errorf("counts %+v", c)
	}
	if got > intervals+1 {
		t.Errorf("%d renewals of %d jobs in %d intervals, want one an interval", got, n, intervals)
	}
}

// If Redis can't be reached, the handlers' contexts end before another worker can take the jobs. When Redis can be reached again, the
// worker continues without help.
func TestLeaseIsLostInAnOutage(t *testing.T) {
	t.Parallel()
	for name, outage := range map[string]struct{ begin, end func(p *redistest.Proxy) }{
		"held": {(*redistest.Proxy).Pause, (*redistest.Proxy).Resume},
		"refused": {
			func(p *redistest.Proxy) { p.Refuse(true); p.Sever() },
			func(p *redistest.Proxy) { p.Refuse(false) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			r := newRig(t)
			proxy := redistest.NewProxy(t, server.Addr())
			const ttl = 3 * time.Second
			w := r.workerOn(proxy.Client(), r.lease(5, ttl))
			lag := redistest.Lag(t, r.rdb)
			running, causes := make(chan time.Time, 100), make(chan error, 100)
			var stay atomic.Bool
			stay.Store(true)
			worker.Handle(w, func(ctx context.Context, job *signalbox.Job, _ task) error {
				if !stay.Load() {
					return nil
				}
				l, _ := lock.FromContext(ctx)
				running <- time.Now()
				before := lag()
				<-ctx.Done()
				if late := time.Since(l.Until()); late-(lag()-before) > 500*time.Millisecond {
					t.Errorf("the context ended %v after the lease", late)
				}
				causes <- context.Cause(ctx)
				return ctx.Err()
			})
			r.start(w)
			r.add(make([]signalbox.Job, 5)...)
			for range 5 {
				get(t, running, "the jobs run")
			}
			outage.begin(proxy)
			begin, before := time.Now(), lag()
			for range 5 {
				if err := get(t, causes, "the contexts end"); !errors.Is(err, lock.ErrLost) {
					t.Errorf("cause %v, want ErrLost", err)
				}
			}
			if d := time.Since(begin); d-(lag()-before) > ttl+500*time.Millisecond {
				t.Errorf("they ended %v after Redis went away; the lease is 3 s", d)
			}
			stay.Store(false)
			outage.end(proxy)
			r.completed(5)
			if c := r.counts(); c.Total.Crashed != 0 || c.Total.Retried != 0 {
				t.Errorf("an outage is no crash and no failed attempt: %+v", c)
			}
			r.addOne(signalbox.Job{})
			r.completed(6)
		})
	}
}

// Redis runs the renewals, but their replies don't reach the worker. The worker's lease ends by its own clock before it ends by
// Redis's. Between these times it must not claim jobs, since it couldn't run them.
func TestRenewalsWithoutReplies(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	w := r.workerOn(proxy.Client(), r.brief(1))
	running, lost := make(chan struct{}, 1), make(chan int, 1)
	var calls atomic.Int32
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		if calls.Add(1) > 1 {
			return nil
		}
		running <- struct{}{}
		<-ctx.Done()
		lost <- proxy.Count(r.isClaim())
		return ctx.Err()
	})
	r.start(w)
	r.addOne(signalbox.Job{})
	get(t, running, "the job runs")
	for range 1000 { // all of them
		proxy.CutReply(r.isRenew(), 1)
	}
	before := get(t, lost, "the lease is lost")
	proxy.Reset()
	r.completed(1)
	if n := proxy.Count(r.isClaim()) - before; n > 10 {
		t.Errorf("%d claims to run one job", n)
	}
}
