package worker_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/worker"
)

// A worker's lease has ended while its handlers are still returning. It takes another worker's jobs back, but not its own: the
// handlers' outcomes count, and no crash does.
func TestOwnSessionIsNotReclaimed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, lane, foreign := context.Background(), r.queue.NewLane(), store.NewID()
	if alive, _, err := r.queue.Sessions().Open(ctx, foreign, time.Hour); err != nil || !alive {
		t.Fatal(alive, err)
	}
	r.addOne(signalbox.Job{ID: "foreign"})
	lane.Next()
	if reply, err := r.queue.Sessions().Claim(ctx, lane, &store.ClaimRequest{Session: foreign, Want: 1}); err != nil || len(reply.Deliveries) != 1 {
		t.Fatal(reply, err)
	}
	release, open := r.gate()
	began := make(chan string, 10)
	w := r.workerWith(r.short(3))
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		began <- job.ID
		if job.ID == "own" {
			<-release // it ignores that its context has ended
		}
		return nil
	})
	r.addOne(signalbox.Job{ID: "own"})
	r.start(w)
	get(t, began, "the worker's job runs")
	sessions := r.rdb.ZRange(ctx, r.key("sessions"), 0, -1).Val()
	own := slices.DeleteFunc(sessions, func(s string) bool { return s == foreign })
	if len(own) != 1 {
		t.Fatalf("the worker has %d sessions", len(own))
	}
	// Redis names sessions in the order of their ends. When the other session's job runs again, this worker's session was passed over.
	if err := r.rdb.ZAdd(ctx, r.key("sessions"), redis.Z{Score: 1, Member: own[0]}, redis.Z{Score: 2, Member: foreign}).Err(); err != nil {
		t.Fatal(err)
	}
	if id := get(t, began, "the other's job runs again"); id != "foreign" {
		t.Errorf("job %s runs again", id)
	}
	if n := r.counts().Total.Crashed; n != 1 {
		t.Errorf("%d crashes are counted, want 1, of the other's job", n)
	}
	open()
	r.completed(2)
	if len(began) > 0 {
		t.Errorf("job %s ran twice", <-began)
	}
}

// A failed call that takes jobs back is repeated soon. It doesn't wait for the next renewal to report the session.
func TestReclaimIsTriedAgain(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	r := newRig(t)
	id := r.addOne(signalbox.Job{})
	r.die(1)
	proxy.Reply(redistest.Command("HSCAN"), "-ERR not now", 8)
	cfg := r.config(1)
	cfg.SessionTTL = time.Hour
	w := r.workerOn(proxy.Client(), cfg)
	ran := r.reporter(w)
	r.start(w)
	if got := get(t, ran, "the job runs again"); got != id {
		t.Errorf("job %s ran", got)
	}
	if n := r.log.count("a call to Redis failed", "reclaim"); n != 1 {
		t.Errorf("%d lines say that the call failed, want 1", n)
	}
}

// The log reports once which jobs were taken back, and of which session, with or without traces.
func TestReclaimIsLogged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.addOne(signalbox.Job{})
	r.addOne(signalbox.Job{})
	session := r.die(2)
	w := r.worker(2)
	r.reporter(w)
	r.start(w)
	r.completed(2)
	r.log.says(t, "took back the jobs of a worker that died or lost its lease", "session="+session, "jobs=2")
	if n := r.log.count("took back the jobs"); n != 1 {
		t.Errorf("%d lines say so, want 1", n)
	}
}
