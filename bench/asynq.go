package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/signalbox-go/signalbox"
)

// asynqTask is what all tasks are: the same 100 bytes, encoded once.
func asynqTask() (*asynq.Task, error) {
	data, err := json.Marshal(payload)
	return asynq.NewTask(payload.Kind(), data), err
}

func asynqRedis(srv *server) asynq.RedisClientOpt { return asynq.RedisClientOpt{Addr: srv.addr} }

// asynqFill enqueues n tasks, one at a time in each of 16 goroutines: asynq has no bulk call, and
// its client is fastest so.
func asynqFill(ctx context.Context, srv *server, n int) (err error) {
	client := asynq.NewClient(asynqRedis(srv))
	defer func() { err = errors.Join(err, client.Close()) }()
	task, err := asynqTask()
	if err != nil {
		return err
	}
	return produce(n, func() error {
		_, err := client.EnqueueContext(ctx, task)
		return err
	})
}

// asynqWork runs a server until stop is called. It has nothing to do but this one queue, and
// logs errors only.
func asynqWork(srv *server, concurrency int, handler func()) (stop func(), err error) {
	s := asynq.NewServer(asynqRedis(srv), asynq.Config{
		Concurrency:    concurrency,
		Queues:         map[string]int{signalbox.DefaultQueue: 1},
		StrictPriority: true,
		LogLevel:       asynq.ErrorLevel,
	})
	err = s.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		handler()
		return nil
	}))
	return s.Shutdown, err
}

// asynqProcess runs tasks that are there already, from Start to the last handler's call.
func asynqProcess(concurrency int) measure {
	return func(ctx context.Context, srv *server, n int) ([][]float64, error) {
		if err := asynqFill(ctx, srv, n); err != nil {
			return nil, err
		}
		done := newTally(n)
		m, err := srv.stopwatch(ctx)
		if err != nil {
			return nil, err
		}
		stop, err := asynqWork(srv, concurrency, done.ran)
		if err != nil {
			return nil, err
		}
		last, err := done.wait(ctx)
		taken, failed := m.of(ctx, n, last)
		stop()
		if err := errors.Join(err, failed); err != nil {
			return nil, err
		}
		return taken, done.check()
	}
}

// asynqEnqueue enqueues one task at a time in each of 16 goroutines.
func asynqEnqueue(ctx context.Context, srv *server, n int) ([][]float64, error) {
	m, err := srv.stopwatch(ctx)
	if err != nil {
		return nil, err
	}
	if err := asynqFill(ctx, srv, n); err != nil {
		return nil, err
	}
	taken, err := m.of(ctx, n, time.Now())
	return taken, errors.Join(err, asynqPending(srv, n))
}

// asynqUnique enqueues one task at a time in each of 16 goroutines. asynq makes a key of the payload, so each
// task has another one.
func asynqUnique(ctx context.Context, srv *server, n int) (samples [][]float64, err error) {
	client := asynq.NewClient(asynqRedis(srv))
	defer func() { err = errors.Join(err, client.Close()) }()
	var count atomic.Int64
	begin := time.Now()
	err = produce(n, func() error {
		text := fmt.Appendf(nil, "%0100d", count.Add(1)) // as long as the other payloads
		_, err := client.EnqueueContext(ctx, asynq.NewTask(payload.Kind(), text), asynq.Unique(time.Hour))
		return err
	})
	if err != nil {
		return nil, err
	}
	return rate(n, time.Since(begin)), asynqPending(srv, n)
}

// asynqPending checks that n tasks are in the queue.
func asynqPending(srv *server, n int) error {
	inspector := asynq.NewInspector(asynqRedis(srv))
	defer inspector.Close()
	info, err := inspector.GetQueueInfo(signalbox.DefaultQueue)
	if err == nil && info.Pending != n {
		err = fmt.Errorf("%d of %d tasks are pending", info.Pending, n)
	}
	return err
}

// asynqLatency enqueues to an idle server. An idle server sleeps for 0.5 to 1.5 s between two looks, and
// looks again after each task: so the next one comes after up to a second, at any
// point of its sleep.
func asynqLatency(ctx context.Context, srv *server, n int) (samples [][]float64, err error) {
	client := asynq.NewClient(asynqRedis(srv))
	defer func() { err = errors.Join(err, client.Close()) }()
	task, err := asynqTask()
	if err != nil {
		return nil, err
	}
	started := make(chan time.Time, 1)
	stop, err := asynqWork(srv, 10, func() { started <- time.Now() })
	if err != nil {
		return nil, err
	}
	defer stop()
	enqueue := func() error {
		_, err := client.EnqueueContext(ctx, task)
		return err
	}
	const warm = 1
	waited, err := latencies(ctx, warm+n, 0, time.Second, enqueue, started)
	if err != nil {
		return nil, err
	}
	return [][]float64{waited[warm:]}, nil
}

// asynqMemory is what a pending task takes in Redis.
func asynqMemory(ctx context.Context, srv *server, n int) ([][]float64, error) {
	before, err := srv.memory(ctx)
	if err != nil {
		return nil, err
	}
	if err := asynqFill(ctx, srv, n); err != nil {
		return nil, err
	}
	after, err := srv.memory(ctx)
	if err != nil {
		return nil, err
	}
	return [][]float64{{(after - before) / float64(n)}}, asynqPending(srv, n)
}
