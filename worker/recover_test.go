package worker_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/worker"
)

// die makes a session claim n jobs and end with them.
func (r *rig) die(n int) (session string) {
	r.Helper()
	ctx, lane, session := context.Background(), r.queue.NewLane(), store.NewID()
	if alive, _, err := r.queue.Sessions().Open(ctx, session, time.Minute); err != nil || !alive {
		r.Fatal(alive, err)
	}
	for claimed := 0; claimed < n; {
		lane.Next()
		reply, err := r.queue.Sessions().Claim(ctx, lane, &store.ClaimRequest{Session: session, Want: n - claimed, Suspects: true})
		if err != nil || len(reply.Deliveries) == 0 {
			r.Fatal(len(reply.Deliveries), err)
		}
		claimed += len(reply.Deliveries) // large jobs don't all come in one call
	}
	if _, _, err := r.queue.Sessions().Renew(ctx, session, 0, ""); err != nil {
		r.Fatal(err)
	}
	return session
}

// poison enqueues a job and makes it crash as often as it can without becoming dead.
func (r *rig) poison() (id string) {
	r.Helper()
	id = r.addOne(signalbox.Job{})
	for range store.CrashLimit - 1 {
		if res, err := r.queue.Sessions().Reclaim(r.die(1), false).Next(context.Background()); err != nil || len(res.Returned) != 1 {
			r.Fatal(res, err)
		}
	}
	return id
}

// A worker that takes a job back links that to the span that created the job, as a delivery would.
func TestReclaimModes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		worker  signalbox.TraceMode
		kind    signalbox.TraceMode // of task
		job     signalbox.Job
		header  string
		forTime time.Duration
		parent  bool
		link    bool
	}{
		"by default":       {parent: true},
		"none is young":    {forTime: -1, link: true},
		"worker":           {worker: signalbox.TraceLink, link: true},
		"kind is a child":  {worker: signalbox.TraceLink, kind: signalbox.TraceParent, parent: true},
		"kind has neither": {kind: signalbox.TraceNone},
		"job":              {kind: signalbox.TraceNone, header: "link", link: true},
		"another's kind":   {worker: signalbox.TraceLink, kind: signalbox.TraceNone, job: signalbox.Job{Kind: "other"}, link: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTracedRig(t)
			headers, creator := r.headers()
			if c.header != "" {
				headers[telemetry.ModeHeader] = c.header
			}
			c.job.Headers = headers
			r.addOne(c.job)
			r.die(1)
			cfg := r.config(1)
			cfg.TraceMode, cfg.ParentFor = c.worker, c.forTime
			w := r.workerWith(cfg)
			worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil }, worker.TraceMode(c.kind))
			r.start(w)
			reclaim := r.n("reclaim", 1)[0]
			if parent := reclaim.Parent.SpanID() == creator.SpanID(); parent != c.parent || reclaim.Parent.IsValid() != c.parent {
				t.Errorf("its parent is %v", reclaim.Parent)
			}
			if linksTo(reclaim, creator) != c.link {
				t.Errorf("it links to %v", reclaim.Links)
			}
		})
	}
}

// A reclaims is a hook of a client. It is called for each call that took jobs back, with the time when it was sent and its reply.
type reclaims func(sent time.Time, reply []any)

func (reclaims) DialHook(next redis.DialHook) redis.DialHook { return next }

func (reclaims) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (f reclaims) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		sent := time.Now()
		err := next(ctx, cmd)
		if script, ok := cmd.(*redis.Cmd); ok && len(cmd.Args()) > 3 {
			key, _ := cmd.Args()[3].(string)
			reply, _ := script.Val().([]any)
			if strings.Contains(key, ":inflight:") && len(reply) > 5 && reply[0] == "ok" {
				again, _ := reply[4].([]any)
				dead, _ := reply[5].([]any)
				if len(again)+len(dead) > 0 {
					f(sent, reply)
				}
			}
		}
		return err
	}
}

// The age of a job that is taken back is the difference of two times of the same clock.
func TestReclaimByTheClockOfRedis(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		step, forTime time.Duration
	}{
		"an hour later":                        {time.Hour, 0},
		"an hour back, and nothing is a child": {-time.Hour, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t).Client()
			rdb.AddHook(reclaims(func(_ time.Time, reply []any) {
				now, _ := reply[2].(int64)
				reply[2] = now + c.step.Microseconds()
			}))
			r := newTracedRig(t)
			headers, creator := r.headers()
			r.addOne(signalbox.Job{Headers: headers})
			r.die(1)
			cfg := r.config(1)
			cfg.ParentFor = c.forTime
			w := r.workerOn(rdb, cfg)
			worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
			r.start(w)
			if reclaim := r.n("reclaim", 1)[0]; reclaim.Parent.IsValid() || !linksTo(reclaim, creator) {
				t.Errorf("its parent is %v, and it links to %v", reclaim.Parent, reclaim.Links)
			}
		})
	}
}

// settledAs returns the counts of signalbox.jobs.settled.
func settledAs(t *testing.T, reader *sdkmetric.ManualReader) map[attribute.Set]int64 {
	t.Helper()
	return sums(t, reader, "signalbox.jobs.settled")
}

// sums returns the values of a counter.
func sums(t *testing.T, reader *sdkmetric.ManualReader, name string) map[attribute.Set]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	counts := make(map[attribute.Set]int64)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == name {
				for _, p := range sum.DataPoints {
					counts[p.Attributes] = p.Value
				}
			}
		}
	}
	return counts
}

// If a job dies by a crash, the worker that finds this counts it, with or without traces. Jobs that crashed beside it are counted when
// they end.
func TestDeadByCrashesIsCounted(t *testing.T) {
	t.Parallel()
	for name, traced := range map[string]bool{"measured": false, "measured and traced": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTracedRig(t)
			r.poison()
			r.add(make([]signalbox.Job, 2)...)
			r.die(3)
			reader := sdkmetric.NewManualReader()
			cfg := r.rig.config(3)
			if traced {
				cfg = r.config(3)
			}
			cfg.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
			w := r.workerWith(cfg)
			worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
			run := r.start(w)
			r.until("one is dead", func(c looks.Counts) bool { return c.Dead == 1 })
			r.completed(2)
			run.stop()
			got := settledAs(t, reader)
			for outcome, want := range map[string]int64{"dead": 1, "completed": 2} {
				set := attribute.NewSet(attribute.String("messaging.system", "signalbox"), attribute.String("messaging.destination.name", r.name()),
					attribute.String("signalbox.job.kind", "task"), attribute.String("signalbox.job.outcome", outcome))
				if got[set] != want {
					t.Errorf("%d are %s, want %d: %v", got[set], outcome, want, got)
				}
				delete(got, set)
			}
			if len(got) > 0 {
				t.Errorf("settled as well: %v", got)
			}
		})
	}
}

// The span of taking a job back has the job's outcome. It doesn't count as a failure of the worker that takes it back.
func TestReclaimOutcomes(t *testing.T) {
	t.Parallel()
	r := newTracedRig(t)
	want := map[string]string{r.poison(): "dead", r.addOne(signalbox.Job{}): "returned"}
	r.die(2)
	w := r.workerWith(r.config(2))
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	r.start(w)
	for _, s := range r.n("reclaim", 2) {
		id := value(s, "messaging.message.id").AsString()
		if got := value(s, "signalbox.job.outcome").AsString(); got != want[id] || s.Status.Code != codes.Unset || len(s.Events) > 0 {
			t.Errorf("of job %s: outcome %q, want %q; %v, %v", id, got, want[id], s.Status, s.Events)
		}
		if value(s, "signalbox.job.kind").AsString() != "task" {
			t.Errorf("of job %s: %v", id, s.Attributes)
		}
	}
}

// The span of taking jobs back lasts as long as Redis took for it. Every job has one, however large the jobs are.
func TestReclaimsOfLargeJobs(t *testing.T) {
	t.Parallel()
	const n, fit = 5, 2
	var mu sync.Mutex
	var calls [][2]time.Time
	rdb := redistest.Start(t).Client()
	rdb.AddHook(reclaims(func(sent time.Time, _ []any) {
		mu.Lock()
		calls = append(calls, [2]time.Time{sent, time.Now()})
		mu.Unlock()
	}))
	r := newTracedRig(t)
	want := make(map[string]bool)
	for range n {
		want[r.addOne(signalbox.Job{Payload: payload(map[string]string{"x": strings.Repeat("x", 900<<10)})})] = true
	}
	r.die(n)
	w := r.workerOn(rdb, r.config(n))
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	r.start(w)
	r.completed(n)
	spans := r.n("reclaim", n)
	mu.Lock()
	defer mu.Unlock()
	if len(calls) != (n+fit-1)/fit {
		t.Fatalf("%d calls took %d jobs back, of which %d fit in one", len(calls), n, fit)
	}
	for i, s := range spans {
		call := calls[i/fit]
		if s.StartTime.After(call[0]) || s.EndTime.Before(call[1]) {
			t.Errorf("it lasted from %v to %v, the call from %v to %v", s.StartTime, s.EndTime, call[0], call[1])
		}
		delete(want, value(s, "messaging.message.id").AsString())
	}
	if len(want) > 0 {
		t.Errorf("jobs %v have no reclaim span", want)
	}
}

// A delivery is lost before its span reached Redis. The span of taking it back, and the next attempt, don't link to the span of an
// earlier attempt by mistake.
func TestReclaimOfAnUnheardAttempt(t *testing.T) {
	t.Parallel()
	r := newTracedRig(t)
	r.addOne(signalbox.Job{})
	ctx, lane, session := context.Background(), r.queue.NewLane(), store.NewID()
	if alive, _, err := r.queue.Sessions().Open(ctx, session, time.Minute); err != nil || !alive {
		t.Fatal(alive, err)
	}
	lane.Next()
	reply, err := r.queue.Sessions().Claim(ctx, lane, &store.ClaimRequest{Session: session, Want: 1})
	if err != nil || len(reply.Deliveries) != 1 {
		t.Fatal(reply, err)
	}
	first := reply.Deliveries[0].Job
	_, span := r.tp.Tracer("test").Start(ctx, "the first attempt")
	span.End()
	lane.Next()
	if _, err := r.queue.Sessions().Claim(ctx, lane, &store.ClaimRequest{Session: session, Settle: []store.Settlement{
		{ID: first.ID, Token: first.Token, Outcome: store.Retry, Span: telemetry.FormatSpan(span.SpanContext())},
	}}); err != nil {
		t.Fatal(err)
	}
	r.until("it is due", func(c looks.Counts) bool { return c.Due == 1 || c.Ready == 1 })
	r.die(1)
	w := r.workerWith(r.config(1))
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	r.start(w)
	for _, s := range []tracetest.SpanStub{r.n("reclaim", 1)[0], r.n("process", 1)[0]} {
		if len(s.Links) > 0 {
			t.Errorf("%s links to %v", s.Name, s.Links)
		}
	}
}

// The log record of a job that died by crashes identifies the last delivery. It can be found from the reclaim span.
func TestDeadByCrashesIsLogged(t *testing.T) {
	t.Parallel()
	const message = "a job is dead: its worker died too often"
	for name, c := range map[string]struct{ traced, broken bool }{
		"traced":         {traced: true},
		"not traced":     {},
		"can't be read":  {traced: true, broken: true},
		"and not traced": {broken: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTracedRig(t)
			id := r.poison()
			if c.broken {
				r.put(id, r.record(id)[:20]+"\xff")
			}
			token := r.rdb.HGet(t.Context(), r.key("inflight:"+r.die(1)), id).Val()
			cfg := r.rig.config(1)
			if c.traced {
				cfg = r.config(1)
			}
			w := r.workerWith(cfg)
			worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
			r.start(w)
			r.until("it is dead, and told", func(looks.Counts) bool { return r.log.count(message) == 1 })
			has := func(want bool, part string) {
				if got := r.log.count("ERROR", message, part) == 1; got != want {
					t.Errorf("the record has %q: %t, want %t", part, got, want)
				}
			}
			has(true, "job="+id+" ")
			has(true, "token="+strings.TrimSuffix(token, " s4"))
			has(!c.broken, " kind=task attempt=1")
			has(!c.broken, " kind=")
			has(c.traced, " trace_id=")
			if c.traced {
				span := r.n("reclaim", 1)[0].SpanContext
				has(true, " trace_id="+span.TraceID().String())
				has(true, " span_id="+span.SpanID().String())
			}
		})
	}
}

// Every third reply is lost, and calls go on: a dead worker's jobs run again soon.
func TestLostRepliesDontKeepDeadJobs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add(make([]signalbox.Job, 3)...)
	r.die(3)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	for i := range 500 {
		for _, call := range []func([]string) bool{r.isClaim(), r.isRenew()} {
			proxy.CutReply(call, 2*i+1) // those that an earlier rule has cut don't count
		}
	}
	w := r.workerOn(proxy.ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries = -1 }), r.lease(5, 3*time.Second))
	dead := make(chan string, 10)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		if job.Crashes > 0 {
			dead <- job.ID
		}
		return nil
	})
	r.start(w)
	ctx, end := context.WithCancel(context.Background())
	var busy sync.WaitGroup
	busy.Go(func() {
		for ctx.Err() == nil {
			r.addOne(signalbox.Job{})
			<-time.After(50 * time.Millisecond)
		}
	})
	defer busy.Wait()
	defer end()
	for range 3 {
		get(t, dead, "a dead worker's job runs again")
	}
}
