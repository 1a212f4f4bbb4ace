package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

func maximum(t *testing.T, q *store.Queue, n int) {
	t.Helper()
	if _, err := q.Settings().SetMaxLength(context.Background(), n); err != nil {
		t.Fatal(err)
	}
}

// isFull checks that an error is that of a full queue.
func isFull(t *testing.T, err error, q *store.Queue, length, most int) {
	t.Helper()
	full, ok := errors.AsType[*signalbox.QueueFullError](err)
	if !ok || !errors.Is(err, signalbox.ErrQueueFull) || *full != (signalbox.QueueFullError{Queue: q.Name(), Length: length, Max: most}) {
		t.Errorf("%v (%+v), want %d of %d jobs", err, full, length, most)
	}
}

// An enqueue to a full queue fails, and says how full it is.
func TestQueueFull(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	ctx := context.Background()
	maximum(t, q, 1)
	first, err := s.Enqueue(ctx, note{}, Queue(q.Name()), ID("a"))
	if err != nil || !first.New {
		t.Fatal(first, err)
	}
	res, err := s.Enqueue(ctx, note{}, Queue(q.Name()), ID("b"))
	isFull(t, err, q, 1, 1)
	if res.said() != (Result{ID: "b"}) || errors.Is(err, ErrUncertain) {
		t.Errorf("%+v, %v", res, err)
	}
	if res, err := s.Enqueue(ctx, note{}, Queue(q.Name()), ID("a")); err != nil || res.New || res.State != signalbox.StateReady {
		t.Errorf("a job that is there: %+v, %v", res, err)
	}
	u := &UncertainError{ID: "b"}
	if _, err := s.Enqueue(ctx, note{}, Queue(q.Name()), u.Again()); !errors.Is(err, ErrUncertain) || !errors.Is(err, signalbox.ErrQueueFull) {
		t.Errorf("a call that is made again: %v", err)
	}
}

// Of a bulk the first jobs that fit are in, and each of the others has the error.
func TestFullBulk(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	maximum(t, q, 3)
	items := many(2000)
	bulk := func(items []Item, fit func(i int) bool) (in int) {
		results, err := s.EnqueueMany(context.Background(), items, Queue(q.Name()))
		isFull(t, err, q, 3, 3)
		for i, res := range results {
			if res.New {
				in++
			}
			if res.New != fit(i) && fit(0) || res.New != (res.Err == nil) || !res.New && !errors.Is(res.Err, signalbox.ErrQueueFull) || !res.New && res.Existing != "" {
				t.Fatalf("item %d: %+v", i, res)
			}
		}
		return in
	}
	if n := bulk(items, func(int) bool { return false }); n != 3 { // several chunks, which have no order
		t.Errorf("%d of several chunks are in", n)
	}
	claimAll(t, q)
	bulk(items[:100], func(i int) bool { return i < 3 })
	if jobs := claimAll(t, q); len(jobs) != 3 || string(jobs[2].Payload) != `{"N":2}` {
		t.Errorf("%d jobs are in", len(jobs))
	}
	n := 0
	for i, res := range s.EnqueueSeq(context.Background(), slices.Values(items[:5]), Queue(q.Name())) {
		if res.New != (i < 3) {
			t.Errorf("item %d of the iterator: %+v", i, res)
		}
		n++
	}
	if n != 5 {
		t.Errorf("%d results", n)
	}
	claimAll(t, q)
}

// waitsFor waits until calls wait for room in the queue, with a subscription.
func waitsFor(t *testing.T, s *Scheduler, q *store.Queue, calls int) {
	t.Helper()
	redistest.Eventually(t, func() bool {
		s.rooms.mu.Lock()
		defer s.rooms.mu.Unlock()
		r := s.rooms.all[q.Name()]
		return calls == 0 && r == nil || r != nil && r.waiting == calls
	}, "%d calls wait", calls)
}

// nobodyHears waits until nobody is subscribed to the queue's channel.
func nobodyHears(t *testing.T, rdb redis.UniversalClient, q *store.Queue) {
	t.Helper()
	redistest.Eventually(t, func() bool {
		n, err := rdb.PubSubNumSub(context.Background(), q.Channels().Room()).Result()
		return err == nil && n[q.Channels().Room()] == 0
	}, "nobody hears the channel")
}

// A call that waits is woken by a job that ends, and by a larger maximum. It doesn't poll.
func TestWaitForRoom(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	s, q := newScheduler(t, rdb), checked(t, rdb)
	s.roomLook = time.Hour
	ctx := t.Context()
	maximum(t, q, 1)
	if _, err := s.Enqueue(ctx, note{0}, Queue(q.Name()), WaitForRoom()); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 2)
	for i := range 2 {
		go func() {
			res, err := s.Enqueue(ctx, note{i + 1}, Queue(q.Name()), WaitForRoom())
			if err == nil && !res.New {
				err = fmt.Errorf("%+v", res)
			}
			done <- err
		}()
	}
	waitsFor(t, s, q, 2)
	if jobs := claimAll(t, q); len(jobs) == 0 {
		t.Error("nothing was claimed")
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	maximum(t, q, 5)
	if err := <-done; err != nil {
		t.Error(err)
	}
	waitsFor(t, s, q, 0)
	nobodyHears(t, rdb, q)
	claimAll(t, q)
}

// All jobs of a bulk come in, in the order of their items, though there is room for two at a time.
func TestBulkWaitsForRoom(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	s.roomLook = time.Hour
	maximum(t, q, 2)
	type outcome struct {
		results []Result
		err     error
	}
	done := make(chan outcome, 1)
	go func() {
		results, err := s.EnqueueMany(t.Context(), many(7), Queue(q.Name()), WaitForRoom())
		done <- outcome{results, err}
	}()
	var got []string
	for len(got) < 7 {
		for _, job := range claimAll(t, q) {
			got = append(got, string(job.Payload))
		}
	}
	o := <-done
	if o.err != nil {
		t.Error(o.err)
	}
	for i, res := range o.results {
		if !res.New || res.Err != nil || got[i] != fmt.Sprintf(`{"N":%d}`, i) {
			t.Errorf("item %d: %+v; the job %s", i, res, got[i])
		}
	}
}

// Of a bulk that waits for room a part is tried again: jobs that meet others then are told of those that they meet, and no other job is.
func TestBulkMeetsKeysAtASecondTry(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	s.roomLook = time.Hour
	maximum(t, q, 1)
	items := many(5)
	items[3].Options, items[4].Options = []EnqueueOption{Unique("k", UntilEnded)}, []EnqueueOption{Unique("k", UntilEnded)}
	done := make(chan []Result, 1)
	go func() {
		results, err := s.EnqueueMany(t.Context(), items, Queue(q.Name()), WaitForRoom())
		if err != nil {
			t.Error(err)
		}
		done <- results
	}()
	redistest.Eventually(t, func() bool {
		s.rooms.mu.Lock()
		defer s.rooms.mu.Unlock()
		return len(s.rooms.all) > 0
	}, "the first job is in, and the others wait")
	if _, err := q.Settings().SetMaxLength(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	results := <-done
	for i, res := range results {
		switch {
		case i < 4 && (!res.New || res.Existing != "" || res.State != ""):
			t.Errorf("item %d: %+v, want a new job", i, res)
		case i == 4 && (res.New || res.Existing != results[3].ID || res.State != signalbox.StateReady):
			t.Errorf("item %d: %+v, want that it met %s", i, res, results[3].ID)
		}
	}
	if n := len(claimAll(t, q)); n != 4 {
		t.Errorf("%d jobs are in", n)
	}
}

// A call that waits ends with its context. The job isn't in, and nothing is left of the wait.
func TestWaitForRoomEnds(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	s, q := newScheduler(t, rdb), checked(t, rdb)
	maximum(t, q, 1)
	if _, err := s.Enqueue(t.Context(), note{}, Queue(q.Name())); err != nil {
		t.Fatal(err)
	}
	gone := errors.New("the user has gone")
	ends := func() (certain bool) {
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 2)
		go func() {
			_, err := s.Enqueue(ctx, note{}, Queue(q.Name()), WaitForRoom())
			done <- err
		}()
		go func() {
			_, err := s.EnqueueMany(ctx, many(3), Queue(q.Name()), WaitForRoom())
			done <- err
		}()
		waitsFor(t, s, q, 2)
		cancel(gone)
		certain = true
		for range 2 {
			err := <-done
			if !errors.Is(err, context.Canceled) || !errors.Is(err, gone) {
				t.Errorf("the error: %v", err)
			}
			if errors.Is(err, ErrUncertain) {
				certain = false // its context ended while it looked
			} else {
				isFull(t, err, q, 1, 1)
			}
		}
		waitsFor(t, s, q, 0)
		return certain
	}
	for tries := 1; !ends(); tries++ {
		if tries == 20 {
			t.Fatal("each time it isn't known whether a job is in")
		}
	}
	nobodyHears(t, rdb, q)
	if jobs := claimAll(t, q); len(jobs) != 1 {
		t.Errorf("%d jobs are in", len(jobs))
	}
}

// Also if the context ends after the client was given a try and before it is sent, the error says how full the queue was.
func TestWaitForRoomEndsBeforeATry(t *testing.T) {
	t.Parallel()
	for name, enqueue := range map[string]func(context.Context, *Scheduler, ...BulkOption) error{
		"one": func(ctx context.Context, s *Scheduler, opts ...BulkOption) error {
			_, err := s.Enqueue(ctx, note{}, singly(opts)...)
			return err
		},
		"many": func(ctx context.Context, s *Scheduler, opts ...BulkOption) error {
			_, err := s.EnqueueMany(ctx, many(3), opts...)
			return err
		},
		"many chunks": func(ctx context.Context, s *Scheduler, opts ...BulkOption) error {
			results, _ := s.EnqueueMany(ctx, many(20*store.MaxBatch), opts...)
			for i, res := range results {
				if res.New || !errors.Is(res.Err, context.Canceled) {
					t.Fatalf("item %d: %+v", i, res)
				}
			}
			return results[len(results)-1].Err // was never sent
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			rdb := srv.Client()
			unsent := &unsent{held: make(chan struct{}, 10), open: make(chan struct{})}
			rdb.AddHook(unsent)
			s, q := newScheduler(t, rdb), checked(t, srv.Client())
			maximum(t, q, 1)
			if _, err := s.Enqueue(t.Context(), note{}, Queue(q.Name())); err != nil {
				t.Fatal(err)
			}
			gone := errors.New("the user has gone")
			ctx, cancel := context.WithCancelCause(t.Context())
			done := make(chan error, 1)
			go func() { done <- enqueue(ctx, s, Queue(q.Name()), WaitForRoom()) }()
			waitsFor(t, s, q, 1)
			unsent.holds.Store(true)
			s.rooms.mu.Lock()
			s.rooms.all[q.Name()].tell()
			s.rooms.mu.Unlock()
			<-unsent.held
			cancel(gone)
			err := <-done
			close(unsent.open)
			if !errors.Is(err, context.Canceled) || !errors.Is(err, gone) || errors.Is(err, ErrUncertain) {
				t.Errorf("the error: %v", err)
			}
			isFull(t, err, q, 1, 1)
		})
	}
}

// unsent holds calls of scripts before the client sends them.
type unsent struct {
	holds atomic.Bool
	held  chan struct{} // takes a value for each
	open  chan struct{} // is closed when they may go on
}

func (*unsent) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*unsent) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (u *unsent) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if u.holds.Load() && cmd.Name() == "evalsha" {
			u.held <- struct{}{}
			<-u.open
		}
		return next(ctx, cmd)
	}
}

// A call that waits goes on waiting while Redis can't be reached, for longer than a try may take.
func TestWaitForRoomInAnOutage(t *testing.T) {
	t.Parallel()
	for name, enqueue := range map[string]func(*Scheduler, *store.Queue) error{
		"one": func(s *Scheduler, q *store.Queue) error {
			_, err := s.Enqueue(context.Background(), note{}, Queue(q.Name()), WaitForRoom())
			return err
		},
		"many": func(s *Scheduler, q *store.Queue) error {
			_, err := s.EnqueueMany(context.Background(), many(3), Queue(q.Name()), WaitForRoom())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			p := redistest.NewProxy(t, srv.Addr())
			q := checked(t, srv.Client())
			s, err := New(p.ClientWith(noRetries), Config{Logger: slog.New(slog.DiscardHandler), EnqueueTimeout: 1500 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			s.roomLook = time.Hour
			maximum(t, q, 1)
			first := newScheduler(t, srv.Client())
			if _, err := first.Enqueue(t.Context(), note{}, Queue(q.Name())); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- enqueue(s, q) }()
			waitsFor(t, s, q, 1)
			redistest.Eventually(t, func() bool { // it has looked once, when it was subscribed
				stats := s.rdb.PoolStats()
				return p.Count(calls) == 2 && stats.IdleConns == stats.TotalConns
			}, "the call does nothing but wait")
			p.Refuse(true)
			p.Sever()
			s.rooms.mu.Lock()
			s.rooms.all[q.Name()].tell()
			s.rooms.mu.Unlock()
			select {
			case err := <-done:
				t.Fatal(err)
			case <-time.After(2 * time.Second): // longer than a try
			}
			p.Refuse(false)
			redistest.Eventually(t, func() bool {
				claimAll(t, q)
				select {
				case err := <-done:
					if err != nil {
						t.Error(err)
					}
					return true
				default:
					return false
				}
			}, "the call has ended")
			claimAll(t, q)
		})
	}
}

// A call that waits also looks from time to time: a message may be lost.
func TestWaitForRoomLooks(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	s, q := newScheduler(t, rdb), checked(t, rdb)
	s.roomLook = 20 * time.Millisecond
	maximum(t, q, 1)
	if _, err := s.Enqueue(t.Context(), note{}, Queue(q.Name())); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.Enqueue(t.Context(), note{}, Queue(q.Name()), WaitForRoom())
		done <- err
	}()
	waitsFor(t, s, q, 1)
	if err := rdb.HDel(t.Context(), q.Channels().Room(), "max_length").Err(); err != nil { // which tells nobody
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	claimAll(t, q)
}

// In a Cluster the call hears of room wherever the queue is.
func TestWaitForRoomInACluster(t *testing.T) {
	t.Parallel()
	rdb := redistest.Cluster(t).Client()
	s := newScheduler(t, rdb)
	s.roomLook = time.Hour
	for range 4 { // on any masters
		q := checked(t, rdb)
		maximum(t, q, 1)
		if _, err := s.Enqueue(t.Context(), note{}, Queue(q.Name())); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := s.Enqueue(t.Context(), note{}, Queue(q.Name()), WaitForRoom())
			done <- err
		}()
		waitsFor(t, s, q, 1)
		claimAll(t, q)
		if err := <-done; err != nil {
			t.Error(err)
		}
		claimAll(t, q)
	}
}

// Room that there is before the subscription stands is seen.
func TestRoomBeforeTheSubscription(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	s.roomLook = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	tries := 0
	err := s.awaitRoom(ctx, q, q.FullError(store.Length{Jobs: 1, Max: 1}), func() error { tries++; return nil })
	if err != nil || tries != 1 {
		t.Errorf("%v after %d tries", err, tries)
	}
}

// Calls of a program try one after the other. Each lets the next one try.
func TestRoomForTheNext(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	s.roomLook = time.Hour
	full := q.FullError(store.Length{Jobs: 1, Max: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	open, done := make(chan struct{}), make(chan error, 3)
	for range 3 {
		go func() {
			done <- s.awaitRoom(ctx, q, full, func() error { <-open; return nil })
		}()
	}
	waitsFor(t, s, q, 3)
	close(open)
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
