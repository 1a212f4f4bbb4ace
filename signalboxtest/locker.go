package signalboxtest

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/signalbox-go/signalbox/lock"
)

// Locker returns a locker in memory, for handlers under worker.LockBy or middleware.Lock. All lockers of these Jobs share their locks.
// A lock lasts until it is released: none is lost. To see what a job does while a lock is held, the test holds it: its key is
// middleware.KeyPrefix and the name.
func (j *Jobs) Locker() lock.Locker { return &j.locks }

// locks are the locks of one test.
type locks struct {
	mu     sync.Mutex
	held   map[string]*heldLock
	grants int64
}

func (s *locks) Acquire(ctx context.Context, key string) (lock.Lock, error) {
	for {
		l, released, err := s.try(ctx, key)
		if err != nil || l != nil {
			return l, err
		}
		select {
		case <-released:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", lock.ErrHeld, context.Cause(ctx))
		}
	}
}

func (s *locks) TryAcquire(ctx context.Context, key string) (lock.Lock, error) {
	l, _, err := s.try(ctx, key)
	if err == nil && l == nil {
		err = lock.ErrHeld
	}
	return l, err
}

// try returns the lock, or a channel that is closed when it is released.
func (s *locks) try(ctx context.Context, key string) (l lock.Lock, released <-chan struct{}, err error) {
	if key == "" {
		return nil, nil, fmt.Errorf("%w: the key is empty", lock.ErrInvalid)
	}
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if held := s.held[key]; held != nil {
		return nil, held.released, nil
	}
	s.grants++
	own, end := context.WithCancel(context.WithoutCancel(ctx))
	mine := &heldLock{locks: s, key: key, token: s.grants, until: time.Now().Add(validity), ctx: own, end: end, released: make(chan struct{})}
	if s.held == nil {
		s.held = make(map[string]*heldLock)
	}
	s.held[key] = mine
	return mine, nil, nil
}

// validity is so long that no test sees its end, in a bubble either.
const validity = 100 * 365 * 24 * time.Hour

// A heldLock is a lock that was granted.
type heldLock struct {
	*locks
	key      string
	token    int64
	until    time.Time
	ctx      context.Context
	end      context.CancelFunc
	released chan struct{}
}

func (l *heldLock) Key() string              { return l.key }
func (l *heldLock) Token() int64             { return l.token }
func (l *heldLock) Until() time.Time         { return l.until }
func (l *heldLock) Context() context.Context { return l.ctx }
func (l *heldLock) Issuer() string           { return "signalboxtest" }
func (l *heldLock) Holder() string           { return strconv.FormatInt(l.token, 10) }

// Extend does nothing to a lock that is held.
func (l *heldLock) Extend(context.Context) error {
	if l.ctx.Err() != nil {
		return lock.ErrLost
	}
	return nil
}

func (l *heldLock) Release(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[l.key] == l {
		delete(l.held, l.key)
		l.end()
		close(l.released)
	}
	return nil
}
