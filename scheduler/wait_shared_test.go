package scheduler

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

// callsOf returns how many calls wait for jobs of the queue.
func (w *waiting) callsOf() int {
	w.s.watches.mu.Lock()
	defer w.s.watches.mu.Unlock()
	if one := w.s.watches.all[w.q.Name()]; one != nil {
		return one.calls
	}
	return 0
}

// A call isn't answered by what Redis said before the call began: the job may have come meanwhile.
func TestWaitIsNotAnsweredByAnOlderLook(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	proxy := redistest.NewProxy(t, srv.Addr())
	w := newWaiting(t, proxy.Client(), srv.Client())
	ref := Ref{"default", w.q.Name(), "x"}
	if a := <-w.wait(ref); !errors.Is(a.err, ErrNotFound) {
		t.Fatal(a) // Redis knows the script now
	}
	held, free := proxy.HoldReplies(redistest.Command("EVALSHA"))
	before := w.wait(ref)
	<-held
	other := newScheduler(t, srv.Client())
	if _, err := other.Enqueue(t.Context(), note{1}, Queue(w.q.Name()), ID("x"), Retain(time.Hour)); err != nil {
		t.Fatal(err)
	}
	after := w.wait(ref)
	redistest.Eventually(t, func() bool { return w.callsOf() == 2 }, "both wait")
	free()
	if a := <-before; !errors.Is(a.err, ErrNotFound) {
		t.Errorf("before: %+v", a)
	}
	select {
	case a := <-after:
		t.Fatalf("after: %+v", a)
	default:
	}
	w.run(with(`{"N":42}`))
	if a := <-after; a.err != nil || a.value.N != 42 {
		t.Errorf("after: %+v", a)
	}
}

// A dead job that was run again, and is waited for then, isn't dead.
func TestWaitIsNotAnsweredByAnOlderDeath(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	proxy := redistest.NewProxy(t, srv.Addr())
	w := newWaiting(t, proxy.Client(), srv.Client())
	ref := w.enqueue()
	w.run(dies)
	if a := <-w.wait(ref); a.err == nil {
		t.Fatal(a)
	}
	held, free := proxy.HoldReplies(redistest.Command("EVALSHA"))
	before := w.wait(ref)
	<-held
	w.act(store.RunJobs(time.Time{}), ref)
	after := w.wait(ref)
	redistest.Eventually(t, func() bool { return w.callsOf() == 2 }, "both wait")
	free()
	<-before
	select {
	case a := <-after:
		t.Fatalf("after: %+v", a)
	default:
	}
	w.run(with(`{"N":42}`))
	if a := <-after; a.err != nil || a.value.N != 42 {
		t.Errorf("after: %+v", a)
	}
}

// distance is how long calls take longer than to the next machine.
type distance time.Duration

func (d distance) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d distance) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		select {
		case <-time.After(time.Duration(d)):
		case <-ctx.Done():
		}
		return next(ctx, cmd)
	}
}

func (d distance) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Calls for one job, however often they come, don't keep others from an answer.
func TestWaitBesideManyShortOnes(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	far := srv.ClientWith(func(*redis.UniversalOptions) {})
	far.AddHook(distance(2 * time.Millisecond))
	w := newWaiting(t, far, srv.Client())
	live, over := w.enqueue(), w.enqueue()
	w.run(with(`{"N":1}`)) // the first one
	live, over = over, live
	kept := w.wait(live)
	w.heard(1)
	stop := make(chan struct{})
	var hammer sync.WaitGroup
	for range 64 {
		hammer.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Millisecond)
				_, _ = Wait[note](ctx, w.s, live)
				cancel()
			}
		})
	}
	redistest.Eventually(t, func() bool { return w.callsOf() > 30 }, "many wait")
	for range 5 {
		if a := <-w.wait(over); a.err != nil || a.value.N != 1 {
			t.Errorf("%+v", a)
		}
	}
	close(stop)
	hammer.Wait()
	w.run(with(`{"N":2}`))
	<-kept
}

// New connections get no answer, while those that are there do. A call for a job that has ended needs none.
func TestWaitWithoutNewConnections(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	var hole atomic.Bool
	open := make(chan struct{})
	rdb := srv.ClientWith(func(o *redis.UniversalOptions) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if hole.Load() {
				<-open // it heeds no context: so whoever waits for it waits until the test goes on
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
	})
	w := newWaiting(t, rdb, srv.Client())
	ref := w.enqueue()
	w.run(with(`{"N":1}`))
	if a := <-w.wait(ref); a.err != nil {
		t.Fatal(a)
	}
	redistest.Eventually(t, func() bool { return w.callsOf() == 0 }, "nobody waits")
	hole.Store(true)
	live := w.enqueue()
	keep := w.wait(live)
	for range 3 {
		if a := <-w.wait(ref); a.err != nil {
			t.Error(a.err)
		}
	}
	close(open)
	w.run(with(`{"N":1}`))
	if a := <-keep; a.err != nil {
		t.Error(a.err)
	}
}

// A slot that moves may make a client follow more redirections than it does: that passes.
func TestWaitWhileASlotMoves(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	proxy := redistest.NewProxy(t, srv.Addr())
	w := newWaiting(t, proxy.ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries = -1 }), srv.Client())
	ref := w.enqueue()
	got := w.wait(ref)
	w.heard(1)
	proxy.Reply(redistest.Command("EVALSHA"), "-MOVED 1 127.0.0.1:1", 1)
	w.run(with(`{"N":42}`))
	if a := <-got; a.err != nil || a.value.N != 42 {
		t.Errorf("%+v", a)
	}
}
