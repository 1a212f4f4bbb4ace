// Package inspect looks at queues and controls them while workers run: for programs of operators, and for tools that are
// built on it.
//
//	ins, err := inspect.New(rdb, inspect.Config{})
//	...
//	queues, err := ins.Queues(ctx)         // with their depths
//	changed, err := ins.Pause(ctx, "mail") // no worker gets a job of it from now on
//	changed, err = ins.Resume(ctx, "mail")
//	err = ins.SetRetention(ctx, "mail", signalbox.Retention{Jobs: 1000}) // dead ones, and cancelled ones
//
// All of it acts on Redis, not on workers. It needs no worker to be reachable, or to be there at all. What it says is true at the
// moment of the call.
package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// ErrNoQueue is wrapped by the error of a call that names a queue which no producer and no worker has used.
var ErrNoQueue = errors.New("inspect: no such queue")

// Config configures an [Inspector]. The zero value looks at the namespace "default".
type Config struct {
	// Namespace is the namespace whose queues are looked at. Default "default".
	Namespace string
}

// An Inspector looks at the queues of one namespace, and controls them. It is safe for concurrent use.
type Inspector struct {
	rdb redis.UniversalClient
	cfg Config
}

// New returns an Inspector. It calls nothing. The client stays the caller's to close. The error wraps
// [signalbox.ErrInvalid] and names every mistake.
func New(rdb redis.UniversalClient, cfg Config) (*Inspector, error) {
	if err := errors.Join(store.CheckClient(rdb), store.ValidateNamespace(cfg.Namespace)); err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	if cfg.Namespace == "" {
		cfg.Namespace = store.DefaultNamespace
	}
	return &Inspector{rdb: rdb, cfg: cfg}, nil
}

// A Queue is the state of a queue at one moment.
type Queue struct {
	Name string
	// Paused says that no worker gets jobs of the queue.
	Paused bool
	// PausedSince is when the queue was paused, by the clock of Redis. It is zero if the queue isn't paused.
	PausedSince time.Time
	// Retention is what the queue keeps, as far as that was set. A field that is 0 has its default.
	Retention signalbox.Retention

	Ready     int64 // jobs that wait for a worker
	Scheduled int64 // jobs that wait for their time
	Running   int64 // jobs that workers have
	Dead      int64 // jobs that failed for good and are kept
	Cancelled int64 // jobs that were cancelled and are kept
	// Oldest is how long the oldest job that could run has waited. 0 if there is none.
	Oldest time.Duration
}

// Queues returns the state of every queue of the namespace that a producer or a worker has used, sorted by name. It makes a few
// calls for each. A queue whose state can't be read has its name in the error, and is left out. A queue that is new may be missing for
// a moment after its first job.
func (i *Inspector) Queues(ctx context.Context) ([]Queue, error) {
	names, err := store.Queues(ctx, i.rdb, i.cfg.Namespace)
	if err != nil {
		return nil, fmt.Errorf("inspect: the names of the queues: %w", err)
	}
	queues := make([]Queue, 0, len(names))
	var errs []error
	for _, name := range names {
		q, err := i.read(ctx, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		queues = append(queues, q)
	}
	return queues, errors.Join(errs...)
}

// Queue returns the state of one queue. The error wraps [ErrNoQueue] if nobody has used it.
func (i *Inspector) Queue(ctx context.Context, name string) (Queue, error) {
	if err := i.known(ctx, name); err != nil {
		return Queue{}, err
	}
	return i.read(ctx, name)
}

// Pause stops a queue. Once it has returned, no worker claims a job of the queue until [Inspector.Resume]. That holds for
// workers that start later, too. A handler whose job was claimed a moment before may still start: to know that nothing runs,
// wait until Running of [Inspector.Queue] is 0. Jobs that run end as usual. Enqueues and cron entries go on: their jobs wait.
// changed is false if the queue was paused already. The error wraps [ErrNoQueue] if nobody has used the queue.
func (i *Inspector) Pause(ctx context.Context, queue string) (changed bool, err error) {
	if err := i.listed(ctx, queue); err != nil {
		return false, err
	}
	changed, err = i.store(queue).Pause(ctx)
	if err != nil {
		return false, fmt.Errorf("inspect: pause queue %s: %w", queue, err)
	}
	return changed, nil
}

// Resume ends a pause, and wakes a worker at once, which wakes others if there is more to do. A job that crashed twice may wait for
// a worker's next renewal. changed is false if the queue was not paused. The error wraps [ErrNoQueue] if nobody has used the queue.
func (i *Inspector) Resume(ctx context.Context, queue string) (changed bool, err error) {
	if err := i.listed(ctx, queue); err != nil {
		return false, err
	}
	changed, err = i.store(queue).Resume(ctx)
	if err != nil {
		return false, fmt.Errorf("inspect: resume queue %s: %w", queue, err)
	}
	return changed, nil
}

// SetRetention sets what a queue keeps of its dead and cancelled jobs, in place of what was set before, also by a worker's Config.
// A field that is 0 gets its default. Workers drop what is too much within the next minutes. The error wraps
// [signalbox.ErrInvalid] if the queue can't have r, and [ErrNoQueue] if nobody has used the queue.
func (i *Inspector) SetRetention(ctx context.Context, queue string, r signalbox.Retention) error {
	if err := store.ValidateRetention(r); err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	if err := i.listed(ctx, queue); err != nil {
		return err
	}
	if _, err := i.store(queue).SetRetention(ctx, r); err != nil {
		return fmt.Errorf("inspect: retention of queue %s: %w", queue, err)
	}
	return nil
}

func (i *Inspector) store(queue string) *store.Queue { return store.New(i.rdb, i.cfg.Namespace, queue) }

// maxNamed bounds the queues that an error names.
const maxNamed = 10

// known returns an error if nobody has used the queue: a misspelt name would seem to be paused.
func (i *Inspector) known(ctx context.Context, queue string) error {
	if err := store.ValidateQueue(queue); err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	known, err := i.store(queue).Known(ctx)
	if err != nil {
		return fmt.Errorf("inspect: queue %s: %w", queue, err)
	}
	if known {
		return nil
	}
	names, err := store.Queues(ctx, i.rdb, i.cfg.Namespace)
	if err != nil {
		return fmt.Errorf("inspect: the names of the queues: %w", err)
	}
	there := "there is none"
	if more := len(names) - maxNamed; more > 0 {
		there = fmt.Sprintf("there are %s and %d more", strings.Join(names[:maxNamed], ", "), more)
	} else if len(names) > 0 {
		there = "there are " + strings.Join(names, ", ")
	}
	return fmt.Errorf("%w: %q in namespace %q: %s. A queue is known once a producer or a worker has used it", ErrNoQueue, queue, i.cfg.Namespace, there)
}

// listed is known for a call that changes the queue: the queue is among those that [Inspector.Queues] returns from then on, though
// the producer or the worker that uses it may list it a moment later.
func (i *Inspector) listed(ctx context.Context, queue string) error {
	if err := i.known(ctx, queue); err != nil {
		return err
	}
	_ = i.store(queue).Register(ctx) // who uses the queue does so, too
	return nil
}

func (i *Inspector) read(ctx context.Context, name string) (Queue, error) {
	s := i.store(name)
	settings, err := s.Settings(ctx)
	if err != nil {
		return Queue{}, fmt.Errorf("inspect: queue %s: %w", name, err)
	}
	d, err := s.Depths(ctx)
	if err != nil {
		return Queue{}, fmt.Errorf("inspect: queue %s: %w", name, err)
	}
	return Queue{
		Name: name, Paused: settings.Paused, PausedSince: settings.PausedSince, Retention: settings.Retention,
		Ready: d.Ready, Scheduled: d.Scheduled, Running: d.Running, Dead: d.Dead, Cancelled: d.Cancelled, Oldest: d.Oldest,
	}, nil
}
