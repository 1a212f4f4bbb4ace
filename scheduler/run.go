package scheduler

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/server"
)

// Grace is how late a tick of a cron entry may be enqueued, by the clock of Redis. A later tick is missed: see [Missed].
const Grace = store.TickGrace

// Run enqueues the ticks of all entries that were registered by [Scheduler.Cron], before Run and while it runs. It
// blocks until ctx ends. Then it waits for the calls in flight and returns nil. That takes a few seconds at most, if
// the client's timeouts allow. While Redis is away, Run waits, also at its start, and also while it is a replica, as in a failover. The log says when an outage begins and when it is over.
//
// Run returns an error at once if it runs already. At its start it returns an error if this Redis would lose jobs (its
// maxmemory-policy evicts), or if the Redis user lacks a right that the queues of the registered entries need. It
// checks both again every five minutes and after an outage, and logs what has changed.
//
// A tick of an entry that an operator has paused passes without a job. The log says so once for each pause.
//
// Run makes up for missed ticks as [Missed] says. It logs those that are left out. It logs a jump of
// Redis' clock when it notices it, and again when the jump is over or followed.
func (s *Scheduler) Run(ctx context.Context) error {
	if !s.cron.start() {
		return errors.New("scheduler: Run was called while it runs; one per scheduler does for all entries")
	}
	defer s.cron.stop()
	r := newRunner(s, func(queue string) tickServer {
		q := store.New(s.rdb, s.namespace, queue)
		s.unseen.add(q)
		return q.Cron()
	})
	queues := r.stores()
	found, err := r.preflight(ctx, queues)
	if found == nil {
		return err
	}
	r.found.Store(found)
	s.cron.serves(r)
	r.running.Go(func() {
		server.Oversee(ctx, s.rdb, s.log, &r.found, r.outage.over, store.Keys(queues), server.Producer)
	})
	r.run(ctx)
	return nil
}

// tickServer is the part of a store.Cron that a loop needs.
type tickServer interface {
	// Now returns the server's time.
	Now(ctx context.Context) (time.Time, error)
	// RegisterPlans says that this process has entries with these plans. It returns the last tick of each entry.
	RegisterPlans(ctx context.Context, plans []store.Registration) ([]store.Planned, error)
	// NewLane returns a lane for calls of EnqueueTicks.
	NewLane() *store.Lane
	// EnqueueTicks enqueues the jobs of ticks. It returns what happened to each, and the server's time.
	EnqueueTicks(ctx context.Context, lane *store.Lane, items []store.Item, r store.Reckoning) (store.Fates, error)
	// CancelOverlapped cancels the jobs of an entry except the newest. It returns how many were live.
	CancelOverlapped(ctx context.Context, entry string) (live int, err error)
	// Announce describes entries to tools.
	Announce(ctx context.Context, notices []store.Notice) error
	// Remind says that this process still has the entries. It returns the names of those that must be announced.
	Remind(ctx context.Context, notices []store.Notice) (lacking []string, err error)
}

// A runner has a loop for each queue that has entries.
type runner struct {
	s       *Scheduler
	open    func(queue string) tickServer
	adopted int // the number of the last entry that was given to its loop
	sources int // how many sources are watched
	drops   int // how many entries had been removed when the loops last heard of it
	mu      sync.Mutex
	loops   map[string]*loop // guarded by mu
	outage  *outage
	found   atomic.Pointer[server.Findings] // of the last inspection
	running sync.WaitGroup
}

func newRunner(s *Scheduler, open func(queue string) tickServer) *runner {
	return &runner{s: s, open: open, loops: make(map[string]*loop), outage: newOutage(s)}
}

func (r *runner) run(ctx context.Context) {
	defer r.running.Wait()
	for {
		r.adopt(ctx)
		select {
		case <-ctx.Done():
			return
		case <-r.s.cron.added:
		}
	}
}

// adopt gives new entries to the loops of their queues.
func (r *runner) adopt(ctx context.Context) {
	added := make(map[string][]*entry)
	entries, sources, drops := r.s.cron.after(r.adopted, r.sources)
	for _, e := range entries {
		added[e.job.Queue] = append(added[e.job.Queue], e)
		r.adopted = e.number
	}
	for _, src := range sources {
		r.sources++
		r.running.Go(func() { r.s.follow(ctx, src) })
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for queue, entries := range added {
		l := r.loops[queue]
		if l == nil {
			l = newLoop(r.s, queue, r.open(queue), r.outage)
			r.loops[queue] = l
			r.running.Go(func() { l.run(ctx) })
		}
		l.give(entries)
	}
	if drops != r.drops {
		r.drops = drops
		for _, l := range r.loops {
			l.give(nil)
		}
	}
}
