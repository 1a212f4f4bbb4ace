package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// envProbe is the environment variable with the configuration of a process that a test starts from
// its own binary. OpenTelemetry's providers are global: in its own process each probe has its own.
const envProbe = "TRACING_TEST_PROBE"

// A probeConfig says what a probe does. It enqueues, and then it works.
type probeConfig struct {
	Redis, Queue, Service string
	Enqueue               []task
	Until                 int           // ends after this many handlers have returned; 0: ends with SIGTERM
	NoWork                bool          // ends when it has enqueued
	For                   time.Duration // or ends after this time
	Cron                  bool          // runs a cron entry whose next tick is far away
	TTL                   time.Duration
	Headers               map[string]string // its own propagator writes these into the jobs; nil: no such propagator
	Sample                bool              // reports the attributes that samplers get, and sends nothing
	Members               []member          // of the baggage of its requests
	Allow                 []string          // names of the members that travel with the jobs
}

// A member of a baggage repeats its name as its value.
type member struct {
	Name  string
	Bytes int // size of its value
}

func (m member) value() string { return strings.Repeat(m.Name+"/", m.Bytes)[:m.Bytes] }

// A task is a job that says what its handler does.
type task struct {
	Do      string // panic, wait, cancel, fail at first, or nothing
	Takes   time.Duration
	Timeout time.Duration // of the job
	ID      string        // of the job
	Times   int           // how often it is enqueued, at least once
	Secret  string        // in its payload
}

func (task) Kind() string { return "task" }

// A probeReport is a line that a probe prints after each call of a handler, and at its end.
type probeReport struct {
	Called  int           // calls of handlers so far
	Again   int           // calls that were not the first delivery of their job
	Ended   bool          // this is the last line
	Took    time.Duration // from the first enqueue to the end of the worker
	Headers []int         // lengths of the jobs' baggage headers, each once
	Members []string      // baggage members that handlers had, "name=value" in order, each once

	Seen map[string][]string // attributes of spans at their start, by the first word of the span's name
}

// garbage is a propagator that writes any header, and reads like the usual ones.
type garbage struct {
	propagation.TextMapPropagator
	headers map[string]string
}

func (g garbage) Inject(_ context.Context, carrier propagation.TextMapCarrier) {
	for k, v := range g.headers {
		carrier.Set(k, v)
	}
}

// A sampler takes every span, and records the attributes that it has at its start.
type sampler struct {
	mu   sync.Mutex
	seen map[string][]string
}

// ShouldSample is called for each span.
func (s *sampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = make(map[string][]string)
	}
	name, _, _ := strings.Cut(p.Name, " ")
	s.seen[name] = nil
	for _, kv := range p.Attributes {
		s.seen[name] = append(s.seen[name], string(kv.Key))
	}
	return sdktrace.AlwaysSample().ShouldSample(p)
}

// Description returns the sampler's name.
func (s *sampler) Description() string { return "notes attributes" }

func (s *sampler) all() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.seen)
}

// bags records the baggage of jobs.
type bags struct {
	mu      sync.Mutex
	headers []int
	members []string
}

func (b *bags) note(ctx context.Context, job *signalbox.Job) {
	var got []string
	for _, m := range baggage.FromContext(ctx).Members() {
		got = append(got, m.Key()+"="+m.Value())
	}
	slices.Sort(got)
	members, header := strings.Join(got, " "), len(job.Headers["baggage"])
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Contains(b.headers, header) {
		b.headers = append(b.headers, header)
	}
	if !slices.Contains(b.members, members) {
		b.members = append(b.members, members)
	}
}

func (b *bags) all() (headers []int, members []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.headers), slices.Clone(b.members)
}

func runProbe() error {
	var cfg probeConfig
	if err := json.Unmarshal([]byte(os.Getenv(envProbe)), &cfg); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if cfg.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cfg.For)
		defer cancel()
	}
	slog.SetDefault(slog.New(slog.DiscardHandler))
	opt, err := parseURL(cfg.Redis)
	if err != nil {
		return err
	}
	rdb := redis.NewClient(opt)
	defer rdb.Close()
	stopTracing, err := startTracing(ctx, cfg.Service, cfg.Service)
	if err != nil {
		return err
	}
	var starts sampler
	if cfg.Sample {
		otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSampler(&starts)))
	}
	var propagator propagation.TextMapPropagator
	if cfg.Headers != nil {
		propagator = garbage{otel.GetTextMapPropagator(), cfg.Headers}
	}
	s, err := scheduler.New(rdb, scheduler.Config{Propagator: propagator, Baggage: cfg.Allow})
	if err != nil {
		return err
	}

	start := time.Now()
	if err := enqueueTasks(s, cfg); err != nil {
		return err
	}
	var called, again atomic.Int64
	var bags bags
	report := func(ended bool) {
		headers, members := bags.all()
		b, _ := json.Marshal(probeReport{
			Called: int(called.Load()), Again: int(again.Load()), Ended: ended,
			Took: time.Since(start), Headers: headers, Members: members, Seen: starts.all(),
		})
		_, _ = os.Stdout.Write(append(b, '\n'))
	}
	if !cfg.NoWork {
		if err := workTasks(ctx, rdb, s, cfg, func(ctx context.Context, job *signalbox.Job) {
			if job.Attempt > 1 || job.Crashes > 0 {
				again.Add(1)
			}
			if cfg.Allow != nil {
				bags.note(ctx, job)
			}
			called.Add(1)
			report(false)
		}); err != nil {
			return err
		}
	}
	report(true)
	_ = stopTracing() // lost spans are no error of a probe
	return nil
}

// enqueueTasks makes a trace for each job, like the requests of a service.
func enqueueTasks(s *scheduler.Scheduler, cfg probeConfig) error {
	base, err := withBaggage(context.Background(), cfg.Members)
	if err != nil {
		return err
	}
	for _, t := range cfg.Enqueue {
		t.Secret = canary
		for range max(t.Times, 1) {
			ctx, span := tracer.Start(base, "request", trace.WithSpanKind(trace.SpanKindServer))
			opts := []scheduler.EnqueueOption{scheduler.Queue(cfg.Queue), scheduler.Timeout(t.Timeout)}
			if t.ID != "" {
				opts = append(opts, scheduler.ID(t.ID))
			}
			if t.Do == "panic" || t.Timeout > 0 {
				opts = append(opts, scheduler.MaxAttempts(1))
			}
			_, err := s.Enqueue(ctx, t, opts...)
			span.End()
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// withBaggage returns ctx with this baggage. It may be larger than a propagator accepts from a
// carrier, since a program can make such a baggage itself.
func withBaggage(ctx context.Context, members []member) (context.Context, error) {
	var b baggage.Baggage
	for _, m := range members {
		made, err := baggage.NewMemberRaw(m.Name, m.value())
		if err != nil {
			return nil, err
		}
		if b, err = b.SetMember(made); err != nil {
			return nil, err
		}
	}
	return baggage.ContextWithBaggage(ctx, b), nil
}

// workTasks runs a worker, and a cron entry, until enough handlers have returned or ctx ends.
func workTasks(ctx context.Context, rdb *redis.Client, s *scheduler.Scheduler, cfg probeConfig, called func(context.Context, *signalbox.Job)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := worker.New(rdb, worker.Config{
		Queues: worker.Queues{cfg.Queue: {Concurrency: 20}}, SessionTTL: cfg.TTL, DrainTimeout: 5 * time.Second,
	})
	if err != nil {
		return err
	}
	var returned atomic.Int64
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, t task) error {
		called(ctx, job)
		defer func() {
			if n := int(returned.Add(1)); cfg.Until > 0 && n >= cfg.Until {
				cancel()
			}
		}()
		return t.run(ctx, job)
	}, worker.Retry(func(int, error) time.Duration { return 0 }))
	ticked := make(chan error, 1)
	if cfg.Cron {
		if err := s.Cron("yearly", "0 0 1 1 *", task{}, scheduler.Queue(cfg.Queue)); err != nil {
			return err
		}
		go func() { ticked <- s.Run(ctx) }()
	} else {
		ticked <- nil
	}
	err = w.Run(ctx)
	cancel()
	return errors.Join(err, <-ticked)
}

func (t task) run(ctx context.Context, job *signalbox.Job) error {
	switch t.Do {
	case "panic":
		panic("as it was told: " + t.Secret)
	case "fail at first":
		if job.Attempt == 1 {
			return errors.New("as it was told")
		}
	case "wait":
		<-ctx.Done()
		return context.Cause(ctx)
	case "cancel":
		return signalbox.Cancel(errors.New("no longer wanted"))
	}
	return work(ctx, t.Takes)
}

// A probe is the test's view of such a process.
type probe struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
	last  probeReport
}

func startProbe(t *testing.T, env []string, cfg probeConfig) *probe {
	t.Helper()
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(env, envProbe+"="+string(text))
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &probe{t: t, cmd: cmd, lines: bufio.NewScanner(stdout)}
	t.Cleanup(func() { // if the test ended early
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_, _ = io.Copy(io.Discard, stdout)
			_ = cmd.Wait()
		}
	})
	return p
}

// until reads the probe's reports until this many handlers were called.
func (p *probe) until(called int) {
	p.t.Helper()
	for p.last.Called < called && p.next() {
	}
	if p.last.Called < called {
		p.t.Fatalf("the probe ended after %d handlers, want %d", p.last.Called, called)
	}
}

func (p *probe) next() bool {
	if !p.lines.Scan() {
		return false
	}
	if err := json.Unmarshal(p.lines.Bytes(), &p.last); err != nil {
		p.t.Fatalf("the probe says %q: %v", p.lines.Text(), err)
	}
	return true
}

// end waits until the probe ends. It returns the last report, and how long the call took.
func (p *probe) end() (probeReport, time.Duration) {
	p.t.Helper()
	start := time.Now()
	for p.next() {
	}
	if err := p.cmd.Wait(); err != nil || !p.last.Ended {
		p.t.Fatalf("the probe ended with %v and said %+v", err, p.last)
	}
	return p.last, time.Since(start)
}

func (p *probe) terminate() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
}

// left returns the number of jobs in the queue, in any state.
func (r *testRedis) left(c *checker, queue string) int64 {
	c.Helper()
	n, err := r.rdb.HLen(c.Context(), fmt.Sprintf("signalbox:{default:%s}:jobs", queue)).Result()
	if err != nil {
		c.Fatal(err)
	}
	return n
}

// records returns the records of all jobs in the queue.
func (r *testRedis) records(c *checker, queue string) []string {
	c.Helper()
	records, err := r.rdb.HVals(c.Context(), "signalbox:{default:"+queue+"}:jobs").Result()
	if err != nil {
		c.Fatal(err)
	}
	return records
}

// age makes a job older. Bytes 4 to 11 of its record are the time when it was enqueued, see
// docs/wire.md.
func (r *testRedis) age(c *checker, queue, job string, by time.Duration) {
	c.Helper()
	key := "signalbox:{default:" + queue + "}:jobs"
	record, err := r.rdb.HGet(c.Context(), key, job).Bytes()
	if err != nil {
		c.Fatal(err)
	}
	enqueued := time.UnixMicro(int64(binary.BigEndian.Uint64(record[4:])))
	binary.BigEndian.PutUint64(record[4:], uint64(enqueued.Add(-by).UnixMicro()))
	if err := r.rdb.HSet(c.Context(), key, job, record).Err(); err != nil {
		c.Fatal(err)
	}
}
