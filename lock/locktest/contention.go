package locktest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/signalbox-go/signalbox/lock"
)

// All of many goroutines get the lock, one at a time, and the tokens grow with the grants.
func contention(s *suite) { s.contend(s.long, 4, 4, 5, 0) }

// The same is true if some holders never release the lock.
func contentionWithDeadHolders(s *suite) { s.contend(s.short, 2, 3, 1, 2) }

// contend starts some lockers with some goroutines each. Every goroutine acquires the lock
// some times. The first dead holders don't release it.
func (s *suite) contend(ttl time.Duration, lockers, goroutines, times, dead int) {
	s.Helper()
	key, r := newKey(), &roster{dead: dead, patience: s.patience}
	var all sync.WaitGroup
	for range lockers {
		locker := s.locker(ttl)
		for range goroutines {
			all.Go(func() {
				for range times {
					r.visit(s.Context(), locker, key)
				}
			})
		}
	}
	s.within(2*s.patience, "one of many", all.Wait)
	if err := errors.Join(r.wrong...); err != nil {
		s.Error(err)
	}
	if want := lockers * goroutines * times; len(r.wrong) == 0 && r.grants != want {
		s.Errorf("%d grants; want %d", r.grants, want)
	}
}

// A roster has the leases that were granted and not yet released.
type roster struct {
	mu     sync.Mutex
	leases []lock.Lock
	grants int
	token  int64
	dead   int // number of first holders that won't release
	// patience bounds the wait of one goroutine.
	patience time.Duration
	wrong    []error
}

// visit acquires the lock, holds it for a moment and releases it.
func (r *roster) visit(ctx context.Context, locker lock.Locker, key string) {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	l, err := locker.Acquire(ctx, key)
	if err != nil || l == nil {
		r.fail(fmt.Errorf("one among many did not get in: Acquire = %v, %v", told(l), err))
		return
	}
	if r.enter(l) {
		return
	}
	pause(time.Millisecond)
	r.leave(l)
	if err := l.Release(ctx); err != nil && !errors.Is(err, lock.ErrLost) {
		r.fail(fmt.Errorf("the release of one among many: %w", err))
	}
}

// enter adds a lease. It reports whether this holder must not release the lock.
func (r *roster) enter(l lock.Lock) (dies bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.leases {
		// In this order: if neither has ended, both were valid at the same time.
		if other.Context().Err() == nil && l.Context().Err() == nil {
			r.wrong = append(r.wrong, fmt.Errorf("two leases at the same time, with the tokens %d and %d", other.Token(), l.Token()))
		}
	}
	// A lease that has ended already says nothing about the order.
	if l.Token() <= r.token && l.Context().Err() == nil {
		r.wrong = append(r.wrong, fmt.Errorf("token %d was granted after %d", l.Token(), r.token))
	}
	r.token = max(r.token, l.Token())
	r.leases = append(r.leases, l)
	r.grants++
	return r.grants <= r.dead
}

func (r *roster) leave(l lock.Lock) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, other := range r.leases {
		if other == l {
			r.leases = append(r.leases[:i], r.leases[i+1:]...)
			return
		}
	}
}

func (r *roster) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = append(r.wrong, err)
}
