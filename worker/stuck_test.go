package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/worker"
)

// quickly is config for handlers that are to be stuck soon.
func (r *rig) quickly(slots int) worker.Config {
	cfg := r.config(slots)
	cfg.StuckAfter = 100 * time.Millisecond
	return cfg
}

// running returns what the only worker runs, by job ID. Other tests may spoil their queues on the same server meanwhile.
func (r *rig) running() map[string]inspect.RunningJob {
	r.Helper()
	all, err := r.inspector().Workers(context.Background())
	if err != nil && strings.Contains(err.Error(), r.name()) {
		r.Fatal(err)
	}
	jobs := make(map[string]inspect.RunningJob)
	for _, w := range all {
		for _, job := range w.Running {
			if job.Queue == r.name() {
				jobs[job.ID] = job
			}
		}
	}
	return jobs
}

// stubborn ignores its context. Its name stands in its stack.
func stubborn(release <-chan struct{}, secret int) { <-release; runtime.KeepAlive(secret) }

// A handler that goes on after its timeout is in the log and in package inspect, with its stack, until it returns.
func TestStuckHandlerIsReported(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := r.quickly(1)
	cfg.SessionTTL = time.Hour // no renewal helps
	w := r.workerWith(cfg)
	release, open := r.gate()
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
		stubborn(release, 0xbadbeef)
		return nil
	}, worker.Timeout(time.Millisecond))
	r.start(w)
	begin := r.rdb.Time(context.Background()).Val()
	id := r.addOne(signalbox.Job{Payload: payload(map[string]any{"n": 1, "note": "confidential"})})
	redistest.Eventually(t, func() bool { s := r.running()[id].Stuck; return s != nil && s.Stack != "" }, "its stack is in Redis")
	s := r.running()[id].Stuck
	if !strings.Contains(s.Stack, "worker_test.stubborn(...)") || strings.Contains(s.Stack, "badbeef") || len(s.Stack) > 2048 {
		t.Errorf("the stack is %s", s.Stack)
	}
	if now := r.rdb.Time(context.Background()).Val(); s.Since.Before(begin) || s.Since.After(now) || s.SlotFreed {
		t.Errorf("%+v, between %v and %v", s, begin, now)
	}
	r.log.says(t, "handlers ignore that their context has ended", `kinds=map\[task:1\]`, "job="+id, `longest=\d+(\.\d+)?m?s`, "freed=0")
	if r.log.count("worker_test.stubborn(...)") != 1 || r.log.count("confidential") != 0 {
		t.Errorf("the log says %s", r.log)
	}
	open()
	r.completed(1)
	redistest.Eventually(t, func() bool {
		keys, err := r.rdb.Keys(context.Background(), r.key("stuck")+"*").Result()
		return err == nil && len(keys) == 0
	}, "Redis knows of no stuck handler")
}

// Whatever ends a handler's context: the handler is stuck that goes on.
func TestWhatEndsAContext(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(r *rig, cfg *worker.Config) (opts []worker.Option, begun func(run *run, id string)){
		"its timeout": func(*rig, *worker.Config) ([]worker.Option, func(*run, string)) {
			return []worker.Option{worker.Timeout(time.Millisecond)}, nil
		},
		"middleware": func(*rig, *worker.Config) ([]worker.Option, func(*run, string)) {
			return []worker.Option{worker.With(func(next signalbox.Handler) signalbox.Handler {
				return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
					ctx, cancel := context.WithCancel(ctx)
					cancel()
					return next.Handle(ctx, job)
				})
			})}, nil
		},
		"a cancel": func(r *rig, _ *worker.Config) ([]worker.Option, func(*run, string)) {
			return nil, func(_ *run, id string) {
				if _, err := r.inspector().Do(context.Background(), r.name(), id, inspect.Cancel{}); err != nil {
					r.Error(err)
				}
			}
		},
		"a shutdown": func(_ *rig, cfg *worker.Config) ([]worker.Option, func(*run, string)) {
			cfg.DrainTimeout = -1
			return nil, func(run *run, _ string) { run.cancel() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			cfg := r.quickly(1)
			opts, begun := end(r, &cfg)
			w := r.workerWith(cfg)
			running := make(chan struct{}, 10)
			release, open := r.gate()
			worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
				running <- struct{}{}
				<-release
				return nil
			}, opts...)
			run := r.start(w)
			id := r.addOne(signalbox.Job{})
			get(t, running, "it runs")
			if begun != nil {
				begun(run, id)
			}
			redistest.Eventually(t, func() bool { return r.running()[id].Stuck != nil }, "it is reported")
			open()
			r.until("it is settled", func(c looks.Counts) bool { return c.Running == 0 })
		})
	}
}

// A stuck handler keeps its slot, unless the worker or its kind says otherwise.
func TestSlotOfAStuckHandler(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		worker worker.StuckPolicy
		kind   []worker.Option
		free   bool
	}{
		"kept":              {worker.KeepSlot, nil, false},
		"freed":             {worker.FreeSlot, nil, true},
		"freed by its kind": {worker.KeepSlot, []worker.Option{worker.WhenStuck(worker.FreeSlot)}, true},
		"kept for its kind": {worker.FreeSlot, []worker.Option{worker.WhenStuck(worker.KeepSlot)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			cfg := r.short(1) // so that the lease of the stuck one would end
			cfg.Concurrency = 1
			cfg.StuckAfter, cfg.WhenStuck = 100*time.Millisecond, tc.worker
			w := r.workerWith(cfg)
			release, open := r.gate()
			var runs atomic.Int32
			worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
				runs.Add(1)
				<-release
				return nil
			}, append(tc.kind, worker.Timeout(time.Millisecond))...)
			ran := make(chan struct{}, 10)
			w.HandleKind("other", signalbox.HandlerFunc(func(context.Context, *signalbox.Job) error { ran <- struct{}{}; return nil }))
			r.start(w)
			id := r.addOne(signalbox.Job{})
			redistest.Eventually(t, func() bool { s := r.running()[id].Stuck; return s != nil && s.SlotFreed == tc.free }, "it is reported")
			wait := r.renewals()
			others := 0
			for range 3 {
				others++
				r.addOne(signalbox.Job{Kind: "other"})
				if tc.free {
					get(t, ran, "another job runs in its place")
				}
			}
			wait()
			if _, is := r.running()[id]; !is || runs.Load() != 1 {
				t.Errorf("it ran %d times, and its job is its own: %v", runs.Load(), is)
			}
			if !tc.free && len(ran) > 0 {
				t.Error("another job ran beside it")
			}
			open()
			r.completed(1 + others)
			if n := runs.Load(); n != 1 {
				t.Errorf("it ran %d times", n)
			}
		})
	}
}

// At most as many handlers go on beside their slots as there are slots. When they return, all is as before.
func TestFreedSlotsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const slots, n = 2, 7
	cfg := r.quickly(slots)
	cfg.WhenStuck = worker.FreeSlot
	w := r.workerWith(cfg)
	release, open := r.gate()
	var running, most atomic.Int32
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		defer running.Add(-1)
		for n := running.Add(1); n > most.Load(); {
			most.Store(n)
		}
		<-release
		if strings.HasPrefix(job.ID, "goexit") {
			runtime.Goexit()
		}
		return nil
	}, worker.Timeout(time.Millisecond), worker.Retry(worker.Constant(time.Millisecond)))
	r.start(w)
	for i := range n {
		id := fmt.Sprint("job", i)
		if i == 0 {
			id = "goexit"
		}
		r.addOne(signalbox.Job{ID: id, MaxAttempts: 1})
	}
	redistest.Eventually(t, func() bool { return running.Load() == 2*slots && r.log.count("handlers ignore") > 0 }, "twice as many as slots run")
	redistest.Eventually(t, func() bool {
		stuck := 0
		for _, job := range r.running() {
			if job.Stuck != nil {
				stuck++
			}
		}
		return stuck == 2*slots
	}, "all are stuck")
	open()
	r.until("all jobs have ended", func(c looks.Counts) bool { return c.Total.Completed == n-1 && c.Dead == 1 && c.Running == 0 })
	if got := most.Load(); got != 2*slots {
		t.Errorf("up to %d ran, want %d", got, 2*slots)
	}
	redistest.Eventually(t, func() bool { return len(w.Health().Problems) == 0 }, "it is well")
}

// A profile says of which queue and kind a handler is, also in goroutines that it starts. After it the goroutine has no labels.
func TestProfilerLabels(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(1)
	seen := make(chan string, 1)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
		done := make(chan struct{})
		go func() {
			defer close(done)
			var b bytes.Buffer
			_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
			seen <- b.String()
		}()
		<-done
		return nil
	})
	r.start(w)
	r.addOne(signalbox.Job{})
	labels := fmt.Sprintf(`# labels: {"kind":"task", "queue":"%s"}`, r.name())
	if profile := get(t, seen, "a profile"); strings.Count(profile, labels) < 2 {
		t.Errorf("no %s twice in %s", labels, profile)
	}
	r.completed(1)
	redistest.Eventually(t, func() bool {
		var b bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
		return !strings.Contains(b.String(), labels)
	}, "the labels are gone")
}
