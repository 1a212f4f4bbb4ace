package scheduler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

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
			return len(c.lanes)-len(c.idle) == n && c.first == nil
		}
	}
	redistest.Eventually(t, inFlight(0), "all lanes are idle")

	// A call hangs in a lane, and two jobs wait for the next one.
	p.Pause()
	ctx, cancel = context.WithCancelCause(context.Background())
	first := start(ctx)
	redistest.Eventually(t, inFlight(1), "one lane is busy")
	redistest.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.ContainsFunc(c.lanes, func(l *lane) bool { return l.busy && l.Writes() > 0 })
	}, "its call was given to a connection")
	c.mu.Lock()
	c.began = time.Now().Add(time.Hour) // even on a slow machine the call doesn't count as slow, so no other joins it
	c.mu.Unlock()
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
		return len(c.lanes) > len(c.idle) && c.first == nil
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

// If a caller's context ends first, its error says what was wrong with Redis.
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
	if err := <-ended; !errors.Is(err, context.Canceled) || !errors.As(err, &dial) && !errors.Is(err, io.EOF) {
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
		return len(c.lanes) - len(c.idle)
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

// Without Redis, a call without a deadline ends after EnqueueTimeout. A job that was never sent is not
// uncertain.
func TestRedisStaysAway(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*redis.UniversalOptions){
		"no retries":         func(o *redis.UniversalOptions) { o.MaxRetries, o.DialerRetries = -1, 1 },
		"the client retries": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, q, p := proxied(t, change)
			s = withTimeout(t, s, 100*time.Millisecond)
			p.Refuse(true)
			p.Sever()
			redistest.Eventually(t, func() bool {
				res, err := s.Enqueue(context.Background(), note{}, Queue(q.Name()))
				if err == nil || res.ID == "" || !strings.Contains(err.Error(), "within 100ms") || errors.Is(err, ErrUncertain) {
					t.Error(res, err)
				}
				var dial *net.OpError
				return errors.As(err, &dial) && dial.Op == "dial"
			}, "the error says that connections are refused")
			results, err := s.EnqueueMany(context.Background(), many(6000), Queue(q.Name()))
			if err == nil || errors.Is(err, ErrUncertain) {
				t.Error(err)
			}
			for i, r := range results {
				if r.Err == nil || r.New || errors.Is(r.Err, ErrUncertain) {
					t.Fatalf("item %d: %+v", i, r)
				}
			}
			p.Refuse(false)
			redistest.Eventually(t, func() bool {
				_, err := s.Enqueue(context.Background(), note{}, Queue(q.Name()), ID("last"))
				return err == nil
			}, "Redis is back")
			if n := len(claimAll(t, q)); n != 1 {
				t.Errorf("%d jobs, want the last one alone", n)
			}
		})
	}
}

// withTimeout returns a scheduler over the same client with another EnqueueTimeout.
func withTimeout(t testing.TB, s *Scheduler, d time.Duration) *Scheduler {
	t.Helper()
	own, err := New(s.rdb, Config{Logger: s.log, EnqueueTimeout: d})
	if err != nil {
		t.Fatal(err)
	}
	own.lookUpFor = s.lookUpFor
	return own
}

// Each caller without a deadline has the whole EnqueueTimeout and no more, whatever other callers wait.
func TestEachCallerHasItsTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &combiner{timeout: time.Second}
		begin, ends := time.Now(), make(chan time.Duration, 3)
		for range 3 {
			r := &request{items: make([]store.Item, 1), done: make(chan struct{}, 1), bounded: true}
			c.mu.Lock()
			c.push(r)
			c.bound(r, time.Now())
			c.mu.Unlock()
			go func() {
				select {
				case <-r.done:
				case <-time.After(time.Hour):
				}
				ends <- time.Since(begin)
			}()
			time.Sleep(400 * time.Millisecond) // by the bubble's clock
		}
		for i := range 3 {
			if at, want := <-ends, time.Second+time.Duration(i)*400*time.Millisecond; at != want {
				t.Errorf("caller %d waited until %v, want %v", i+1, at, want)
			}
		}
	})
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
