package scheduler

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

// follow starts a replica of a server, and returns when it follows.
func follow(t *testing.T, srv *redistest.Server) *redistest.Server {
	t.Helper()
	replica := redistest.New(t)
	host, port, err := net.SplitHostPort(srv.Addr())
	if err == nil {
		err = replica.Client().Do(context.Background(), "REPLICAOF", host, port).Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	rdb := srv.Client()
	redistest.Eventually(t, func() bool {
		info, err := rdb.Info(context.Background(), "replication").Result()
		return err == nil && strings.Contains(info, "state=online")
	}, "the replica follows")
	return replica
}

// replicated returns a server with a replica, and a scheduler on it.
func replicated(t *testing.T, args ...string) (srv, replica *redistest.Server, s *Scheduler, q *store.Queue) {
	t.Helper()
	srv = redistest.New(t, append([]string{"--repl-diskless-sync-delay", "0"}, args...)...)
	replica = follow(t, srv)
	return srv, replica, newScheduler(t, srv.Client()), checked(t, srv.Client())
}

func TestWaitReplicas(t *testing.T) {
	t.Parallel()
	_, replica, s, q := replicated(t)
	ctx := context.Background()
	res, err := s.Enqueue(ctx, note{1}, Queue(q.Name()), WaitReplicas(1, time.Minute))
	if err != nil || !res.New {
		t.Fatal(res, err)
	}
	if there, err := replica.Client().HExists(ctx, "signalbox:{default:"+q.Name()+"}:jobs", res.ID).Result(); !there || err != nil {
		t.Errorf("the replica has the job: %v, %v", there, err)
	}

	res, err = s.Enqueue(ctx, note{2}, Queue(q.Name()), ID("chosen"), WaitReplicas(2, 30*time.Millisecond))
	var bad *NotDurableError
	if !errors.As(err, &bad) || !errors.Is(err, ErrNotDurable) || errors.Is(err, ErrUncertain) || errors.Is(err, signalbox.ErrInvalid) ||
		bad.ID != "chosen" || bad.Replicas != 1 || !res.New || res.ID != "chosen" {
		t.Fatalf("%+v, %v", res, err)
	}
	res, err = s.Enqueue(ctx, note{2}, Queue(q.Name()), bad.Again(), WaitReplicas(2, 30*time.Millisecond))
	var again *NotDurableError
	if !errors.As(err, &again) || again.incarnation != bad.incarnation || again.incarnation == 0 || res.New || res.State != signalbox.StateReady {
		t.Errorf("made again in vain: %+v, %v", res, err)
	}
	if res, err = s.Enqueue(ctx, note{2}, Queue(q.Name()), again.Again(), WaitReplicas(1, time.Minute)); err != nil || res.New {
		t.Errorf("made again: %+v, %v", res, err)
	}
	if n := len(claimAll(t, q)); n != 2 {
		t.Errorf("%d jobs", n)
	}
}

// A call that waits has lanes of its own: others don't wait with it. It ends with its context.
func TestWaitingKeepsNobody(t *testing.T) {
	t.Parallel()
	s, q, p := proxied(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	held, free := p.HoldReplies(redistest.Command("wait"))
	defer free()
	ended := make(chan error, 1)
	go func() {
		_, err := s.Enqueue(ctx, note{1}, Queue(q.Name()), WaitReplicas(1, time.Hour))
		ended <- err
	}()
	<-held
	soon, done := context.WithTimeout(context.Background(), 10*time.Second)
	defer done()
	if _, err := s.Enqueue(soon, note{2}, Queue(q.Name())); err != nil {
		t.Error(err)
	}
	select {
	case err := <-ended:
		t.Fatalf("it has ended with %v", err)
	default:
	}
	cancel()
	if err := <-ended; !errors.Is(err, ErrNotDurable) || !errors.Is(err, context.Canceled) || errors.Is(err, ErrUncertain) {
		t.Error(err)
	}
	free()
	if n := len(claimAll(t, q)); n != 2 {
		t.Errorf("%d jobs", n)
	}
}

// The reply of a call is lost. The client makes the call again on another connection, and Redis writes nothing for it. A WAIT
// there would count replicas that have nothing of the job.
func TestWaitAfterALostReply(t *testing.T) {
	t.Parallel()
	srv, replica, _, q := replicated(t)
	p := redistest.NewProxy(t, srv.Addr())
	s := newScheduler(t, p.Client())
	if _, err := s.Enqueue(context.Background(), note{0}, Queue(q.Name()), WaitReplicas(1, time.Minute)); err != nil {
		t.Fatal(err)
	}
	replica.Stop()
	defer replica.Cont()
	cut := p.CutReply(calls, 1)
	res, err := s.Enqueue(context.Background(), note{1}, Queue(q.Name()), WaitReplicas(1, 50*time.Millisecond))
	<-cut
	if p.Count(redistest.Command("pexpire")) < 2 { // Redis 7.0 would count right without; later ones look at the connection's own writes
		t.Error("nothing is written on the connection that waits")
	}
	var bad *NotDurableError
	if !errors.As(err, &bad) || bad.Replicas != 0 || !res.New {
		t.Fatalf("the replica is stopped: %+v, %v", res, err)
	}
	// A call that finds the job writes as well.
	if _, err := s.Enqueue(context.Background(), note{1}, Queue(q.Name()), bad.Again(), WaitReplicas(1, 50*time.Millisecond)); !errors.Is(err, ErrNotDurable) {
		t.Errorf("the replica is stopped: %v", err)
	}
	replica.Cont()
	if res, err := s.Enqueue(context.Background(), note{1}, Queue(q.Name()), bad.Again(), WaitReplicas(1, time.Minute)); err != nil || res.New {
		t.Errorf("%+v, %v", res, err)
	}
	if n := len(claimAll(t, q)); n != 2 {
		t.Errorf("%d jobs", n)
	}
}

// A failover forgets the job after Redis has answered, and before its replicas are asked. The job is enqueued again, and once.
func TestForgottenBeforeItIsCopied(t *testing.T) {
	t.Parallel()
	srv, _, _, q := replicated(t)
	p := redistest.NewProxy(t, srv.Addr())
	s := newScheduler(t, p.Client())
	held, free := p.HoldRequests(redistest.Command("get"))
	done := make(chan error, 1)
	go func() {
		_, err := s.Enqueue(context.Background(), note{1}, Queue(q.Name()), WaitReplicas(1, time.Minute))
		done <- err
	}()
	<-held
	if err := srv.Client().FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	free()
	p.Reset()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := len(claimAll(t, q)); n != 1 {
		t.Errorf("%d jobs", n)
	}
}

// A bulk that isn't copied in time stops. The results say which jobs are in.
func TestManyNotDurable(t *testing.T) {
	t.Parallel()
	_, _, s, q := replicated(t)
	results, err := s.EnqueueMany(context.Background(), many(6000), Queue(q.Name()), WaitReplicas(2, time.Millisecond))
	if !errors.Is(err, ErrNotDurable) {
		t.Error(err)
	}
	in := 0
	for i, r := range results {
		var bad *NotDurableError
		switch {
		case errors.As(r.Err, &bad) && r.New && bad.ID == r.ID:
			in++
		case r.Err == nil || r.New || errors.Is(r.Err, ErrNotDurable) || errors.Is(r.Err, ErrUncertain):
			t.Fatalf("result %d: %+v", i, r)
		}
	}
	if n := len(claimAll(t, q)); n != in || in == 0 || in == len(results) {
		t.Errorf("%d jobs, %d results say so", n, in)
	}
	for i, r := range s.EnqueueSeq(context.Background(), func(yield func(Item) bool) {
		for i := 0; i < 300 && yield(Item{Args: note{i}}); i++ {
		}
	}, Queue(q.Name()), WaitReplicas(1, time.Minute)) {
		if r.Err != nil || !r.New {
			t.Fatal(i, r)
		}
	}
	if n := len(claimAll(t, q)); n != 300 {
		t.Errorf("%d jobs", n)
	}
}

func TestWaitAOF(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	_, _, s, q := replicated(t, "--appendonly", "yes")
	var unknown redis.Error
	err := s.rdb.Do(ctx, "WAITAOF", 0, 0, 1).Err()
	if old := errors.As(err, &unknown); old { // Redis 7.0
		res, err := s.Enqueue(ctx, note{1}, Queue(q.Name()), WaitAOF(0, time.Minute))
		if !errors.Is(err, signalbox.ErrInvalid) || errors.Is(err, ErrNotDurable) || res.New || !strings.Contains(err.Error(), "Redis 7.2") {
			t.Errorf("%+v, %v", res, err)
		}
		if n := len(claimAll(t, q)); n != 0 {
			t.Errorf("%d jobs", n)
		}
		return
	}
	if res, err := s.Enqueue(ctx, note{1}, Queue(q.Name()), WaitAOF(0, time.Minute)); err != nil || !res.New {
		t.Errorf("%+v, %v", res, err)
	}
	var bad *NotDurableError
	if _, err := s.Enqueue(ctx, note{1}, Queue(q.Name()), WaitAOF(1, 2*time.Second)); !errors.As(err, &bad) || !bad.Local || bad.Replicas != 0 {
		t.Errorf("the replica has no append-only file: %v", err)
	}
	if n := len(claimAll(t, q)); n != 2 {
		t.Errorf("%d jobs", n)
	}
	_, _, s, q = replicated(t) // without an append-only file
	if res, err := s.Enqueue(ctx, note{1}, Queue(q.Name()), WaitAOF(0, time.Minute)); !errors.Is(err, signalbox.ErrInvalid) || res.New {
		t.Errorf("%+v, %v", res, err)
	}
}

// In a Cluster the right master is asked.
func TestWaitInACluster(t *testing.T) {
	t.Parallel()
	c := redistest.ClusterWithReplicas(t)
	s := newScheduler(t, c.Client())
	for range 4 {
		q := checked(t, c.Client())
		if res, err := s.Enqueue(context.Background(), note{1}, Queue(q.Name()), WaitReplicas(1, 10*time.Second)); err != nil || !res.New {
			t.Fatalf("%+v, %v", res, err)
		}
		if _, err := s.Enqueue(context.Background(), note{1}, Queue(q.Name()), WaitReplicas(2, time.Millisecond)); !errors.Is(err, ErrNotDurable) {
			t.Error(err)
		}
		if n := len(claimAll(t, q)); n != 2 {
			t.Errorf("%d jobs", n)
		}
	}
}

func TestWaitOptions(t *testing.T) {
	t.Parallel()
	s := offline(t)
	for name, opt := range map[string]EnqueueOption{
		"no replica": WaitReplicas(0, time.Second), "too many": WaitReplicas(1001, time.Second), "no time": WaitReplicas(1, 0),
		"too long": WaitReplicas(1, 2*time.Hour), "negative": WaitAOF(-1, time.Second), "a nanosecond": WaitAOF(0, time.Nanosecond),
	} {
		if _, err := s.Enqueue(context.Background(), note{}, opt); !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), "Wait") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Calls whose timeouts differ a little share their lanes, as those that wait until a deadline do. None waits for longer than it asks for.
func TestTimeoutsShareLanes(t *testing.T) {
	t.Parallel()
	s := offline(t)
	for d := 4 * time.Second; d < 5*time.Second; d += 333 * time.Microsecond {
		o, err := resolve(kindDefaults{}, s.trace.reserved, []EnqueueOption{WaitReplicas(1, d)})
		if err != nil || o.durable.Timeout > d || o.durable.Timeout < d*9/10 {
			t.Fatalf("%v is %v, %v", d, o.durable.Timeout, err)
		}
		s.to(destination{queue: "q", durable: o.durable})
	}
	if n := len(s.queues); n > 10 {
		t.Errorf("lanes of %d kinds", n)
	}
	for _, d := range []time.Duration{time.Millisecond, 30 * time.Millisecond, 250 * time.Millisecond, 5 * time.Second, 90 * time.Second, time.Hour} {
		if got := stepped(d); got != d {
			t.Errorf("%v is %v", d, got)
		}
	}
}
