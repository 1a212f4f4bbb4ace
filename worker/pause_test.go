package worker_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/health"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

func (r *rig) inspector() *inspect.Inspector {
	r.Helper()
	ins, err := inspect.New(r.rdb, inspect.Config{})
	if err != nil {
		r.Fatal(err)
	}
	if err := r.queue.Presence().Register(context.Background()); err != nil { // as a producer does, in time
		r.Fatal(err)
	}
	return ins
}

// set pauses or resumes the queue.
func (r *rig) set(change func(ctx context.Context, queue string) (bool, error)) {
	r.Helper()
	if changed, err := change(context.Background(), r.name()); err != nil || !changed {
		r.Fatalf("changed %v, %v", changed, err)
	}
}

var evalCalls = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`)

// calls returns how many scripts the server has run.
func (r *rig) calls() int {
	r.Helper()
	m := evalCalls.FindStringSubmatch(r.rdb.Info(context.Background(), "commandstats").Val())
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		r.Fatal(err)
	}
	return n
}

// callsOver returns how many scripts run until each session is gone or was renewed that many times.
func (r *rig) callsOver(renewals int) int {
	r.Helper()
	ctx := context.Background()
	before := r.calls()
	for range renewals {
		now := r.rdb.ZRangeWithScores(ctx, r.key("sessions"), 0, -1).Val()
		if len(now) == 0 {
			r.Fatal("there is no session")
		}
		redistest.Eventually(r.T, func() bool {
			for _, z := range now {
				if score, err := r.rdb.ZScore(ctx, r.key("sessions"), z.Member.(string)).Result(); err == nil && score == z.Score {
					return false
				}
			}
			return true
		}, "all sessions are renewed")
	}
	return r.calls() - before
}

// After a pause is acknowledged, no process claims a job. Running jobs are settled. No worker spins meanwhile. After the queue is resumed,
// all jobs run.
func TestPauseUnderLoad(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	r := newRigOn(t, srv.Client())
	ctx := context.Background()
	ins := r.inspector()
	added := 0
	add := func(n int) {
		jobs := make([]signalbox.Job, n)
		for i := range jobs {
			jobs[i] = signalbox.Job{Kind: order{}.Kind(), Payload: payload(order{Do: "sleep", MS: 5 + i%11})}
		}
		r.add(jobs...)
		added += n
	}
	for range 3 {
		startChild(t, childConfig{Addr: srv.Addr(), Queue: r.name(), Slots: 4, TTL: shortTTL})
	}
	redistest.Eventually(t, func() bool { return r.rdb.ZCard(ctx, r.key("sessions")).Val() == 3 }, "three processes have sessions")
	seen := 0 // number of pauses during which jobs waited
	for try := 0; seen < 3; try++ {
		if try == 20 {
			t.Fatal("no job waited at 20 pauses: the processes are too fast to be seen")
		}
		add(500)
		r.until("jobs are under way, or done", func(c looks.Counts) bool { return c.Running > 0 || c.Ready == 0 })
		r.set(ins.Pause)
		fence := r.rdb.Get(ctx, r.key("fence")).Val() // the last token that was granted
		r.until("what runs is settled", func(c looks.Counts) bool { return c.Running == 0 })
		waiting := r.counts().Ready
		if waiting > 0 {
			seen++
		}
		add(1)
		if seen == 1 {
			// A worker makes a renewal every two seconds, and a sweep every minute. A spinning worker would make thousands of calls.
			if n := r.callsOver(2); n > 60 {
				t.Errorf("%d calls of scripts by three idle workers of a paused queue in two renewals", n)
			}
		}
		if c := r.counts(); c.Running != 0 || c.Ready != waiting+1 {
			t.Errorf("%d jobs run and %d wait while the queue is paused; %d waited", c.Running, c.Ready, waiting+1)
		}
		if now := r.rdb.Get(ctx, r.key("fence")).Val(); now != fence {
			t.Errorf("tokens up to %s were granted after the pause, at which the last was %s", now, fence)
		}
		q, err := ins.Queue(ctx, r.name())
		if err != nil || !q.Paused || q.Ready != waiting+1 || q.Running != 0 || time.Since(q.PausedSince) > time.Hour {
			t.Errorf("it is %+v, %v", q, err)
		}
		r.set(ins.Resume)
	}
	r.completed(added)
}

// An idle worker starts jobs as soon as the queue is resumed: it is woken and doesn't poll.
func TestResumeWakesIdleWorkers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ins := r.inspector()
	ran := make(chan string, 10)
	w := r.workerWith(r.lease(2, time.Hour)) // no renewal helps
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		ran <- job.ID
		return nil
	})
	r.start(w)
	r.ready()
	r.addOne(signalbox.Job{ID: "before"})
	get(t, ran, "a job runs")
	r.completed(1)
	r.set(ins.Pause)
	r.add(signalbox.Job{ID: "a"}, signalbox.Job{ID: "b"}, signalbox.Job{ID: "c"})
	r.idle() // it is not woken
	select {
	case id := <-ran:
		t.Errorf("%s runs while the queue is paused", id)
	default:
	}
	r.set(ins.Resume)
	for range 3 {
		get(t, ran, "the jobs run")
	}
	r.completed(4)
}

// A worker is too old for a queue's layout. It settles the jobs that it has and logs that. It leaves other jobs and wake-ups to other
// workers until it is no longer too old.
func TestOutdatedWorker(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, redistest.New(t).Client()) // its own server, which has no other calls
	ctx := context.Background()
	ins := r.inspector()
	wait, open := r.gate()
	w := r.workerWith(r.short(2))
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
		<-wait
		return nil
	})
	run := r.start(w)
	r.addOne(signalbox.Job{ID: "has"})
	r.until("a job runs", func(c looks.Counts) bool { return c.Running == 1 })
	r.set(ins.Pause)
	r.add(signalbox.Job{ID: "a"}, signalbox.Job{ID: "b"})
	if err := r.rdb.HSet(ctx, r.key("settings"), "layout", layout.Protocol+1).Err(); err != nil {
		t.Fatal(err)
	}
	s, err := scheduler.New(r.rdb, scheduler.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var uncertain *scheduler.UncertainError
	if _, err := s.Enqueue(ctx, task{}, scheduler.Queue(r.name())); !errors.Is(err, signalbox.ErrOutdated) || errors.As(err, &uncertain) {
		t.Errorf("enqueue: %v", err)
	}
	r.set(ins.Resume)
	redistest.Eventually(t, func() bool { return r.log.count("this worker is too old for the queue") == 1 }, "the worker says that it is too old")
	open()
	r.until("its job is settled", func(c looks.Counts) bool { return c.Running == 0 && c.Total.Completed == 1 })
	redistest.Eventually(t, func() bool { return r.rdb.ZCard(ctx, r.key("idle")).Val() == 0 }, "it waits for no wake-up")
	if n := r.callsOver(2); n > 20 {
		t.Errorf("%d calls of scripts by one idle worker in two renewals", n)
	}
	if c := r.counts(); c.Ready != 2 {
		t.Errorf("%+v; two jobs should wait", c)
	}
	if err := r.rdb.HSet(ctx, r.key("settings"), "layout", layout.Protocol).Err(); err != nil {
		t.Fatal(err)
	}
	r.completed(3)
	if n := r.log.count("no longer too old"); n != 1 {
		t.Errorf("the worker says %d times that it is no longer too old", n)
	}
	run.stop()
}

// A queue has no layout of this release: from the beginning, since an older program has used it, or in the middle, since what has the layout was deleted. The
// worker says so once, in its log and in its health, and not that Redis fails. When the layout is right it works again.
func TestQueueOfAnotherLayout(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	ctx := context.Background()
	scene := func(t *testing.T) (*rig, *worker.Worker) {
		r := newRigOn(t, rdb)
		w := r.workerWith(r.short(1))
		worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
		return r, w
	}
	told := func(r *rig, w *worker.Worker, detail string) {
		r.Helper()
		of := func(p health.Problem) bool {
			return p.Code == health.Outdated && p.Severity == health.Unready && strings.Contains(p.Detail, detail) && !p.Since.IsZero()
		}
		redistest.Eventually(r.T, func() bool { return slices.ContainsFunc(w.Health().Problems, of) }, "health says %q", detail)
		for _, p := range w.Health().Problems {
			if p.Code == health.Refused || p.Code == health.RedisAway {
				r.Errorf("health: %+v", p)
			}
		}
		r.log.says(r.T, "the queue has another layout than this release knows", ".*"+detail+".*")
	}
	well := func(r *rig, w *worker.Worker, jobs int) {
		r.Helper()
		r.addOne(signalbox.Job{})
		r.completed(jobs)
		redistest.Eventually(r.T, func() bool { return len(w.Health().Problems) == 0 }, "there is no problem")
		for text, n := range map[string]int{
			"the queue has another layout than this release knows": 1, "the queue has a layout of this release now": 1, "too old": 0, "a call to Redis failed": 0, "Redis is away": 0,
		} {
			if got := r.log.count(text); got != n {
				r.Errorf("the log has %q %d times, want %d", text, got, n)
			}
		}
	}
	t.Run("from the beginning", func(t *testing.T) {
		t.Parallel()
		r, w := scene(t)
		if err := rdb.HSet(ctx, r.key("settings"), "layout", layout.Number-1).Err(); err != nil {
			t.Fatal(err)
		}
		run := r.start(w)
		told(r, w, "end its jobs with that program")
		if err := rdb.Del(ctx, r.key("settings")).Err(); err != nil {
			t.Fatal(err)
		}
		well(r, w, 1)
		run.stop()
	})
	t.Run("in the middle", func(t *testing.T) {
		t.Parallel()
		r, w := scene(t)
		run := r.start(w)
		r.addOne(signalbox.Job{})
		r.completed(1)
		// Both are deleted, and a job ends before any call that notes the layout.
		if _, err := rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Del(ctx, r.key("settings"), r.key("stats"))
			p.HSet(ctx, r.key("stats"), "completed", 1)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		told(r, w, "set the field layout of its settings to 3")
		if err := rdb.HSet(ctx, r.key("settings"), "layout", layout.Number).Err(); err != nil {
			t.Fatal(err)
		}
		well(r, w, 2)
		run.stop()
	})
}

// If Redis's clock is set back, a worker still accepts what Redis says of the queue.
func TestOutdatedWorkerAfterClockWentBack(t *testing.T) {
	t.Parallel()
	srv, shift := redistest.NewWithClock(t)
	r := newRigOn(t, srv.Client())
	ctx := context.Background()
	ins := r.inspector()
	w := r.workerWith(r.short(2))
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	run := r.start(w)
	r.ready()
	r.addOne(signalbox.Job{})
	r.completed(1)
	shift(-time.Minute)
	r.set(ins.Pause)
	r.add(signalbox.Job{}, signalbox.Job{})
	if err := r.rdb.HSet(ctx, r.key("settings"), "layout", layout.Protocol+1).Err(); err != nil {
		t.Fatal(err)
	}
	r.set(ins.Resume)
	redistest.Eventually(t, func() bool { return r.log.count("this worker is too old for the queue") == 1 }, "the worker says that it is too old")
	if err := r.rdb.HSet(ctx, r.key("settings"), "layout", layout.Protocol).Err(); err != nil {
		t.Fatal(err)
	}
	r.completed(3)
	run.stop()
}
