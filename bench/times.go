package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// cronEntries tick at each whole second.
const cronEntries = 200

// A collector takes samples until it has enough.
type collector struct {
	mu      sync.Mutex
	samples []float64
	done    *tally
}

func newCollector(n int) *collector { return &collector{done: newTally(n)} }

// late adds how late something is that was to be at a time, in ms.
func (c *collector) late(at time.Time) {
	ms := float64(time.Since(at)) / float64(time.Millisecond)
	c.mu.Lock()
	c.samples = append(c.samples, ms)
	c.mu.Unlock()
	c.done.ran()
}

// series returns all samples. It is for when nothing adds to them any more.
func (c *collector) series() [][]float64 { return [][]float64{c.samples} }

// ourTicks times n ticks of 200 entries, from a whole second to the start of the tick's handler.
func ourTicks(ctx context.Context, srv *server, n int) ([][]float64, error) {
	rdb, s, err := ours(srv)
	if err != nil {
		return nil, err
	}
	defer rdb.Close()
	for i := range cronEntries {
		if err := s.Cron("entry-"+strconv.Itoa(i), "@every 1s", payload); err != nil {
			return nil, err
		}
	}
	c := newCollector(n)
	working, stop, err := workWith(ctx, rdb, slots(100), func(w *worker.Worker) {
		worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
			c.late(job.ScheduledAt)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	ticking, end := context.WithCancelCause(working)
	ended := make(chan error, 1)
	go func() {
		err := s.Run(ticking)
		end(fmt.Errorf("the scheduler ended: %w", err))
		ended <- err
	}()
	_, err = c.done.wait(ticking)
	end(nil)
	err = errors.Join(err, <-ended, stop())
	return c.series(), err
}

// asynqTicks times n ticks of 200 entries. asynq says nothing of a tick's time to its handler. Its scheduler calls PreEnqueueFunc at the tick, and
// an entry's tasks run in their order.
func asynqTicks(ctx context.Context, srv *server, n int) ([][]float64, error) {
	c := newCollector(n)
	var mu sync.Mutex
	ticks := make(map[string][]time.Time) // that have not run, by type
	server := asynq.NewServer(asynqRedis(srv), asynq.Config{Concurrency: 100, LogLevel: asynq.FatalLevel})
	err := server.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		mu.Lock()
		at := ticks[t.Type()][0]
		ticks[t.Type()] = ticks[t.Type()][1:]
		mu.Unlock()
		c.late(at)
		return nil
	}))
	if err != nil {
		return nil, err
	}
	defer server.Shutdown()
	s := asynq.NewScheduler(asynqRedis(srv), &asynq.SchedulerOpts{
		LogLevel: asynq.FatalLevel,
		PreEnqueueFunc: func(t *asynq.Task, _ []asynq.Option) {
			mu.Lock()
			defer mu.Unlock()
			ticks[t.Type()] = append(ticks[t.Type()], time.Now().Truncate(time.Second))
		},
	})
	data, err := json.Marshal(payload)
	if err != nil {
		return nil, err
	}
	for i := range cronEntries {
		if _, err := s.Register("@every 1s", asynq.NewTask("entry-"+strconv.Itoa(i), data)); err != nil {
			return nil, err
		}
	}
	if err := s.Start(); err != nil {
		return nil, err
	}
	defer s.Shutdown()
	_, err = c.done.wait(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	return [][]float64{c.samples[:len(c.samples):len(c.samples)]}, err
}

// dueRate is how many delayed jobs are due in a second.
const dueRate = 400

// dueTimes are n times, spread over n/400 s from a moment on.
func dueTimes(from time.Time, n int) []time.Time {
	at := make([]time.Time, n)
	for i := range at {
		at[i] = from.Add(rand.N(time.Duration(n) * time.Second / dueRate))
	}
	return at
}

// ourDelayed times n delayed jobs, from the time that each is due to its handler's start. The worker is idle otherwise.
func ourDelayed(ctx context.Context, srv *server, n int) ([][]float64, error) {
	rdb, s, err := ours(srv)
	if err != nil {
		return nil, err
	}
	defer rdb.Close()
	if err := delay(ctx, srv, s, func(from time.Time) []time.Time { return dueTimes(from, n) }); err != nil {
		return nil, err
	}
	c := newCollector(n)
	working, stop, err := workWith(ctx, rdb, slots(100), func(w *worker.Worker) {
		worker.Handle(w, func(_ context.Context, _ *signalbox.Job, in timed) error {
			c.late(in.At)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	_, err = c.done.wait(working)
	err = errors.Join(err, stop(), c.done.check())
	return c.series(), err
}

// delay enqueues jobs that are due at times from a moment on, with enough time left for a worker to start. It tries again with a later
// moment if enqueuing took too long.
func delay(ctx context.Context, srv *server, s *scheduler.Scheduler, times func(from time.Time) []time.Time) error {
	const start = 500 * time.Millisecond // of a worker
	for lead := time.Second; ; lead *= 2 {
		from := time.Now().Add(lead)
		items := make([]scheduler.Item, 0, 10_000)
		all := times(from)
		for i, at := range all {
			items = append(items, scheduler.Item{Args: timed{at}, Options: []scheduler.EnqueueOption{scheduler.At(at)}})
			if len(items) == cap(items) || i == len(all)-1 {
				if err := enqueueMany(ctx, s, items); err != nil {
					return err
				}
				items = items[:0]
			}
		}
		if time.Until(from) >= start {
			return nil
		}
		if err := srv.flush(ctx); err != nil {
			return err
		}
	}
}

// asynqDelayed is ourDelayed. asynq looks for tasks that are due every 5 s, by default.
func asynqDelayed(ctx context.Context, srv *server, n int) (samples [][]float64, err error) {
	client := asynq.NewClient(asynqRedis(srv))
	defer func() { err = errors.Join(err, client.Close()) }()
	c := newCollector(n)
	s := asynq.NewServer(asynqRedis(srv), asynq.Config{Concurrency: 100, LogLevel: asynq.FatalLevel})
	err = s.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		var in timed
		if err := json.Unmarshal(t.Payload(), &in); err != nil {
			return err
		}
		c.late(in.At)
		return nil
	}))
	if err != nil {
		return nil, err
	}
	stopped := false
	defer func() {
		if !stopped {
			s.Shutdown()
		}
	}()
	for _, at := range dueTimes(time.Now().Add(time.Second), n) {
		data, err := json.Marshal(timed{at})
		if err != nil {
			return nil, err
		}
		if _, err := client.EnqueueContext(ctx, asynq.NewTask("timed", data), asynq.ProcessAt(at)); err != nil {
			return nil, err
		}
	}
	_, err = c.done.wait(ctx)
	s.Shutdown()
	stopped = true
	return c.series(), err
}

// delayedCrowd has n jobs become due within one second, and returns how long each script took that took 1 ms or more.
func delayedCrowd(ctx context.Context, srv *server, n int) (samples [][]float64, err error) {
	rdb, s, err := ours(srv)
	if err != nil {
		return nil, err
	}
	defer rdb.Close()
	err = delay(ctx, srv, s, func(from time.Time) []time.Time {
		times := make([]time.Time, n)
		for i := range times {
			times[i] = from.Add(rand.N(time.Second))
		}
		return times
	})
	if err := errors.Join(err, srv.watchScripts(ctx, time.Millisecond)); err != nil {
		return nil, err
	}
	done := newTally(n)
	working, stop, err := workWith(ctx, rdb, slots(100), func(w *worker.Worker) {
		worker.Handle(w, func(context.Context, *signalbox.Job, timed) error {
			done.ran()
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	_, err = done.wait(working)
	if err := errors.Join(err, stop(), done.check()); err != nil {
		return nil, err
	}
	scripts, err := srv.slowScripts(ctx)
	if err != nil {
		return nil, err
	}
	all := []float64{1} // nothing took longer
	for _, took := range scripts {
		all = append(all, took.Seconds()*1000)
	}
	return [][]float64{all}, nil
}
