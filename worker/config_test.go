package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/worker"
)

// unused returns a client that no test talks through.
func unused(t *testing.T) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func TestEveryWrongFieldIsReported(t *testing.T) {
	t.Parallel()
	_, err := worker.New(nil, worker.Config{
		Queues: worker.Queues{
			"":          {},
			"two words": {},
			"{tag}":     {},
			"nul\x00":   {},
			"low":       {Concurrency: -1},
			"high":      {Concurrency: 100_001},
			"fine":      {Concurrency: 1, CrashLimit: 255},
			"crashes":   {CrashLimit: 256},
			"light":     {Weight: -1},
			"heavy":     {Weight: 1001},
			"deep":      {Rank: -3},
			"steep":     {Rank: 1001},
		},
		Concurrency: -2,
		SessionTTL:  999 * time.Millisecond,
	})
	if !errors.Is(err, signalbox.ErrInvalid) {
		t.Fatalf("New = %v, want ErrInvalid", err)
	}
	for _, want := range []string{
		"rdb", "worker.Config.Queues", `queue: it is empty`, `"two words"`, `"{tag}"`, `"nul\x00"`,
		`Queues["low"].Concurrency: -1`, `Queues["high"].Concurrency: 100001`, `Queues["crashes"].CrashLimit: 256`, `Queues["light"].Weight: -1`, `Queues["heavy"].Weight: 1001`, `Queues["deep"].Rank: -3`, `Queues["steep"].Rank: 1001`,
		"worker.Config.Concurrency: -2", "SessionTTL: 999ms",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error doesn't say %s", want)
		}
	}
	if strings.Contains(err.Error(), "fine") {
		t.Error("the error names a queue that is right")
	}
	if t.Failed() {
		t.Log(err)
	}
}

func TestBoundsOfConfig(t *testing.T) {
	t.Parallel()
	rdb := unused(t)
	for name, c := range map[string]struct {
		cfg   worker.Config
		right bool
	}{
		"zero":            {worker.Config{}, true},
		"least":           {worker.Config{Queues: worker.Queues{"q": {Concurrency: 1}}, SessionTTL: time.Second}, true},
		"most":            {worker.Config{Queues: worker.Queues{"q": {Concurrency: 100_000}}, SessionTTL: time.Hour}, true},
		"longest name":    {worker.Config{Queues: worker.Queues{strings.Repeat("q", 200): {}}}, true},
		"bound":           {worker.Config{Concurrency: 100_000}, true},
		"bound too high":  {worker.Config{Concurrency: 100_001}, false},
		"shares":          {worker.Config{Concurrency: 1, Queues: worker.Queues{"q": {Weight: 1000}, "r": {Rank: 1000}}}, true},
		"unbound weight":  {worker.Config{Queues: worker.Queues{"q": {Weight: 1}}}, false},
		"unbound rank":    {worker.Config{Queues: worker.Queues{"q": {Rank: 1}}}, false},
		"drain at once":   {worker.Config{DrainTimeout: -1}, true},
		"no queue":        {worker.Config{Queues: worker.Queues{}}, false},
		"name too long":   {worker.Config{Queues: worker.Queues{strings.Repeat("q", 201): {}}}, false},
		"name not ASCII":  {worker.Config{Queues: worker.Queues{"größe": {}}}, false},
		"name with brace": {worker.Config{Queues: worker.Queues{"a}b": {}}}, false},
		"TTL too long":    {worker.Config{SessionTTL: time.Hour + 1}, false},
		"TTL negative":    {worker.Config{SessionTTL: -time.Second}, false},
	} {
		if _, err := worker.New(rdb, c.cfg); (err == nil) != c.right {
			t.Errorf("%s: New = %v", name, err)
		}
	}
}

// A rank or a weight needs the room that the queues share. The error names the queue, and the field to set.
func TestSharesNeedConcurrency(t *testing.T) {
	t.Parallel()
	_, err := worker.New(unused(t), worker.Config{Queues: worker.Queues{"mail": {Weight: 3}, "images": {Rank: 2}}})
	for _, want := range []string{`Queues["mail"].Weight: 3`, `Queues["images"].Rank: 2`, "set worker.Config.Concurrency"} {
		if err == nil || !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("New = %v; want ErrInvalid and %s", err, want)
		}
	}
}

func TestNewLeavesTheCallersConfigAlone(t *testing.T) {
	t.Parallel()
	queues := worker.Queues{"q": {}}
	if _, err := worker.New(unused(t), worker.Config{Queues: queues}); err != nil {
		t.Fatal(err)
	}
	if queues["q"].Concurrency != 0 {
		t.Errorf("New filled in the caller's map: %+v", queues)
	}
}

func TestRunWithoutAHandler(t *testing.T) {
	t.Parallel()
	w, err := worker.New(unused(t), worker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	err = w.Run(context.Background())
	if !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), "worker.Handle") {
		t.Errorf("Run = %v, want ErrInvalid and what to do", err)
	}
}

func TestRunTwice(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(1)
	ran := make(chan int, 10)
	worker.Handle(w, func(_ context.Context, _ *signalbox.Job, a task) error {
		ran <- a.N
		return nil
	})
	first := r.start(w)
	r.addOne(signalbox.Job{})
	get(t, ran, "the first run works")
	if err := w.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "under way") {
		t.Errorf("a second Run beside the first = %v, want an error", err)
	}
	first.stop()

	second := r.start(w)
	r.addOne(signalbox.Job{})
	get(t, ran, "a second run after the first works")
	second.stop()
}

// pointer is an Args whose Kind doesn't work on a nil pointer.
type pointer struct{ kind string }

func (p *pointer) Kind() string { return p.kind }

// nameless and spaced have kinds that are none.
type nameless struct{}

func (nameless) Kind() string { return "" }

type spaced struct{}

func (spaced) Kind() string { return "two words" }

func TestNilClients(t *testing.T) {
	t.Parallel()
	for _, rdb := range []redis.UniversalClient{nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil)} {
		if _, err := worker.New(rdb, worker.Config{}); !errors.Is(err, signalbox.ErrInvalid) {
			t.Errorf("New(%T(nil)): %v, want ErrInvalid", rdb, err)
		}
	}
}

func TestHandlePanicsOnMistakes(t *testing.T) {
	t.Parallel()
	ok := func(context.Context, *signalbox.Job, task) error { return nil }
	for name, c := range map[string]struct {
		register func(w *worker.Worker)
		says     string
	}{
		"nil function": {func(w *worker.Worker) { worker.Handle[task](w, nil) }, "nil function"},
		"kind twice": {func(w *worker.Worker) {
			worker.Handle(w, ok)
			worker.Handle(w, ok)
		}, "task is registered already"},
		"pointer": {func(w *worker.Worker) {
			worker.Handle(w, func(context.Context, *signalbox.Job, *pointer) error { return nil })
		}, "*worker_test.pointer"},
		"no kind": {func(w *worker.Worker) {
			worker.Handle(w, func(context.Context, *signalbox.Job, nameless) error { return nil })
		}, "kind: it is empty"},
		"bad kind": {func(w *worker.Worker) {
			worker.Handle(w, func(context.Context, *signalbox.Job, spaced) error { return nil })
		}, `"two words"`},
		"nil option":         {func(w *worker.Worker) { worker.Handle(w, ok, nil) }, "nil option"},
		"nil policy":         {func(w *worker.Worker) { worker.Handle(w, ok, worker.Retry(nil)) }, "nil retry policy"},
		"negative timeout":   {func(w *worker.Worker) { worker.Handle(w, ok, worker.Timeout(-1)) }, "timeout of -1ns"},
		"negative RetryFor":  {func(w *worker.Worker) { worker.Handle(w, ok, worker.RetryFor(-1)) }, "RetryFor(-1ns)"},
		"nil classifier":     {func(w *worker.Worker) { worker.Handle(w, ok, worker.Terminal(nil)) }, "Terminal of a nil function"},
		"nil middleware":     {func(w *worker.Worker) { worker.Handle(w, ok, worker.With(nil)) }, "nil middleware"},
		"Use of nil":         {func(w *worker.Worker) { w.Use(nil) }, "nil middleware"},
		"HandleKind of nil":  {func(w *worker.Worker) { w.HandleKind("x", nil) }, "nil handler"},
		"HandleKind no name": {func(w *worker.Worker) { w.HandleKind("", signalbox.HandlerFunc(nil)) }, "kind: it is empty"},
	} {
		w, err := worker.New(unused(t), worker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if msg := panicOf(func() { c.register(w) }); !strings.Contains(msg, c.says) {
			t.Errorf("%s: panic %q, want one that says %q", name, msg, c.says)
		}
	}
}

func TestRegisteringAfterRunPanics(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(1)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	r.start(w).stop()
	handle := func() { worker.Handle(w, func(context.Context, *signalbox.Job, order) error { return nil }) }
	if msg := panicOf(handle); !strings.Contains(msg, "after Run") {
		t.Errorf("Handle after Run: panic %q", msg)
	}
	if msg := panicOf(func() { w.Use() }); !strings.Contains(msg, "after Run") {
		t.Errorf("Use after Run: panic %q", msg)
	}
}

// panicOf is what f panics with, or "".
func panicOf(f func()) (msg string) {
	defer func() {
		if p := recover(); p != nil {
			msg, _ = p.(string)
		}
	}()
	f()
	return ""
}

func TestPoolOfTwoConnections(t *testing.T) {
	t.Parallel()
	// A waiting worker takes one connection of the pool for itself.
	rdb := redistest.Start(t).ClientWith(func(o *redis.UniversalOptions) { o.PoolSize = 2 })
	r := newRigOn(t, rdb)
	w := r.worker(2)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	r.start(w)
	for i := range 20 {
		r.add(signalbox.Job{})
		r.completed(i + 1)
	}
}
