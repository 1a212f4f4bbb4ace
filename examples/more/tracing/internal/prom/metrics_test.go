package prom

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/middleware"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // failures are part of the test
	redistest.Main(m)
}

// An instrument is a row of the table of metrics.
type instrument struct {
	name, unit string
	kind       dto.MetricType
	labels     []string // labels that each of its values has
	min        float64  // least result of the scene: number of writes of a histogram, or its sum
}

const (
	counter   = dto.MetricType_COUNTER
	gauge     = dto.MetricType_GAUGE
	histogram = dto.MetricType_HISTOGRAM

	labelSystem      = "messaging_system"
	labelOperation   = "messaging_operation_name"
	labelType        = "messaging_operation_type"
	labelDestination = "messaging_destination_name"
	labelError       = "error_type"
	labelKind        = "signalbox_job_kind"
	labelOutcome     = "signalbox_job_outcome"
	labelState       = "signalbox_queue_state"
	labelCause       = "signalbox_queue_cause"
	labelTick        = "signalbox_schedule_outcome"
	labelLock        = "signalbox_lock_outcome"
)

var ofQueue = []string{labelSystem, labelDestination}

var instruments = []instrument{
	{"messaging.client.sent.messages", "{message}", counter, append(ofQueue, labelOperation), enqueued},
	{"messaging.client.consumed.messages", "{message}", counter, append(ofQueue, labelOperation), deliveries},
	{"messaging.client.operation.duration", "s", histogram, append(ofQueue, labelOperation), 2},
	{"messaging.process.duration", "s", histogram, append(ofQueue, labelOperation), deliveries},
	{"signalbox.job.wait.duration", "s", histogram, ofQueue, deliveries},
	{"signalbox.jobs.settled", "{job}", counter, append(ofQueue, labelOutcome), deliveries},
	{"signalbox.queue.depth", "{job}", gauge, append(ofQueue, labelState), 0},
	{"signalbox.queue.stopped", "{queue}", gauge, append(ofQueue, labelCause), 0},
	{"signalbox.queue.stopped_groups", "{group}", gauge, append(ofQueue, labelCause), 0},
	{"signalbox.flows.open", "{flow}", gauge, ofQueue, 0},
	{"signalbox.flows.failed", "{flow}", gauge, ofQueue, 0},
	{"signalbox.queue.oldest_job.age", "s", gauge, ofQueue, 0},
	{"signalbox.worker.active", "{job}", gauge, ofQueue, 0},
	{"signalbox.worker.stuck", "{job}", gauge, append(ofQueue, labelKind), 0},
	{"signalbox.lock.acquire.duration", "s", histogram, nil, 3},
	{"signalbox.lock.held.duration", "s", histogram, nil, 2},
	{"signalbox.lock.renewals", "{renewal}", counter, nil, 1},
	{"signalbox.lock.lost", "{lock}", counter, nil, 1},
	{"signalbox.fence.rejected", "{write}", counter, nil, 1},
	{"signalbox.schedule.ticks", "{tick}", counter, []string{labelTick}, 1},
	{"signalbox.schedule.lag", "s", histogram, nil, 1},
}

// allowed are all labels that a metric may have. Each has few values.
var allowed = []string{
	labelSystem, labelOperation, labelType, labelDestination, labelError, labelKind, labelOutcome, labelState, labelCause, labelTick, labelLock,
	"server_address", "server_port", "le",
}

// TestMetrics does everything that metrics count. Then all instruments are on the page of a real
// exporter.
func TestMetrics(t *testing.T) {
	page := Serve(t)
	spans := tracetest.NewSpanRecorder()
	traces := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	otel.SetMeterProvider(page.Provider)
	otel.SetTracerProvider(traces)
	var during Families // some gauges exist only while a worker runs
	s := playAll(t, page, func() { during = page.mustScrape(t) })
	families := page.mustScrape(t)
	for _, in := range instruments {
		if f := during[in.exported()]; in.kind == gauge && f != nil {
			families[in.exported()] = f
		}
	}
	for _, in := range instruments {
		t.Run(in.name, func(t *testing.T) { in.check(t, families, s) })
	}
	t.Run("nothing else", func(t *testing.T) {
		known := []string{"target_info", "otel_scope_info"}
		for _, in := range instruments {
			known = append(known, in.exported())
		}
		for name := range families {
			if !slices.Contains(known, name) {
				t.Errorf("what is %s?", name)
			}
		}
		if len(families) < len(instruments) {
			t.Errorf("%d metrics, want %d at least: %v", len(families), len(instruments), slices.Sorted(maps.Keys(families)))
		}
	})
	t.Run("process duration is that of the span", func(t *testing.T) {
		n, sum := 0, 0.0
		for _, sp := range spans.Ended() {
			if strings.HasPrefix(sp.Name(), "process ") {
				n++
				sum += sp.EndTime().Sub(sp.StartTime()).Seconds()
			}
		}
		var count uint64
		measured := 0.0
		for _, m := range families[Name("messaging.process.duration", "s", false)].GetMetric() {
			count += m.GetHistogram().GetSampleCount()
			measured += m.GetHistogram().GetSampleSum()
		}
		if n == 0 || count != uint64(n) || math.Abs(sum-measured) > 0.002*float64(n) {
			t.Errorf("%d spans of %.3f s in all, %d measured, of %.3f s", n, sum, count, measured)
		}
	})
	t.Run("outcomes", func(t *testing.T) {
		outcomes := make(map[string]float64)
		for _, m := range families[Name("signalbox.jobs.settled", "{job}", true)].GetMetric() {
			outcomes[Labels(m)[labelOutcome]] += m.GetCounter().GetValue()
		}
		if len(outcomes) < 5 { // done, retried, snoozed, cancelled, dead
			t.Errorf("settled by outcome: %v, want five outcomes", outcomes)
		}
	})
}

func (p *Page) mustScrape(t *testing.T) Families {
	t.Helper()
	f, err := p.Scrape()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (in instrument) exported() string { return Name(in.name, in.unit, in.kind == counter) }

func (in instrument) check(t *testing.T, all Families, s *scene) {
	f := all[in.exported()]
	if f == nil {
		t.Fatalf("there is no %s", in.exported())
	}
	if f.GetType() != in.kind {
		t.Errorf("it is a %v, want a %v", f.GetType(), in.kind)
	}
	if got := all.Total(in.exported(), nil); got < in.min {
		t.Errorf("it comes to %v, want %v at least", got, in.min)
	}
	for _, m := range f.GetMetric() {
		labels := Labels(m)
		for _, name := range in.labels {
			if labels[name] == "" {
				t.Errorf("no label %s in %v", name, labels)
			}
		}
		for name, value := range labels {
			if !slices.Contains(allowed, name) {
				t.Errorf("what is the label %s of %v?", name, labels)
			}
			if s.isPrivate(value) {
				t.Errorf("the label %s has an ID or a lock's key: %q", name, value)
			}
		}
		if in.kind == histogram {
			checkBuckets(t, m.GetHistogram())
		}
	}
}

// checkBuckets checks that the boundaries rise from 0.1 ms to 1 h.
func checkBuckets(t *testing.T, h *dto.Histogram) {
	t.Helper()
	var bounds []float64
	for _, b := range h.GetBucket() {
		if !math.IsInf(b.GetUpperBound(), 1) {
			bounds = append(bounds, b.GetUpperBound())
		}
	}
	if len(bounds) < 10 || !slices.IsSorted(bounds) || bounds[0] != 0.0001 || bounds[len(bounds)-1] != 3600 {
		t.Errorf("the boundaries are %v, want some from 0.0001 to 3600 s", bounds)
	}
}

// The number of jobs in the scene, without those of cron.
const (
	enqueued   = 13 // 5 that succeed, 2 under a lock, one of each other sort
	deliveries = enqueued + 2
)

// A sort is a kind of job, and says what its handler does.
type sort struct{ Do string }

func (sort) Kind() string { return "sort" }

type tick struct{}

func (tick) Kind() string { return "tick" }

// A scene has the results of playAll.
type scene struct {
	mu  sync.Mutex
	ids map[string]bool
	key string // of the named lock

	snoozed atomic.Bool // the job that snoozes has done so

	asking atomic.Int32  // jobs that hold the lock, or ask for it
	both   chan struct{} // closed when two do

	free chan struct{} // closed when the handler that ignores its context may return
}

var idLike = regexp.MustCompile(`^[0-9A-Za-z]{20,}$`)

func (s *scene) isPrivate(value string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ids[value] || idLike.MatchString(value) || strings.Contains(value, s.key)
}

// playAll does everything that metrics count, on two workers. The second worker takes the jobs
// that the first loses when its network is held. playAll calls look when all is done and both
// still run.
func playAll(t *testing.T, page *Page, look func()) *scene {
	t.Helper()
	srv := redistest.Start(t)
	proxy := redistest.NewProxy(t, srv.Addr())
	near, far := srv.Client(), proxy.Client()
	queue, farQueue := redistest.Name(t), redistest.Name(t)
	s := &scene{ids: make(map[string]bool), key: queue + "-lock", both: make(chan struct{}), free: make(chan struct{})}
	t.Cleanup(func() { near.Del(context.Background(), s.key) })

	sched, err := scheduler.New(near, scheduler.Config{})
	if err != nil {
		t.Fatal(err)
	}
	put := func(queue, do string, opts ...scheduler.EnqueueOption) {
		t.Helper()
		r, err := sched.Enqueue(t.Context(), sort{do}, append(opts, scheduler.Queue(queue))...)
		if err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		s.ids[r.ID] = true
		s.mu.Unlock()
	}
	for range 5 {
		put(queue, "")
	}
	for range 2 {
		put(queue, "hold")
	}
	for _, do := range []string{"fail", "snooze", "cancel", "lose"} {
		put(queue, do)
	}
	put(queue, "die", scheduler.MaxAttempts(1))
	put(queue, "ignore", scheduler.Timeout(50*time.Millisecond))
	if err := sched.Cron("every-second", "@every 1s", tick{}, scheduler.Queue(queue)); err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	var ticks, calls, farCalls events
	run := func(what string, f func(context.Context) error) {
		wg.Go(func() {
			if err := f(ctx); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	w := newWorker(t, near, queue)
	worker.Handle(w, func(context.Context, *signalbox.Job, tick) error { ticks.add(); return nil })
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, in sort) error {
		defer calls.add()
		return s.do(ctx, job, in, near)
	}, worker.With(s.named(near)), worker.Retry(func(int, error) time.Duration { return 10 * time.Millisecond }))
	run("worker", w.Run)
	run("scheduler", sched.Run)
	calls.await(t, deliveries-1, "jobs, but that whose handler is stuck")
	redistest.Eventually(t, func() bool {
		return page.mustScrape(t).Total(Name("signalbox.worker.stuck", "{job}", false), nil) > 0
	}, "the page has the handler that is stuck")
	close(s.free)
	calls.await(t, deliveries, "jobs")
	ticks.await(t, 2, "ticks")

	// The job of a worker whose network is held, until another worker has done the job.
	put(farQueue, "far")
	for _, rdb := range []redis.UniversalClient{far, near} {
		w := newWorker(t, rdb, farQueue)
		worker.Handle(w, func(ctx context.Context, job *signalbox.Job, _ sort) error {
			farCalls.add()
			if job.Crashes == 0 {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		})
		run("far worker", w.Run)
		if rdb == far {
			farCalls.await(t, 1, "the job")
			proxy.Pause()
		}
	}
	farCalls.await(t, 2, "the job again")
	proxy.Resume()
	look()
	stop()
	wg.Wait()
	return s
}

func newWorker(t *testing.T, rdb redis.UniversalClient, queue string) *worker.Worker {
	t.Helper()
	w, err := worker.New(rdb, worker.Config{Queues: worker.Queues{queue: {Concurrency: 20}}, SessionTTL: time.Second, StuckAfter: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// named puts two sorts under a lock: jobs that wait for each other, and the job that loses the
// lock.
func (s *scene) named(rdb redis.UniversalClient) signalbox.Middleware {
	locker := newLocker(rdb, lock.Config{TTL: time.Second})
	return func(next signalbox.Handler) signalbox.Handler {
		held := middleware.Lock(locker, middleware.RawKey(s.key), middleware.MaxWait(20*time.Second))(next)
		lost := middleware.Lock(locker, middleware.RawKey(s.key+"-lost"))(next)
		return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
			switch {
			case strings.Contains(string(job.Payload), "hold"):
				if s.asking.Add(1) == 2 {
					close(s.both)
				}
				return held.Handle(ctx, job)
			case strings.Contains(string(job.Payload), "lose"):
				return lost.Handle(ctx, job)
			}
			return next.Handle(ctx, job)
		})
	}
}

func (s *scene) do(ctx context.Context, job *signalbox.Job, in sort, rdb redis.UniversalClient) error {
	switch in.Do {
	case "fail":
		if job.Attempt == 1 {
			return errors.New("the first time it fails")
		}
	case "die":
		return errors.New("it fails for good")
	case "snooze":
		if !s.snoozed.Swap(true) {
			return signalbox.Snooze(100 * time.Millisecond)
		}
	case "cancel":
		return signalbox.Cancel(errors.New("no longer wanted"))
	case "hold":
		select { // so that one of the two waits for the lock
		case <-s.both:
		case <-ctx.Done():
		}
	case "ignore":
		<-s.free
	case "lose":
		if err := rdb.Del(ctx, s.key+"-lost").Err(); err != nil {
			return err
		}
		<-ctx.Done() // ends when the lock is found lost
	}
	return nil
}

// events counts what happens.
type events struct {
	mu   sync.Mutex
	n    int
	more chan struct{}
}

func (e *events) add() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.n++
	if e.more != nil {
		close(e.more)
		e.more = nil
	}
}

func (e *events) await(t *testing.T, n int, what string) {
	t.Helper()
	late := time.After(30 * time.Second)
	for {
		e.mu.Lock()
		got := e.n
		if e.more == nil {
			e.more = make(chan struct{})
		}
		more := e.more
		e.mu.Unlock()
		if got >= n {
			return
		}
		select {
		case <-more:
		case <-late:
			t.Fatalf("waiting for %s: %d of %d", what, got, n)
		}
	}
}

// The helpers read any page that the exporter writes.
func TestPage(t *testing.T) {
	t.Parallel()
	page := Serve(t)
	meter := page.Provider.Meter("test")
	counted, err1 := meter.Int64Counter("some.things", metric.WithUnit("{thing}"))
	lasted, err2 := meter.Float64Histogram("some.duration", metric.WithUnit("s"),
		metric.WithExplicitBucketBoundaries(0.0001, 0.001, 0.01, 0.1, 1, 10, 60, 300, 900, 3600))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	counted.Add(t.Context(), 3)
	lasted.Record(t.Context(), 0.5)
	all := page.mustScrape(t)
	s := &scene{key: "none"}
	instrument{"some.things", "{thing}", counter, nil, 3}.check(t, all, s)
	instrument{"some.duration", "s", histogram, nil, 1}.check(t, all, s)
}

// newLocker is lock.New with an optional Config, which must be valid.
func newLocker(rdb lock.Client, c ...lock.Config) *lock.Redis {
	l, err := lock.New(rdb, append(c, lock.Config{})[0])
	if err != nil {
		panic(err)
	}
	return l
}
