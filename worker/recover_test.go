package worker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/worker"
)

// die has a session claim n jobs and come to its end with them.
func (r *rig) die(n int) (session string) {
	r.Helper()
	ctx, lane, session := context.Background(), r.queue.NewLane(), store.NewID()
	if alive, _, err := r.queue.Open(ctx, session, time.Minute); err != nil || !alive {
		r.Fatal(alive, err)
	}
	lane.Next()
	reply, err := r.queue.Claim(ctx, lane, &store.ClaimRequest{Session: session, Want: n, Suspects: true})
	if err != nil || len(reply.Deliveries) != n {
		r.Fatal(reply, err)
	}
	if _, _, err := r.queue.Renew(ctx, session, 0); err != nil {
		r.Fatal(err)
	}
	return session
}

// poison puts a job in and has it crash as often as it can without being dead.
func (r *rig) poison() (id string) {
	r.Helper()
	id = r.addOne(signalbox.Job{})
	for range store.CrashLimit - 1 {
		if res, err := r.queue.Reclaim(context.Background(), r.die(1), false); err != nil || len(res.Returned) != 1 {
			r.Fatal(res, err)
		}
	}
	return id
}

// Who takes a job back connects that with what created the job as a delivery here would be.
func TestReclaimModes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		worker  signalbox.TraceMode
		kind    *signalbox.TraceMode // of task
		job     signalbox.Job
		header  string
		forTime time.Duration
		parent  bool
		link    bool
	}{
		"by default":       {parent: true},
		"none is young":    {forTime: -1, link: true},
		"worker":           {worker: signalbox.TraceLink, link: true},
		"kind is a child":  {worker: signalbox.TraceLink, kind: ptr(signalbox.TraceParent), parent: true},
		"kind has neither": {kind: ptr(signalbox.TraceNone)},
		"job":              {kind: ptr(signalbox.TraceNone), header: "link", link: true},
		"another's kind":   {worker: signalbox.TraceLink, kind: ptr(signalbox.TraceNone), job: signalbox.Job{Kind: "other"}, link: true},
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
			var opts []worker.Option
			if c.kind != nil {
				opts = append(opts, worker.TraceMode(*c.kind))
			}
			worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil }, opts...)
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

// An ahead is a client whose server's clock goes ahead of ours by so much, as far as reclaim.lua
// tells the time.
type ahead struct {
	redis.Hook
	by time.Duration
}

func (a ahead) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a ahead) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (a ahead) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if script, ok := cmd.(*redis.Cmd); ok && len(cmd.Args()) > 3 {
			key, _ := cmd.Args()[3].(string)
			reply, _ := script.Val().([]any)
			if strings.Contains(key, ":inflight:") && len(reply) > 2 && reply[0] == "ok" {
				if now, ok := reply[2].(int64); ok {
					reply[2] = now + a.by.Microseconds()
				}
			}
		}
		return err
	}
}

// How old a job is when it is taken back is between two times of one clock.
func TestReclaimByTheClockOfRedis(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	rdb.AddHook(ahead{by: time.Hour})
	r := newTracedRig(t)
	headers, creator := r.headers()
	r.addOne(signalbox.Job{Headers: headers})
	r.die(1)
	w := r.workerOn(rdb, r.config(1))
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	r.start(w)
	if reclaim := r.n("reclaim", 1)[0]; reclaim.Parent.IsValid() || !linksTo(reclaim, creator) {
		t.Errorf("an hour later its parent is %v, and it links to %v", reclaim.Parent, reclaim.Links)
	}
}

// settledAs are the counts of signalbox.jobs.settled.
func settledAs(t *testing.T, reader *sdkmetric.ManualReader) map[attribute.Set]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	counts := make(map[attribute.Set]int64)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "signalbox.jobs.settled" {
				for _, p := range sum.DataPoints {
					counts[p.Attributes] = p.Value
				}
			}
		}
	}
	return counts
}

// A job that dies by a crash is counted by who finds it so, traced or not; those that crashed
// beside it are counted when they end.
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
			r.until("one is dead", func(c store.Counts) bool { return c.Dead == 1 })
			r.completed(2)
			run.stop()
			got := settledAs(t, reader)
			for outcome, want := range map[string]int64{"dead": 1, "completed": 2} {
				set := attribute.NewSet(attribute.String("messaging.system", "signalbox"), attribute.String("messaging.destination.name", r.name()),
					telemetry.JobKind.String("task"), telemetry.JobOutcome.String(outcome))
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

// The span of taking a job back says what became of the job. It is no failure of who does it.
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
		if got := value(s, telemetry.JobOutcome).AsString(); got != want[id] || s.Status.Code != codes.Unset || len(s.Events) > 0 {
			t.Errorf("of job %s: outcome %q, want %q; %v, %v", id, got, want[id], s.Status, s.Events)
		}
		if value(s, telemetry.JobKind).AsString() != "task" {
			t.Errorf("of job %s: %v", id, s.Attributes)
		}
	}
}
