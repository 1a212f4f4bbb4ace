package worker_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/worker"
)

// Each job of a call is settled by itself, under its own token: one completes while the call goes on, one fails, one is cancelled by an operator, the others have what the
// function returns.
func TestHandleMany(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(5)
	release, open := r.gate()
	var mu sync.Mutex
	var sizes []int
	tokens := make(map[int64]bool)
	worker.HandleMany(w, func(ctx context.Context, jobs []*worker.Each[task]) error {
		mu.Lock()
		sizes = append(sizes, len(jobs))
		mu.Unlock()
		if _, ok := signalbox.FromContext(ctx); ok {
			t.Error("the context of the call has a job")
		}
		for _, e := range jobs {
			l, ok := lock.FromContext(e.Context())
			if !ok || l.Token() != e.Job.Token {
				t.Errorf("job %d has the lease %v", e.Args.N, l)
				continue
			}
			mu.Lock()
			tokens[l.Token()] = true
			mu.Unlock()
			switch e.Args.N {
			case 0:
				e.Return(nil)
			case 1:
				e.Return(errBoom)
			case 2:
				go func() {
					<-e.Context().Done()
					e.Return(context.Cause(e.Context()))
				}()
			}
		}
		<-release
		return signalbox.Snooze(time.Hour)
	}, worker.UpTo(5, time.Minute), worker.Retry(func(int, error) time.Duration { return time.Hour }))
	r.start(w)
	ids := r.add(make([]signalbox.Job, 5)...)
	r.until("two are settled, three run", func(c looks.Counts) bool { return c.Total.Completed == 1 && c.Running == 3 && c.Due == 1 })
	if _, err := r.queue.Do(context.Background(), store.CancelJobs("not needed"), ids[2:3]); err != nil {
		t.Fatal(err)
	}
	r.until("one is cancelled", func(c looks.Counts) bool { return c.Cancelled == 1 && c.Running == 2 })
	open()
	r.until("all are settled", func(c looks.Counts) bool { return c.Running == 0 && c.Due == 3 })
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(sizes, []int{5}) || len(tokens) != 5 {
		t.Errorf("calls of %v jobs, with %d tokens", sizes, len(tokens))
	}
	if job := r.job(ids[1]); job.LastError != errBoom.Error() || job.Attempt != 2 {
		t.Errorf("the job that failed is %+v", job)
	}
	if job := r.job(ids[3]); job.LastError != "" || job.Attempt != 1 {
		t.Errorf("the job that is put back is %+v", job)
	}
}

// A call has no more jobs than the queue has slots, and doesn't wait for more.
func TestManyOfFewSlots(t *testing.T) {
	t.Parallel()
	for name, bound := range map[string]int{"slots": 0, "the worker's bound": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			cfg := r.config(3)
			cfg.Concurrency = bound
			w := r.workerWith(cfg)
			sizes := make(chan int, 12)
			worker.HandleMany(w, func(_ context.Context, jobs []*worker.Each[task]) error {
				sizes <- len(jobs)
				return nil
			}, worker.UpTo(100, time.Minute))
			r.add(make([]signalbox.Job, 6)...)
			r.start(w)
			r.completed(6)
			want := 3
			if bound > 0 {
				want = bound
			}
			for range 6 / want {
				if n := get(t, sizes, "a call"); n != want {
					t.Errorf("a call has %d jobs, want %d", n, want)
				}
			}
		})
	}
}

// The stack of a job whose call is stuck is that of the function, and not that of a goroutine which waits for it.
func TestStuckCallOfMany(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.workerWith(r.quickly(2))
	begun := make(chan int, 1)
	release, open := r.gate()
	worker.HandleMany(w, func(_ context.Context, jobs []*worker.Each[task]) error {
		begun <- len(jobs)
		stubborn(release, 1)
		return nil
	}, worker.UpTo(2, time.Minute))
	ids := r.add(make([]signalbox.Job, 2)...)
	r.start(w)
	if n := get(t, begun, "the call begins"); n != 2 {
		t.Fatalf("the call has %d jobs, want 2", n)
	}
	if _, err := r.queue.Do(context.Background(), store.CancelJobs("not needed"), ids); err != nil { // what ends a context before its call has begun takes its job out of it
		t.Fatal(err)
	}
	for _, id := range ids {
		redistest.Eventually(t, func() bool { s := r.running()[id].Stuck; return s != nil && s.Stack != "" }, "its stack is in Redis")
		if s := r.running()[id].Stuck; !strings.Contains(s.Stack, "worker_test.stubborn(...)") {
			t.Errorf("the stack is %s", s.Stack)
		}
	}
	open()
	r.until("both are settled", func(c looks.Counts) bool { return c.Running == 0 })
}

// The span of a call is linked with its deliveries' spans, and these with it. What the function does with its context is below it.
func TestTraceOfMany(t *testing.T) {
	t.Parallel()
	r := newTracedRig(t)
	w := r.workerWith(r.config(2))
	worker.HandleMany(w, func(ctx context.Context, jobs []*worker.Each[task]) error {
		_, span := r.tp.Tracer("test").Start(ctx, "insert")
		span.End()
		jobs[0].Return(nil)
		return errBoom
	}, worker.UpTo(2, time.Minute), worker.Retry(func(int, error) time.Duration { return time.Hour }))
	r.add(make([]signalbox.Job, 2)...)
	r.start(w)
	r.until("both are settled", func(c looks.Counts) bool { return c.Total.Completed == 1 && c.Due == 1 })
	r.n("process", 2)
	calls, handles, inserts := r.named("handle many task"), r.named("handle task"), r.named("insert")
	if len(calls) != 1 || len(handles) != 2 || len(inserts) != 1 {
		t.Fatalf("%d spans of calls, %d of handlers, %d of the function", len(calls), len(handles), len(inserts))
	}
	call := calls[0]
	if inserts[0].Parent.SpanID() != call.SpanContext.SpanID() || call.Parent.IsValid() || len(call.Links) != 2 || call.Status.Description == "" {
		t.Errorf("the call's span is %+v", call)
	}
	for _, h := range handles {
		if len(h.Links) != 1 || h.Links[0].SpanContext.SpanID() != call.SpanContext.SpanID() {
			t.Errorf("the handler's span has the links %v", h.Links)
		}
		if !slices.ContainsFunc(call.Links, func(l sdktrace.Link) bool { return l.SpanContext.SpanID() == h.SpanContext.SpanID() }) {
			t.Errorf("the call's span has the links %v", call.Links)
		}
	}
}

// What a programmer got wrong is said at once.
func TestHandleManyPanics(t *testing.T) {
	t.Parallel()
	many := func(context.Context, []*worker.Each[task]) error { return nil }
	one := func(context.Context, *signalbox.Job, task) error { return nil }
	for want, register := range map[string]func(w *worker.Worker){
		"HandleMany of a nil function":               func(w *worker.Worker) { worker.HandleMany[task](w, nil) },
		"UpTo(0, 1s) for kind task; 1 to 10000 jobs": func(w *worker.Worker) { worker.HandleMany(w, many, worker.UpTo(0, time.Second)) },
		"UpTo(10001, 1s) for kind task":              func(w *worker.Worker) { worker.HandleMany(w, many, worker.UpTo(10001, time.Second)) },
		"UpTo(1, 0s) for kind task":                  func(w *worker.Worker) { worker.HandleMany(w, many, worker.UpTo(1, 0)) },
		"more than 0 to 1m0s are allowed":            func(w *worker.Worker) { worker.HandleMany(w, many, worker.UpTo(1, time.Hour)) },
		"UpTo for kind task; it is for HandleMany":   func(w *worker.Worker) { worker.Handle(w, one, worker.UpTo(2, time.Second)) },
		"UpTo for kind raw; it is for HandleMany": func(w *worker.Worker) {
			w.HandleKind("raw", signalbox.HandlerFunc(func(context.Context, *signalbox.Job) error { return nil }), worker.UpTo(2, time.Second))
		},
		"kind task is registered already": func(w *worker.Worker) { worker.Handle(w, one); worker.HandleMany(w, many) },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			w := newRig(t).worker(1)
			defer func() {
				if p, _ := recover().(string); !strings.Contains(p, want) {
					t.Errorf("it panics with %q, want %q", p, want)
				}
			}()
			register(w)
		})
	}
}
