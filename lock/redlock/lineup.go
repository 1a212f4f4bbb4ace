package redlock

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/signalbox-go/signalbox/lock"
)

const (
	// longRow is for how long a process may hand a lock on among its own goroutines before
	// it lets others be first, who look now and then,
	longRow = 100 * time.Millisecond
	// for about so long.
	rowPause = 20 * time.Millisecond
)

// A lineup is where the goroutines of a process wait for the locks of a [Locker]: for each key
// in the order of their coming. Only the first of them asks the nodes, so that they
// don't split the votes among themselves, and a release in this process wakes it.
type lineup struct {
	mu    sync.Mutex
	lines map[string]*queue
}

type queue struct {
	waiting []*spot
	since   time.Time // when the row of grants within the process began
	held    bool      // the lock is held, as far as the first knows
}

// A spot is a goroutine's in a line.
type spot struct {
	queue *queue
	// first tells that it is, and whether the one before it has the lock now. It is nil if
	// the line was empty.
	first chan bool
	// wake tells the first that the lock is free, and for how long to let others be first.
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

// saw notes what the first has found: those behind it know nothing else.
func (l *lineup) saw(s *spot, held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.queue.held = held
}

// held is ErrHeld if the lock is known to be.
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
		case pause := <-s.wake: // it wasn't for us
			q.waiting[0].wake <- pause
		default:
		}
	}
}

// wake tells the first in line that the lock is free.
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
