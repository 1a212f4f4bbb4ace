package worker

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-go/signalbox/internal/store/server"
)

// A link logs the state of a worker's connection with Redis. It writes one line when every queue has a session, one when an outage
// begins, and one when it ends. An outage lasts while any queue of the worker is not served.
type link struct {
	w     *Worker
	found atomic.Pointer[server.Findings] // of the last look at the servers
	again chan struct{}                   // the servers may have changed: look at them again

	mu     sync.Mutex           // is held while a record is logged
	opened int                  // queues that have had a session
	away   map[*queue]absence   // queues that are not served, or have lost a reply; changed with mu and show held, read with either
	since  time.Time            // when the outage began
	said   map[string]time.Time // for each kind of error in this outage: when it was last logged

	show sync.Mutex // is never held while a record is logged: reports don't wait for the log
}

// An absence is that of Redis for a queue. If only replies were lost with their connections, it is not known yet whether Redis is away: the next
// answer, or the next failure, says so.
type absence struct {
	since time.Time
	why   string    // by the last call that failed; without address and secret
	lost  time.Time // when the first reply was lost, if that is all; else zero
}

// outage reports whether Redis is known to be away.
func (a absence) outage() bool { return a.lost.IsZero() }

func newLink(w *Worker, found *server.Findings) *link {
	l := &link{w: w, again: make(chan struct{}, 1), away: make(map[*queue]absence), said: make(map[string]time.Time)}
	l.found.Store(found)
	return l
}

// absence returns since when a queue is not served, and why. gone is false if it is served.
func (l *link) absence(q *queue) (since time.Time, why string, gone bool) {
	l.show.Lock()
	defer l.show.Unlock()
	a, gone := l.away[q]
	return a.since, a.why, gone && a.outage()
}

// outage reports whether an outage is under way. mu is held.
func (l *link) outage() bool {
	for _, a := range l.away {
		if a.outage() {
			return true
		}
	}
	return false
}

// miss notes since when a queue is not served. mu is held. The queue's flag changes in the same step: an answer looks at the flag, and ends the
// absence if it is set.
func (l *link) miss(q *queue, a absence) {
	l.show.Lock()
	defer l.show.Unlock()
	l.away[q] = a
	q.contact.away.Store(true)
}

// serves notes that a queue is served. mu is held. The queue's flag changes in the same step, as in miss.
func (l *link) serves(q *queue) {
	l.show.Lock()
	defer l.show.Unlock()
	delete(l.away, q)
	q.contact.away.Store(false)
}

// open notes that a queue has its first session.
func (l *link) open() {
	l.mu.Lock()
	l.opened++
	ready := l.opened == len(l.w.cfg.Queues)
	l.mu.Unlock()
	if !ready {
		return
	}
	var queues []string
	slots := 0
	for name, q := range l.w.cfg.Queues {
		queues = append(queues, name)
		slots += q.Concurrency
	}
	slices.Sort(queues)
	if len(queues) > 20 {
		queues = append(queues[:20], "...")
	}
	found := l.found.Load()
	l.w.log.Info("signalbox: the worker is ready", "id", l.w.id, "queues", queues, "slots", slots, "kinds", len(l.w.kinds.named),
		"redis", orUnknown(found.Version), "mode", orUnknown(found.Mode),
		"persistence", orUnknown(found.Persistence), "eviction", orUnknown(found.Eviction))
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// lost notes that a queue is not served since a time: then a call began that failed. It reports whether that is an outage. It always logs the beginning of an outage. It logs other kinds of errors within
// the outage once a minute each. The log is the user's code and may be slow. It is called under mu all the same, so that the lines are
// in order: only failed calls wait for it, and no report of the worker's health.
//
// A reply that was lost with its connection is no outage, however many calls were under way: connections break. If a call that began
// after that fails, too, both are one.
func (l *link) lost(q *queue, what string, since time.Time, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := absence{since: since, why: publicReason(err)}
	old, ok := l.away[q]
	if ok {
		a.since = old.since
	}
	if isCut(err) && (!ok || !old.outage() && since.Before(old.lost)) {
		if a.lost = old.lost; !ok {
			a.lost = time.Now()
		}
		l.miss(q, a)
		return false
	}
	first := !l.outage()
	if first {
		clear(l.said)
		l.since = a.since
	}
	l.miss(q, a)
	again := sayAgain(l.said, errorKind(err))
	switch {
	case first:
		l.w.log.Warn("signalbox: Redis is away: it does not answer, or refuses; calls are made again until it is back",
			"error", err, "queue", q.store.Name(), "call", what)
	case again:
		l.w.log.Warn("signalbox: Redis is still away", "error", err, "queue", q.store.Name(), "call", what)
	}
	return true
}

// back notes that a queue is served again. The outage ends when all queues are.
func (l *link) back(q *queue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, gone := l.away[q]
	if !gone {
		return
	}
	l.serves(q)
	if a.outage() {
		if l.outage() {
			return
		}
		l.w.log.Info("signalbox: Redis is back", "after", time.Since(l.since).Round(time.Millisecond).String())
	}
	select {
	case l.again <- struct{}{}: // it may be another Redis, or one that was restarted
	default: // a look at the servers is already requested
	}
}

// names returns the kinds that have a handler of their own, sorted, up to 20 of them.
func (ks *kinds) names() []string {
	names := slices.Sorted(maps.Keys(ks.named))
	if len(names) > 20 {
		names = append(names[:20], "...")
	}
	return names
}
