package scheduler

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/signalbox-go/signalbox/internal/store"
)

const (
	// workerPatience is how long after its first job a queue is checked. Workers may start later than
	// producers.
	workerPatience = time.Minute
	lookTimeout    = 2 * time.Second
)

// A lookout warns about queues that have jobs and never had a worker: their names may be misspelt. It checks
// each queue once. It adds no cost to an enqueue.
type lookout struct {
	log   *slog.Logger
	after time.Duration

	mu   sync.Mutex
	seen map[string]bool // queues; at most maxQueues
}

func newLookout(log *slog.Logger) lookout {
	return lookout{log: log, after: workerPatience, seen: make(map[string]bool)}
}

// add checks the queue later, unless it was added before. It doesn't block.
func (l *lookout) add(q *store.Queue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen[q.Name()] || len(l.seen) >= maxQueues {
		return
	}
	l.seen[q.Name()] = true
	time.AfterFunc(l.after, func() { l.look(q) })
}

// look warns if jobs wait in the queue and no worker has ever worked it. If Redis gives no answer, it logs
// nothing.
func (l *lookout) look(q *store.Queue) {
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	if unserved, err := q.Presence().Unserved(ctx); err != nil || !unserved {
		return
	}
	l.log.Warn("scheduler: jobs wait in this queue, and no worker has ever worked it; is the queue's name right?",
		"queue", q.Name())
}
