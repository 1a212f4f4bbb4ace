package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const producers = 16

// A tally counts the handlers that were called.
type tally struct {
	want int64
	got  atomic.Int64
	last chan time.Time // takes when the last one was
}

func newTally(n int) *tally { return &tally{want: int64(n), last: make(chan time.Time, 1)} }

func (t *tally) ran() {
	if t.got.Add(1) == t.want {
		t.last <- time.Now()
	}
}

// wait returns when the last job ran.
func (t *tally) wait(ctx context.Context) (time.Time, error) {
	select {
	case last := <-t.last:
		return last, nil
	case <-ctx.Done():
		return time.Time{}, fmt.Errorf("%d of %d jobs ran: %w", t.got.Load(), t.want, context.Cause(ctx))
	}
}

// check is for when the worker has stopped.
func (t *tally) check() error {
	if got := t.got.Load(); got != t.want {
		return fmt.Errorf("%d jobs were run %d times", t.want, got)
	}
	return nil
}

// rate is how many of n there were a second, as the one sample of a run.
func rate(n int, d time.Duration) [][]float64 { return [][]float64{{float64(n) / d.Seconds()}} }

// produce makes n calls, one at a time in each of 16 goroutines.
func produce(n int, call func() error) error {
	var wg sync.WaitGroup
	errs := make([]error, producers)
	for p := range producers {
		wg.Go(func() {
			for range (n + p) / producers { // n in all
				if errs[p] = call(); errs[p] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// latencies enqueues n jobs, each when the one before has been handled and a random part of
// most has passed, and returns the milliseconds until their handlers started.
func latencies(ctx context.Context, n int, least, most time.Duration, enqueue func() error, started <-chan time.Time) ([]float64, error) {
	samples := make([]float64, 0, n)
	for range n {
		select {
		case <-time.After(least + rand.N(most-least)):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		begin := time.Now()
		if err := enqueue(); err != nil {
			return nil, err
		}
		select {
		case at := <-started:
			samples = append(samples, float64(at.Sub(begin))/float64(time.Millisecond))
		case <-ctx.Done():
			return nil, fmt.Errorf("a job did not run: %w", context.Cause(ctx))
		}
	}
	return samples, nil
}
