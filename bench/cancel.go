package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/worker"
)

// cancelSlots are how many jobs run while one of them is cancelled: all slots are full, and more jobs wait.
const cancelSlots = 100

// A stay is a job that runs until its context ends.
type stay struct {
	id    string
	ended chan time.Time // when it did
}

// stays are jobs that run.
type stays chan stay

// handle is the handler of a job: it returns when ctx has ended.
func (s stays) handle(ctx context.Context, id string) {
	one := stay{id, make(chan time.Time, 1)}
	s <- one
	<-ctx.Done()
	one.ended <- time.Now()
}

// cancels cancels n jobs, one after the other, and returns for each how long it took from the call to the end of the handler's
// context, in ms. A first one doesn't count: it is cancelled again and again until the worker hears of it.
func (s stays) cancels(ctx context.Context, n int, cancel func(id string) error) (waited []float64, err error) {
	for i := range 1 + n {
		var one stay
		select {
		case one = <-s:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		begin := time.Now()
		if err := cancel(one.id); err != nil {
			return nil, err
		}
		again := time.NewTicker(100 * time.Millisecond)
		for over := false; !over; {
			select {
			case at := <-one.ended:
				if over = true; i > 0 {
					waited = append(waited, at.Sub(begin).Seconds()*1000)
				}
			case <-again.C:
				if i == 0 {
					err = cancel(one.id)
				}
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
			if err != nil {
				again.Stop()
				return nil, err
			}
		}
		again.Stop()
	}
	return waited, nil
}

// ourCancels cancels jobs that run in a worker whose slots are full.
func ourCancels(ctx context.Context, srv *server, n int) (samples [][]float64, err error) {
	rdb, s, err := ours(srv)
	if err != nil {
		return nil, err
	}
	defer rdb.Close()
	if err := fill(ctx, s, n+1+2*cancelSlots); err != nil {
		return nil, err
	}
	ins, err := inspect.New(rdb, inspect.Config{})
	if err != nil {
		return nil, err
	}
	c := slots(cancelSlots)
	c.Logger, c.DrainTimeout = silent, -1
	w, err := worker.New(rdb, c)
	if err != nil {
		return nil, err
	}
	running := make(stays, cancelSlots)
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, _ task) error {
		running.handle(ctx, job.ID)
		return ctx.Err()
	})
	work, stop := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := w.Run(work)
		stop(fmt.Errorf("the worker ended: %w", err))
		ended <- err
	}()
	waited, err := running.cancels(work, n, func(id string) error {
		_, err := ins.Do(work, signalbox.DefaultQueue, id, inspect.Cancel{})
		return err
	})
	stop(nil)
	go func() { // those that start before the worker has stopped
		for range running {
		}
	}()
	err = errors.Join(err, <-ended)
	close(running)
	return [][]float64{waited}, err
}

// asynqCancels does the same with asynq, whose only sign is a message: no job is marked.
func asynqCancels(ctx context.Context, srv *server, n int) (samples [][]float64, err error) {
	if err := asynqFill(ctx, srv, n+1+2*cancelSlots); err != nil {
		return nil, err
	}
	inspector := asynq.NewInspector(asynqRedis(srv))
	defer func() { err = errors.Join(err, inspector.Close()) }()
	running := make(stays, cancelSlots)
	s := asynq.NewServer(asynqRedis(srv), asynq.Config{
		Concurrency: cancelSlots, Queues: map[string]int{signalbox.DefaultQueue: 1}, LogLevel: asynq.FatalLevel, ShutdownTimeout: time.Millisecond,
	})
	err = s.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		running.handle(ctx, id)
		return asynq.SkipRetry
	}))
	if err != nil {
		return nil, err
	}
	defer s.Shutdown()
	waited, err := running.cancels(ctx, n, inspector.CancelProcessing)
	return [][]float64{waited}, err
}
