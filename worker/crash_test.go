package worker_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/worker"
)

// child starts a worker process on the rig's queue.
func (r *rig) child(slots int, ttl time.Duration) *child {
	r.Helper()
	return startChild(r.T, childConfig{Addr: redistest.Start(r.T).Addr(), Queue: r.name(), Slots: slots, TTL: ttl})
}

// orders enqueues n jobs that all do the same.
func (r *rig) orders(n int, o order) []string {
	r.Helper()
	jobs := make([]signalbox.Job, n)
	for i := range jobs {
		o.N = i
		jobs[i] = signalbox.Job{Kind: o.Kind(), Payload: payload(o)}
	}
	return r.add(jobs...)
}

func TestJobsOfAKilledProcessRunAgain(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	r := newRig(t)
	dying := r.child(10, ttl)
	ids := r.orders(10, order{Do: "wait"})
	tokens := make(map[string]int64)
	for range ids {
		l := dying.await("start")
		tokens[l.job] = l.token
	}
	w := r.workerWith(r.config(20))
	type start struct {
		job signalbox.Job
		at  time.Time
	}
	starts := make(chan start, 10)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ order) error {
		starts <- start{*job, time.Now()}
		return nil
	})
	r.start(w)
	r.ready()
	dying.kill()
	killed, late := time.Now(), redistest.Lag(t, r.rdb)
	for range ids {
		s := get(t, starts, "a job of the killed process runs again")
		if d := s.at.Sub(killed); d-late() > ttl+time.Second {
			t.Errorf("it runs again %v after the kill, want the TTL of 3 s and at most 1 s more", d)
		}
		if s.job.Crashes != 1 || s.job.Attempt != 1 || s.job.LastError != "" {
			t.Errorf("crashes %d, attempt %d, last error %q; want 1, 1 and none", s.job.Crashes, s.job.Attempt, s.job.LastError)
		}
		if s.job.Token <= tokens[s.job.ID] {
			t.Errorf("token %d after %d", s.job.Token, tokens[s.job.ID])
		}
	}
	r.completed(10)
	if c := r.counts(); c.Total.Crashed != 10 {
		t.Errorf("counts %+v, want 10 crashes", c)
	}
}

// A process stands still for three TTLs and loses its jobs. When it continues, it starts nothing more under them, and its reports about
// them change nothing.
func TestStoppedProcessIsFencedOff(t *testing.T) {
	t.Parallel()
	const n, ttl = 20, 3 * time.Second
	r := newRig(t)
	stopped := r.child(n, ttl)
	ids := r.orders(n, order{Do: "work"})
	old := make(map[string]int64)
	for range n {
		l := stopped.await("start")
		old[l.job] = l.token
	}

	w := r.workerWith(r.config(2 * n))
	started := make(chan signalbox.Job, n)
	release, open := r.gate()
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, _ order) error {
		started <- *job
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	r.start(w)
	r.ready()

	stopped.freeze()
	frozen, late := time.Now(), redistest.Lag(t, r.rdb)
	for range n {
		if job := get(t, started, "the jobs run elsewhere"); job.Token <= old[job.ID] || job.Crashes != 1 {
			t.Errorf("elsewhere: token %d after %d, crashes %d", job.Token, old[job.ID], job.Crashes)
		}
	}
	if d := time.Since(frozen); d-late() > ttl+time.Second {
		t.Errorf("elsewhere after %v", d)
	}
	<-time.After(3*ttl - time.Since(frozen))

	resumed := time.Now()
	stopped.signal(syscall.SIGCONT)
	ended := make(map[string]bool)
	for len(ended) < n {
		l := get(t, stopped.lines, "the handlers of the old deliveries return")
		if l.token != old[l.job] {
			t.Fatalf("the process got job %s again, with token %d", l.job, l.token)
		}
		switch {
		case l.what == "operation" && l.at.After(resumed):
			t.Errorf("an operation of job %s with the old token began %v after the process went on", l.job, l.at.Sub(resumed))
		case strings.HasPrefix(l.what, "cause=") && l.what != "cause=lock:_lease_lost":
			t.Errorf("the context of job %s ended with %s", l.job, l.what)
		case l.what == "end":
			ended[l.job] = true
		}
	}
	redistest.Eventually(t, func() bool { return stopped.logged("superseded delivery was refused") == n }, "all late settlements are refused")
	if stopped.logged("refused: the job has been taken over") != n || stopped.logged("lost memory") > 0 {
		t.Error("its log blames another than the worker that took over")
	}
	if c := r.counts(); c.Running != n || c.Ready+c.Due+c.Dead+c.Cancelled != 0 ||
		c.Total.Completed+c.Total.Retried+c.Total.Delayed+c.Total.Returned+c.Total.Cancelled != 0 {
		t.Errorf("they changed something: %+v", c)
	}
	open()
	r.until("the others complete them", func(c looks.Counts) bool { return c.Total.Completed == n })
	if got := slices.Sorted(maps.Keys(ended)); !slices.Equal(got, slices.Sorted(slices.Values(ids))) {
		t.Errorf("jobs %v, want %v", got, ids)
	}
}

// A job kills its process, and the jobs beside it are lost with the process. The job ends dead. None of the others does.
func TestPoisonedJob(t *testing.T) {
	t.Parallel()
	const innocent = 49
	r := newRig(t)
	r.orders(innocent/2, order{Do: "sleep", MS: 100})
	poison := r.orders(1, order{Do: "die"})[0]
	r.orders(innocent-innocent/2, order{Do: "sleep", MS: 100})

	processes := 0
	for over := false; !over; {
		if processes++; processes > 10 {
			t.Fatalf("processes die on and on; counts %+v", r.counts())
		}
		c := r.child(innocent+1, time.Second)
		for over = false; !over && !isClosed(c.done); {
			counts := r.counts()
			over = counts.Total.Completed+counts.Dead == innocent+1 // doesn't use the number of waiting jobs, which can change between two reads
			<-time.After(10 * time.Millisecond)
		}
		c.kill()
	}
	c := r.counts()
	if c.Dead != 1 || c.Total.Completed != innocent || c.Total.Cancelled+c.Total.Retried != 0 {
		t.Errorf("counts %+v; want %d completed and one dead", c, innocent)
	}
	job := r.job(poison)
	if job.Crashes != store.CrashLimit || !strings.Contains(job.LastError, "died") || job.Attempt != 1 {
		t.Errorf("the poisoned job: crashes %d, attempt %d, last error %q", job.Crashes, job.Attempt, job.LastError)
	}
	t.Logf("%d processes, %d crashes counted", processes, c.Total.Crashed)
}

// suspectsOf enqueues n suspects with the given number of crashes.
func (r *rig) suspectsOf(n int, crashes byte) {
	r.Helper()
	for _, id := range r.add(make([]signalbox.Job, n)...) {
		raw := []byte(r.record(id))
		raw[2] = crashes
		r.put(id, string(raw))
	}
	if err := r.rdb.Rename(context.Background(), r.key("ready:normal"), r.key("ready:suspect")).Err(); err != nil {
		r.Fatal(err)
	}
}

// A session begins up to sixteen suspects with two crashes at the same time, and other suspects one at a time. All of them run without
// waiting for a renewal. Other jobs run beside them.
func TestSuspects(t *testing.T) {
	t.Parallel()
	for crashes, most := range map[byte]int{2: 16, 3: 1, 4: 1} {
		t.Run(fmt.Sprint(crashes, " crashes"), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.suspectsOf(40, crashes)
			var mu sync.Mutex
			running, seen := 0, 0
			add := func(n int) {
				mu.Lock()
				defer mu.Unlock()
				running += n
				seen = max(seen, running)
			}
			w := r.workerWith(r.lease(30, time.Hour))
			worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
				if job.Crashes >= store.SuspectAt {
					add(1)
					<-time.After(5 * time.Millisecond)
					add(-1)
				}
				return nil
			})
			r.start(w)
			r.add(make([]signalbox.Job, 100)...)
			r.completed(140)
			if seen > most {
				t.Errorf("%d suspects ran at a time, want at most %d", seen, most)
			}
		})
	}
}

// Suspects that run for long keep other suspects out for five twelfths of the TTL only. So suspects with three crashes finally run beside each
// other.
func TestLongSuspects(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.suspectsOf(2, 3)
	wait, open := r.gate()
	started := make(chan time.Time, 10)
	w := r.workerWith(r.lease(5, 3*time.Second))
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
		started <- time.Now()
		<-wait
		return nil
	})
	r.start(w)
	first := get(t, started, "a suspect runs")
	if second := get(t, started, "another runs beside it"); second.Sub(first) < 1200*time.Millisecond {
		t.Errorf("it began %v later, before five twelfths of the TTL", second.Sub(first))
	}
	open()
	r.completed(2)
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// Two processes die shortly after each other; the first one was idle. The loss of the second one's jobs is noticed without waiting for
// a renewal.
func TestSecondDeathIsNoticed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	id := r.addOne(signalbox.Job{})
	first, second := store.NewID(), store.NewID()
	for _, session := range []string{first, second} {
		if alive, _, err := r.queue.Sessions().Open(ctx, session, time.Minute); err != nil || !alive {
			t.Fatal(alive, err)
		}
	}
	lane := r.queue.NewLane()
	lane.Next()
	if reply, err := r.queue.Sessions().Claim(ctx, lane, &store.ClaimRequest{Session: second, Want: 1}); err != nil || len(reply.Deliveries) != 1 {
		t.Fatal(reply, err)
	}
	opened, late := time.Now(), redistest.Lag(t, r.rdb)
	for session, ttl := range map[string]time.Duration{first: time.Second, second: 1300 * time.Millisecond} {
		if _, _, err := r.queue.Sessions().Renew(ctx, session, ttl, ""); err != nil {
			t.Fatal(err)
		}
	}
	w := r.workerWith(r.patient(2))
	ran := r.reporter(w)
	r.start(w)
	if got := get(t, ran, "the job runs again"); got != id {
		t.Errorf("job %s ran", got)
	}
	if d := time.Since(opened); d-late() > 2300*time.Millisecond {
		t.Errorf("that took %v; the lease was 1.3 s", d)
	}
	r.completed(1)
}
