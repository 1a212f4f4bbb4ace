package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// Three workers together run no more jobs of a queue and of a group than their Config says, and as many as it says.
func TestLimits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const most, jobs = 3, 60
	var running, peak atomic.Int32
	full := make(chan struct{})
	handle := func(context.Context, *signalbox.Job, entry) error {
		n := running.Add(1)
		defer running.Add(-1)
		if n > most {
			t.Errorf("%d jobs run", n)
		}
		if n == most && peak.CompareAndSwap(0, 1) {
			close(full)
		}
		select { // the first ones wait for each other: so many run at a time
		case <-full:
		case <-time.After(patience):
			t.Errorf("no more than %d jobs run", n)
		}
		return nil
	}
	for range 3 {
		cfg := r.config(5)
		q := cfg.Queues[r.name()]
		q.Limits = signalbox.Limits{Running: most}
		q.GroupLimits = signalbox.Limits{Running: 2}
		cfg.Queues[r.name()] = q
		w := r.workerWith(cfg)
		worker.Handle(w, handle)
		r.start(w)
	}
	r.ready()
	s, err := scheduler.New(r.rdb, scheduler.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for n := range jobs {
		opts := []scheduler.EnqueueOption{scheduler.Queue(r.name())}
		if n%2 == 0 {
			opts = append(opts, scheduler.Group("a"))
		}
		if _, err := s.Enqueue(t.Context(), entry{"a", n}, opts...); err != nil {
			t.Fatal(err)
		}
	}
	r.until("all have completed", func(c looks.Counts) bool { return c.Total.Completed == jobs })
}

// TestRunningLimitsAreUsed: while jobs wait, three workers together run as many jobs as the limit of a queue, or those of its groups, allow. make lines is the long form.
func TestRunningLimitsAreUsed(t *testing.T) {
	t.Parallel()
	const most, groups, takes = 6, 3, 100 * time.Millisecond
	jobs, want := 120, 0.8
	if *proofJobs >= 100_000 {
		jobs, want = 900, 0.95
	}
	for name, q := range map[string]worker.Queue{
		"of the queue":  {Limits: signalbox.Limits{Running: most}},
		"of each group": {GroupLimits: signalbox.Limits{Running: most / groups}},
		"of named ones": {LimitsOf: map[string]signalbox.Limits{"g0": {Running: 3}, "g1": {Running: 2}, "g2": {Running: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			s, err := scheduler.New(r.rdb, scheduler.Config{})
			if err != nil {
				t.Fatal(err)
			}
			share := []int{1, 1, 1} // of the jobs
			if q.LimitsOf != nil {
				share = []int{3, 2, 1}
			}
			var items []scheduler.Item
			for len(items) < jobs {
				for g, n := range share {
					for range n {
						items = append(items, scheduler.Item{Args: entry{"a", len(items)}, Options: []scheduler.EnqueueOption{scheduler.Group(fmt.Sprint("g", g))}})
					}
				}
			}
			if _, err := s.EnqueueMany(t.Context(), items, scheduler.Queue(r.name())); err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			var begun []time.Time
			lateAt := lateness(t, r.rdb)
			for range 3 {
				cfg := r.config(5)
				q.Concurrency = 5
				cfg.Queues[r.name()] = q
				w := r.workerWith(cfg)
				worker.Handle(w, func(context.Context, *signalbox.Job, entry) error {
					mu.Lock()
					begun = append(begun, time.Now())
					mu.Unlock()
					<-time.After(takes)
					return nil
				})
				r.start(w)
			}
			r.until("all have completed", func(c looks.Counts) bool { return c.Total.Completed == int64(len(items)) })
			mu.Lock()
			defer mu.Unlock()
			// Near the end there are too few jobs. The last ones of the limit begin when all others have had their time.
			slices.SortFunc(begun, time.Time.Compare)
			n := len(begun) - most
			first, last := begun[0], begun[n]
			took := last.Sub(first)
			used := float64(takes) * float64(n) / most / float64(took)
			if fair := used * float64(took) / float64(took-(lateAt(last)-lateAt(first))); fair < want {
				t.Errorf("of the limit %.1f %% are used, %.1f %% of the time that the machine had; want %.0f %%", 100*used, 100*fair, 100*want)
			}
			t.Logf("proof: jobs=%d running=%d used=%.1f%% in %v", len(items), most, 100*used, took.Round(time.Millisecond))
		})
	}
}

// export is a kind with limits of its own: all of its jobs are in one group.
type export struct{ N int }

func (export) Kind() string { return "export" }

func (export) Defaults() signalbox.Defaults { return signalbox.Defaults{Group: "exports"} }

// No more jobs of a kind run than its limit says, and others of the queue aren't concerned.
func TestLimitsOfAKind(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const most, jobs = 2, 20
	var running atomic.Int32
	var others sync.WaitGroup
	others.Add(jobs)
	handleExport := func(ctx context.Context, _ *signalbox.Job, _ export) error {
		if n := running.Add(1); n > most {
			t.Errorf("%d exports run", n)
		}
		defer running.Add(-1)
		others.Wait() // they run beside those that fill the limit
		return nil
	}
	for range 2 {
		cfg := r.config(5)
		q := cfg.Queues[r.name()]
		q.LimitsOf = map[string]signalbox.Limits{"exports": {Running: most}}
		cfg.Queues[r.name()] = q
		w := r.workerWith(cfg)
		worker.Handle(w, handleExport)
		worker.Handle(w, func(context.Context, *signalbox.Job, entry) error { others.Done(); return nil })
		r.start(w)
	}
	r.ready()
	s, err := scheduler.New(r.rdb, scheduler.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for n := range jobs {
		for _, args := range []signalbox.Args{export{n}, entry{"a", n}} {
			if _, err := s.Enqueue(t.Context(), args, scheduler.Queue(r.name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.until("all have completed", func(c looks.Counts) bool { return c.Total.Completed == 2*jobs })
}

// A handler that is told to wait holds back its group: another job of the group starts when that has ended, and others start at once.
func TestHoldBackByAHandler(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	began := make(chan entry, 9)
	handle := func(ctx context.Context, _ *signalbox.Job, e entry) error {
		if e.N == 0 {
			if err := signalbox.HoldBack(ctx, time.Now().Add(-time.Hour)); err != nil {
				return err
			}
			if err := signalbox.HoldBack(ctx, time.Now().Add(time.Hour)); err != nil {
				return err
			}
		}
		began <- e
		return nil
	}
	w := r.worker(4)
	worker.Handle(w, handle)
	r.start(w)
	s, err := scheduler.New(r.rdb, scheduler.Config{})
	if err != nil {
		t.Fatal(err)
	}
	put := func(e entry) {
		t.Helper()
		if _, err := s.Enqueue(t.Context(), e, scheduler.Queue(r.name()), scheduler.Group(e.Group)); err != nil {
			t.Fatal(err)
		}
	}
	put(entry{"a", 0})
	get(t, began, "the first job")
	put(entry{"a", 1})
	put(entry{"b", 2})
	if e := get(t, began, "a job of another group"); e.N != 2 {
		t.Fatalf("job %d runs, though its group is held back", e.N)
	}
	if _, err := r.queue.Settings().HoldBack(t.Context(), "ga", "", 0); err != nil {
		t.Fatal(err)
	}
	if e := get(t, began, "the job that was held back"); e.N != 1 {
		t.Fatalf("job %d runs", e.N)
	}
	if signalbox.HoldBack(t.Context(), time.Now().Add(time.Hour)) == nil {
		t.Error("a context that is not a handler's holds back jobs")
	}
}

// A failed attempt holds back other jobs before it ends, if its error or its kind says so: those of its group, or of its queue. Without that it
// doesn't.
func TestHoldBackByAnError(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    error
		opts   []worker.Option
		group  string
		serial bool
		held   string // the group, "-" for none
	}{
		"of one job":                {err: signalbox.RetryAfter(time.Hour, errBoom), group: "a", held: "-"},
		"of a group":                {err: fmt.Errorf("call: %w", signalbox.RetryAllAfter(time.Hour, errBoom)), group: "a", held: "ga"},
		"of a serial group":         {err: signalbox.RetryAllAfter(time.Hour, nil), group: "a", serial: true, held: "sa"},
		"of the queue":              {err: signalbox.RetryAllAfter(time.Hour, errBoom), held: ""},
		"of the kind":               {err: overloaded{time.Hour}, opts: []worker.Option{worker.RetryAllAfter()}, group: "a", held: "ga"},
		"of a dead job":             {err: signalbox.Dead(signalbox.RetryAllAfter(time.Hour, errBoom)), group: "a", held: "ga"},
		"of a kind, without a time": {err: errBoom, opts: []worker.Option{worker.RetryAllAfter()}, group: "a", held: "-"},
		"that panics":               {err: touchy{}, opts: []worker.Option{worker.RetryAllAfter()}, group: "a", held: "-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			w := r.worker(4)
			worker.Handle(w, func(context.Context, *signalbox.Job, entry) error { return c.err }, c.opts...)
			r.start(w)
			s, err := scheduler.New(r.rdb, scheduler.Config{})
			if err != nil {
				t.Fatal(err)
			}
			opts := []scheduler.EnqueueOption{scheduler.Queue(r.name()), scheduler.ID("j")}
			if c.serial {
				opts = append(opts, scheduler.Serial(c.group))
			} else if c.group != "" {
				opts = append(opts, scheduler.Group(c.group))
			}
			if _, err := s.Enqueue(t.Context(), entry{c.group, 0}, opts...); err != nil {
				t.Fatal(err)
			}
			r.until("the attempt has failed", func(c looks.Counts) bool { return c.Running == 0 && c.Due+c.Dead == 1 })
			holds, err := r.queue.Settings().Holds(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := "-"
			for _, h := range holds {
				got = h.Group
				if h.By != "j" || time.Until(h.Until) < 50*time.Minute || time.Until(h.Until) > 70*time.Minute {
					t.Errorf("held back: %+v", h)
				}
			}
			if got != c.held || len(holds) > 1 {
				t.Errorf("%+v are held back, want %q", holds, c.held)
			}
			if c.held != "-" {
				if _, err := r.queue.Settings().HoldBack(t.Context(), c.held, "", 0); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// touchy is an error whose methods panic.
type touchy struct{}

func (touchy) Error() string             { return "touchy" }
func (touchy) RetryAfter() time.Duration { panic("don't ask") }

// A worker applies the maximum length of its Config. What was set at run time stays until the next worker's Config has another one.
func TestMaxLengthOfConfig(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i, length := range []int{7, 7, 9} {
		cfg := r.config(1)
		q := cfg.Queues[r.name()]
		q.MaxLength = length
		cfg.Queues[r.name()] = q
		w := r.workerWith(cfg)
		worker.Handle(w, func(context.Context, *signalbox.Job, entry) error { return nil })
		running := r.start(w)
		redistest.Eventually(r.T, func() bool { return r.log.count("the worker is ready") > i }, "the worker is ready")
		settings, err := r.queue.Settings().Read(t.Context())
		if want := []int{7, 8, 9}[i]; err != nil || settings.MaxLength != want {
			t.Errorf("the maximum is %d, want %d; %v", settings.MaxLength, want, err)
		}
		if _, err := r.queue.Settings().SetMaxLength(t.Context(), 8); err != nil {
			t.Fatal(err)
		}
		running.stop()
	}
	_, err := worker.New(r.rdb, worker.Config{Queues: worker.Queues{"q": {MaxLength: -1}}})
	if !errors.Is(err, signalbox.ErrInvalid) {
		t.Errorf("a negative maximum: %v", err)
	}
}
