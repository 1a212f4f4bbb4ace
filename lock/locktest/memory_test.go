package locktest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-go/signalbox/lock"
)

// A service is a lock service in memory. Its flaw says what its lockers do wrong. With the zero
// value they do nothing wrong.
type service struct {
	flaw string

	mu     sync.Mutex
	keys   map[string]*entry
	grants int64
	// waiting has, for each key, the processes of those that wait for it. Only one flaw uses it.
	waiting map[string][]*gate
}

// An entry has the service's data about a key.
type entry struct {
	holder  *memoryLock
	end     time.Time     // end of the holder's TTL
	changed chan struct{} // closed when the lock is free
}

type memory struct {
	*service
	ttl  time.Duration
	gate *gate // of the process that it is part of; nil: of the test's
}

func (m *memory) Acquire(ctx context.Context, key string) (lock.Lock, error) {
	return m.acquire(ctx, key, true)
}

func (m *memory) TryAcquire(ctx context.Context, key string) (lock.Lock, error) {
	return m.acquire(ctx, key, m.flaw == "TryAcquire waits")
}

func (m *memory) acquire(ctx context.Context, key string, wait bool) (lock.Lock, error) {
	if key == "" && m.flaw != "takes an empty key" {
		return nil, fmt.Errorf("%w: empty", lock.ErrInvalid)
	}
	switch {
	case m.flaw == "refuses a slash" && strings.Contains(key, "/"):
		return nil, fmt.Errorf("%w: slash", lock.ErrInvalid)
	case m.flaw == "fails with odd keys" && strings.ContainsAny(key, "{}"):
		return nil, errors.New("syntax error")
	case m.flaw == "Acquire refuses odd keys late" && wait && strings.ContainsAny(key, "{}"):
		return nil, lock.ErrHeld
	}
	name := key
	switch m.flaw {
	case "forgets the key's end":
		key = key[:min(len(key), 20)]
	case "folds case":
		key = strings.ToLower(key)
	case "a slash ends the key":
		key, _, _ = strings.Cut(key, "/")
	case "a zero byte ends the key":
		key, _, _ = strings.Cut(key, "\x00")
	}
	defer m.queue(key)()
	for {
		if err := m.gate.pass(); err != nil {
			return nil, err
		}
		if ctx.Err() != nil && m.flaw != "takes a context that has ended" {
			return nil, context.Cause(ctx)
		}
		l, left, changed := m.try(ctx, name, key)
		if l != nil {
			return l, nil
		}
		switch {
		case m.flaw == "says nothing when it is held":
			return nil, nil
		case !wait && m.flaw == "TryAcquire says busy":
			return nil, errors.New("busy")
		case !wait, m.flaw == "Acquire never waits":
			return nil, lock.ErrHeld
		}
		if err := m.wait(ctx, left, changed); err != nil {
			return nil, err
		}
	}
}

// queue puts a caller into the queue of a key, until the returned function is called.
func (m *memory) queue(key string) (leave func()) {
	if m.flaw != "waits for dead waiters" {
		return func() {}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waiting == nil {
		m.waiting = map[string][]*gate{}
	}
	m.waiting[key] = append(m.waiting[key], m.gate)
	return func() {
		if m.gate.pass() != nil {
			return // it was killed, so it can't leave
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		i := slices.Index(m.waiting[key], m.gate)
		m.waiting[key] = slices.Delete(m.waiting[key], i, i+1)
	}
}

// wait waits until the lock may be free.
func (m *memory) wait(ctx context.Context, left time.Duration, changed chan struct{}) error {
	done := ctx.Done()
	switch m.flaw {
	case "looks once an hour":
		left, changed = time.Hour, nil
	case "waits for the release only":
		left = time.Hour
	case "waits for the expiry only":
		changed = nil
	case "waits on after ctx ended":
		done = nil
	}
	select {
	case <-changed:
	case <-time.After(left):
	case <-done:
		switch m.flaw {
		case "the end of ctx is not ErrHeld":
			return context.Cause(ctx)
		case "the end of ctx has no cause":
			return fmt.Errorf("%w: %w", lock.ErrHeld, ctx.Err())
		}
		return fmt.Errorf("%w: %w", lock.ErrHeld, context.Cause(ctx))
	}
	return nil
}

// try asks the service for the lock. If it is held, try returns for how long, and a channel that
// is closed if it ends earlier.
func (m *memory) try(ctx context.Context, name, key string) (*memoryLock, time.Duration, chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.keys == nil {
		m.keys = map[string]*entry{}
	}
	e := m.keys[key]
	if m.flaw == "waits for dead waiters" && m.waiting[key][0] != m.gate {
		return nil, time.Second, nil
	}
	if e != nil && m.flaw == "a dead process keeps its lock" && e.holder.gate != nil {
		return nil, time.Hour, e.changed
	}
	if e != nil && time.Until(e.end) > 0 && m.flaw != "excludes nobody" &&
		(m.flaw != "is reentrant" || e.holder.memory != m) {
		return nil, time.Until(e.end), e.changed
	}
	m.grants++
	parent := context.WithoutCancel(ctx)
	switch m.flaw {
	case "the lock ends with the acquire's context":
		parent = ctx
	case "the lock forgets values":
		parent = context.Background()
	}
	l := &memoryLock{memory: m, name: name, key: key, term: newTerm(parent), holder: rand.Text()}
	l.token.Store(m.grants)
	switch {
	case m.flaw == "tokens are all the same":
		l.token.Store(1)
	case m.flaw == "tokens begin again after an expiry" && e != nil && e.holder != nil:
		l.token.Store(1)
	case m.flaw == "tokens fall":
		l.token.Store(1000 - m.grants)
	}
	l.promise(m.promised())
	m.keys[key] = &entry{l, time.Now().Add(m.ttl), make(chan struct{})}
	return l, 0, nil
}

// promised returns the TTL that holders assume.
func (m *memory) promised() time.Duration {
	switch m.flaw {
	case "holders believe in twice the TTL":
		return 2 * m.ttl
	case "leases have no end":
		return 24 * time.Hour
	case "contexts end too soon":
		return m.ttl / 3
	}
	return m.ttl
}

// A memoryLock is a lock that a memory granted.
type memoryLock struct {
	*memory
	name   string // for the holder
	key    string
	token  atomic.Int64
	holder string

	term     *term
	mu       sync.Mutex
	until    time.Time
	released bool
	found    error
}

func (l *memoryLock) Key() string {
	if l.flaw == "the lock has no name" {
		return ""
	}
	return l.name
}

// Issuer and Holder implement [lock.Origin].
func (l *memoryLock) Issuer() string {
	if l.flaw == "each locker is an issuer" {
		return fmt.Sprintf("%p", l.memory)
	}
	return "memory"
}

func (l *memoryLock) Holder() string {
	if l.flaw == "all holders are one" {
		return "holder"
	}
	return l.holder
}

func (l *memoryLock) Token() int64             { return l.token.Load() }
func (l *memoryLock) Context() context.Context { return l.term }

func (l *memoryLock) Until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

func (l *memoryLock) promise(ttl time.Duration) bool {
	ok := l.term.extend(time.Now(), ttl)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = l.term.end()
	if l.flaw == "contexts end too soon" {
		l.until = l.until.Add(l.ttl / 2)
	}
	return ok
}

// mine returns the key's entry if it still belongs to this lock.
func (l *memoryLock) mine() *entry {
	if e := l.keys[l.key]; e != nil && e.holder == l && time.Until(e.end) > 0 {
		return e
	}
	return nil
}

func (l *memoryLock) Extend(ctx context.Context) error {
	if err := l.gate.pass(); err != nil {
		return err
	}
	l.service.mu.Lock()
	defer l.service.mu.Unlock()
	e := l.mine()
	switch {
	case l.flaw == "Extend resurrects" && e == nil:
		e = &entry{l, time.Time{}, make(chan struct{})}
		l.keys[l.key] = e
	case l.flaw == "Extend of a lost lock keeps the key" && l.term.Err() != nil:
		if e := l.keys[l.key]; e != nil && e.holder == l {
			e.end = time.Now().Add(l.ttl)
		}
		return lock.ErrLost
	case l.flaw == "Extend says nothing of a loss" && (e == nil || l.term.Err() != nil):
		return nil
	case l.flaw == "Extend says anything of a loss" && (e == nil || l.term.Err() != nil):
		return errors.New("anything")
	case e == nil, l.term.Err() != nil:
		return lock.ErrLost
	}
	if l.flaw == "Extend has a new token" {
		l.grants++
		l.token.Store(l.grants)
	}
	if l.flaw != "Extend doesn't reach the service" {
		e.end = time.Now().Add(l.ttl)
	}
	if l.flaw != "Extend doesn't move the end" {
		l.promise(l.promised())
	}
	return nil
}

func (l *memoryLock) Release(ctx context.Context) error {
	if err := l.gate.pass(); err != nil {
		return err
	}
	l.service.mu.Lock()
	defer l.service.mu.Unlock()
	if ctx.Err() != nil && l.flaw == "Release needs a context" {
		return ctx.Err()
	}
	if l.released && l.flaw != "Release deletes what another has" {
		if l.flaw == "Release only once" {
			return lock.ErrExpired
		}
		if l.flaw == "Release says its loss only once" {
			return nil
		}
		return l.found
	}
	l.released = true
	if l.term.Err() != nil {
		l.found = lock.ErrExpired
	}
	switch l.flaw {
	case "Release ends no context":
	case "Release is a loss":
		l.term.cancel(lock.ErrLost)
	default:
		l.term.cancel(nil)
	}
	e := l.keys[l.key]
	switch {
	case e != nil && (e.holder == l || l.flaw == "Release deletes what another has"):
		if l.flaw != "Release leaves it held" {
			delete(l.keys, l.key)
			close(e.changed)
		}
	case e != nil:
		l.found = lock.ErrTaken
	default:
		l.found = lock.ErrExpired
	}
	if l.flaw == "Release never says a loss" {
		l.found = nil
	}
	return l.found
}
