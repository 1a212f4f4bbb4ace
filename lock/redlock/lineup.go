package redlock

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/signalbox-go/signalbox/lock"
)

const (
	// longRow bounds how long a process hands a lock over among its own goroutines. After it the process lets
	// others go first for about rowPause. They ask now and then.
	longRow = 100 * time.Millisecond
	// rowPause is that pause.
	rowPause = 20 * time.Millisecond
)

// A lineup holds the goroutines of a process that wait for locks of a [Locker]. Each key has a queue, in the order of
// their coming. Only the first of a queue asks the nodes. So the goroutines don't split the votes among
// themselves. A release in this process wakes the first.
type lineup struct {
	mu    sync.Mutex
	lines map[string]*queue
}

type queue struct {
	waiting []*spot
	since   time.Time // when the row of grants within this process began
	held    bool      // the lock is held, as far as the first waiter knows
}

// A spot is one goroutine's place in a queue.
type spot struct {
	queue *queue
	// first receives a value when the goroutine becomes the first: whether the one before it has the lock now. It is
	// nil if the queue was empty.
	first chan bool
	// wake receives a value when the lock is free: for how long to let others go first.
	wake chan time.Duration
}

func (l *lineup) join(key string) *spot {
	s := &spot{wake: make(chan time.Duration, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.lines[key]
	if q == nil {
		if l.lines == nil {
			l.lines = map[string]*queue{}
		}
		q = &queue{}
		l.lines[key] = q
	} else {
		s.first = make(chan bool, 1)
	}
	s.queue = q
	q.waiting = append(q.waiting, s)
	return s
}

// saw notes what the first waiter has found. Those behind it learn from that alone.
func (l *lineup) saw(s *spot, held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.queue.held = held
}

// held returns ErrHeld if the lock is known to be held.
func (l *lineup) held(s *spot) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.queue.held {
		return lock.ErrHeld
	}
	return nil
}

func (l *lineup) leave(key string, s *spot, granted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := s.queue
	q.held = q.held || granted
	i := slices.Index(q.waiting, s)
	q.waiting = slices.Delete(q.waiting, i, i+1)
	switch {
	case len(q.waiting) == 0:
		delete(l.lines, key)
	case i == 0:
		q.waiting[0].first <- granted
		select {
		case pause := <-s.wake: // this waiter doesn't use it
			q.waiting[0].wake <- pause
		default:
		}
	}
}

// wake tells the first waiter of a key that the lock is free.
func (l *lineup) wake(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.lines[key]
	if q == nil {
		return
	}
	pause := time.Duration(0)
	switch now := time.Now(); {
	case q.since.IsZero():
		q.since = now
	case now.Sub(q.since) > longRow:
		q.since, pause = time.Time{}, rowPause/2+rand.N(rowPause)
	}
	select {
	case q.waiting[0].wake <- pause:
	default:
	}
}
