package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/examples/more/tracing/internal/jaeger"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/middleware"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// events returns the checks of the events that are not caused by a lost lease or a shutdown.
func events(j *jaeger.Server, r *testRedis) []check {
	return []check{
		{"renewals that fail", func(c *checker) { checkRenewals(c, j, r) }},
		{"a lost lock", func(c *checker) { checkLostLock(c, j, r) }},
		{"an unavailable lock", func(c *checker) { checkUnavailable(c, j, r) }},
	}
}

// happened returns the names of a span's events, sorted, as Jaeger's API has them.
func happened(sp *jaeger.Span) string {
	var names []string
	for _, e := range sp.Events {
		names = append(names, e.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// told returns the attributes of the span's first event with this name.
func told(sp *jaeger.Span, event string) map[string]any {
	for _, e := range sp.Events {
		if e.Name == event {
			return e.Attributes
		}
	}
	return nil
}

// checkRenewals has one outage that lasts for several renewals.
func checkRenewals(c *checker, j *jaeger.Server, r *testRedis) {
	const tries = 3
	g := newRig(c, j, r)
	proxy := r.proxy(c)
	renewal := func(cmd []string) bool { // the script with these keys
		return len(cmd) > 5 && strings.HasPrefix(strings.ToUpper(cmd[0]), "EVAL") && strings.Contains(cmd[3], ":lane:") &&
			strings.HasSuffix(cmd[4], ":sessions") && strings.HasSuffix(cmd[5], ":due")
	}
	began, over := make(chan struct{}), make(chan struct{})
	g.enqueue("plain", "one")
	g.work(r.through(c, proxy), worker.Config{SessionTTL: 5 * time.Second}, func(w *worker.Worker) {
		w.HandleKind("plain", signalbox.HandlerFunc(func(ctx context.Context, _ *signalbox.Job) error {
			close(began)
			select {
			case <-over:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}))
	})
	select {
	case <-began:
	case <-time.After(20 * time.Second):
		c.Fatal("the job does not run")
	}
	before := proxy.Count(renewal)
	proxy.Reply(renewal, "-ERR not now", tries)
	// One renewal may have come before the rule. After the last one that fails, the next one tells the
	// worker of all.
	redistest.Eventually(c, func() bool { return proxy.Count(renewal) >= before+1+tries+1 }, "it is renewed again")
	close(over)
	traces := g.traces(1)
	process := traces.one("process", "one")
	equal(c, "the events", happened(process), "lease.renew_failed")
	equal(c, "failure", process.Error, false)
	equal(c, "the trace", ops(traces.byTrace[process.TraceID]), wholeJob)
}

// checkLostLock deletes the locks of running handlers. One handler's decision then stands, and the other
// one fails.
func checkLostLock(c *checker, j *jaeger.Server, r *testRedis) {
	g := newRig(c, j, r)
	locker := newLocker(r.rdb, lock.Config{TTL: time.Second})
	handler := func(key string, say func(context.Context) error) signalbox.Handler {
		return signalbox.HandlerFunc(func(ctx context.Context, _ *signalbox.Job) error {
			if err := r.rdb.Del(ctx, key).Err(); err != nil {
				return err
			}
			<-ctx.Done()
			return say(ctx)
		})
	}
	g.work(r.rdb, worker.Config{}, func(w *worker.Worker) {
		for kind, say := range map[string]func(context.Context) error{
			"done": func(context.Context) error { return nil }, "failed": context.Cause,
		} {
			key := g.queue + "-" + kind
			w.HandleKind(kind, handler(key, say), worker.With(middleware.Lock(locker, middleware.RawKey(key))))
		}
	})
	g.enqueue("done", "done")
	g.enqueue("failed", "failed", scheduler.MaxAttempts(1))
	traces := g.traces(2)
	for job, want := range map[string]struct {
		events, ops string
		errorType   any
	}{
		"done":   {"signalbox.lock.lost", "ack enqueue handle lock process request", nil},
		"failed": {"exception signalbox.lock.lost", "dead_letter enqueue handle lock process request", "signalbox.lease_lost"},
	} {
		process := traces.one("process", job)
		equal(c, job+": the events", happened(process), want.events)
		equal(c, job+": the attributes of a loss", len(told(process, "signalbox.lock.lost")), 0)
		equal(c, job+": error.type", process.Attributes[attrError], want.errorType)
		equal(c, job+": failure", process.Error, want.errorType != nil)
		equal(c, job+": the trace", ops(traces.byTrace[process.TraceID]), want.ops)
	}
}

// checkUnavailable has each policy with a lock that another client holds, and with a lock about which
// Redis gives no answer.
func checkUnavailable(c *checker, j *jaeger.Server, r *testRedis) {
	g := newRig(c, j, r)
	key := g.queue + "-lock"
	holder, err := newLocker(r.rdb, lock.Config{TTL: time.Hour}).TryAcquire(c.Context(), key)
	if err != nil {
		c.Fatal(err)
	}
	defer func() {
		if err := holder.Release(context.Background()); err != nil {
			c.Error(err)
		}
	}()
	proxy := r.proxy(c)
	proxy.Reply(func(cmd []string) bool { return strings.HasPrefix(strings.ToUpper(cmd[0]), "EVAL") }, "-ERR not now", -1)
	lockers := map[string]lock.Locker{"held": newLocker(r.rdb), "error": newLocker(r.through(c, proxy))}
	became := map[middleware.Policy]struct{ events, ops string }{
		middleware.PolicySnooze:    {"signalbox.lock.unavailable", "enqueue lock process request snooze"},
		middleware.PolicyFail:      {"exception signalbox.lock.unavailable", "dead_letter enqueue lock process request"},
		middleware.PolicyDrop:      {"signalbox.lock.unavailable", "ack enqueue lock process request"},
		middleware.PolicyRunAnyway: {"signalbox.lock.unavailable", "ack enqueue handle lock process request"},
	}
	for outcome := range lockers {
		for policy := range became {
			kind := fmt.Sprintf("%s-%v", outcome, policy)
			g.enqueue(kind, kind, scheduler.MaxAttempts(1))
		}
	}
	g.work(r.rdb, worker.Config{}, func(w *worker.Worker) {
		for outcome, locker := range lockers {
			for policy := range became {
				when, other := middleware.WhenHeld, middleware.WhenDown
				if outcome == "error" {
					when, other = other, when
				}
				w.HandleKind(fmt.Sprintf("%s-%v", outcome, policy), signalbox.HandlerFunc(nothing), worker.With(middleware.Lock(locker,
					middleware.RawKey(key), middleware.RetryIn(time.Hour), when(policy), other((policy+1)%4)))) // the other option must have no effect
			}
		}
	})
	traces := g.traces(len(lockers) * len(became))
	for outcome := range lockers {
		for policy, want := range became {
			job := fmt.Sprintf("%s-%v", outcome, policy)
			process := traces.one("process", job)
			trace := traces.byTrace[process.TraceID]
			equal(c, job+": the trace", ops(trace), want.ops)
			equal(c, job+": the events", happened(process), want.events)
			got, why := told(process, "signalbox.lock.unavailable"), map[string]any{attrLockOutcome: outcome, attrLockPolicy: policy.String()}
			c.that(maps.Equal(got, why), "%s: the event has %v, want %v", job, got, why)
			equal(c, job+": failure", process.Error, policy == middleware.PolicyFail)
			asked := only(trace, "lock")
			if asked == nil {
				c.Fatalf("%s: nobody asked for the lock", job)
			}
			equal(c, job+": the parent of the asking", asked.ParentID, process.SpanID)
			equal(c, job+": its outcome", asked.Attributes[attrLockOutcome], any(outcome))
			equal(c, job+": its failure", asked.Error, outcome == "error")
			for _, sp := range trace { // only the error of an attempt that failed because of the lock may have it
				named := strings.Contains(fmt.Sprintf("%+v", *sp), key)
				equal(c, job+": that the key is in "+sp.Name, named, sp == process && policy == middleware.PolicyFail)
			}
		}
	}
}

// newLocker is lock.New with an optional Config, which must be valid.
func newLocker(rdb lock.Client, c ...lock.Config) *lock.Redis {
	l, err := lock.New(rdb, append(c, lock.Config{})[0])
	if err != nil {
		panic(err)
	}
	return l
}
