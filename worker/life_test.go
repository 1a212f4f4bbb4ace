package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// life lists the tests of a job's life. The list is the same on every kind of Redis.
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

// lifeOn runs all tests of the list, and checks that none was left out.
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
		if left := time.Until(l.Until()); left <= 0 || left > r.config(1).SessionTTL {
			r.Errorf("the lease lasts for %v, want up to 30 s", left)
		}
		return nil
	})
	r.start(w)
	r.addOne(signalbox.Job{})
	get(r.T, done, "the job runs")
	r.completed(1)
}

// testRecovered lets a session end like in a crash of its process: nothing renews or settles.
func testRecovered(r *rig) {
	ctx := context.Background()
	id := r.addOne(signalbox.Job{MaxAttempts: 1})
	ghost := store.NewID()
	if alive, _, err := r.queue.Sessions().Open(ctx, ghost, time.Minute); err != nil || !alive {
		r.Fatal(alive, err)
	}
	lane := r.queue.NewLane()
	lane.Next()
	reply, err := r.queue.Sessions().Claim(ctx, lane, &store.ClaimRequest{Session: ghost, Want: 1})
	if err != nil || len(reply.Deliveries) != 1 {
		r.Fatal(reply, err)
	}
	if _, _, err := r.queue.Sessions().Renew(ctx, ghost, time.Second, ""); err != nil {
		r.Fatal(err)
	}
	renewed := time.Now()
	w := r.worker(2)
	ran := make(chan signalbox.Job, 1)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		ran <- *job
		return nil
	})
	r.start(w)
	r.ready()
	late := redistest.Lag(r.T, r.rdb)
	from := renewed.Add(time.Second) // from the end of the TTL, or from when there was a worker to take the job over
	if now := time.Now(); now.After(from) {
		from = now
	}
	job := get(r.T, ran, "the job runs again")
	if d := time.Since(from); d-late() > time.Second {
		r.Errorf("recovered %v after the TTL, want a second at most", d)
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
