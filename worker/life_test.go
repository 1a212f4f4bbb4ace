package worker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/worker"
)

// life is the life of a job, told test by test. The list is the same on every kind of Redis.
var life = []struct {
	name string
	test func(r *rig)
}{
	{"completed", testCompleted},
	{"retried", testRetried},
	{"dead", testDead},
	{"cancelled", testCancelled},
	{"snoozed", testSnoozed},
	{"panic", testPanic},
	{"panicking error", testPanickingError},
	{"goexit", testGoexit},
	{"timeout", testTimeout},
	{"undecodable payload", testUndecodable},
	{"unknown kind", testUnknownKind},
	{"newer record", testNewerRecord},
	{"corrupt record", testCorruptRecord},
	{"priorities", testPriorities},
	{"order", testOrder},
	{"lease", testLease},
	{"mutated job", testMutatedJob},
	{"due", testDue},
	{"rubbish in ready", testRubbish},
	{"recovered", testRecovered},
	{"drained", testGivenBack},
}

func TestLife(t *testing.T) {
	t.Parallel()
	lifeOn(t, func(t *testing.T) redis.UniversalClient { return redistest.Start(t).Client() })
}

// lifeOn runs the list, and sees that none of it was left out.
func lifeOn(t *testing.T, client func(t *testing.T) redis.UniversalClient) {
	var ran atomic.Int32
	t.Cleanup(func() {
		if !t.Skipped() && int(ran.Load()) != len(life) {
			t.Errorf("%d tests ran, there are %d", ran.Load(), len(life))
		}
	})
	for _, c := range life {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rdb := client(t)
			ran.Add(1)
			c.test(newRigOn(t, rdb))
		})
	}
}

// soon retries at once.
func soon(int, error) time.Duration { return 0 }

func testCompleted(r *rig) {
	w := r.worker(10)
	got := make(chan *signalbox.Job, 1)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, a task) error {
		if a.N != 42 {
			return fmt.Errorf("N is %d", a.N)
		}
		got <- job
		return nil
	})
	r.start(w)
	id := r.addOne(signalbox.Job{
		Payload: payload(task{42}), Headers: map[string]string{"a": "b"}, Priority: signalbox.PriorityHigh, MaxAttempts: 3,
	})
	job := get(r.T, got, "the job runs")
	if job.ID != id || job.Kind != "task" || job.Queue != r.name() || job.Headers["a"] != "b" ||
		job.Priority != signalbox.PriorityHigh || job.Attempt != 1 || job.MaxAttempts != 3 || job.Crashes != 0 ||
		job.LastError != "" || job.Token == 0 || string(job.Payload) != `{"n":42}` {
		r.Errorf("job %+v", job)
	}
	if job.EnqueuedAt.IsZero() || !job.ScheduledAt.Equal(job.EnqueuedAt) || job.ClaimedAt.Before(job.EnqueuedAt) {
		r.Errorf("times of the job: %+v", job)
	}
	r.completed(1)
	if n := r.rdb.HLen(context.Background(), r.key("jobs")).Val(); n != 0 {
		r.Errorf("%d records are left of a completed job", n)
	}
}

func testRetried(r *rig) {
	w := r.worker(10)
	got := make(chan signalbox.Job, 3)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		got <- *job
		if job.Attempt < 3 {
			return fmt.Errorf("failure %d", job.Attempt)
		}
		return nil
	}, worker.Retry(func(attempt int, err error) time.Duration {
		if err.Error() != fmt.Sprintf("failure %d", attempt) {
			r.Errorf("the policy is asked of attempt %d with %q", attempt, err)
		}
		return 50 * time.Millisecond
	}))
	r.start(w)
	r.addOne(signalbox.Job{})
	var last signalbox.Job
	for attempt, lastError := range []string{"", "failure 1", "failure 2"} {
		job := get(r.T, got, "the next attempt")
		if job.Attempt != attempt+1 || job.LastError != lastError || job.Crashes != 0 {
			r.Errorf("attempt %d, last error %q, crashes %d; want %d, %q, 0", job.Attempt, job.LastError, job.Crashes, attempt+1, lastError)
		}
		if job.Token <= last.Token {
			r.Errorf("token %d after %d", job.Token, last.Token)
		}
		if attempt > 0 {
			if d := job.ScheduledAt.Sub(last.ClaimedAt); d < 50*time.Millisecond {
				r.Errorf("attempt %d was due %v after the one before, want 50 ms or more", job.Attempt, d)
			}
			if job.ClaimedAt.Before(job.ScheduledAt) {
				r.Errorf("attempt %d began before it was due", job.Attempt)
			}
		}
		last = job
	}
	r.completed(1)
	if c := r.counts(); c.Total.Retried != 2 {
		r.Errorf("counts %+v", c)
	}
}

func testDead(r *rig) {
	w := r.worker(10)
	var attempts atomic.Int32
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		return fmt.Errorf("%s, time %d", strings.Repeat("ö", 3000), attempts.Add(1))
	}, worker.Retry(soon))
	r.start(w)
	id := r.addOne(signalbox.Job{MaxAttempts: 3})
	r.until("the job is dead", func(c store.Counts) bool { return c.Dead == 1 })
	if n := attempts.Load(); n != 3 {
		r.Errorf("%d attempts, want 3", n)
	}
	job := r.job(id)
	if !strings.HasPrefix(job.LastError, "öööö") || !strings.HasSuffix(job.LastError, "...") || len(job.LastError) > 2100 {
		r.Errorf("the last error that is kept: %d bytes, %.40q", len(job.LastError), job.LastError)
	}
	if r.log.count("ERROR", "attempts are used up", id) != 1 {
		r.Error("the log doesn't say once that the job is dead")
	}
}

func testCancelled(r *rig) {
	w := r.worker(10)
	var calls atomic.Int32
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
		calls.Add(1)
		return fmt.Errorf("wrapped: %w", signalbox.Cancel(errBoom))
	}, worker.Retry(soon))
	r.start(w)
	id := r.addOne(signalbox.Job{})
	r.until("the job is cancelled", func(c store.Counts) bool { return c.Cancelled == 1 && c.Ready+c.Due+c.Running == 0 })
	if job := r.job(id); calls.Load() != 1 || !strings.Contains(job.LastError, "boom") || job.Attempt != 1 {
		r.Errorf("%d calls, job %+v", calls.Load(), job)
	}
}

func testSnoozed(r *rig) {
	w := r.worker(10)
	got := make(chan signalbox.Job, 4)
	var calls atomic.Int32
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		got <- *job
		if n := calls.Add(1); n < 4 {
			return fmt.Errorf("not yet: %w", signalbox.Snooze(time.Duration(n-1)*30*time.Millisecond))
		}
		return nil
	})
	r.start(w)
	r.addOne(signalbox.Job{MaxAttempts: 1})
	for range 4 {
		if job := get(r.T, got, "the job runs again"); job.Attempt != 1 || job.LastError != "" {
			r.Errorf("a snooze used an attempt: %+v", job)
		}
	}
	r.completed(1)
}

func testPanic(r *rig) {
	w := r.worker(1)
	seen := make(chan error, 1)
	w.Use(func(next signalbox.Handler) signalbox.Handler {
		return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) (err error) {
			defer func() { // Recover stands outside of this
				if p := recover(); p != nil {
					seen <- p.(error)
					panic(p)
				}
			}()
			return next.Handle(ctx, job)
		})
	})
	asked := make(chan error, 1)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		if job.Attempt == 1 {
			panicHere()
		}
		return nil
	}, worker.Retry(func(_ int, err error) time.Duration {
		asked <- err
		return 0
	}))
	r.start(w)
	r.addOne(signalbox.Job{})
	r.completed(1)
	if err := get(r.T, seen, "the middleware sees the panic"); err != errBoom {
		r.Errorf("the middleware saw %v", err)
	}
	var p *signalbox.PanicError
	if err := get(r.T, asked, "the policy is asked"); !errors.As(err, &p) || !errors.Is(err, errBoom) {
		r.Errorf("the attempt's error is %v", err)
	} else if !strings.Contains(string(p.Stack), "panicHere") {
		r.Errorf("the stack doesn't show who panicked:\n%s", p.Stack)
	}
	if n := r.log.count("an attempt failed", "stack=", "panicHere"); n != 1 {
		r.Errorf("%d log entries show who panicked, want 1", n)
	}
}

// A nil of the error's own type, and its Error method looks into it: the worker must survive that.
type brokenError struct{ why string }

func (e *brokenError) Error() string { return e.why }

func testPanickingError(r *rig) {
	w := r.worker(1)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		if job.Attempt == 1 {
			var broken *brokenError
			return broken
		}
		if !strings.Contains(job.LastError, "when it was looked at") {
			r.Errorf("last error %q", job.LastError)
		}
		return nil
	}, worker.Retry(func(int, error) time.Duration { return 0 }))
	r.start(w)
	r.addOne(signalbox.Job{})
	r.completed(1)
}

func panicHere() { panic(errBoom) }

func testGoexit(r *rig) {
	w := r.worker(1) // so the slot must serve on
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		if job.Attempt < 3 {
			runtime.Goexit()
		}
		if !strings.Contains(job.LastError, "Goexit") {
			r.Errorf("last error %q", job.LastError)
		}
		return nil
	}, worker.Retry(soon))
	run := r.start(w)
	r.addOne(signalbox.Job{})
	r.completed(1)
	run.stop()
}

func testTimeout(r *rig) {
	w := r.worker(10)
	causes := make(chan error, 2)
	handle := func(ctx context.Context, job *signalbox.Job) error {
		if job.Attempt > 1 {
			return nil
		}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	}
	w.HandleKind("own", signalbox.HandlerFunc(handle), worker.Retry(soon))
	w.HandleKind("kinds", signalbox.HandlerFunc(handle), worker.Retry(soon), worker.Timeout(20*time.Millisecond))
	r.start(w)
	r.add(signalbox.Job{Kind: "own", Timeout: 20 * time.Millisecond}, signalbox.Job{Kind: "kinds"})
	for range 2 {
		if err := get(r.T, causes, "the handler's context ends"); !errors.Is(err, signalbox.ErrTimeout) {
			r.Errorf("cause %v, want ErrTimeout", err)
		}
	}
	r.completed(2)
	if c := r.counts(); c.Total.Retried != 2 {
		r.Errorf("a timeout is a failed attempt: counts %+v", c)
	}
}

func testUndecodable(r *rig) {
	w := r.worker(10)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
		r.Error("the handler ran")
		return nil
	})
	r.start(w)
	ids := r.add(
		signalbox.Job{MaxAttempts: 1, Payload: []byte(`{"n":"geheim-1"}`)},
		signalbox.Job{MaxAttempts: 1, Payload: []byte(`geheim-2`)},
		signalbox.Job{MaxAttempts: 1, Payload: []byte{}},
	)
	r.until("all are dead", func(c store.Counts) bool { return c.Dead == 3 })
	for i, want := range []string{`field "n"`, "JSON at byte 1", "JSON at byte 0"} {
		if job := r.job(ids[i]); !strings.Contains(job.LastError, want) || strings.Contains(job.LastError, "geheim") {
			r.Errorf("last error %q, want one that says %s and no payload", job.LastError, want)
		}
	}
	if r.log.count("geheim") > 0 {
		r.Error("a payload is in the log")
	}
}

func testUnknownKind(r *rig) {
	w := r.worker(2)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	r.start(w)
	begin := time.Now()
	strangers := make([]signalbox.Job, 20)
	for i := range strangers {
		strangers[i].Kind = "stranger"
	}
	ids := r.add(strangers...)
	r.until("they are put back", func(c store.Counts) bool { return c.Due == 20 })
	r.add(signalbox.Job{}) // they stand in nobody's way
	r.until("the known one is completed", func(c store.Counts) bool { return c.Total.Completed == 1 })

	if c := r.counts(); c.Total.Delayed != 20 || c.Total.Retried != 0 {
		r.Errorf("each was to be looked at once and no attempt used: %+v", c)
	}
	for _, id := range ids {
		job := r.job(id)
		if d := job.ScheduledAt.Sub(begin); job.Attempt != 1 || d < 29*time.Second || d > 65*time.Second {
			r.Errorf("attempt %d is due in %v, want 1 and 30 to 60 s", job.Attempt, d)
		}
	}
	if n := r.log.count("WARN", "no handler", "stranger"); n != 1 {
		r.Errorf("%d warnings, want one", n)
	}
}

func testNewerRecord(r *rig) {
	id := r.addOne(signalbox.Job{ID: "from-the-future"})
	raw := "\x02" + r.record(id)[1:] + "what only a newer release can read"
	r.put(id, raw)
	w := r.worker(2)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
		r.Error("the handler ran")
		return nil
	})
	r.start(w)
	r.until("it is put back", func(c store.Counts) bool { return c.Due == 1 })
	// The time at which it is due, in bytes 11 to 18, is all that has changed.
	if now := r.record(id); now[:11] != raw[:11] || now[19:] != raw[19:] {
		r.Errorf("the record was changed from %q to %q", raw, now)
	}
	if r.log.count("WARN", "newer release", id) != 1 {
		r.Error("the log doesn't say so")
	}
}

func testCorruptRecord(r *rig) {
	ids := r.add(signalbox.Job{}, signalbox.Job{}, signalbox.Job{}, signalbox.Job{})
	rubbish := []string{"{\"json\":true}", "", r.record(ids[2])[:19] + "\xff\xff\xff"}
	for i, raw := range rubbish {
		r.put(ids[i], raw)
	}
	w := r.worker(2)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	r.start(w)
	r.until("three are dead, the fourth is completed", func(c store.Counts) bool { return c.Dead == 3 && c.Total.Completed == 1 })
	for i, raw := range rubbish {
		if now := r.record(ids[i]); now != raw {
			r.Errorf("the bytes %q were not kept: %q", raw, now)
		}
	}
}

func testPriorities(r *rig) {
	r.add(
		signalbox.Job{ID: "low-1", Priority: signalbox.PriorityLow}, signalbox.Job{ID: "normal-1"},
		signalbox.Job{ID: "high-1", Priority: signalbox.PriorityHigh}, signalbox.Job{ID: "low-2", Priority: signalbox.PriorityLow},
		signalbox.Job{ID: "high-2", Priority: signalbox.PriorityHigh}, signalbox.Job{ID: "normal-2"},
	)
	if got := r.sequence(6); got != "high-1 high-2 normal-1 normal-2 low-1 low-2" {
		r.Errorf("they ran as %s", got)
	}
}

func testOrder(r *rig) {
	var want []string
	for i := range 30 {
		want = append(want, r.addOne(signalbox.Job{ID: fmt.Sprint("job-", i)}))
	}
	if got := r.sequence(30); got != strings.Join(want, " ") {
		r.Errorf("first in, first out; they ran as %s", got)
	}
}

// sequence works the queue with one slot and returns the IDs as they ran.
func (r *rig) sequence(n int) string {
	w := r.worker(1)
	ran := make(chan string, n)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		ran <- job.ID
		return nil
	})
	r.start(w)
	ids := make([]string, n)
	for i := range ids {
		ids[i] = get(r.T, ran, "the next job runs")
	}
	r.completed(n)
	return strings.Join(ids, " ")
}

func testLease(r *rig) {
	w := r.worker(10)
	done := make(chan struct{})
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, _ task) error {
		defer close(done)
		l, ok := lock.FromContext(ctx)
		if !ok || l.Token() != job.Token || !strings.Contains(l.Key(), job.ID) {
			r.Errorf("the handler's lease is %v", l)
			return nil
		}
		if left := time.Until(l.Until()); left <= 0 || left > time.Second {
			r.Errorf("the lease lasts for %v, want up to 1 s", left)
		}
		return nil
	})
	r.start(w)
	r.addOne(signalbox.Job{})
	get(r.T, done, "the job runs")
	r.completed(1)
}

func testMutatedJob(r *rig) {
	w := r.worker(10)
	ran := make(chan signalbox.Job, 2)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		ran <- *job
		if job.Attempt == 2 {
			return nil
		}
		clear(job.Payload)
		clear(job.Headers)
		*job = signalbox.Job{ID: "another", Kind: "nobody's", Attempt: 77, MaxAttempts: 1, Token: 1, Priority: signalbox.PriorityLow}
		return errBoom
	}, worker.Retry(soon))
	r.start(w)
	id := r.addOne(signalbox.Job{Headers: map[string]string{"a": "b"}, MaxAttempts: 2, Payload: payload(task{7})})
	get(r.T, ran, "the first attempt")
	job := get(r.T, ran, "the second attempt")
	if job.ID != id || job.Attempt != 2 || job.MaxAttempts != 2 || job.Headers["a"] != "b" || string(job.Payload) != `{"n":7}` {
		r.Errorf("the handler changed the job: %+v", job)
	}
	r.completed(1)
}

func testDue(r *rig) {
	w := r.worker(100)
	type start struct{ at, due time.Time }
	const n = 50
	starts := make(chan start, n)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		starts <- start{time.Now(), job.ScheduledAt}
		return nil
	})
	r.start(w)
	for i := range n {
		r.addWhen(store.When{After: time.Duration(i*7%n+1) * 10 * time.Millisecond}, signalbox.Job{})
	}
	worst := time.Duration(0)
	for range n {
		s := get(r.T, starts, "the next due job runs")
		late := s.at.Sub(s.due)
		if late < 0 {
			r.Errorf("a job began %v early", -late)
		}
		worst = max(worst, late)
	}
	r.Logf("the latest of %d due jobs began %v late", n, worst)
	if worst > time.Second {
		r.Errorf("a due job began %v late", worst)
	}
	r.completed(n)
}

func testRubbish(r *rig) {
	ctx := context.Background()
	ids := r.add(signalbox.Job{}, signalbox.Job{}, signalbox.Job{})
	// Twice in the list, and names of nothing.
	if err := r.rdb.RPush(ctx, r.key("ready:normal"), ids[0], "nobody", ids[1], ids[0], "").Err(); err != nil {
		r.Fatal(err)
	}
	w := r.worker(2)
	var mu sync.Mutex
	ran := make(map[string]int)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		mu.Lock()
		defer mu.Unlock()
		ran[job.ID]++
		return nil
	})
	r.start(w)
	r.completed(3)
	mu.Lock()
	defer mu.Unlock()
	for _, id := range ids {
		if ran[id] != 1 {
			r.Errorf("job %s ran %d times", id, ran[id])
		}
	}
	if len(ran) != 3 {
		r.Errorf("jobs that ran: %v", ran)
	}
}

// testRecovered ends a session as a crash of its process does: nobody renews or settles.
func testRecovered(r *rig) {
	ctx := context.Background()
	id := r.addOne(signalbox.Job{MaxAttempts: 1})
	ghost := store.NewID()
	if alive, _, err := r.queue.Open(ctx, ghost, time.Second); err != nil || !alive {
		r.Fatal(alive, err)
	}
	lane := r.queue.NewLane()
	lane.Next()
	reply, err := r.queue.Claim(ctx, lane, &store.ClaimRequest{Session: ghost, Want: 1})
	if err != nil || len(reply.Deliveries) != 1 {
		r.Fatal(reply, err)
	}
	granted := time.Now()
	w := r.worker(2)
	ran := make(chan signalbox.Job, 1)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		ran <- *job
		return nil
	})
	r.start(w)
	job := get(r.T, ran, "the job runs again")
	if d := time.Since(granted); d > 2*time.Second {
		r.Errorf("recovered after %v, want a TTL of 1 s and at most another", d)
	}
	if job.ID != id || job.Crashes != 1 || job.Attempt != 1 || job.Token <= reply.Deliveries[0].Job.Token {
		r.Errorf("recovered as %+v; its first token was %d", job, reply.Deliveries[0].Job.Token)
	}
	r.completed(1)
}

func testGivenBack(r *rig) {
	cfg := r.config(5)
	cfg.DrainTimeout = -1
	w := r.workerWith(cfg)
	running := make(chan struct{}, 5)
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		running <- struct{}{}
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), signalbox.ErrShutdown) {
			r.Errorf("cause %v, want ErrShutdown", context.Cause(ctx))
		}
		return ctx.Err()
	})
	run := r.start(w)
	ids := r.add(make([]signalbox.Job, 5)...)
	for range 5 {
		get(r.T, running, "a job runs")
	}
	run.stop()
	if c := r.counts(); c.Ready != 5 || c.Total.Returned != 5 || c.Running != 0 {
		r.Errorf("counts after the stop: %+v", c)
	}
	for _, id := range ids {
		if job := r.job(id); job.Attempt != 1 || job.Crashes != 0 {
			r.Errorf("job %+v", job)
		}
	}
}
