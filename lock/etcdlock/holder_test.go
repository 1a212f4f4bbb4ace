package etcdlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock"
)

// A holder that is cut off from etcd loses the lock before another can get it, whether its connections break or hang.
func TestHolderIsPartitioned(t *testing.T) {
	t.Parallel()
	server := sharedEtcd(t)
	see := dial(t, nil, server.Addr())
	for name, cut := range map[string]func(*servertest.Link){"Cut": (*servertest.Link).Cut, "Hold": (*servertest.Link).Hold, "HoldReplies": (*servertest.Link).HoldReplies} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			link, key := servertest.NewLink(t, server.Addr()), newKey()
			l := acquire(t, lockerOn(t, 2*time.Second, link.Addr()), key)
			results := waiting(t.Context(), t, lockerOn(t, time.Minute, server.Addr()), see, key, 1)
			at := make(chan time.Time, 1)
			done := make(chan error, 1)
			working := make(chan struct{})
			go func() {
				done <- lock.Hold(context.Background(), l, func(ctx context.Context) error {
					close(working)
					<-ctx.Done()
					at <- time.Now()
					return context.Cause(ctx)
				})
			}()
			<-working
			cut(link)
			next := granted(t, results)
			now := time.Now()
			select {
			case ended := <-at:
				if ended.After(now) {
					t.Errorf("the holder worked for %v after another had the lock", ended.Sub(now))
				}
			case <-time.After(patience):
				t.Fatal("the holder works on")
			}
			if l.Context().Err() == nil {
				t.Error("the holder's context goes on")
			}
			link.Heal()
			select {
			case err := <-done:
				if !errors.Is(err, lock.ErrLost) {
					t.Errorf("Hold: %v; want ErrLost", err)
				}
			case <-time.After(patience):
				t.Fatal("Hold does not return")
			}
			if err := next.Extend(t.Context()); err != nil {
				t.Errorf("the next holder's Extend: %v", err)
			}
			release(t, next)
		})
	}
}

// While a waiter is cut off its place ends. It goes on waiting through a short outage, and returns the failure of a long one.
func TestWaiterIsPartitioned(t *testing.T) {
	t.Parallel()
	server := sharedEtcd(t)
	see := dial(t, nil, server.Addr())
	for name, c := range map[string]struct {
		ttl  time.Duration
		long bool
	}{"short": {time.Minute, false}, "long": {2 * time.Second, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			link, key := servertest.NewLink(t, server.Addr()), newKey()
			held := acquire(t, lockerOn(t, time.Minute, server.Addr()), key)
			results := waiting(t.Context(), t, lockerOn(t, c.ttl, link.Addr()), see, key, 1)
			link.Cut()
			if c.long {
				if l, err := get(t, results); l != nil || err == nil || errors.Is(err, lock.ErrHeld) || errors.Is(err, lock.ErrLost) {
					t.Errorf("Acquire through a long outage: %v, %v", l, err)
				}
				eventually(t, func() bool { return places(t, see, key) == 1 }, "its place has ended")
				release(t, held)
				return
			}
			release(t, held)
			select {
			case r := <-results:
				t.Fatalf("Acquire: %v, %v without a connection", r.lock, r.err)
			case <-time.After(200 * time.Millisecond):
			}
			link.Heal()
			release(t, granted(t, results))
		})
	}
}
