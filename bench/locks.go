package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A grab waits for the lock of a key and returns what releases it. Both are one cycle.
type grab func(ctx context.Context, key string) (release func() error, err error)

// A library opens its locks on these servers, and returns what closes them.
type library func(addrs []string) (acquire grab, closeAll func() error, err error)

// libraries are by the names that the processes of a measurement know them by.
var libraries = map[string]library{
	"signalbox": ourLocks,
	"redislock": redislocks,
	"redsync":   redsyncs,
	"rueidis":   rueidislocks,
}

const lockKey = "bench"

// lockCycles runs n cycles in so many goroutines, each with a key of its own.
func lockCycles(open library, goroutines int) measure {
	return func(ctx context.Context, srv *server, n int) (samples [][]float64, err error) {
		return cycles(ctx, open, []string{srv.addr}, goroutines, n)
	}
}

func cycles(ctx context.Context, open library, addrs []string, goroutines, n int) (samples [][]float64, err error) {
	acquire, closeAll, err := open(addrs)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	run := func(n int) error {
		return each(goroutines, func(i int) error {
			key := fmt.Sprint(lockKey, i)
			for range (n + i) / goroutines { // n in all
				if err := cycle(ctx, acquire, key); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := run(goroutines); err != nil { // connects, loads scripts
		return nil, err
	}
	begin := time.Now()
	err = run(n)
	return rate(n, time.Since(begin)), err
}

func cycle(ctx context.Context, acquire grab, key string) error {
	release, err := acquire(ctx, key)
	if err != nil {
		return err
	}
	return release()
}

// The series of a contended measurement.
const (
	cyclesPerSecond = iota
	waits           // ms from asking for the lock to having it
	jain
)

const contenders = 16

// contended has 16 goroutines want one lock, until each of them has had it n/16 times.
func contended(open library) measure {
	return func(ctx context.Context, srv *server, n int) (samples [][]float64, err error) {
		acquire, closeAll, err := open([]string{srv.addr})
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, closeAll()) }()
		if err := cycle(ctx, acquire, lockKey); err != nil {
			return nil, err
		}
		var holders atomic.Int32
		alone := func() error {
			if holders.Add(1) != 1 {
				return errors.New("two hold the lock at once")
			}
			holders.Add(-1)
			return nil
		}
		begin := time.Now()
		wants := make([]want, contenders)
		err = each(contenders, func(i int) (err error) {
			wants[i], err = wantLock(ctx, acquire, n/contenders, alone)
			return err
		})
		if err != nil {
			return nil, err
		}
		return sumUp(wants, begin), nil
	}
}

// A want is what one of the contenders got.
type want struct {
	Waits []float64   // of each acquire, ms
	Got   []time.Time // when each lock was had
	End   time.Time   // of the last cycle
}

// wantLock runs n cycles. held is called with the lock held.
func wantLock(ctx context.Context, acquire grab, n int, held func() error) (want, error) {
	var w want
	for range n {
		asked := time.Now()
		release, err := acquire(ctx, lockKey)
		if err != nil {
			return w, err
		}
		w.Got = append(w.Got, time.Now())
		w.Waits = append(w.Waits, float64(time.Since(asked))/float64(time.Millisecond))
		if err := errors.Join(held(), release()); err != nil {
			return w, err
		}
	}
	w.End = time.Now()
	return w, nil
}

// sumUp makes the series. Fairness is Jain's index of how often each had had the lock when
// the first had all its cycles: 1 if all had it equally often, 1/16 if only one had it.
func sumUp(wants []want, begin time.Time) [][]float64 {
	var all []float64
	var cycles int
	first, last := wants[0].End, wants[0].End
	for _, w := range wants {
		all = append(all, w.Waits...)
		cycles += len(w.Waits)
		if w.End.Before(first) {
			first = w.End
		}
		if w.End.After(last) {
			last = w.End
		}
	}
	var sum, squares float64
	for _, w := range wants {
		had := 0.0
		for _, got := range w.Got {
			if got.Before(first) {
				had++
			}
		}
		sum += had
		squares += had * had
	}
	return [][]float64{
		cyclesPerSecond: {float64(cycles) / last.Sub(begin).Seconds()},
		waits:           all,
		jain:            {sum * sum / (contenders * squares)},
	}
}

// each calls do in n goroutines.
func each(n int, do func(i int) error) error {
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
