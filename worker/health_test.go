package worker_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/health"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/worker"
)

// has reports whether a report has a problem of that code and severity.
func has(r health.Report, code health.Code, s health.Severity) bool {
	return slices.ContainsFunc(r.Problems, func(p health.Problem) bool { return p.Code == code && p.Severity == s })
}

// ails waits until the worker has a problem, and returns it.
func (r *rig) ails(w *worker.Worker, code health.Code, s health.Severity) health.Problem {
	r.Helper()
	var all health.Report
	begin := time.Now()
	for time.Since(begin) < patience {
		all = w.Health()
		for _, p := range all.Problems {
			if p.Code == code && p.Severity == s {
				if p.Since.IsZero() || p.Since.After(time.Now()) || p.Detail == "" || p.Part != "worker" {
					r.Errorf("%+v", p)
				}
				return p
			}
		}
		<-time.After(5 * time.Millisecond)
	}
	r.Fatalf("no %s, %v: %+v", code, s, all)
	panic("unreachable")
}

// well waits until the worker has no problem.
func (r *rig) well(w *worker.Worker) {
	r.Helper()
	redistest.Eventually(r.T, func() bool { return len(w.Health().Problems) == 0 }, "the worker is well")
}

// A worker is ready from its first leases to the beginning of its drain. Only an error of Run takes a restart.
func TestHealthOfALife(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(1)
	release, open := r.gate()
	running := make(chan struct{}, 1)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
		running <- struct{}{}
		<-release
		return nil
	})
	r.ails(w, health.NotRunning, health.Unready)
	run := r.start(w)
	r.well(w)
	r.addOne(signalbox.Job{})
	get(t, running, "the job runs")
	r.well(w)
	run.cancel()
	r.ails(w, health.Draining, health.Unready)
	open()
	run.stop()
	r.ails(w, health.NotRunning, health.Unready)
	if report := w.Health(); !report.Live() || len(report.Problems) != 1 {
		t.Errorf("after a clean end: %+v", report)
	}
	r.start(w) // once more
	r.well(w)
}

// Run has returned an error that nobody asked for: the process does nothing any more.
func TestHealthAfterAnError(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr(), ContextTimeoutEnabled: true})
	w := r.workerOn(rdb, r.config(1))
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	run := r.start(w)
	r.well(w)
	_ = rdb.Close()
	r.addOne(signalbox.Job{}) // so that it makes a call
	if err := run.wait(); err == nil {
		t.Fatal("Run returns nil after its client was closed")
	}
	r.ails(w, health.Ended, health.Broken)
}

// While Redis is away, or refuses writes, a worker isn't ready. A restart would not help.
func TestHealthWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRigOn(t, server.Client())
	proxy := redistest.NewProxy(t, server.Addr())
	// The client is patient: its own timeout would give the outage another name.
	w := r.workerOn(proxy.ClientWith(func(o *redis.UniversalOptions) { o.ReadTimeout = time.Minute }), r.short(1))
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	r.start(w)
	r.well(w)
	for _, outage := range []struct {
		why        string
		begin, end func()
	}{
		{"connection refused", func() { proxy.Refuse(true); proxy.Sever() }, func() { proxy.Refuse(false) }},
		{"Redis answers NOREPLICAS", func() { set(t, server, "min-replicas-to-write", "1") }, func() { set(t, server, "min-replicas-to-write", "0") }},
		{"no answer", proxy.Pause, proxy.Resume},
	} {
		outage.begin()
		if p := r.ails(w, health.RedisAway, health.Unready); p.Queue != r.name() {
			t.Errorf("%+v", p)
		}
		redistest.Eventually(t, func() bool {
			return slices.ContainsFunc(w.Health().Problems, func(p health.Problem) bool {
				return p.Code == health.RedisAway && strings.Contains(p.Detail, outage.why)
			})
		}, "the report says %s", outage.why)
		if report := w.Health(); !report.Live() || report.Ready() {
			t.Errorf("%s: %+v", outage.why, report)
		}
		outage.end()
		r.well(w)
	}
}

// A call that isn't a renewal, and hangs, holds up no renewal: also where the client waits for a minute.
func TestRenewalsBesideACallThatHangs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hangs string
		call  func(r *rig) // has a worker that is ready make the call; nil: it makes it when it starts
	}{
		"the queue is listed": {hangs: "SADD"},
		"settings are read": {hangs: "HMGET", call: func(r *rig) {
			if _, err := r.queue.Settings().SetMaxLength(r.Context(), 1000); err != nil {
				r.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			r := newRigOn(t, server.Client())
			proxy := redistest.NewProxy(t, server.Addr())
			w := r.workerOn(proxy.ClientWith(func(o *redis.UniversalOptions) { o.ReadTimeout = time.Minute }), r.short(1))
			worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
			hold := func() (held <-chan struct{}, free func()) { return proxy.HoldReplies(redistest.Command(c.hangs)) }
			var held <-chan struct{}
			var free func()
			if c.call == nil {
				held, free = hold()
				r.start(w)
			} else {
				r.start(w)
				r.well(w)
				held, free = hold()
				c.call(r)
			}
			defer free()
			<-held
			r.renewals()()
			r.well(w)
			if text := r.log.String(); strings.Contains(text, "lost") {
				t.Errorf("the log says\n%s", text)
			}
		})
	}
}

// A Redis that evicts jobs is reported after the next look at it. So is one that lets the worker start and may evict.
func TestHealthOfEviction(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRigOn(t, server.Client())
	proxy := redistest.NewProxy(t, server.Addr())
	w := r.workerOn(proxy.Client(), r.short(1))
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	r.start(w)
	r.well(w)
	look := func() { // an outage makes the worker look
		before := r.log.count("Redis is back")
		proxy.Refuse(true)
		proxy.Sever()
		r.ails(w, health.RedisAway, health.Unready)
		proxy.Refuse(false)
		redistest.Eventually(t, func() bool { return r.log.count("Redis is back") > before }, "Redis is back")
	}
	set(t, server, "maxmemory-policy", "allkeys-lru")
	look()
	r.ails(w, health.RedisDoubtful, health.Degraded)
	set(t, server, "maxmemory", "100mb")
	look()
	r.ails(w, health.RedisUnfit, health.Unready)
	set(t, server, "maxmemory-policy", "noeviction")
	look()
	r.well(w)
}

// Redis answers claims with an error that concerns this caller only.
func TestHealthOfARefusedCall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	w := r.workerOn(proxy.Client(), r.short(1))
	ran := r.reporter(w)
	r.start(w)
	r.works(ran, "a job runs")
	r.well(w)
	proxy.Reply(r.isClaim(), "-NOPERM not now", -1)
	r.addOne(signalbox.Job{})
	if p := r.ails(w, health.Refused, health.Unready); p.Detail != "call claim: Redis answers NOPERM" {
		t.Errorf("%+v", p)
	}
	proxy.Reset()
	get(t, ran, "the job runs")
	r.well(w)
}

// A lease that nobody renews is reported at half of its time, and when it has ended.
func TestHealthOfALateLease(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRigOn(t, server.Client())
	proxy := redistest.NewProxy(t, server.Addr())
	w := r.workerOn(proxy.Client(), r.short(1))
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	r.start(w)
	r.well(w)
	proxy.Refuse(true)
	proxy.Sever()
	r.ails(w, health.LeaseLate, health.Degraded)
	r.ails(w, health.NoLease, health.Unready)
	proxy.Refuse(false)
	r.well(w)
}

// Handlers that ignore the end of their contexts are reported. They go on, and so does the worker.
func TestHealthOfStuckHandlers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(2)
	release, open := r.gate()
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
		<-release
		return nil
	}, worker.Timeout(time.Millisecond))
	r.start(w)
	r.well(w)
	r.addOne(signalbox.Job{})
	if p := r.ails(w, health.HandlersStuck, health.Degraded); !strings.HasPrefix(p.Detail, "1 handlers") {
		t.Errorf("%+v", p)
	}
	open()
	r.well(w)
}

// A worker that pauses, or is quiet, does what somebody wants.
func TestHealthOfAPause(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(1)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	r.start(w)
	r.well(w)
	ins := r.inspector()
	r.set(ins.Pause)
	redistest.Eventually(t, func() bool { return r.log.count("the queue is paused") == 1 }, "the worker hears of the pause")
	if report := w.Health(); len(report.Problems) != 0 {
		t.Errorf("%+v", report)
	}
}

// The probes of a real worker.
func TestProbes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(1)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	status := func(h http.Handler) int {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil))
		return rec.Code
	}
	live, ready := health.Live(w), health.Ready(w)
	if a, b := status(live), status(ready); a != 200 || b != 503 {
		t.Errorf("before Run: %d, %d", a, b)
	}
	r.start(w)
	r.well(w)
	if a, b := status(live), status(ready); a != 200 || b != 200 {
		t.Errorf("it runs: %d, %d", a, b)
	}
}
