package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/examples/more/tracing/internal/jaeger"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

var traceModes = []signalbox.TraceMode{signalbox.TraceAuto, signalbox.TraceParent, signalbox.TraceLink, signalbox.TraceNone}

// modes returns the checks of how deliveries are connected with the span that created their job.
func modes(j *jaeger.Server, r *testRedis) []check {
	all := []check{
		{"the age that a parent may have", func(c *checker) { checkAge(c, j, r) }},
	}
	for _, m := range traceModes {
		all = append(all,
			check{"the modes of kinds and jobs, the worker's is " + m.String(), func(c *checker) { checkModes(c, j, r, m) }},
			check{"the connection of a reclaim, the worker's mode is " + m.String(), func(c *checker) { checkReclaim(c, j, r, m) }})
	}
	return all
}

// A choice has the modes that apply to a delivery.
type choice struct {
	worker, kind, job signalbox.TraceMode
	bulk              bool
}

func (ch choice) String() string {
	together := "alone"
	if ch.bulk {
		together = "bulk"
	}
	return fmt.Sprintf("%s-%s-%s-%s", ch.worker, ch.kind, ch.job, together)
}

// result returns the mode that docs/tracing.md states for a job that was enqueued just now.
func (ch choice) result() signalbox.TraceMode {
	if ch.bulk && ch.job != signalbox.TraceNone {
		return signalbox.TraceLink
	}
	for _, narrowest := range []signalbox.TraceMode{ch.job, ch.kind, ch.worker} {
		if narrowest != signalbox.TraceAuto {
			return narrowest
		}
	}
	return signalbox.TraceParent
}

// checkModes has a job for each combination of modes, alone and in a bulk.
func checkModes(c *checker, j *jaeger.Server, r *testRedis, of signalbox.TraceMode) {
	g := newRig(c, j, r)
	var choices []choice
	var bulk []scheduler.Item
	for _, kind := range traceModes {
		for _, job := range traceModes {
			alone, together := choice{of, kind, job, false}, choice{of, kind, job, true}
			choices = append(choices, alone, together)
			g.enqueue(kind.String(), alone.String(), scheduler.TraceMode(job))
			bulk = append(bulk, scheduler.Item{
				Args:    plain{kind.String(), canary},
				Options: []scheduler.EnqueueOption{scheduler.ID(together.String()), scheduler.TraceMode(job)},
			})
		}
	}
	g.request(func(ctx context.Context) error {
		_, err := g.jobs.EnqueueMany(ctx, bulk, scheduler.Queue(g.queue))
		return err
	})
	g.work(r.rdb, worker.Config{TraceMode: of}, func(w *worker.Worker) {
		for _, kind := range traceModes {
			w.HandleKind(kind.String(), signalbox.HandlerFunc(nothing), worker.TraceMode(kind))
		}
	})
	traces := g.traces(len(choices))
	for _, ch := range choices {
		created, request := "enqueue", "enqueue request"
		if ch.bulk {
			created, request = "create", strings.Repeat("create ", len(bulk))+request
		}
		creation, process := traces.one(created, ch.String()), traces.one("process", ch.String())
		checkConnected(c, ch.String(), process, creation, ch.result())
		if ch.result() == signalbox.TraceParent {
			equal(c, ch.String()+": the trace", ops(traces.byTrace[creation.TraceID]), wholeJob)
			continue
		}
		equal(c, ch.String()+": the creation's trace", ops(traces.byTrace[creation.TraceID]), request)
		equal(c, ch.String()+": the delivery's trace", ops(traces.byTrace[process.TraceID]), "ack handle process")
	}
}

func nothing(context.Context, *signalbox.Job) error { return nil }

// checkConnected checks the connection of a span with the creation of its job. The span must have no
// other links except the given ones.
func checkConnected(c *checker, what string, sp, creation *jaeger.Span, mode signalbox.TraceMode, links ...jaeger.Link) {
	c.Helper()
	parent := ""
	switch mode {
	case signalbox.TraceParent:
		parent = creation.SpanID
	case signalbox.TraceLink:
		links = append(links, creation.Link())
	}
	equal(c, what+": the parent", sp.ParentID, parent)
	equal(c, what+": that it is in the trace of its creation", sp.TraceID == creation.TraceID, mode == signalbox.TraceParent)
	missing := slices.ContainsFunc(links, func(l jaeger.Link) bool { return !slices.Contains(sp.Links, l) })
	c.that(!missing && len(sp.Links) == len(links), "%s: it links to %v, want %v", what, sp.Links, links)
}

// checkAge has ages other than the default, which checkOld tests.
func checkAge(c *checker, j *jaeger.Server, r *testRedis) {
	for _, a := range []struct {
		age, parentFor time.Duration
		mode, want     signalbox.TraceMode
	}{
		{0, time.Minute, signalbox.TraceAuto, signalbox.TraceParent},
		{2 * time.Minute, time.Minute, signalbox.TraceAuto, signalbox.TraceLink},
		{16 * time.Minute, time.Hour, signalbox.TraceAuto, signalbox.TraceParent},
		{0, -1, signalbox.TraceAuto, signalbox.TraceLink},
		{2 * time.Minute, time.Minute, signalbox.TraceParent, signalbox.TraceParent},
	} {
		g := newRig(c, j, r)
		g.enqueue("plain", "one")
		r.age(c, g.queue, "one", a.age)
		g.work(r.rdb, worker.Config{TraceMode: a.mode, ParentFor: a.parentFor}, func(w *worker.Worker) {
			w.HandleKind("plain", signalbox.HandlerFunc(nothing))
		})
		traces := g.traces(1)
		what := fmt.Sprintf("%v old, %v allowed, mode %v", a.age, a.parentFor, a.mode)
		checkConnected(c, what, traces.one("process", "one"), traces.one("enqueue", "one"), a.want)
	}
}

// checkReclaim makes a session expire in Redis, as if its worker were paused. Then another worker,
// which also has the given trace mode, takes the job over.
func checkReclaim(c *checker, j *jaeger.Server, r *testRedis, mode signalbox.TraceMode) {
	g := newRig(c, j, r)
	key := func(kind string) string { return "signalbox:{default:" + g.queue + "}:" + kind }
	taken := make(chan struct{})
	work := func() {
		g.work(r.rdb, worker.Config{TraceMode: mode}, func(w *worker.Worker) {
			w.HandleKind("plain", signalbox.HandlerFunc(func(_ context.Context, job *signalbox.Job) error {
				if job.Crashes > 0 {
					close(taken)
					return nil
				}
				select { // until another worker has the job, this delivery can complete it
				case <-taken:
				case <-g.ctx.Done():
				}
				return nil
			}))
		})
	}
	g.enqueue("plain", "lost")
	work()
	redistest.Eventually(c, func() bool { return r.rdb.HLen(c.Context(), key("notes")).Val() == 1 }, "Redis knows the attempt's span")
	for _, session := range r.rdb.ZRange(c.Context(), key("sessions"), 0, -1).Val() {
		r.rdb.ZAdd(c.Context(), key("sessions"), redis.Z{Score: 1, Member: session})
	}
	work()
	traces := g.traces(2)
	creation, reclaim := traces.one("enqueue", "lost"), traces.one("reclaim", "lost")
	attempts := traces.of("process", "lost")
	equal(c, "attempts", len(attempts), 2)
	want := choice{worker: mode}.result()
	checkConnected(c, "the lost attempt", attempts[0], creation, want)
	checkConnected(c, "reclaim", reclaim, creation, want, attempts[0].Link())
	checkConnected(c, "the next attempt", attempts[1], creation, want, attempts[0].Link())
}
