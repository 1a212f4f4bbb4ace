package worker_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// A report is a callback of a batch.
type report struct {
	What string `json:"what"`
}

func (report) Kind() string { return "report" }

// reports collects the callbacks that run.
type reports struct {
	mu   sync.Mutex
	what []string
}

func (r *reports) handle(w *worker.Worker) {
	worker.Handle(w, func(_ context.Context, _ *signalbox.Job, in report) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.what = append(r.what, in.What)
		return nil
	})
}

func (r *reports) sorted() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(slices.Values(r.what))
}

func callbacks() []scheduler.BatchOption {
	return []scheduler.BatchOption{scheduler.OnSuccess(report{"success"}), scheduler.OnEnd(report{"end"}), scheduler.OnFailure(report{"failure"})}
}

// Members add to their batch while they run, and again when they run again: each job is added once, and the callbacks wait for all.
func TestBatchGrowsFromInside(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(4)
	var ran, members atomic.Int64
	var got reports
	got.handle(w)
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, in task) error {
		b, ok := scheduler.BatchOf(ctx)
		if !ok || b.ID() != "grows" || b.Ref() != (scheduler.Ref{Namespace: r.queue.Namespace(), Queue: r.queue.Name(), ID: "grows"}) || b.Queue() != r.queue.Name() {
			t.Errorf("job %s is of batch %v", job.ID, b)
		}
		if err := b.Seal(ctx); !errors.Is(err, signalbox.ErrInvalid) {
			t.Errorf("a member seals its batch: %v", err)
		}
		for n := range 3 {
			res, err := b.Add(ctx, sequel{Of: job.ID, N: n})
			if err != nil {
				return signalbox.Dead(err)
			}
			if first := ran.Load() == 0; res.New != first {
				t.Errorf("delivery %d: %+v", job.Attempt, res)
			}
		}
		if ran.Add(1) < 3 {
			return errBoom
		}
		return nil
	}, worker.Retry(worker.Constant(0)))
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ sequel) error {
		if _, ok := scheduler.BatchOf(ctx); !ok {
			t.Error("what a member adds is of no batch")
		}
		members.Add(1)
		return nil
	})
	r.batchOfOne(append(callbacks(), scheduler.FlowID("grows"))...)
	run := r.start(w)
	redistest.Eventually(t, func() bool { return len(got.sorted()) == 2 }, "the callbacks run")
	run.stop()
	if want := []string{"end", "success"}; !slices.Equal(got.sorted(), want) || members.Load() != 3 {
		t.Errorf("%v ran, and %d members", got.sorted(), members.Load())
	}
}

// A batch that lasts too long is cancelled by a worker, though its queue is paused and its members wait for retries. Its end runs then.
func TestBatchTimesOut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(2)
	var got reports
	got.handle(w)
	var began atomic.Int64
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		began.Add(1)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	unsealed, err := r.scheduler().Batch(context.Background(), r.name(), scheduler.SealWithin(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.scheduler().Batch(context.Background(), r.name(), append(callbacks(), scheduler.FlowTimeout(time.Millisecond))...)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 10 {
		opts := []scheduler.EnqueueOption{}
		if n > 4 {
			opts = append(opts, scheduler.After(time.Hour))
		}
		if _, err := b.Add(context.Background(), task{}, opts...); err != nil {
			t.Fatal(err)
		}
	}
	run := r.start(w)
	redistest.Eventually(t, func() bool { return len(got.sorted()) == 1 }, "the end runs")
	run.stop()
	if want := []string{"end"}; !slices.Equal(got.sorted(), want) {
		t.Errorf("%v ran", got.sorted())
	}
	if r.log.count("WARN signalbox: a batch is cancelled, since its FlowTimeout is over batch="+b.ID()) != 1 || r.log.count("since nobody has sealed it in time", "batch="+unsealed.ID()) != 1 {
		t.Errorf("the log says %v", r.log)
	}
	f, found, err := r.queue.Flows().Get(context.Background(), b.ID())
	if err != nil || !found || !f.Over || !f.Cancelled || f.Total != 10 || f.Gone != 10 {
		t.Errorf("%+v, %v, %v", f, found, err)
	}
}

// The first member that is dead cancels the batch: one that waits is not run, one that runs is asked to end, and the callbacks of the failure and of the end run.
func TestBatchFailsFast(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(2)
	var got reports
	got.handle(w)
	unsealed, err := r.scheduler().Batch(context.Background(), r.name(), scheduler.SealWithin(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	running, looked := make(chan struct{}), make(chan struct{})
	var once sync.Once
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		once.Do(func() { close(running) })
		<-ctx.Done()
		return context.Cause(ctx)
	})
	worker.Handle(w, func(_ context.Context, _ *signalbox.Job, in sequel) error {
		if in.N > 0 {
			t.Error("a member ran that waited")
		}
		<-running
		<-looked
		return signalbox.Dead(errBoom)
	})
	b, err := r.scheduler().Batch(context.Background(), r.name(), append(callbacks(), scheduler.FailFast())...)
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []signalbox.Args{task{}, sequel{N: 0}} {
		if _, err := b.Add(context.Background(), in); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Add(context.Background(), sequel{N: 1}, scheduler.After(time.Hour)); err != nil {
		t.Fatal(err)
	}
	run := r.start(w)
	redistest.Eventually(t, func() bool { return r.log.count("since nobody has sealed it in time", "batch="+unsealed.ID()) == 1 }, "the worker has looked at the batches, as it does each minute")
	close(looked) // the next look is a minute later, but for news
	redistest.Eventually(t, func() bool { return len(got.sorted()) == 2 }, "the callbacks run")
	run.stop()
	if want := []string{"end", "failure"}; !slices.Equal(got.sorted(), want) {
		t.Errorf("%v ran", got.sorted())
	}
	f, found, err := r.queue.Flows().Get(context.Background(), b.ID())
	if err != nil || !found || !f.Over || !f.Cancelled || !f.Failed || f.Dead != 1 || f.Gone != 2 {
		t.Errorf("%+v, %v, %v", f, found, err)
	}
	if _, err := b.Add(context.Background(), task{}); !errors.Is(err, scheduler.ErrBatchOver) {
		t.Errorf("the batch was cancelled, and gets more: %v", err)
	}
}

// batchOfOne makes a batch with one task, and seals it.
func (r *rig) batchOfOne(opts ...scheduler.BatchOption) {
	r.Helper()
	b, err := r.scheduler().Batch(context.Background(), r.name(), opts...)
	if err != nil {
		r.Fatal(err)
	}
	if _, err := b.Add(context.Background(), task{}); err != nil {
		r.Fatal(err)
	}
	if err := b.Seal(context.Background()); err != nil {
		r.Fatal(err)
	}
}

// scheduler returns a scheduler on the rig's Redis.
func (r *rig) scheduler() *scheduler.Scheduler {
	r.Helper()
	s, err := scheduler.New(r.rdb, scheduler.Config{})
	if err != nil {
		r.Fatal(err)
	}
	return s
}

// A chain of members, each of which adds the next one, may be of any length.
func TestBatchOfALongChain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(2)
	var got reports
	got.handle(w)
	var pages atomic.Int64
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		b, _ := scheduler.BatchOf(ctx)
		if pages.Add(1) == 250 {
			return nil
		}
		if _, err := b.Add(ctx, task{}); err != nil {
			return signalbox.Dead(err)
		}
		return nil
	})
	r.batchOfOne(scheduler.OnEnd(report{"end"}))
	run := r.start(w)
	redistest.Eventually(t, func() bool { return len(got.sorted()) == 1 }, "the end runs")
	run.stop()
	if n := pages.Load(); n != 250 {
		t.Errorf("%d members ran, want 250", n)
	}
}

// flowLooks counts how often a worker looks after batches.
type flowLooks struct {
	key string
	n   atomic.Int64
}

func (l *flowLooks) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *flowLooks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l *flowLooks) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) == 2 && args[0] == "exists" && args[1] == l.key {
			l.n.Add(1)
		}
		return next(ctx, cmd)
	}
}

// A worker looks after all batches whose time has come at once, however many there are.
func TestManyBatchesWhoseTimeHasCome(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for range 400 {
		if _, err := r.scheduler().Batch(context.Background(), r.name(), scheduler.SealWithin(time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	rdb := redistest.Start(t).Client()
	seen := &flowLooks{key: r.key("flows")}
	rdb.AddHook(seen)
	w := r.workerOn(rdb, r.config(1))
	new(reports).handle(w)
	run := r.start(w)
	redistest.Eventually(t, func() bool { return r.log.count("since nobody has sealed it in time") == 400 }, "all are cancelled")
	run.stop()
	if n := seen.n.Load(); n > 10 {
		t.Errorf("the worker looked %d times", n)
	}
}
