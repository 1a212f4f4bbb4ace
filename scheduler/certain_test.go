package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

// A client whose connections are all in use never sends the job.
func TestPoolTimeoutIsCertain(t *testing.T) {
	t.Parallel()
	s, q, _ := proxied(t, func(o *redis.UniversalOptions) { o.PoolSize, o.PoolTimeout = 1, 10*time.Millisecond })
	s = withTimeout(t, s, 100*time.Millisecond)
	conn := s.rdb.(*redis.Client).Conn()
	if err := conn.Ping(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	_, err := s.Enqueue(context.Background(), note{}, Queue(q.Name()))
	if err == nil || errors.Is(err, ErrUncertain) || !strings.Contains(err.Error(), "not enqueued") {
		t.Errorf("got %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	free, cancel := context.WithTimeout(context.Background(), 20*time.Second) // another bound than that of the scheduler
	defer cancel()
	if _, err := s.Enqueue(free, note{}, Queue(q.Name())); err != nil {
		t.Errorf("a connection is free: %v; the pool has %+v", err, s.rdb.PoolStats())
	}
	if n := len(claimAll(t, q)); n != 1 {
		t.Errorf("%d jobs", n)
	}
}

// With a closed client the call fails at once.
func TestClosedClient(t *testing.T) {
	t.Parallel()
	s := withTimeout(t, offline(t), time.Hour)
	if err := s.rdb.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := s.Enqueue(context.Background(), note{})
	if !errors.Is(err, redis.ErrClosed) || errors.Is(err, ErrUncertain) || !strings.Contains(err.Error(), "has been closed") {
		t.Errorf("got %v", err)
	}
	results, err := s.EnqueueMany(context.Background(), many(3))
	if !errors.Is(err, redis.ErrClosed) || errors.Is(err, ErrUncertain) || !errors.Is(results[2].Err, redis.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// If Redis gives an error reply that passes, the scheduler waits and tries again. It does so even if the client
// doesn't.
func TestPassingErrors(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"-TRYAGAIN Multiple keys request during rehashing of slot", "-LOADING Redis is loading the dataset in memory",
		"-CLUSTERDOWN The cluster is down", "-ERR max number of clients reached", "-MOVED 1 127.0.0.1:1", "-ASK 1 127.0.0.1:1",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			s, q, p := proxied(t, noRetries)
			p.Reply(calls, line, 2)
			res, err := s.Enqueue(context.Background(), note{}, Queue(q.Name()))
			if err != nil || !res.New {
				t.Errorf("got %+v, %v", res, err)
			}
			if n := p.Count(calls); n != 1+3 {
				t.Errorf("%d calls, want 3 after the first", n)
			}
		})
	}
}

// A job that was sent and has no answer is uncertain. A job that waited behind it is not. Both calls end in time.
func TestHungRedis(t *testing.T) {
	t.Parallel()
	s, q, p := proxied(t, nil)
	s = withTimeout(t, s, 300*time.Millisecond)
	p.Pause()
	var all sync.WaitGroup
	var mu sync.Mutex
	uncertain := 0
	for range 10 {
		all.Go(func() {
			res, err := s.Enqueue(context.Background(), note{}, Queue(q.Name()))
			if err == nil || res.New || !strings.Contains(err.Error(), "within 300ms") {
				t.Errorf("got %+v, %v", res, err)
			}
			var u *UncertainError
			if errors.As(err, &u) {
				mu.Lock()
				uncertain++
				mu.Unlock()
				if u.ID != res.ID || u.ID == "" {
					t.Errorf("of job %s: %+v", res.ID, u)
				}
			}
		})
	}
	all.Wait()
	if uncertain == 0 {
		t.Error("none is uncertain")
	}
	c := s.lanes(q.Name())
	if c.waiting.Load() != 0 {
		t.Errorf("%d wait still", c.waiting.Load())
	}
	p.Resume()
	redistest.Eventually(t, func() bool {
		_, err := s.Enqueue(context.Background(), note{}, Queue(q.Name()))
		return err == nil
	}, "Redis is back")
}

// If a caller leaves before a shared call was sent, the call is made without its job, and with the others.
func TestLeavingACallThatWasNotSent(t *testing.T) {
	t.Parallel()
	s, q, p := proxied(t, noRetries)
	s = withTimeout(t, s, time.Hour)
	p.Refuse(true)
	p.Sever()
	c := s.lanes(q.Name())
	in := func(n int) func() bool {
		return func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			requests := 0
			for _, l := range c.lanes {
				if l.busy {
					requests += l.awaited
				}
			}
			return requests == n && c.failed != nil
		}
	}
	type outcome struct {
		res Result
		err error
	}
	enqueue := func(ctx context.Context, id string) chan outcome {
		ch := make(chan outcome, 1)
		go func() {
			res, err := s.Enqueue(ctx, note{}, Queue(q.Name()), ID(id))
			ch <- outcome{res, err}
		}()
		return ch
	}
	ctx, cancel := context.WithCancel(context.Background())
	blocker := enqueue(ctx, "blocker")
	redistest.Eventually(t, in(1), "a call is tried")
	c.mu.Lock() // so that the next two go in one call
	c.began = time.Now().Add(time.Hour)
	c.mu.Unlock()
	leaves, stays := enqueue(ctx, "leaves"), enqueue(context.Background(), "stays")
	redistest.Eventually(t, func() bool { return c.waiting.Load() == 2 }, "two wait")
	third := make([]Item, 40)
	for i := range third {
		third[i] = Item{note{i}, []EnqueueOption{ID("many" + string(rune('A'+i)))}}
	}
	many := make(chan error, 1)
	go func() { // enough jobs for a second call
		_, err := s.EnqueueMany(context.Background(), third, Queue(q.Name()))
		many <- err
	}()
	redistest.Eventually(t, in(4), "all are in calls")
	cancel()
	for what, ch := range map[string]chan outcome{"alone": blocker, "with others": leaves} {
		if got := <-ch; !errors.Is(got.err, context.Canceled) || errors.Is(got.err, ErrUncertain) {
			t.Errorf("%s: %+v", what, got)
		}
	}
	p.Refuse(false)
	if got := <-stays; got.err != nil || !got.res.New {
		t.Errorf("who stays: %+v", got)
	}
	if err := <-many; err != nil {
		t.Errorf("many that stay: %v", err)
	}
	for _, job := range claimAll(t, q) {
		if job.ID == "blocker" || job.ID == "leaves" {
			t.Errorf("job %s is in, its caller was told that it is not", job.ID)
		}
	}
}

// Callers share a call, and one of them has left it. The others get what became of their own jobs, and the jobs that these have met; nothing is written
// into the memory of the one that left.
func TestOutcomesOfASharedCall(t *testing.T) {
	t.Parallel()
	newRequest := func(items int, left bool) *request {
		return &request{items: make([]store.Item, items), fates: make([]store.Fate, items), left: left, met: []met{{5, store.Met{ID: "of a call before"}}}}
	}
	a, gone, b := newRequest(2, false), newRequest(2, true), newRequest(3, false)
	l := &lane{requests: []*request{a, gone, b}}
	l.handOver(store.NewFates(time.Now(), store.MetKey, store.PutIn, store.PutIn, store.MetKey, store.Taken, store.Updated, store.MetKey).
		Meeting(store.Met{ID: "a"}, store.Met{ID: "gone"}, store.Met{ID: "b1"}, store.Met{ID: "b2"}))
	same(t, "the first's fates", fmt.Sprint(a.fates), fmt.Sprint([]store.Fate{store.MetKey, store.PutIn}))
	same(t, "the first's jobs met", fmt.Sprint(a.met), fmt.Sprint([]met{{0, store.Met{ID: "a"}}}))
	same(t, "the last's fates", fmt.Sprint(b.fates), fmt.Sprint([]store.Fate{store.Taken, store.Updated, store.MetKey}))
	same(t, "the last's jobs met", fmt.Sprint(b.met), fmt.Sprint([]met{{1, store.Met{ID: "b1"}}, {2, store.Met{ID: "b2"}}}))
	same(t, "the fates of the one that left", fmt.Sprint(gone.fates), fmt.Sprint(make([]store.Fate, 2)))
}

// An uncertain call is made again with the option from its error. The job is enqueued once, with the same effect key.
func TestUncertainAgain(t *testing.T) {
	t.Parallel()
	s, q, p := proxied(t, noRetries)
	ctx := context.Background()
	for name, in := range askings(s, q.Name()) {
		for id, opts := range map[string][]EnqueueOption{"": nil, "chosen": {ID("chosen")}} {
			u := lostReply(t, s, q, p, in, opts...)
			if id != "" && u.ID != id {
				t.Fatalf("%s: the error is of job %s", name, u.ID)
			}
			again := append(opts[:len(opts):len(opts)], u.Again())
			res, err := in(ctx, note{}, again...)
			if err != nil || !res.New || res.ID != u.ID {
				t.Errorf("%s: again: %+v, %v", name, res, err)
			}
			redistest.Eventually(t, func() bool { // retried while Redis is too busy to report a state
				res, err = in(ctx, note{}, again...)
				return err != nil || res.State != ""
			}, "%s: it has a state while it waits", name)
			if want := (Result{ID: u.ID, Existing: u.ID, State: signalbox.StateReady}); err != nil || res.said() != want {
				t.Errorf("%s: while it waits: %+v, %v", name, res, err)
			}
			key := deliver(t, q, store.Completed).EffectKey()
			if _, err = in(ctx, note{}, again...); err != nil {
				t.Error(err)
			}
			if got := deliver(t, q, store.Dead).EffectKey(); got != key || !strings.HasPrefix(got, "{"+q.Name()+"}"+u.ID) {
				t.Errorf("%s: effect key %s, then %s", name, key, got)
			}
			res, err = in(ctx, note{}, again...)
			if want := (Result{ID: u.ID, Existing: u.ID, State: signalbox.StateDead}); err != nil || res.said() != want {
				t.Errorf("%s: when it is dead: %+v, %v", name, res, err)
			}
			if id != "" {
				if _, err = in(ctx, note{}, opts...); err != nil {
					t.Error(err)
				}
				if got := deliver(t, q, store.Completed).EffectKey(); got == key {
					t.Errorf("%s: another job of the ID has the same effect key %s", name, got)
				}
			}
		}
	}
}

// The client repeats calls by itself and returns only the last error. So it stays unknown what its earlier tries did.
func TestRepeatsOfTheClient(t *testing.T) {
	t.Parallel()
	s, q, p := proxied(t, func(o *redis.UniversalOptions) { o.MaxRetries = 1 })
	cut := p.CutReply(calls, 1)
	p.Reply(calls, "-OOM command not allowed when used memory > 'maxmemory'.", 1)
	res, err := s.Enqueue(context.Background(), note{}, Queue(q.Name()))
	<-cut
	var u *UncertainError
	if !errors.As(err, &u) || !strings.Contains(err.Error(), "OOM") {
		t.Fatalf("got %+v, %v", res, err)
	}
	if jobs := claimAll(t, q); len(jobs) != 1 || jobs[0].ID != u.ID {
		t.Errorf("%d jobs", len(jobs))
	}
}

// A job of an uncertain EnqueueMany completes, and then the call is made again. The job gets the effect key that it
// had, even behind chunks whose jobs were enqueued for certain.
func TestUncertainManyKeepTheirEffects(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]int{"the first chunk": 0, "a later chunk": 5 * store.MaxBatch} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, q, p := proxied(t, noRetries)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			held, free := p.HoldReplies(func(cmd []string) bool { return slices.Contains(cmd, "second") })
			defer free()
			go func() {
				<-held // Redis has run it
				for c := s.lanes(q.Name()); ; <-time.After(time.Millisecond) {
					c.mu.Lock()
					alone := len(c.lanes)-len(c.idle) == 1 && c.first == nil
					c.mu.Unlock()
					if alone { // the chunks before it, which go in another lane, have been enqueued
						break
					}
				}
				cancel()
			}()
			items := many(before + 5)
			for i := range before {
				items[i].Options = []EnqueueOption{ID("before-" + strconv.Itoa(i))}
			}
			for i, id := range map[int]string{1: "second", 2: "third", 4: "last"} { // the others have random IDs
				items[before+i].Options = []EnqueueOption{ID(id)}
			}
			results, err := s.EnqueueMany(ctx, items, Queue(q.Name()))
			if !errors.Is(err, ErrUncertain) {
				t.Fatalf("got %v", err)
			}
			free()
			effects := func() map[string]string {
				t.Helper()
				keys := make(map[string]string)
				for _, job := range claimAll(t, q) {
					keys[job.ID] = job.EffectKey()
				}
				return keys
			}
			first := effects()
			for i, r := range results[before:] {
				var u *UncertainError
				if !errors.As(r.Err, &u) || u.ID != r.ID {
					t.Fatalf("item %d: %+v", before+i, r)
				}
				if res, err := s.Enqueue(context.Background(), note{i}, Queue(q.Name()), u.Again()); err != nil || !res.New {
					t.Fatalf("item %d again: %+v, %v", before+i, res, err)
				}
			}
			again := effects()
			for _, r := range results[before:] {
				if first[r.ID] == "" || again[r.ID] != first[r.ID] {
					t.Errorf("job %s has effect key %q again, want %q", r.ID, again[r.ID], first[r.ID])
				}
			}
		})
	}
}
