package scheduler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

type note struct{ N int }

func (note) Kind() string { return "note" }

func newScheduler(t testing.TB, rdb redis.UniversalClient) *Scheduler {
	t.Helper()
	s, err := New(rdb, Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// setup returns a scheduler on the shared server and a queue of the test's own, which is
// checked when the test ends.
func setup(t testing.TB) (*Scheduler, *store.Queue) {
	t.Helper()
	rdb := redistest.Start(t).Client()
	return newScheduler(t, rdb), checked(t, rdb)
}

func checked(t testing.TB, rdb redis.UniversalClient) *store.Queue {
	t.Helper()
	q := store.New(rdb, redistest.Name(t))
	t.Cleanup(func() {
		if err := q.Check(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return q
}

// claimAll claims and completes the jobs that are ready.
func claimAll(t testing.TB, q *store.Queue) []*signalbox.Job {
	t.Helper()
	ctx := context.Background()
	session := store.NewID()
	if alive, _, err := q.Open(ctx, session, time.Minute); !alive || err != nil {
		t.Fatal(alive, err)
	}
	lane := q.NewLane()
	var jobs []*signalbox.Job
	var done []store.Settlement
	for {
		lane.Next()
		reply, err := q.Claim(ctx, lane, &store.ClaimRequest{Session: session, Settle: done, Want: 500})
		if err != nil {
			t.Fatal(err)
		}
		done = nil
		for _, d := range reply.Deliveries {
			if d.Err != nil {
				t.Fatal(d.Err)
			}
			jobs = append(jobs, d.Job)
			done = append(done, store.Settlement{ID: d.Job.ID, Token: d.Job.Token, Outcome: store.Completed})
		}
		if len(done) == 0 {
			break
		}
	}
	if _, err := q.Close(ctx, session, lane); err != nil {
		t.Fatal(err)
	}
	return jobs
}

func TestEnqueue(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	ctx := context.Background()
	res, err := s.Enqueue(ctx, note{7}, Queue(q.Name()), MaxAttempts(3), Priority(signalbox.PriorityHigh),
		Timeout(1500*time.Millisecond), Header("a", "1"), Headers(map[string]string{"b": "2"}))
	if err != nil || !res.New || res.ID == "" {
		t.Fatal(res, err)
	}
	jobs := claimAll(t, q)
	if len(jobs) != 1 {
		t.Fatalf("%d jobs", len(jobs))
	}
	j := jobs[0]
	if j.ID != res.ID || j.Kind != "note" || string(j.Payload) != `{"N":7}` || j.Priority != signalbox.PriorityHigh ||
		j.MaxAttempts != 3 || j.Timeout != 1500*time.Millisecond || j.Attempt != 1 ||
		len(j.Headers) != 2 || j.Headers["a"] != "1" || j.Headers["b"] != "2" || !j.ScheduledAt.Equal(j.EnqueuedAt) {
		t.Errorf("got %+v", j)
	}
}

func TestEnqueueDefaults(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t) // for the default queue
	s := newScheduler(t, srv.Client())
	if _, err := s.Enqueue(context.Background(), note{}); err != nil {
		t.Fatal(err)
	}
	jobs := claimAll(t, store.New(srv.Client(), signalbox.DefaultQueue))
	if len(jobs) != 1 || jobs[0].MaxAttempts != signalbox.DefaultMaxAttempts || jobs[0].Headers != nil ||
		jobs[0].Timeout != 0 || jobs[0].Priority != signalbox.PriorityNormal {
		t.Errorf("got %+v", jobs)
	}
}

func TestWhen(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		opt   Option
		ready bool
	}{
		"past":     {At(time.Now().Add(-time.Hour)), true},
		"1969":     {At(time.Unix(-1, 0)), true},
		"future":   {At(time.Now().Add(time.Hour)), false},
		"negative": {After(-time.Second), true},
		"zero":     {After(0), true},
		"delay":    {After(time.Hour), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, q := setup(t)
			if _, err := s.Enqueue(context.Background(), note{}, Queue(q.Name()), tc.opt); err != nil {
				t.Fatal(err)
			}
			if got := len(claimAll(t, q)) == 1; got != tc.ready {
				t.Errorf("ready: %v", got)
			}
		})
	}
}

func TestDuplicateID(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	ctx := context.Background()
	for i, want := range []bool{true, false} {
		if res, err := s.Enqueue(ctx, note{i}, Queue(q.Name()), ID("x")); err != nil || res.New != want || res.ID != "x" {
			t.Fatal(i, res, err)
		}
	}
	results, err := s.EnqueueMany(ctx, []Item{
		{note{2}, []Option{ID("x")}}, {note{3}, []Option{ID("y")}}, {note{4}, []Option{ID("y")}},
	}, Queue(q.Name()))
	if err != nil || results[0].New || !results[1].New || results[2].New {
		t.Fatal(results, err)
	}
	if jobs := claimAll(t, q); len(jobs) != 2 || string(jobs[0].Payload) != `{"N":0}` || string(jobs[1].Payload) != `{"N":3}` {
		t.Errorf("got %+v", jobs)
	}
}

func TestEnqueueConcurrently(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	other := checked(t, redistest.Start(t).Client())
	const goroutines, each = 16, 150
	var ids sync.Map
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			queue := []string{q.Name(), other.Name()}[g%2]
			for i := range each {
				res, err := s.Enqueue(context.Background(), note{g*each + i}, Queue(queue))
				if err != nil || !res.New {
					t.Error(res, err)
				}
				ids.Store(res.ID, fmt.Sprintf(`{"N":%d}`, g*each+i))
			}
		})
	}
	wg.Wait()
	jobs := append(claimAll(t, q), claimAll(t, other)...)
	if len(jobs) != goroutines*each {
		t.Errorf("%d jobs, want %d", len(jobs), goroutines*each)
	}
	for _, j := range jobs {
		if payload, ok := ids.LoadAndDelete(j.ID); !ok || payload != string(j.Payload) {
			t.Errorf("job %s: payload %s, want %v", j.ID, j.Payload, payload)
		}
	}
}

// calls matches the script calls, which are all that a scheduler makes.
func calls(cmd []string) bool { return cmd[0] == "evalsha" || cmd[0] == "EVALSHA" }

func proxied(t testing.TB, change func(*redis.UniversalOptions)) (*Scheduler, *store.Queue, *redistest.Proxy) {
	t.Helper()
	srv := redistest.Start(t)
	p := redistest.NewProxy(t, srv.Addr())
	q := checked(t, srv.Client())
	s := newScheduler(t, p.ClientWith(change))
	if _, err := s.Enqueue(context.Background(), note{}, Queue(q.Name())); err != nil { // loads the script
		t.Fatal(err)
	}
	claimAll(t, q)
	return s, q, p
}

func noRetries(o *redis.UniversalOptions) { o.MaxRetries = -1 }

func TestLostReply(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*redis.UniversalOptions){"client repeats": nil, "we repeat": noRetries} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, q, p := proxied(t, change)
			for k := 1; k <= 3; k++ {
				cut := p.CutReply(calls, k)
				for i := range 3 {
					res, err := s.Enqueue(context.Background(), note{i}, Queue(q.Name()))
					if err != nil || !res.New {
						t.Errorf("cut %d, job %d: %+v, %v", k, i, res, err)
					}
				}
				<-cut
				if n := len(claimAll(t, q)); n != 3 {
					t.Errorf("cut %d: %d jobs", k, n)
				}
				cut = p.CutReply(calls, k)
				results, err := s.EnqueueMany(context.Background(), many(2500), Queue(q.Name()))
				if err != nil || len(results) != 2500 || !results[0].New || !results[2499].New {
					t.Errorf("cut %d: %v", k, err)
				}
				<-cut
				if n := len(claimAll(t, q)); n != 2500 {
					t.Errorf("cut %d: %d jobs", k, n)
				}
			}
		})
	}
}

func many(n int) []Item {
	items := make([]Item, n)
	for i := range items {
		items[i].Args = note{i}
	}
	return items
}

func TestEnqueueMany(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	other := checked(t, redistest.Start(t).Client())
	items := many(2345)
	for i := range items {
		switch {
		case i%100 == 7:
			items[i].Args = unencodableArgs{make(chan int)}
		case i%100 == 8:
			items[i].Options = []Option{MaxAttempts(0)}
		case i%2 == 1:
			items[i].Options = []Option{Queue(other.Name()), Header("k", "v")}
		}
	}
	results, err := s.EnqueueMany(context.Background(), items, Queue(q.Name()))
	if !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), "48 of 2345") || !strings.Contains(err.Error(), "item 7") {
		t.Errorf("got %v", err)
	}
	want := map[string]int{}
	for i, r := range results {
		if bad := i%100 == 7 || i%100 == 8; bad != (r.Err != nil) || bad == r.New {
			t.Fatalf("item %d: %+v", i, r)
		} else if !bad {
			want[r.ID] = i
		}
	}
	jobs := append(claimAll(t, q), claimAll(t, other)...)
	if len(jobs) != len(want) {
		t.Errorf("%d jobs, want %d", len(jobs), len(want))
	}
	for _, j := range jobs {
		if i := want[j.ID]; string(j.Payload) != fmt.Sprintf(`{"N":%d}`, i) || (j.Queue == other.Name()) != (i%2 == 1) {
			t.Errorf("job %d: %s in %s", i, j.Payload, j.Queue)
		}
	}
}

func TestEnqueueManyBounds(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	if results, err := s.EnqueueMany(context.Background(), nil); err != nil || len(results) != 0 {
		t.Error(results, err)
	}
	items := make([]Item, 7)
	for i := range items {
		items[i].Args = unencodableArgs{strings.Repeat("x", 600<<10)} // two take more than a call
	}
	if _, err := s.EnqueueMany(context.Background(), items, Queue(q.Name())); err != nil {
		t.Error(err)
	}
	if n := len(claimAll(t, q)); n != len(items) {
		t.Errorf("%d jobs", n)
	}
}

func TestContextEnded(t *testing.T) {
	t.Parallel()
	s, q, p := proxied(t, nil)
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(gone)
	res, err := s.Enqueue(ctx, note{}, Queue(q.Name()))
	if !errors.Is(err, context.Canceled) || !errors.Is(err, gone) || errors.Is(err, ErrUncertain) || res.New {
		t.Error(res, err)
	}
	if results, err := s.EnqueueMany(ctx, many(3), Queue(q.Name())); !errors.Is(err, context.Canceled) || results[2].Err == nil {
		t.Error(results, err)
	}

	type outcome struct {
		res Result
		err error
	}
	start := func(ctx context.Context) chan outcome {
		c := make(chan outcome, 1)
		go func() {
			res, err := s.Enqueue(ctx, note{}, Queue(q.Name()))
			c <- outcome{res, err}
		}()
		return c
	}
	c := s.lanes(q.Name())
	inFlight := func(n int) func() bool {
		return func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.opened-len(c.idle) == n && c.first == nil
		}
	}
	redistest.Eventually(t, inFlight(0), "all lanes are idle")

	// A lane is caught in a call, and two jobs wait for the next one.
	p.Pause()
	ctx, cancel = context.WithCancelCause(context.Background())
	first := start(ctx)
	redistest.Eventually(t, inFlight(1), "one lane is busy")
	second := start(context.Background())
	redistest.Eventually(t, func() bool { return c.waiting.Load() == 1 }, "a job waits")
	third := start(ctx)
	redistest.Eventually(t, func() bool { return c.waiting.Load() == 2 }, "another job waits")
	cancel(nil)
	got := <-first
	if !errors.Is(got.err, ErrUncertain) || !errors.Is(got.err, context.Canceled) || !strings.Contains(got.err.Error(), got.res.ID) || got.res.ID == "" {
		t.Errorf("in flight: %+v", got)
	}
	if got := <-third; errors.Is(got.err, ErrUncertain) || !errors.Is(got.err, context.Canceled) {
		t.Errorf("waiting: %+v", got)
	}
	p.Resume()
	if got := <-second; got.err != nil {
		t.Errorf("patient: %+v", got)
	}
	res, err = s.Enqueue(context.Background(), note{}, Queue(q.Name()), ID(got.res.ID))
	if err != nil {
		t.Error(err)
	}
	if n := len(claimAll(t, q)); n != 2 {
		t.Errorf("%d jobs, want that of the cancelled call and the other", n)
	}
}

func TestRedisComesBack(t *testing.T) {
	t.Parallel()
	s, q, p := proxied(t, noRetries)
	p.Refuse(true)
	p.Sever()
	var done atomic.Bool
	result := make(chan error, 1)
	go func() {
		_, err := s.Enqueue(context.Background(), note{}, Queue(q.Name()))
		done.Store(true)
		result <- err
	}()
	c := s.lanes(q.Name())
	redistest.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.opened > len(c.idle) && c.first == nil
	}, "a call is being made")
	if done.Load() {
		t.Error("it ended without Redis")
	}
	p.Refuse(false)
	if err := <-result; err != nil {
		t.Error(err)
	}
	if n := len(claimAll(t, q)); n != 1 {
		t.Errorf("%d jobs", n)
	}
}

// A caller whose context ends first is told what was wrong with Redis.
func TestContextEndsWithoutRedis(t *testing.T) {
	t.Parallel()
	s, q, p := proxied(t, noRetries)
	p.Refuse(true)
	p.Sever()
	ctx, cancel := context.WithCancel(context.Background())
	c := s.lanes(q.Name())
	ended := make(chan error, 1)
	go func() {
		_, err := s.Enqueue(ctx, note{}, Queue(q.Name()))
		ended <- err
	}()
	redistest.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.failed != nil
	}, "a call fails")
	cancel()
	var dial *net.OpError
	if err := <-ended; !errors.Is(err, ErrUncertain) || !errors.Is(err, context.Canceled) || !errors.As(err, &dial) && !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
	p.Refuse(false)
}

// A call that hangs doesn't hold up the others.
func TestSecondCallJoinsASlowOne(t *testing.T) {
	t.Parallel()
	s, q, p := proxied(t, noRetries)
	if _, err := s.Enqueue(context.Background(), note{}, Queue(q.Name())); err != nil {
		t.Fatal(err)
	}
	c := s.lanes(q.Name())
	busy := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.opened - len(c.idle)
	}
	redistest.Eventually(t, func() bool { return busy() == 0 }, "the lane is idle")
	p.Pause()
	var callers sync.WaitGroup
	enqueue := func() {
		callers.Go(func() {
			if _, err := s.Enqueue(context.Background(), note{}, Queue(q.Name())); err != nil {
				t.Error(err)
			}
		})
	}
	enqueue()
	redistest.Eventually(t, func() bool { return busy() == 1 }, "a call hangs")
	redistest.Eventually(t, func() bool {
		enqueue()
		return busy() == 2
	}, "another call is made")
	p.Resume()
	callers.Wait()
}

func TestRedisStaysAway(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for our patience to end")
	}
	s, q, p := proxied(t, noRetries)
	p.Refuse(true)
	p.Sever()
	start := time.Now()
	res, err := s.Enqueue(context.Background(), note{}, Queue(q.Name()))
	if !errors.Is(err, ErrUncertain) || res.ID == "" || !strings.Contains(err.Error(), "10s") {
		t.Error(res, err)
	}
	if d := time.Since(start); d > patience+2*time.Second {
		t.Errorf("it took %v", d)
	}
	results, err := s.EnqueueMany(context.Background(), many(6000), Queue(q.Name()))
	if !errors.Is(err, ErrUncertain) || !errors.Is(results[0].Err, ErrUncertain) {
		t.Error(err)
	}
	if last := results[5999].Err; last == nil || errors.Is(last, ErrUncertain) {
		t.Errorf("the last chunk: %v", last)
	}
}

func TestErrorReplies(t *testing.T) {
	t.Parallel()
	for line, uncertain := range map[string]bool{
		"-OOM command not allowed when used memory > 'maxmemory'.":            false,
		"-WRONGTYPE Operation against a key":                                  false,
		"-NOPERM this user has no permissions":                                false,
		"-NOAUTH Authentication required.":                                    false,
		"-READONLY You can't write against a read only replica.":              true,
		"-LOADING Redis is loading the dataset in memory":                     true,
		"-ERR Error running script: @user_script:1: -OOM command not allowed": false,
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			s, q, p := proxied(t, noRetries)
			p.Reply(calls, line, -1)
			_, err := s.Enqueue(context.Background(), note{}, Queue(q.Name()))
			if err == nil || errors.Is(err, ErrUncertain) != uncertain || !strings.Contains(err.Error(), line[1:]) {
				t.Errorf("got %v", err)
			}
			var reply redis.Error
			if !errors.As(err, &reply) {
				t.Errorf("Redis's error is lost in %v", err)
			}
			results, err := s.EnqueueMany(context.Background(), many(3), Queue(q.Name()))
			if err == nil || results[0].Err == nil || results[2].Err == nil {
				t.Errorf("got %v", err)
			}
			p.Reset()
			if _, err := s.Enqueue(context.Background(), note{}, Queue(q.Name())); err != nil {
				t.Errorf("after it: %v", err)
			}
		})
	}
}

func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t, "--maxmemory", "8mb", "--maxmemory-policy", "noeviction")
	s := newScheduler(t, srv.Client())
	q := checked(t, srv.Client())
	items := make([]Item, 200)
	for i := range items {
		items[i].Args = unencodableArgs{strings.Repeat("x", 100<<10)}
	}
	results, err := s.EnqueueMany(context.Background(), items, Queue(q.Name()))
	if err == nil || errors.Is(err, ErrUncertain) || !strings.Contains(err.Error(), "maxmemory") {
		t.Errorf("got %v", err)
	}
	in := 0
	for _, r := range results {
		if r.New {
			in++
		}
	}
	if in == 0 || in == len(results) {
		t.Errorf("%d of %d jobs are in", in, len(results))
	}
	if n := len(claimAll(t, q)); n != in {
		t.Errorf("%d jobs are there, %d were reported", n, in)
	}
	if _, err := s.Enqueue(context.Background(), note{}, Queue(q.Name())); err != nil {
		t.Errorf("with memory again: %v", err)
	}
}

func TestWrongType(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client()
	s, queue := newScheduler(t, rdb), redistest.Name(t)
	jobs := "signalbox:{" + queue + "}:jobs"
	if err := rdb.Set(context.Background(), jobs, "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	_, err := s.Enqueue(context.Background(), note{}, Queue(queue))
	if err == nil || errors.Is(err, ErrUncertain) || !strings.Contains(err.Error(), "another program") {
		t.Errorf("got %v", err)
	}
	if err := rdb.Del(context.Background(), jobs).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Enqueue(context.Background(), note{}, Queue(queue)); err != nil {
		t.Error(err)
	}
}

func TestQueuesAreBounded(t *testing.T) {
	t.Parallel()
	s := offline(t)
	for i := range maxQueues + 10 {
		s.lanes(fmt.Sprint("q", i))
	}
	if n := len(s.queues); n != maxQueues {
		t.Errorf("lanes of %d queues are kept", n)
	}
}
