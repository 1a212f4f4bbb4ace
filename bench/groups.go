package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// numbered is a job of a line, such as a serial group.
type numbered struct {
	Line   int    `json:"line"`
	Number int    `json:"number"` // counts the jobs of the line
	Data   string `json:"data"`
}

func (numbered) Kind() string { return "numbered" }

// fillLines puts n jobs into lines in turn. Those of a line come in the order of their numbers.
func fillLines(ctx context.Context, s *scheduler.Scheduler, n, lines int, option func(line string) scheduler.JobOption) error {
	items := func(yield func(scheduler.Item) bool) {
		for i := range n {
			line := i % lines
			if !yield(scheduler.Item{
				Args:    numbered{line, i / lines, payload.Data[:60]},
				Options: []scheduler.EnqueueOption{option(strconv.Itoa(line))},
			}) {
				return
			}
		}
	}
	for i, r := range s.EnqueueSeq(ctx, items) {
		if r.Err != nil || !r.New {
			return fmt.Errorf("job %d: %+v", i, r)
		}
	}
	return nil
}

// The series of groupedProcess.
const (
	_         = iota // jobs a second
	serverCPU        // processor time of the server for a job, enqueue included, in us
)

// groupedProcess runs jobs that are there already, at concurrency 100. They are of so many groups, with one job of each running at a time; or of none, and without a limit.
func groupedProcess(groups int) measure {
	return func(ctx context.Context, srv *server, n int) ([][]float64, error) {
		rdb, s, err := ours(srv)
		if err != nil {
			return nil, err
		}
		defer rdb.Close()
		before, err := srv.cpu(ctx)
		if err != nil {
			return nil, err
		}
		c := slots(100)
		if groups == 0 {
			err = fill(ctx, s, n)
		} else {
			c.Queues[signalbox.DefaultQueue] = worker.Queue{Concurrency: 100, GroupLimits: signalbox.Limits{Running: 1}}
			err = fillLines(ctx, s, n, groups, scheduler.Group)
		}
		if err != nil {
			return nil, err
		}
		done := newTally(n)
		running := make([]atomic.Int32, max(groups, 1))
		var exceeded atomic.Int32
		begin := time.Now()
		working, stop, err := workWith(ctx, rdb, c, func(w *worker.Worker) {
			worker.Handle(w, func(context.Context, *signalbox.Job, task) error { done.ran(); return nil })
			worker.Handle(w, func(_ context.Context, _ *signalbox.Job, in numbered) error {
				if running[in.Line].Add(1) > 1 {
					exceeded.Add(1)
				}
				running[in.Line].Add(-1)
				done.ran()
				return nil
			})
		})
		if err != nil {
			return nil, err
		}
		last, err := done.wait(working)
		if err := errors.Join(err, stop(), done.check()); err != nil {
			return nil, err
		}
		if exceeded.Load() > 0 {
			return nil, fmt.Errorf("%d jobs ran beside another of their group", exceeded.Load())
		}
		after, err := srv.cpu(ctx)
		return [][]float64{rate(n, last.Sub(begin))[0], {(after - before).Seconds() * 1e6 / float64(n)}}, err
	}
}

// uniqueProcess enqueues jobs with a unique key each, and runs them at concurrency 100. Its series are those of groupedProcess.
func uniqueProcess(ctx context.Context, srv *server, n int) ([][]float64, error) {
	return plainProcess(ctx, srv, n, 100, func(s *scheduler.Scheduler) error {
		items := func(yield func(scheduler.Item) bool) {
			for i := range n {
				if !yield(scheduler.Item{Args: payload, Options: []scheduler.EnqueueOption{uniqueKey(i)}}) {
					return
				}
			}
		}
		for i, r := range s.EnqueueSeq(ctx, items) {
			if r.Err != nil || !r.New {
				return fmt.Errorf("job %d: %+v", i, r)
			}
		}
		return nil
	})
}

// besideGroups runs plain jobs that are there already, in a queue that has had a job of a group.
func besideGroups(concurrency int) measure {
	return func(ctx context.Context, srv *server, n int) ([][]float64, error) {
		return plainProcess(ctx, srv, n, concurrency, func(s *scheduler.Scheduler) error {
			if _, err := s.Enqueue(ctx, payload, scheduler.Group("one")); err != nil {
				return err
			}
			return fill(ctx, s, n-1)
		})
	}
}

// plainProcess enqueues n jobs by a function, and runs them. Its series are those of groupedProcess.
func plainProcess(ctx context.Context, srv *server, n, concurrency int, enqueue func(*scheduler.Scheduler) error) ([][]float64, error) {
	rdb, s, err := ours(srv)
	if err != nil {
		return nil, err
	}
	defer rdb.Close()
	before, err := srv.cpu(ctx)
	if err != nil {
		return nil, err
	}
	if err := enqueue(s); err != nil {
		return nil, err
	}
	done := newTally(n)
	begin := time.Now()
	working, stop, err := workWith(ctx, rdb, slots(concurrency), func(w *worker.Worker) {
		worker.Handle(w, func(context.Context, *signalbox.Job, task) error { done.ran(); return nil })
	})
	if err != nil {
		return nil, err
	}
	last, err := done.wait(working)
	if err := errors.Join(err, stop(), done.check()); err != nil {
		return nil, err
	}
	after, err := srv.cpu(ctx)
	return [][]float64{rate(n, last.Sub(begin))[0], {(after - before).Seconds() * 1e6 / float64(n)}}, err
}

// serialLines are the serial groups of serialProcess.
const serialLines = 1000

// serialProcess runs jobs of 1,000 serial groups that are there already, at concurrency 100. It fails if an order is broken.
func serialProcess(ctx context.Context, srv *server, n int) ([][]float64, error) {
	rdb, s, err := ours(srv)
	if err != nil {
		return nil, err
	}
	defer rdb.Close()
	if err := fillLines(ctx, s, n, serialLines, scheduler.Serial); err != nil {
		return nil, err
	}
	done := newTally(n)
	var next [serialLines]atomic.Int32
	var broken atomic.Int32
	begin := time.Now()
	working, stop, err := workWith(ctx, rdb, slots(100), func(w *worker.Worker) {
		worker.Handle(w, func(_ context.Context, _ *signalbox.Job, in numbered) error {
			if !next[in.Line].CompareAndSwap(int32(in.Number), int32(in.Number)+1) {
				broken.Add(1)
			}
			done.ran()
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	last, err := done.wait(working)
	if err := errors.Join(err, stop(), done.check()); err != nil {
		return nil, err
	}
	if broken.Load() > 0 {
		return nil, fmt.Errorf("%d jobs ran out of order", broken.Load())
	}
	return rate(n, last.Sub(begin)), nil
}

const (
	floodSlots = 50
	floodTakes = 5 * time.Millisecond // a job of the flood
	quietJobs  = 400                  // of a full run
	floodBatch = 1000                 // jobs that come in at once for as many that have run
)

// quietBeside times the jobs of a quiet tenant, one each 5 to 15 ms, from the call that enqueues to the handler's start. Another tenant
// keeps all slots busy. It has so many jobs pending, or n if that is 0.
func quietBeside(pending int) measure {
	return func(ctx context.Context, srv *server, n int) ([][]float64, error) {
		rdb, s, err := ours(srv)
		if err != nil {
			return nil, err
		}
		defer rdb.Close()
		flood := func(string) scheduler.JobOption { return scheduler.Group("flood") }
		backlog := n
		if pending > 0 {
			backlog = pending
		}
		if err := fillLines(ctx, s, backlog, 1, flood); err != nil {
			return nil, err
		}
		started, room := make(chan time.Time, 1), make(chan struct{}, 100)
		var ran atomic.Int64
		working, stop, err := workWith(ctx, rdb, slots(floodSlots), func(w *worker.Worker) {
			worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
				started <- time.Now()
				return nil
			})
			worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ numbered) error {
				select {
				case <-time.After(floodTakes):
				case <-ctx.Done():
				}
				if ran.Add(1)%floodBatch == 0 {
					room <- struct{}{}
				}
				return nil
			})
		})
		if err != nil {
			return nil, err
		}
		// The flood goes on as it is worked off.
		filling, stopFilling := context.WithCancel(working)
		filled := make(chan error, 1)
		go func() {
			for {
				select {
				case <-room:
				case <-filling.Done():
					filled <- nil
					return
				}
				if err := fillLines(filling, s, floodBatch, 1, flood); err != nil && filling.Err() == nil {
					filled <- err
					return
				}
			}
		}()
		const warm = 20
		jobs := min(max(n/500, 40), quietJobs)
		waited, err := latencies(working, warm+jobs, idleLeast, idleMost, func() error {
			_, err := s.Enqueue(working, payload, scheduler.Group("quiet"))
			return err
		}, started)
		stopFilling()
		if err := errors.Join(err, <-filled, stop()); err != nil {
			return nil, err
		}
		return [][]float64{waited[warm:]}, nil
	}
}

const (
	allowedRate = 1000 // jobs a second, in all
	rateBurst   = 20
)

// rateAccuracy runs jobs that are there already in two workers, under a rate of 1,000 a second: of the queue, or in equal parts of so many groups. It returns which
// share of the allowed jobs started, of the group that has the least. It fails if one had more than it may.
func rateAccuracy(groups int) measure {
	return func(ctx context.Context, srv *server, n int) ([][]float64, error) {
		rdb, s, err := ours(srv)
		if err != nil {
			return nil, err
		}
		defer rdb.Close()
		q := worker.Queue{Concurrency: 50}
		each := signalbox.Rate{Jobs: allowedRate / groups, Burst: max(rateBurst/groups, 1)}
		if groups == 1 {
			q.Limits.Rate = each
		} else {
			q.GroupLimits.Rate = each
		}
		n -= n % groups
		if err := fillLines(ctx, s, n, groups, scheduler.Group); err != nil {
			return nil, err
		}
		done, claimed := newTally(n), make([][]time.Time, groups)
		var mu sync.Mutex
		register := func(w *worker.Worker) {
			worker.Handle(w, func(_ context.Context, job *signalbox.Job, in numbered) error {
				mu.Lock()
				defer mu.Unlock()
				claimed[in.Line] = append(claimed[in.Line], job.ClaimedAt)
				done.ran()
				return nil
			})
		}
		working, stop, err := workWith(ctx, rdb, worker.Config{Queues: worker.Queues{signalbox.DefaultQueue: q}}, register)
		if err != nil {
			return nil, err
		}
		both, stopOther, err := workWith(working, rdb, worker.Config{Queues: worker.Queues{signalbox.DefaultQueue: q}}, register)
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		_, err = done.wait(both)
		if err := errors.Join(err, stopOther(), stop(), done.check()); err != nil {
			return nil, err
		}
		least := 1.0
		for _, at := range claimed {
			share, err := shareOfRate(at, each)
			if err != nil {
				return nil, err
			}
			least = min(least, share)
		}
		return [][]float64{{least}}, nil
	}
}

// shareOfRate returns the share of the jobs that a rate allows from the first of these times to the last. It fails if there were more.
func shareOfRate(at []time.Time, r signalbox.Rate) (float64, error) {
	slices.SortFunc(at, time.Time.Compare)
	every := time.Second / time.Duration(r.Jobs)
	next := at[0] // the time of the next job if all come evenly
	for i, t := range at {
		if ahead := next.Sub(t) - time.Duration(r.Burst-1)*every; ahead > time.Microsecond {
			return 0, fmt.Errorf("job %d of %d started %v too early", i+1, len(at), ahead)
		}
		if next.Before(t) {
			next = t
		}
		next = next.Add(every)
	}
	// After a burst there is nothing to make up for, so it doesn't count.
	allowed := float64(at[len(at)-1].Sub(at[0]))/float64(every) + float64(r.Burst)
	return float64(len(at)) / allowed, nil
}
