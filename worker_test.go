package signalbox_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/check"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/middleware"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// The worker that dies has the shortest lease. The lease of the other one doesn't end even on a busy
// machine.
const (
	dyingTTL   = time.Second
	sessionTTL = 6 * time.Second
)

var quiet = slog.New(slog.DiscardHandler)

// The jobs of the story.
type (
	Doomed struct{} // taken by a worker that dies
	Flaky  struct{} // fails the first time
	Long   struct{} // takes longer than its lease
	Single struct{} // two must not run at the same time
	Tick   struct{} // enqueued by a cron entry
)

func (Doomed) Kind() string { return "doomed" }
func (Flaky) Kind() string  { return "flaky" }
func (Long) Kind() string   { return "long" }
func (Single) Kind() string { return "single" }
func (Tick) Kind() string   { return "tick" }

// TestTheWholeWay follows jobs from the schedulers that enqueue them to the spans that describe them:
// through a queue, workers of which one dies, leases, a named lock and retries.
func TestTheWholeWay(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	server := redistest.Start(t)
	rdb := server.Client()
	queue := redistest.Name(t)
	spans := tracetest.NewInMemoryExporter()
	tracing := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	format := propagation.TraceContext{}

	// Two schedulers run the same crontab, as two processes would.
	var schedulers []*scheduler.Scheduler
	for range 2 {
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet, TracerProvider: tracing, Propagator: format})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Cron("tick", "@every 1s", Tick{}, scheduler.Queue(queue)); err != nil {
			t.Fatal(err)
		}
		schedulers = append(schedulers, s)
	}
	enqueue := func(args signalbox.Args, opts ...scheduler.EnqueueOption) string {
		t.Helper()
		r, err := schedulers[0].Enqueue(ctx, args, append(opts, scheduler.Queue(queue))...)
		if err != nil || !r.New {
			t.Fatalf("Enqueue(%T) = %+v, %v", args, r, err)
		}
		return r.ID
	}

	// A job goes to a worker in another process. The process is killed while the job runs.
	doomed := enqueue(Doomed{})
	firstToken := runAndKill(t, server.Addr(), queue)

	// More jobs come: one by one, in bulk, and one for later.
	flaky := enqueue(Flaky{})
	long := enqueue(Long{})
	var singles []string
	results, err := schedulers[0].EnqueueMany(ctx, []scheduler.Item{{Args: Single{}}, {Args: Single{}}}, scheduler.Queue(queue))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		singles = append(singles, r.ID)
	}
	singles = append(singles, enqueue(Single{}, scheduler.After(300*time.Millisecond)))

	// This worker has a handler for each kind. It runs under the lease of the job. The book records
	// how each job ends.
	w, err := worker.New(rdb, worker.Config{
		Queues: worker.Queues{queue: {Concurrency: 10}}, SessionTTL: sessionTTL, Logger: quiet,
		TracerProvider: tracing, Propagator: format,
	})
	if err != nil {
		t.Fatal(err)
	}
	var book logbook
	w.Use(book.record)
	worker.Handle(w, func(context.Context, *signalbox.Job, Doomed) error { return nil })
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ Flaky) error {
		if job.Attempt == 1 {
			return errors.New("not today")
		}
		return nil
	}, worker.Retry(worker.ExponentialJitter(10*time.Millisecond, time.Second)))

	// The long job goes on until it has seen ticks for longer than its first lease. So the lease must
	// be renewed.
	ticks := make(chan struct{})
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ Long) error {
		lease, ok := lock.FromContext(ctx)
		if !ok {
			return errors.New("the handler has no lease")
		}
		until := lease.Until()
		for time.Now().Before(until) {
			select {
			case <-ticks:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if !lease.Until().After(until) || ctx.Err() != nil {
			return fmt.Errorf("the lease was not renewed: until %v, then %v", until, lease.Until())
		}
		return nil
	})
	worker.Handle(w, func(context.Context, *signalbox.Job, Tick) error {
		select {
		case ticks <- struct{}{}:
		default: // nobody listens
		}
		return nil
	})

	// The first single job holds the named lock until another job was refused it.
	alone := make(chan struct{}, 1)
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ Single) error {
		select {
		case alone <- struct{}{}:
			defer func() { <-alone }()
		default:
			return errors.New("two at a time")
		}
		return book.await(ctx, func() bool { return book.snoozes() > 0 })
	}, worker.With(middleware.Lock(newLocker(rdb), middleware.LockName(redistest.Name(t)), middleware.RetryIn(50*time.Millisecond))))

	// All of it runs until the jobs are done and some ticks came.
	running, stop := context.WithCancel(ctx)
	var ended sync.WaitGroup
	for _, run := range []func(context.Context) error{w.Run, schedulers[0].Run, schedulers[1].Run} {
		ended.Go(func() {
			if err := run(running); err != nil {
				t.Errorf("Run = %v", err)
			}
		})
	}
	jobs := append([]string{doomed, flaky, long}, singles...)
	err = book.await(ctx, func() bool { return book.completed(jobs...) && book.ticks() >= 3 })
	stop()
	ended.Wait()
	if err != nil {
		t.Fatalf("%v; deliveries:\n%s", err, &book)
	}
	if err := check.Queue(context.Background(), store.New(rdb, "", queue).Site()); err != nil {
		t.Errorf("the queue is not in order: %v", err)
	}

	// Recovered: the job was delivered again, as the same attempt, with a larger token.
	if d := book.deliveries(doomed); len(d) != 1 || d[0].Crashes != 1 || d[0].Attempt != 1 || d[0].Token <= firstToken {
		t.Errorf("the dead worker's job, first token %d: %+v", firstToken, d)
	}
	// Retried: the second delivery has the error of the first.
	if d := book.deliveries(flaky); len(d) != 2 || d[0].err == nil || d[1].Attempt != 2 || d[1].LastError != "not today" || d[1].Token <= d[0].Token {
		t.Errorf("the flaky job: %+v", d)
	}
	// Renewed: the long job ran once.
	if d := book.deliveries(long); len(d) != 1 || d[0].err != nil {
		t.Errorf("the long job: %+v", d)
	}
	// Locked: a job that was refused the lock lost no attempt.
	for _, id := range singles {
		if d := book.deliveries(id); d[len(d)-1].Attempt != 1 || d[len(d)-1].LastError != "" {
			t.Errorf("a job under the named lock: %+v", d)
		}
	}
	// Ticked: each second has one job, though there are two schedulers.
	book.checkTicks(t)

	// The spans of each job are one trace, which begins with the call that enqueued it.
	checkTrace(t, spans.GetSpans(), flaky, "enqueue "+queue, 2, 1)
	checkTrace(t, spans.GetSpans(), doomed, "enqueue "+queue, 1, 0)
	checkTrace(t, spans.GetSpans(), long, "enqueue "+queue, 1, 0)
	if err := tracing.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

// A delivery is what a handler was given, and how it ended.
type delivery struct {
	signalbox.Job
	err error
}

// A logbook keeps deliveries, in the order of their ends.
type logbook struct {
	mu      sync.Mutex
	list    []delivery
	changed chan struct{} // closed at the next delivery
}

// record is a middleware that writes into the book.
func (b *logbook) record(next signalbox.Handler) signalbox.Handler {
	return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
		err := next.Handle(ctx, job)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.list = append(b.list, delivery{*job, err})
		if b.changed != nil {
			close(b.changed)
			b.changed = nil
		}
		return err
	})
}

// await waits until cond is true. It checks again after each delivery.
func (b *logbook) await(ctx context.Context, cond func() bool) error {
	for {
		b.mu.Lock()
		if b.changed == nil {
			b.changed = make(chan struct{})
		}
		changed := b.changed
		b.mu.Unlock()
		if cond() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (b *logbook) filter(keep func(delivery) bool) []delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []delivery
	for _, d := range b.list {
		if keep(d) {
			found = append(found, d)
		}
	}
	return found
}

func (b *logbook) deliveries(id string) []delivery {
	return b.filter(func(d delivery) bool { return d.ID == id })
}

func (b *logbook) completed(ids ...string) bool {
	return len(b.filter(func(d delivery) bool { return d.err == nil && slices.Contains(ids, d.ID) })) == len(ids)
}

func (b *logbook) snoozes() int {
	return len(b.filter(func(d delivery) bool {
		var snooze *signalbox.SnoozeError
		return errors.As(d.err, &snooze)
	}))
}

func (b *logbook) tickTimes() []time.Time {
	var times []time.Time
	for _, d := range b.filter(func(d delivery) bool { return d.Kind == Tick{}.Kind() }) {
		times = append(times, d.ScheduledAt)
	}
	slices.SortFunc(times, time.Time.Compare)
	return times
}

func (b *logbook) ticks() int { return len(b.tickTimes()) }

func (b *logbook) checkTicks(t *testing.T) {
	t.Helper()
	times := b.tickTimes()
	for i, tick := range times {
		if !tick.Equal(tick.Truncate(time.Second)) || i > 0 && tick.Sub(times[i-1]) != time.Second {
			t.Errorf("the ticks are not a gapless list of seconds: %v", times)
			return
		}
	}
}

func (b *logbook) String() string {
	text := ""
	for _, d := range b.filter(func(delivery) bool { return true }) {
		text += fmt.Sprintf("%s %s attempt %d, crashes %d: %v\n", d.Kind, d.ID, d.Attempt, d.Crashes, d.err)
	}
	return text
}

// checkTrace checks the spans of a job: one of the call that enqueued it, and below that two for each
// delivery. It also counts the deliveries that failed.
func checkTrace(t *testing.T, spans tracetest.SpanStubs, id, root string, deliveries, failed int) {
	t.Helper()
	var creator trace.SpanContext
	var process []tracetest.SpanStub
	handle := make(map[trace.SpanID]tracetest.SpanStub) // by parent
	for _, s := range spans {
		ours := slices.ContainsFunc(s.Attributes, func(kv attribute.KeyValue) bool {
			return kv.Key == "messaging.message.id" && kv.Value.AsString() == id
		})
		switch {
		case !ours:
		case s.SpanKind == trace.SpanKindProducer && s.Name == root:
			creator = s.SpanContext
		case s.SpanKind == trace.SpanKindConsumer:
			process = append(process, s)
		case s.SpanKind == trace.SpanKindInternal:
			handle[s.Parent.SpanID()] = s
		}
	}
	if len(process) != deliveries || len(handle) != deliveries {
		t.Errorf("job %s: %d process and %d handle spans, want %d of each", id, len(process), len(handle), deliveries)
		return
	}
	for _, p := range process {
		h, ok := handle[p.SpanContext.SpanID()]
		if p.Parent.SpanID() != creator.SpanID() || p.SpanContext.TraceID() != creator.TraceID() || !ok || h.SpanContext.TraceID() != creator.TraceID() {
			t.Errorf("job %s: the trace is not one: creator %v\nprocess %+v\nhandle %+v", id, creator, p, h)
		}
		if p.Status.Code == codes.Error {
			failed--
		}
	}
	if failed != 0 {
		t.Errorf("job %s: %d more failed deliveries than expected", id, -failed)
	}
}

// The environment of a process that a test starts.
const (
	envAddr  = "SIGNALBOX_TEST_WORKER"
	envQueue = "SIGNALBOX_TEST_QUEUE"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(envAddr); addr != "" {
		if err := beWorker(addr, os.Getenv(envQueue)); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	redistest.Main(m)
}

// beWorker is a worker process. It prints the token of its job, and never finishes the job.
func beWorker(addr, queue string) error {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // ends this process when the test that started it ends
		defer cancel()
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
	}()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	w, err := worker.New(rdb, worker.Config{
		Queues: worker.Queues{queue: {}}, SessionTTL: dyingTTL, DrainTimeout: -1,
	})
	if err != nil {
		return err
	}
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, _ Doomed) error {
		fmt.Println(job.Token)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	return w.Run(ctx)
}

// runAndKill starts a worker process and kills it while it runs a job. It returns the token of that
// job.
func runAndKill(t *testing.T, addr, queue string) (token int64) {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path)
	cmd.Env = append(os.Environ(), envAddr+"="+addr, envQueue+"="+queue)
	cmd.Stderr = os.Stderr
	_, err = cmd.StdinPipe() // open until the process has ended
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, scanErr := fmt.Fscan(stdout, &token)
	if err := cmd.Process.Kill(); err != nil {
		t.Errorf("kill the worker: %v", err)
	}
	_ = cmd.Wait() // it was killed
	if scanErr != nil {
		t.Fatalf("the worker process took no job: %v", scanErr)
	}
	return token
}

// newLocker is lock.New with an optional Config, which must be valid.
func newLocker(rdb lock.Client, c ...lock.Config) *lock.Redis {
	l, err := lock.New(rdb, append(c, lock.Config{})[0])
	if err != nil {
		panic(err)
	}
	return l
}
