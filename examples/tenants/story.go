package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/examples/internal/stage"
	"github.com/signalbox-go/signalbox/scheduler"
)

// A plan says what a run does.
type plan struct {
	out      *screen
	redisURL string // "": a Redis in this process
	tenants  int
	flood    int           // jobs of tenant 0, which floods the queue at the start
	lasts    time.Duration // how long the other tenants enqueue
	fifo     bool          // without groups
	verbose  bool
}

func standard(out *screen, redisURL string) plan {
	return plan{out: out, redisURL: redisURL, tenants: 100, flood: 2500, lasts: 4 * time.Second}
}

const (
	workers = 2
	slots   = 5                      // of each worker
	takes   = 10 * time.Millisecond  // a job
	beat    = 250 * time.Millisecond // from one time that the quiet tenants enqueue to the next
)

// perBeat is how many jobs a quiet tenant enqueues at once.
func perBeat(tenant int) int {
	if serial(tenant) {
		return 2
	}
	return 1
}

// patience is how long a run may take longer than planned, on a slow machine.
const patience = 90 * time.Second

// run starts the workers and the tenants, and returns what became of the jobs.
func (p plan) run(ctx context.Context) (r result, err error) {
	if p.tenants < 20 || p.flood < 1 || p.lasts < 2*beat {
		return r, fmt.Errorf("-tenants %d -flood %d -for %v: want 20 tenants or more, a flood, and 500ms or more", p.tenants, p.flood, p.lasts)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.lasts+patience, errors.New("it takes too long"))
	defer cancel()
	log := slog.New(slog.DiscardHandler)
	if p.verbose {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	slog.SetDefault(log)
	db, err := stage.Open(p.redisURL, "tenants")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	rdb, namespace := db.Client, db.Namespace
	s, err := scheduler.New(rdb, scheduler.Config{Namespace: namespace})
	if err != nil {
		return r, err
	}
	p.out.say("%d tenants, %d workers with %d slots each, at most %d jobs of a tenant at a time", p.tenants, workers, slots, limit)
	l := newLedger(p.tenants)

	// The flood comes first: all of its jobs stand before those of the others.
	tasks := make([]Task, p.flood)
	for i := range tasks {
		tasks[i] = Task{Tenant: 0, Number: i}
	}
	l.enqueue(tasks)
	if err := enqueue(ctx, s, tasks, p.fifo); err != nil {
		return r, err
	}
	p.out.say("tenant 0 has enqueued %d jobs", p.flood)

	working, stopWork := context.WithCancelCause(ctx)
	ended := make(chan error, workers)
	for range workers {
		go func() {
			err := work(working, rdb, namespace, slots, l.handle)
			if err != nil {
				stopWork(fmt.Errorf("a worker ended: %w", err))
			}
			ended <- err
		}()
	}
	stopPicture := p.out.show(l)
	defer func() { // the Redis is closed after the workers
		stopPicture()
		stopWork(nil)
		for range workers {
			err = errors.Join(err, <-ended)
		}
	}()
	if err := p.quiet(working, s, l); err != nil {
		return r, err
	}
	select {
	case <-l.done:
		return l.result(), nil
	case <-working.Done():
		return r, context.Cause(working)
	}
}

// quiet has the other tenants enqueue a few jobs at each beat.
func (p plan) quiet(ctx context.Context, s *scheduler.Scheduler, l *ledger) error {
	beats := time.NewTicker(beat)
	defer beats.Stop()
	for b := range int(p.lasts / beat) {
		select {
		case <-beats.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		var tasks []Task
		for tenant := 1; tenant < p.tenants; tenant++ {
			for i := range perBeat(tenant) {
				tasks = append(tasks, Task{Tenant: tenant, Number: b*perBeat(tenant) + i})
			}
		}
		l.enqueue(tasks)
		if err := enqueue(ctx, s, tasks, p.fifo); err != nil {
			return err
		}
	}
	l.close()
	return nil
}

// failing is the job of each serial tenant that fails once.
const failing = 4

var errFails = errors.New("this job fails once")

// handle is the handler of all jobs.
func (l *ledger) handle(ctx context.Context, job *signalbox.Job, in Task) (err error) {
	l.begin(in)
	defer func() { l.end(in, err == nil) }()
	if serial(in.Tenant) && in.Number == failing && job.Attempt == 1 {
		return errFails
	}
	select {
	case <-time.After(takes):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
