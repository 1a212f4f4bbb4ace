package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/middleware"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// card is in a job's arguments. So it must not be in a span.
const card = "4929 1234 5678 9012"

// The arguments of the jobs.
type (
	order      struct{ Item, Card string }
	payment    struct{ Cents int }
	report     struct{ Month string }
	newsletter struct{ To string }
	reminder   struct{ NotBefore time.Time }
	refund     struct{ Cents int }
	export     struct{ Steps int }
	stock      struct{ Shelf string }
)

func (order) Kind() string      { return "order.confirm" }
func (payment) Kind() string    { return "payment.charge" }
func (report) Kind() string     { return "report.build" }
func (newsletter) Kind() string { return "newsletter.send" }
func (reminder) Kind() string   { return "reminder.send" }
func (refund) Kind() string     { return "refund.pay" }
func (export) Kind() string     { return "export.build" }
func (stock) Kind() string      { return "stock.count" }

const (
	sessionTTL = 2 * time.Second // after this time a dead worker's jobs run elsewhere
	buildTime  = 500 * time.Millisecond
	notYet     = 1500 * time.Millisecond // long enough that its first delivery comes too early, however slow the machine
	stepTime   = 100 * time.Millisecond
)

// A service enqueues one or more jobs for each request.
type service struct {
	jobs  *scheduler.Scheduler
	queue string
}

// accepted is the reply of the service.
type accepted struct {
	Jobs  []string `json:"jobs"`
	Trace string   `json:"trace"`
}

func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	for path, args := range map[string]func() []signalbox.Args{
		"/orders":   func() []signalbox.Args { return []signalbox.Args{order{"a lamp", card}} },
		"/payments": func() []signalbox.Args { return []signalbox.Args{payment{1999}} },
		"/reports":  func() []signalbox.Args { return []signalbox.Args{report{"2026-11"}} },
		"/newsletters": func() []signalbox.Args {
			return []signalbox.Args{newsletter{"ann@example.com"}, newsletter{"bob@example.com"}, newsletter{"cem@example.com"}}
		},
		"/reminders": func() []signalbox.Args { return []signalbox.Args{reminder{time.Now().Add(notYet)}} },
		"/refunds":   func() []signalbox.Args { return []signalbox.Args{refund{1999}} },
		"/exports":   func() []signalbox.Args { return []signalbox.Args{export{600}} },
	} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) { s.enqueue(w, r, args()) })
	}
	return mux
}

// enqueue runs in a span of the service, as otelhttp would make it. So the job is in the same
// trace.
func (s *service) enqueue(w http.ResponseWriter, r *http.Request, args []signalbox.Args) {
	ctx, span := tracer.Start(r.Context(), r.Method+" "+r.URL.Path, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(semconv.HTTPRequestMethodKey.String(r.Method), semconv.HTTPRoute(r.URL.Path)))
	defer span.End()
	ids, err := s.put(ctx, args)
	if err != nil {
		span.SetStatus(codes.Error, "the jobs were not enqueued")
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	_ = json.NewEncoder(w).Encode(accepted{ids, traceOf(ctx)}) // an error means that the client has left
}

func (s *service) put(ctx context.Context, args []signalbox.Args) ([]string, error) {
	queue := scheduler.Queue(s.queue)
	if len(args) == 1 {
		opts := []scheduler.EnqueueOption{queue}
		if _, once := args[0].(refund); once {
			opts = append(opts, scheduler.MaxAttempts(1))
		}
		r, err := s.jobs.Enqueue(ctx, args[0], opts...)
		return []string{r.ID}, err
	}
	items := make([]scheduler.Item, len(args))
	for i := range items {
		items[i].Args = args[i]
	}
	results, err := s.jobs.EnqueueMany(ctx, items, queue)
	ids := make([]string, len(results))
	for i := range ids {
		ids[i] = results[i].ID
	}
	return ids, err
}

// newScheduler registers the cron entry. Each process that runs the entry calls it.
func newScheduler(rdb redis.UniversalClient, queue string) (*scheduler.Scheduler, error) {
	s, err := scheduler.New(rdb, scheduler.Config{})
	if err != nil {
		return nil, err
	}
	return s, s.Cron("stock", "@every 1s", stock{"lamps"}, scheduler.Queue(queue))
}

// newWorker registers the handlers.
func newWorker(rdb redis.UniversalClient, queue string) (*worker.Worker, error) {
	w, err := worker.New(rdb, worker.Config{
		Queues: worker.Queues{queue: {Concurrency: 5}}, SessionTTL: sessionTTL, DrainTimeout: 2 * time.Second,
	})
	if err != nil {
		return nil, err
	}
	locker, err := lock.New(rdb, lock.Config{})
	if err != nil {
		return nil, err
	}
	worker.Handle(w, confirm)
	worker.Handle(w, charge, worker.Retry(worker.ExponentialJitter(100*time.Millisecond, time.Second)))
	worker.Handle(w, build, worker.With(middleware.Lock(locker,
		middleware.LockName("{"+queue+"}:reports"), middleware.MaxWait(10*time.Second))))
	worker.Handle(w, func(context.Context, *signalbox.Job, newsletter) error { return nil })
	worker.Handle(w, remind)
	worker.Handle(w, func(context.Context, *signalbox.Job, refund) error { return &bankError{"the account is closed"} })
	worker.Handle(w, exportAll)
	worker.Handle(w, func(context.Context, *signalbox.Job, stock) error { return nil })
	return w, nil
}

// A bankError is the bank's refusal. A span has the type and the message of an error.
type bankError struct{ why string }

func (e *bankError) Error() string { return "the bank refuses: " + e.why }

// confirm makes its own span, below that of the handler.
func confirm(ctx context.Context, _ *signalbox.Job, _ order) error {
	_, span := tracer.Start(ctx, "send mail", trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	return nil
}

func charge(_ context.Context, job *signalbox.Job, _ payment) error {
	if job.Attempt == 1 {
		return &bankError{"try again"}
	}
	return nil
}

// build takes a while, under the lock.
func build(ctx context.Context, _ *signalbox.Job, _ report) error { return work(ctx, buildTime) }

func remind(_ context.Context, _ *signalbox.Job, in reminder) error {
	if left := time.Until(in.NotBefore); left > 0 {
		return signalbox.Snooze(left)
	}
	return nil
}

// exportAll takes a minute. Meanwhile its worker is killed. The next worker finishes the job.
func exportAll(ctx context.Context, job *signalbox.Job, in export) error {
	if job.Crashes > 0 {
		return nil
	}
	for step := range in.Steps {
		if err := work(ctx, stepTime); err != nil {
			return fmt.Errorf("at step %d: %w", step, err)
		}
	}
	return nil
}

// work stands for something that takes time.
func work(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
