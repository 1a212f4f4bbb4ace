package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// task is the args of all jobs: 100 bytes of JSON.
type task struct {
	Data string `json:"data"`
}

func (task) Kind() string { return "bench" }

var payload = task{strings.Repeat("x", 100-len(`{"data":""}`))}

// ours connects as the README does.
func ours(srv *server) (*redis.Client, *scheduler.Scheduler, error) {
	return connect(srv, scheduler.Config{})
}

// silent is the logger of what is measured: standard error is for progress.
var silent = slog.New(slog.DiscardHandler)

func connect(srv *server, c scheduler.Config) (*redis.Client, *scheduler.Scheduler, error) {
	c.Logger = silent
	rdb := redis.NewClient(&redis.Options{Addr: srv.addr, ContextTimeoutEnabled: true})
	s, err := scheduler.New(rdb, c)
	if err != nil {
		rdb.Close()
		return nil, nil, err
	}
	return rdb, s, nil
}

// enqueueMany puts n jobs in, in one call.
func enqueueMany(ctx context.Context, s *scheduler.Scheduler, items []scheduler.Item) error {
	results, err := s.EnqueueMany(ctx, items)
	if err != nil {
		return err
	}
	for _, r := range results {
		if !r.New {
			return fmt.Errorf("job %s was there before", r.ID)
		}
	}
	return nil
}

func jobs(n int) []scheduler.Item {
	items := make([]scheduler.Item, n)
	for i := range items {
		items[i].Args = payload
	}
	return items
}

// fill puts n jobs in, 10,000 at a time.
func fill(ctx context.Context, s *scheduler.Scheduler, n int) error {
	items := jobs(min(n, 10_000))
	for n > 0 {
		if err := enqueueMany(ctx, s, items[:min(n, len(items))]); err != nil {
			return err
		}
		n -= len(items)
	}
	return nil
}

// slots are the README's configuration of a worker.
func slots(concurrency int) worker.Config {
	return worker.Config{Queues: worker.Queues{signalbox.DefaultQueue: {Concurrency: concurrency}}}
}

// work runs a worker until stop is called, or it fails: then the context that it returns ends.
func work(ctx context.Context, rdb *redis.Client, c worker.Config, handler func()) (running context.Context, stop func() error, err error) {
	return workWith(ctx, rdb, c, func(w *worker.Worker) {
		worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
			handler()
			return nil
		})
	})
}

// workWith is work with handlers of all kinds.
func workWith(ctx context.Context, rdb *redis.Client, c worker.Config, register func(*worker.Worker)) (running context.Context, stop func() error, err error) {
	c.Logger = silent
	w, err := worker.New(rdb, c)
	if err != nil {
		return nil, nil, err
	}
	register(w)
	running, end := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := w.Run(running)
		end(fmt.Errorf("the worker ended: %w", err))
		ended <- err
	}()
	return running, func() error {
		end(nil)
		return <-ended
	}, nil
}

// ourProcess runs jobs that are there already, from Run to the last handler's call.
func ourProcess(concurrency int) measure {
	return func(ctx context.Context, srv *server, n int) ([][]float64, error) {
		return process(ctx, srv, n, concurrency, noProviders())
	}
}

func process(ctx context.Context, srv *server, n, concurrency int, t *telemetry) ([][]float64, error) {
	rdb, s, err := connect(srv, t.scheduler())
	if err != nil {
		return nil, err
	}
	defer rdb.Close()
	if err := t.fill(ctx, s, n); err != nil {
		return nil, err
	}
	done := newTally(n)
	m, err := srv.stopwatch(ctx)
	if err != nil {
		return nil, err
	}
	running, stop, err := work(ctx, rdb, t.worker(slots(concurrency)), done.ran)
	if err != nil {
		return nil, err
	}
	last, err := done.wait(running)
	taken, failed := m.of(ctx, n, last)
	if err := errors.Join(err, failed, stop()); err != nil {
		return nil, err
	}
	return taken, done.check()
}

// ourEnqueue enqueues one job at a time in each of 16 goroutines.
func ourEnqueue(ctx context.Context, srv *server, n int) ([][]float64, error) {
	rdb, s, err := ours(srv)
	if err != nil {
		return nil, err
	}
	defer rdb.Close()
	m, err := srv.stopwatch(ctx)
	if err != nil {
		return nil, err
	}
	err = produce(n, func() error {
		r, err := s.Enqueue(ctx, payload)
		if err == nil && !r.New {
			return fmt.Errorf("job %s was there before", r.ID)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return m.of(ctx, n, time.Now())
}

// ourUnique enqueues one job at a time in each of 16 goroutines. Each has a unique key of its own.
func ourUnique(ctx context.Context, srv *server, n int) ([][]float64, error) {
	rdb, s, err := ours(srv)
	if err != nil {
		return nil, err
	}
	defer rdb.Close()
	var count atomic.Int64
	begin := time.Now()
	err = produce(n, func() error {
		key := strconv.FormatInt(count.Add(1), 10)
		r, err := s.Enqueue(ctx, payload, scheduler.Unique(key, scheduler.UntilEnded))
		if err == nil && !r.New {
			return fmt.Errorf("job %s met %s", r.ID, r.Existing)
		}
		return err
	})
	return rate(n, time.Since(begin)), err
}

// ourBulk enqueues in bulk, 10,000 jobs a call.
func ourBulk(ctx context.Context, srv *server, n int) ([][]float64, error) {
	rdb, s, err := ours(srv)
	if err != nil {
		return nil, err
	}
	defer rdb.Close()
	begin := time.Now()
	err = fill(ctx, s, n)
	return rate(n, time.Since(begin)), err
}

// ourBulkWith enqueues in bulk, 10,000 jobs a call. Job i has the option for i.
func ourBulkWith(option func(i int) scheduler.EnqueueOption) measure {
	return func(ctx context.Context, srv *server, n int) ([][]float64, error) {
		rdb, s, err := ours(srv)
		if err != nil {
			return nil, err
		}
		defer rdb.Close()
		begin := time.Now()
		items := jobs(min(n, 10_000))
		for in := 0; in < n; in += len(items) {
			items = items[:min(n-in, len(items))]
			for i := range items {
				items[i].Options = []scheduler.EnqueueOption{option(in + i)}
			}
			if err := enqueueMany(ctx, s, items); err != nil {
				return nil, err
			}
		}
		return rate(n, time.Since(begin)), nil
	}
}

// uniqueKey gives each job a unique key of its own.
func uniqueKey(i int) scheduler.EnqueueOption {
	return scheduler.Unique(strconv.Itoa(i), scheduler.UntilEnded)
}

// oneOf100 puts jobs into 100 groups in turn.
func oneOf100(i int) scheduler.EnqueueOption { return scheduler.Group(strconv.Itoa(i % 100)) }

// ourSeq enqueues the jobs of an iterator.
func ourSeq(ctx context.Context, srv *server, n int) ([][]float64, error) {
	rdb, s, err := ours(srv)
	if err != nil {
		return nil, err
	}
	defer rdb.Close()
	items := func(yield func(scheduler.Item) bool) {
		for i := 0; i < n && yield(scheduler.Item{Args: payload}); i++ {
		}
	}
	in := 0
	begin := time.Now()
	for i, r := range s.EnqueueSeq(ctx, items) {
		if r.Err != nil || !r.New {
			return nil, fmt.Errorf("job %d: %+v", i, r)
		}
		in++
	}
	if in != n {
		return nil, fmt.Errorf("%d results of %d jobs", in, n)
	}
	return rate(n, time.Since(begin)), nil
}

// The time between two jobs that an idle worker gets.
const idleLeast, idleMost = 5 * time.Millisecond, 15 * time.Millisecond

// ourLatency enqueues to an idle worker.
func ourLatency(ctx context.Context, srv *server, n int) ([][]float64, error) {
	rdb, s, err := ours(srv)
	if err != nil {
		return nil, err
	}
	defer rdb.Close()
	started := make(chan time.Time, 1)
	running, stop, err := work(ctx, rdb, slots(worker.DefaultConcurrency), func() { started <- time.Now() })
	if err != nil {
		return nil, err
	}
	enqueue := func() error {
		_, err := s.Enqueue(running, payload)
		return err
	}
	const warm = 5
	waited, err := latencies(running, warm+n, idleLeast, idleMost, enqueue, started)
	if err := errors.Join(err, stop()); err != nil {
		return nil, err
	}
	return [][]float64{waited[warm:]}, nil
}

// ourMemory is what a pending job takes in Redis.
func ourMemory(ctx context.Context, srv *server, n int) ([][]float64, error) {
	before, err := srv.memory(ctx)
	if err != nil {
		return nil, err
	}
	rdb, s, err := ours(srv)
	if err != nil {
		return nil, err
	}
	err = fill(ctx, s, n)
	if err := errors.Join(err, rdb.Close()); err != nil {
		return nil, err
	}
	after, err := srv.memory(ctx)
	return [][]float64{{(after - before) / float64(n)}}, err
}

// bareScripts runs jobs that are there already with the scripts alone: no slots and no handlers, and
// what one call claimed is completed by the next.
func bareScripts(lanes, batch int) measure {
	return func(ctx context.Context, srv *server, n int) ([][]float64, error) {
		rdb, s, err := ours(srv)
		if err != nil {
			return nil, err
		}
		defer rdb.Close()
		if err := fill(ctx, s, n); err != nil {
			return nil, err
		}
		queue, session := store.New(rdb, "", signalbox.DefaultQueue), store.NewID()
		if _, _, err := queue.Sessions().Open(ctx, session, time.Hour); err != nil {
			return nil, err
		}
		counts, errs := make([]int, lanes), make(chan error, lanes)
		begin := time.Now()
		for i := range lanes {
			go func() {
				var err error
				counts[i], err = drain(ctx, queue, session, batch)
				errs <- err
			}()
		}
		total := 0
		for range lanes {
			err = errors.Join(err, <-errs)
		}
		elapsed := time.Since(begin)
		for _, c := range counts {
			total += c
		}
		if err == nil && total != n {
			err = fmt.Errorf("%d jobs were completed %d times", n, total)
		}
		return rate(n, elapsed), err
	}
}

// drain claims and completes jobs until there are none, and returns how many there were.
func drain(ctx context.Context, queue *store.Queue, session string, batch int) (int, error) {
	lane := queue.NewLane()
	var settle []store.Settlement
	completed := 0
	for {
		lane.Next()
		reply, err := queue.Sessions().Claim(ctx, lane, &store.ClaimRequest{Session: session, Settle: settle, Want: batch})
		if err != nil {
			return completed, err
		}
		completed += len(settle) - len(reply.Refused)
		settle = settle[:0]
		for _, d := range reply.Deliveries {
			settle = append(settle, store.Settlement{ID: d.Job.ID, Token: d.Job.Token, Outcome: store.Completed})
		}
		if len(settle) == 0 {
			return completed, nil
		}
	}
}
