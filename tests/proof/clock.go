package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// monotonic reads CLOCK_MONOTONIC in ns. It is the same clock in all processes of this host.
func monotonic() int64 { return read(unix.CLOCK_MONOTONIC) }

func read(clock int32) int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		panic(err) // every Linux has these clocks
	}
	return t.Nano()
}

// A calibration converts a time.Time of this process to CLOCK_MONOTONIC. Go reads the same clock, but counts
// from another zero.
type calibration struct {
	at   time.Time
	mono int64
}

// calibrate reads both clocks until the two readings are within a few µs.
func calibrate() calibration {
	var best calibration
	width := int64(-1)
	for range 1000 {
		before := monotonic()
		at := time.Now()
		if w := monotonic() - before; width < 0 || w < width {
			best, width = calibration{at, before}, w
		}
	}
	return best
}

// of converts a promised moment. The result is at most the µs of the calibration too early.
func (c calibration) of(t time.Time) int64 { return c.mono + int64(t.Sub(c.at)) }

const (
	// stepLimit is the largest change between the wall clock and the monotonic clock from one check to the
	// next.
	stepLimit = time.Millisecond
	lookEvery = 50 * time.Millisecond
)

// watchWallClock returns when ctx ends, with nil, or when the wall clock stepped, with an error. Leases
// assume clocks that don't step. So a run with a step would prove nothing about the lock.
func watchWallClock(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	last := wallAgainstMonotonic()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := wallAgainstMonotonic()
		if step := now - last; step.Abs() > stepLimit {
			return fmt.Errorf("the host's wall clock stepped by %v: the run shows nothing", step)
		}
		last = now
	}
}

// wallAgainstMonotonic returns the difference of the clocks, read within some µs.
func wallAgainstMonotonic() time.Duration {
	var difference, width int64 = 0, -1
	for range 10 {
		before := monotonic()
		wall := read(unix.CLOCK_REALTIME)
		if w := monotonic() - before; width < 0 || w < width {
			difference, width = wall-before, w
		}
	}
	return time.Duration(difference)
}
