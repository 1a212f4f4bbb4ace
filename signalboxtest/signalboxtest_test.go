package signalboxtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/signalboxtest"
	"github.com/signalbox-go/signalbox/worker"
)

type note struct{ N int }

func (note) Kind() string { return "note" }

func (n note) Validate() error {
	if n.N < 0 {
		return errors.New("N is negative")
	}
	return nil
}

// rig are the parts of a test.
type rig struct {
	jobs *signalboxtest.Jobs
	s    *scheduler.Scheduler
	w    *worker.Worker
}

func newRig(t testing.TB, queues ...string) rig {
	t.Helper()
	jobs := signalboxtest.New(t)
	s, err := scheduler.New(jobs.Client(), scheduler.Config{Logger: silent})
	if err != nil {
		t.Fatal(err)
	}
	cfg := worker.Config{Logger: silent, DrainTimeout: time.Minute}
	for _, q := range queues {
		if cfg.Queues == nil {
			cfg.Queues = worker.Queues{}
		}
		cfg.Queues[q] = worker.Queue{}
	}
	w, err := worker.New(jobs.Client(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return rig{jobs, s, w}
}

func (r rig) enqueue(t *testing.T, args signalbox.Args, opts ...scheduler.EnqueueOption) scheduler.Result {
	t.Helper()
	res, err := r.s.Enqueue(t.Context(), args, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// A failing is a testing.TB that keeps how it was ended.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Fatalf(format string, args ...any) { f.said = fmt.Sprintf(format, args...) }

func TestWhatIsEnqueued(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		at := time.Now().Add(time.Hour)
		res := r.enqueue(t, note{7}, scheduler.Queue("mail"), scheduler.At(at), scheduler.Priority(signalbox.PriorityHigh), scheduler.MaxAttempts(3),
			scheduler.Timeout(time.Second), scheduler.Retain(time.Hour), scheduler.Serial("a"), scheduler.Header("tenant", "a"), scheduler.EffectKey("order-7"))
		r.enqueue(t, Welcome{1})
		job := signalboxtest.One[note](r.jobs)
		if job.Args.N != 7 || job.ID != res.ID || job.Queue != "mail" || !job.ScheduledAt.Equal(at) || !job.EnqueuedAt.Equal(time.Now()) ||
			job.Priority != signalbox.PriorityHigh || job.MaxAttempts != 3 || job.Timeout != time.Second || job.Retain != time.Hour || job.Group != "a" || !job.Serial || job.Headers["tenant"] != "a" ||
			job.EffectKey() != "order-7" || job.Attempt != 1 {
			t.Errorf("job %+v", job.Job)
		}
		job.Headers["tenant"], job.Payload[0] = "b", 'x' // the caller's own
		if again := signalboxtest.One[note](r.jobs); again.Headers["tenant"] != "a" || again.Args.N != 7 {
			t.Error("a caller has changed the jobs of all")
		}
		if n := len(r.jobs.Enqueued()); n != 2 {
			t.Errorf("%d jobs were enqueued, not 2", n)
		}
		results, err := r.s.EnqueueMany(t.Context(), []scheduler.Item{{Args: note{1}}, {Args: note{2}}, {Args: note{3}}})
		if err != nil || len(results) != 3 {
			t.Fatal(results, err)
		}
		var ns []int
		for _, e := range signalboxtest.All[note](r.jobs) {
			ns = append(ns, e.Args.N)
		}
		if fmt.Sprint(ns) != "[7 1 2 3]" {
			t.Errorf("notes %v", ns)
		}
		r.jobs.Clear()
		if len(r.jobs.Enqueued())+len(r.jobs.Waiting()) > 0 {
			t.Error("jobs after Clear")
		}
	})
}

// TestOutcomes: each way in which a delivery ends has its verdict.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	const none = -1
	for _, c := range []struct {
		name       string
		job        func(*signalbox.Job)
		handle     func() error
		want       signalbox.Outcome
		least      time.Duration
		most       time.Duration
		attempt    int // of Next; none: there is no Next
		lastError  string
		asPanic    bool
		asRefusal  bool
		wrapsError error
	}{
		{name: "completed", handle: func() error { return nil }, want: signalbox.OutcomeCompleted, attempt: none},
		{
			name: "retried", handle: func() error { return boom }, want: signalbox.OutcomeRetried, least: 500 * time.Millisecond, most: time.Second,
			attempt: 2, lastError: "boom", wrapsError: boom,
		},
		{name: "snoozed", handle: func() error { return signalbox.Snooze(time.Hour) }, want: signalbox.OutcomeSnoozed, least: time.Hour, most: time.Hour, attempt: 1},
		{
			name: "dead", job: func(j *signalbox.Job) { j.Attempt = j.MaxAttempts }, handle: func() error { return boom }, want: signalbox.OutcomeDead,
			attempt: 26, lastError: "boom", wrapsError: boom,
		},
		{
			name: "cancelled", handle: func() error { return signalbox.Cancel(boom) }, want: signalbox.OutcomeCancelled, attempt: 1,
			lastError: "job cancelled: boom", wrapsError: boom,
		},
		{
			name: "panicked", handle: func() error { panic(boom) }, want: signalbox.OutcomeRetried, least: 500 * time.Millisecond, most: time.Second,
			attempt: 2, lastError: "handler panicked: boom", asPanic: true, wrapsError: boom,
		},
		{
			name: "refused", job: func(j *signalbox.Job) { j.Payload = []byte(`{"N":"x"}`) }, want: signalbox.OutcomeRetried,
			least: 30 * time.Second, most: time.Minute, attempt: 2, lastError: `decode the job's arguments: field "N" (in Go note.N) must fit in a Go int, and is a JSON string`, asRefusal: true,
		},
		{
			name: "refused by Validate", job: func(j *signalbox.Job) { j.Payload, j.Attempt = []byte(`{"N":-1}`), 5 }, want: signalbox.OutcomeDead,
			attempt: 6, lastError: "the job's arguments are not valid: N is negative", asRefusal: true,
		},
		{
			name: "unknown kind", job: func(j *signalbox.Job) { j.Kind = "nobodys" }, want: signalbox.OutcomeReturned, least: 500 * time.Millisecond, most: time.Second, attempt: 1,
			lastError: "put back: worker ITS-ID has no handler for kind \"nobodys\"",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			called := false
			worker.Handle(r.w, func(context.Context, *signalbox.Job, note) error {
				called = true
				return c.handle()
			})
			job := r.jobs.NewJob(note{7})
			if c.job != nil {
				c.job(job)
			}
			began := time.Now()
			v := r.jobs.Work(t.Context(), r.w, job)
			if v.Outcome != c.want || v.Delay < c.least || v.Delay > c.most || called == (c.handle == nil) {
				t.Errorf("verdict %v; handler called: %v", v, called)
			}
			if (v.Next == nil) != (c.attempt == none) {
				t.Fatalf("next %+v", v.Next)
			}
			if v.Next != nil && (v.Next.Attempt != c.attempt || v.Next.LastError != strings.ReplaceAll(c.lastError, "ITS-ID", r.w.ID()) || v.Next.ID != job.ID || v.Next.Kind != job.Kind || string(v.Next.Payload) != string(job.Payload)) {
				t.Errorf("next %+v", v.Next)
			}
			if c.least > 0 && (v.Next.ScheduledAt.Sub(began) < v.Delay-time.Microsecond || v.Next.ScheduledAt.Sub(began) > v.Delay+time.Minute) {
				t.Errorf("next at %v, %v after %v", v.Next.ScheduledAt, v.Delay, began)
			}
			if _, ok := errors.AsType[*signalbox.PanicError](v.Err); ok != c.asPanic {
				t.Errorf("panicked: %v, by %v", ok, v.Err)
			}
			if _, ok := errors.AsType[*signalbox.PayloadError](v.Err); ok != c.asRefusal {
				t.Errorf("refused: %v, by %v", ok, v.Err)
			}
			if c.wrapsError != nil && !errors.Is(v.Err, c.wrapsError) {
				t.Errorf("error %v", v.Err)
			}
		})
	}
}

// TestWholeChain: the handler runs inside all middleware, with the values of ctx, and OnSettled hears the outcome.
func TestWholeChain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	type key struct{}
	var way []string
	named := func(name string) signalbox.Middleware {
		return func(next signalbox.Handler) signalbox.Handler {
			return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
				way = append(way, name)
				if !signalbox.OnSettled(ctx, func(s signalbox.Settled) { way = append(way, name+" heard "+string(s.Outcome)) }) {
					t.Error("OnSettled refused")
				}
				return next.Handle(ctx, job)
			})
		}
	}
	r.w.Use(named("use"))
	worker.Handle(r.w, func(ctx context.Context, job *signalbox.Job, args note) error {
		way = append(way, fmt.Sprint("handler of ", ctx.Value(key{}), " token ", job.Token))
		l, _ := lock.FromContext(ctx)
		if o, ok := l.(lock.Origin); !ok || o.Issuer() == "" || o.Holder() == "" {
			t.Errorf("the lease %T has no origin", l)
		}
		if found, ok := signalbox.FromContext(ctx); !ok || found != job {
			t.Errorf("the context has the job %v, %v", found, ok)
		}
		return nil
	}, worker.With(named("with")))
	r.enqueue(t, note{1})
	v := r.jobs.Work(context.WithValue(t.Context(), key{}, "mine"), r.w, signalboxtest.One[note](r.jobs).Job)
	if got, want := strings.Join(way, ", "), "use, with, handler of mine token 1, use heard completed, with heard completed"; got != want || v.Outcome != signalbox.OutcomeCompleted {
		t.Errorf("%v: %s", v, got)
	}
	if len(r.jobs.Waiting()) != 0 {
		t.Error("a completed job waits")
	}
}

// TestFakeClock: in a bubble timeouts and retries take no time.
func TestFakeClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		worker.Handle(r.w, func(ctx context.Context, job *signalbox.Job, args note) error {
			time.Sleep(20 * time.Minute)
			if ctx.Err() != nil {
				t.Error("ended early:", context.Cause(ctx))
			}
			<-ctx.Done()
			return ctx.Err()
		}, worker.Timeout(time.Hour))
		r.enqueue(t, note{1}, scheduler.MaxAttempts(10))
		began := time.Now()
		v := r.jobs.Work(t.Context(), r.w, signalboxtest.One[note](r.jobs).Job)
		if took := time.Since(began); took != time.Hour || !errors.Is(v.Err, signalbox.ErrTimeout) || v.Outcome != signalbox.OutcomeRetried {
			t.Errorf("%v after %v", v, took)
		}
		attempts := 1
		for v.Outcome == signalbox.OutcomeRetried {
			if due := r.jobs.WorkAll(t.Context(), r.w); len(due) != 0 {
				t.Fatalf("ran before its time: %v", due)
			}
			time.Sleep(v.Delay)
			v = r.jobs.WorkAll(t.Context(), r.w)[0]
			attempts++
		}
		if attempts != 10 || v.Outcome != signalbox.OutcomeDead || len(r.jobs.Waiting()) != 0 {
			t.Errorf("%d attempts, then %v", attempts, v)
		}
	})
}

// TestShutdown: the end of ctx is that of the worker.
func TestShutdown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var drained, ended time.Duration
		began := time.Now()
		worker.Handle(r.w, func(ctx context.Context, job *signalbox.Job, args note) error {
			<-signalbox.Draining(ctx)
			drained = time.Since(began)
			<-ctx.Done()
			ended = time.Since(began)
			return context.Cause(ctx)
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r.enqueue(t, note{1})
		v := r.jobs.Work(ctx, r.w, signalboxtest.One[note](r.jobs).Job)
		if drained != time.Second || ended != time.Second+time.Minute || v.Outcome != signalbox.OutcomeReturned || !errors.Is(v.Err, signalbox.ErrShutdown) || v.Next.Attempt != 1 {
			t.Errorf("draining after %v, ended after %v: %v", drained, ended, v)
		}
		if waiting := r.jobs.Waiting(); len(waiting) != 1 {
			t.Errorf("waiting: %v", waiting)
		}
	})
}

func TestWorkAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "default", "mail")
		var ran []int
		worker.Handle(r.w, func(ctx context.Context, job *signalbox.Job, args note) error {
			ran = append(ran, args.N)
			switch {
			case args.N == 4:
				_, err := r.s.Enqueue(ctx, note{40}, scheduler.Queue("mail"))
				return err
			case args.N == 5 && len(ran) == 2:
				return signalbox.Snooze(0)
			}
			return nil
		})
		r.enqueue(t, note{1}, scheduler.Priority(signalbox.PriorityLow))
		r.enqueue(t, note{2}, scheduler.After(time.Hour))
		r.enqueue(t, note{3}, scheduler.Queue("others"))
		r.enqueue(t, note{4}, scheduler.Priority(signalbox.PriorityHigh))
		r.enqueue(t, note{5})
		verdicts := r.jobs.WorkAll(t.Context(), r.w)
		if fmt.Sprint(ran) != "[4 5 40 5 1]" || len(verdicts) != 5 || verdicts[1].Outcome != signalbox.OutcomeSnoozed {
			t.Errorf("ran %v: %v", ran, verdicts)
		}
		if waiting := r.jobs.Waiting(); len(waiting) != 2 || waiting[0].Queue != "others" {
			t.Errorf("waiting: %v", waiting)
		}
		time.Sleep(time.Hour)
		if verdicts = r.jobs.WorkAll(t.Context(), r.w); len(verdicts) != 1 || ran[5] != 2 {
			t.Errorf("ran %v: %v", ran, verdicts)
		}
	})
}

// TestIDs: an ID is taken while its job lives, as in Redis.
func TestIDs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var end error
	worker.Handle(r.w, func(context.Context, *signalbox.Job, note) error { return end })
	id := scheduler.ID("one")
	for _, c := range []struct {
		end   error
		after scheduler.Result // of an enqueue after that
		keep  scheduler.Result // of one with IfAbsent
	}{
		{nil, scheduler.Result{ID: "one", New: true}, scheduler.Result{ID: "one", New: true}},
		{signalbox.Cancel(nil), scheduler.Result{ID: "one", New: true, Replaced: signalbox.StateCancelled}, scheduler.Result{ID: "one", Existing: "one", State: signalbox.StateCancelled}},
		{errAway, scheduler.Result{ID: "one", New: true, Replaced: signalbox.StateDead}, scheduler.Result{ID: "one", Existing: "one", State: signalbox.StateDead}},
		{signalbox.Snooze(time.Hour), scheduler.Result{ID: "one", Existing: "one", State: signalbox.StateScheduled}, scheduler.Result{ID: "one", Existing: "one", State: signalbox.StateScheduled}},
	} {
		for _, absent := range []bool{false, true} {
			r.jobs.Clear()
			end = c.end
			r.enqueue(t, note{1}, id, scheduler.MaxAttempts(1))
			if res := r.enqueue(t, note{2}, id); res.New || res.State != signalbox.StateReady {
				t.Errorf("beside a ready job: %+v", res)
			}
			r.jobs.WorkAll(t.Context(), r.w)
			if !absent {
				if res := r.enqueue(t, note{3}, id); said(res) != c.after {
					t.Errorf("after %v: %+v", c.end, res)
				}
			} else if res := r.enqueue(t, note{3}, id, scheduler.IfAbsent()); said(res) != c.keep {
				t.Errorf("after %v, with IfAbsent: %+v", c.end, res)
			}
		}
	}
}

// TestUnique: a unique key keeps others out until its scope has ended, as in Redis.
func TestUnique(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var inside []scheduler.Result // what the handler's enqueues of the same keys get
		worker.Handle(r.w, func(context.Context, *signalbox.Job, note) error {
			inside = append(inside,
				r.enqueue(t, note{2}, scheduler.ID("ended"), scheduler.Unique("e", scheduler.UntilEnded)),
				r.enqueue(t, note{2}, scheduler.ID("started"), scheduler.Unique("s", scheduler.UntilStarted), scheduler.After(time.Hour)))
			return nil
		})
		r.enqueue(t, note{1}, scheduler.ID("a"), scheduler.Unique("e", scheduler.UntilEnded))
		if res := r.enqueue(t, note{1}, scheduler.ID("b"), scheduler.Unique("e", scheduler.UntilEnded)); said(res) != (scheduler.Result{ID: "b", Existing: "a", State: signalbox.StateReady}) {
			t.Errorf("beside the first: %+v", res)
		}
		r.jobs.WorkAll(t.Context(), r.w)
		if said(inside[0]) != (scheduler.Result{ID: "ended", Existing: "a", State: signalbox.StateReady}) || !inside[1].New {
			t.Errorf("while it runs: %+v", inside)
		}
		if res := r.enqueue(t, note{1}, scheduler.ID("c"), scheduler.Unique("s", scheduler.UntilEnded)); said(res) != (scheduler.Result{ID: "c", Existing: "started", State: signalbox.StateScheduled}) {
			t.Errorf("beside the scheduled one: %+v", res)
		}
		if res := r.enqueue(t, note{1}, scheduler.ID("d"), scheduler.Unique("e", scheduler.Window(time.Minute))); !res.New {
			t.Errorf("after the end: %+v", res)
		}
		r.jobs.WorkAll(t.Context(), r.w)
		if res := r.enqueue(t, note{1}, scheduler.ID("f"), scheduler.Unique("e", scheduler.UntilEnded)); said(res) != (scheduler.Result{ID: "f", Existing: "d"}) {
			t.Errorf("in the window: %+v", res)
		}
		time.Sleep(time.Minute)
		if res := r.enqueue(t, note{1}, scheduler.ID("f"), scheduler.Unique("e", scheduler.UntilEnded)); !res.New {
			t.Errorf("after the window: %+v", res)
		}
		r.jobs.Clear()
		for n := range 3 {
			r.enqueue(t, note{n}, scheduler.Debounce("d", time.Minute, 90*time.Second))
			time.Sleep(40 * time.Second)
		}
		if waiting := r.jobs.Waiting(); len(waiting) != 1 || string(waiting[0].Payload) != `{"N":2}` || waiting[0].ScheduledAt.Sub(waiting[0].EnqueuedAt) != 90*time.Second {
			t.Errorf("after three calls: %+v", waiting)
		}
		r.jobs.Clear()
		throttle := scheduler.Throttle("t", time.Minute)
		r.enqueue(t, note{3}, scheduler.ID("now"), throttle)
		r.jobs.WorkAll(t.Context(), r.w)
		began := time.Now()
		time.Sleep(time.Second)
		r.enqueue(t, note{4}, scheduler.ID("next"), throttle)
		if res := r.enqueue(t, note{5}, scheduler.ID("g"), throttle); said(res) != (scheduler.Result{ID: "g", Existing: "next", State: signalbox.StateScheduled, Updated: true}) {
			t.Errorf("throttled: %+v", res)
		}
		for _, job := range r.jobs.Waiting() {
			if job.ID == "next" && (string(job.Payload) != `{"N":5}` || !job.ScheduledAt.Equal(began.Add(time.Minute))) {
				t.Errorf("the throttled job: %+v", job)
			}
		}
	})
}

// TestCron: a scheduler that runs in a bubble fires its entries by the bubble's clock, and each tick once.
func TestCron(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		other, err := scheduler.New(r.jobs.Client(), scheduler.Config{Logger: silent})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []*scheduler.Scheduler{r.s, other} {
			if err := s.Cron("hourly", "30 * * * *", note{1}, scheduler.Queue("cron")); err != nil {
				t.Fatal(err)
			}
			if err := s.Cron("daily", "CRON_TZ=Europe/Berlin 0 9 * * *", Welcome{1}); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			time.Sleep(24 * time.Hour)
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		hourly := signalboxtest.All[note](r.jobs)
		if len(hourly) != 48 {
			t.Fatalf("%d ticks in two days", len(hourly))
		}
		first := time.Date(2000, time.January, 1, 0, 30, 0, 0, time.UTC) // a bubble begins at midnight
		for i, job := range hourly {
			if want := first.Add(time.Duration(i) * time.Hour); !job.ScheduledAt.Equal(want) || job.EnqueuedAt.Sub(want) > time.Second || job.Queue != "cron" {
				t.Errorf("tick %d: %v, enqueued %v", i, job.ScheduledAt, job.EnqueuedAt)
			}
		}
		daily := signalboxtest.All[Welcome](r.jobs)
		if len(daily) != 2 || daily[0].ScheduledAt.UTC().Hour() != 8 {
			t.Errorf("daily: %v", daily)
		}
	})
}

// TestBubbleAfterBubble: what one bubble has left behind is of no use to the next.
func TestBubbleAfterBubble(t *testing.T) {
	t.Parallel()
	for range 5 {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			for n := range 3 {
				r.enqueue(t, note{n})
			}
		})
	}
}

// TestConcurrently: one worker may work several jobs at a time, and many goroutines may enqueue.
func TestConcurrently(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	worker.Handle(r.w, func(context.Context, *signalbox.Job, note) error { return nil }, worker.With(func(next signalbox.Handler) signalbox.Handler { return next }))
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for range 20 {
				if _, err := r.s.Enqueue(t.Context(), note{n}); err != nil {
					t.Error(err)
				}
				if v := r.jobs.Work(t.Context(), r.w, r.jobs.NewJob(note{n})); v.Outcome != signalbox.OutcomeCompleted {
					t.Error(v)
				}
			}
		})
	}
	all.Wait()
	if n := len(r.jobs.Waiting()); n != 160 {
		t.Errorf("%d jobs wait, not 160", n)
	}
}

// TestMistakes: what can't be done ends the test, and says why.
func TestMistakes(t *testing.T) {
	t.Parallel()
	f := &failing{TB: t}
	r := newRig(f)
	worker.Handle(r.w, func(context.Context, *signalbox.Job, note) error { return nil })
	expect := func(what string) {
		t.Helper()
		if !strings.Contains(f.said, what) {
			t.Errorf("said %q, not %q", f.said, what)
		}
		f.said = ""
	}
	signalboxtest.One[note](r.jobs)
	expect(`0 jobs of kind "note" were enqueued, not 1; enqueued were: none`)
	r.enqueue(t, Welcome{1}, scheduler.Queue("mail"))
	r.enqueue(t, note{1})
	r.enqueue(t, note{2})
	signalboxtest.One[note](r.jobs)
	expect(`2 jobs of kind "note" were enqueued, not 1; enqueued were: 1 of "email.welcome" in queue "mail", 2 of "note" in queue "default"`)
	r.jobs.Work(t.Context(), r.w, signalboxtest.One[Welcome](r.jobs).Job)
	expect(`the worker doesn't work queue "mail"`)
	r.jobs.NewJob(note{-1}, scheduler.Queue("no queue"))
	expect("N is negative")

	other, err := scheduler.New(r.jobs.Client(), scheduler.Config{Namespace: "staging"})
	if err != nil {
		t.Fatal(err)
	}
	res, err := other.Enqueue(t.Context(), note{3})
	if err != nil {
		t.Fatal(err)
	}
	jobs := r.jobs.Enqueued()
	if v := r.jobs.Work(t.Context(), r.w, jobs[len(jobs)-1]); v.Job != nil || res.ID != jobs[len(jobs)-1].ID {
		t.Error("a worker has got a job of another namespace")
	}
	expect(`is in namespace "staging"`)
	if verdicts := r.jobs.WorkAll(t.Context(), r.w); len(verdicts) != 2 {
		t.Errorf("worked %v", verdicts)
	}

	loop := newRig(f)
	worker.Handle(loop.w, func(context.Context, *signalbox.Job, note) error { return signalbox.Snooze(0) })
	loop.enqueue(t, note{1})
	loop.jobs.WorkAll(t.Context(), loop.w)
	expect(`10000 deliveries, and 1 jobs still wait; the next one has kind "note"`)
}

// TestNoServer: workers can't run on the stand-in, and other calls fail, with an error that says what to do.
func TestNoServer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	worker.Handle(r.w, func(context.Context, *signalbox.Job, note) error { return nil })
	if err := r.w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "Jobs.Work or Jobs.WorkAll") {
		t.Errorf("Run: %v", err)
	}
	if err := r.jobs.Client().Set(t.Context(), "k", "v", 0).Err(); err == nil || !strings.Contains(err.Error(), "SET") || !strings.Contains(err.Error(), "package embedded") {
		t.Errorf("SET: %v", err)
	}
	if err := r.jobs.Client().Eval(t.Context(), "return 1", nil).Err(); err == nil || !strings.Contains(err.Error(), "package embedded") {
		t.Errorf("EVAL: %v", err)
	}
}

// TestFailNow: a handler that ends the test does so, as it runs in the test's goroutine.
func TestFailNow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	done := make(chan string)
	worker.Handle(r.w, func(context.Context, *signalbox.Job, note) error {
		(&testing.T{}).FailNow()
		return nil
	})
	go func() {
		said := "the goroutine has ended"
		defer func() { done <- said }()
		r.jobs.Work(context.Background(), r.w, r.jobs.NewJob(note{1}))
		said = "Work has returned"
	}()
	if said := <-done; said != "the goroutine has ended" {
		t.Error(said)
	}
}

// BenchmarkCase is a test of a user's: a service that enqueues, and the handler of its job.
func BenchmarkCase(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		r := newRig(b, "mail")
		register(r.w)
		if err := NewService(r.s).SignUp(b.Context(), 42); err != nil {
			b.Fatal(err)
		}
		if v := r.jobs.Work(b.Context(), r.w, signalboxtest.One[Welcome](r.jobs).Job); v.Outcome != signalbox.OutcomeRetried {
			b.Fatal(v)
		}
		_ = r.jobs.Client().Close()
	}
}

// BenchmarkWork is one delivery more of a test that has a worker.
func BenchmarkWork(b *testing.B) {
	r := newRig(b)
	worker.Handle(r.w, func(context.Context, *signalbox.Job, note) error { return nil })
	job := r.jobs.NewJob(note{1})
	b.ReportAllocs()
	for b.Loop() {
		if v := r.jobs.Work(b.Context(), r.w, job); v.Outcome != signalbox.OutcomeCompleted {
			b.Fatal(v)
		}
	}
}

// said returns what a result says of its job, to be compared: a result knows its queue, too.
func said(r scheduler.Result) scheduler.Result {
	return scheduler.Result{ID: r.ID, New: r.New, Updated: r.Updated, Existing: r.Existing, State: r.State, Replaced: r.Replaced, Err: r.Err}
}
