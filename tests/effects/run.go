package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// run runs everything. The lockers are tried at the same time: a run mostly waits for locks to expire.
func run(ctx context.Context, c choices, out io.Writer) (total, error) {
	t := total{choices: c}
	fmt.Fprintf(out, "effects: %d increments of each counter and %d faults on each locker, %d processes each, counters in %s, seed %d\n",
		c.size.increments, c.size.faults, processes, c.database, c.seed)
	db, stop, err := startDatabase(ctx, c.database)
	if err != nil {
		return t, fmt.Errorf("the database: %w", err)
	}
	defer stop()
	var all sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for _, locker := range c.lockers {
		all.Go(func() {
			r, err := runLocker(ctx, locker, c, db)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", locker, err))
				return
			}
			t.results = append(t.results, r)
			fmt.Fprintln(out, r)
		})
	}
	all.Wait()
	slices.SortFunc(t.results, func(a, b result) int {
		return slices.Index(lockers, a.locker) - slices.Index(lockers, b.locker)
	})
	return t, errors.Join(errs...)
}

// runLocker makes the increments on one locker and judges them.
func runLocker(ctx context.Context, locker string, c choices, db database) (result, error) {
	began := time.Now()
	pool, err := db.open(1)
	if err != nil {
		return result{}, err
	}
	defer pool.Close()
	table := counters{db}
	for _, guarded := range []bool{true, false} {
		if err := table.create(ctx, pool, counterName(locker, guarded)); err != nil {
			return result{}, err
		}
	}
	service, stop, err := startService(ctx, locker, c.size)
	defer stop()
	if err != nil {
		return result{}, err
	}
	l := newLedger(makePlan(c.size, c.seed))
	r, err := work(ctx, task{Service: service, Database: db}, l)
	if err != nil {
		return r, err
	}
	r.size = c.size
	for guarded, v := range map[bool]*verdict{true: &r.guarded, false: &r.unguarded} {
		state, err := table.read(ctx, pool, counterName(locker, guarded))
		if err != nil {
			return r, err
		}
		if *v, err = l.judge(state, guarded); err != nil {
			return r, fmt.Errorf("the counter %q: %w", counterName(locker, guarded), err)
		}
	}
	r.took = time.Since(began)
	return r, nil
}

// work lets a crew make all increments of a ledger.
func work(ctx context.Context, t task, l *ledger) (result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c, err := newCrew(t, l, func(err error) { cancel(err) })
	if err != nil {
		return result{}, err
	}
	for range processes {
		c.work.Go(c.run)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for finished := false; !finished && ctx.Err() == nil; {
		select {
		case now := <-tick.C:
			c.wake(now)
		case <-l.all:
			finished = true
		case <-ctx.Done():
		}
	}
	c.end(ctx.Err() != nil)
	if ctx.Err() != nil {
		return c.tally, context.Cause(ctx)
	}
	return c.tally, nil
}
