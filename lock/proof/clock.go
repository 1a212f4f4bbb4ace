package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// monotonic reads CLOCK_MONOTONIC, ns: one clock for all processes of this host.
func monotonic() int64 { return read(unix.CLOCK_MONOTONIC) }

func read(clock int32) int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		panic(err) // every Linux has the clocks that are asked for here
	}
	return t.Nano()
}

// A calibration says what a time.Time of this process is on CLOCK_MONOTONIC. Go reads the same
// clock, but counts from another zero.
type calibration struct {
	at   time.Time
	mono int64
}

// calibrate reads both clocks until it did so within a few µs of each other.
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

// of is a moment as it was promised, at most the µs of the calibration early.
func (c calibration) of(t time.Time) int64 { return c.mono + int64(t.Sub(c.at)) }

const (
	// stepLimit is by how much the wall clock may go against the monotonic one between two looks.
	stepLimit = time.Millisecond
	lookEvery = 50 * time.Millisecond
)

// watchWallClock returns when ctx ends: with nil, or with what it saw of a clock that stepped. Leases rest on
// clocks that don't, so a run in which one did would show nothing about the lock.
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

// wallAgainstMonotonic is the difference of the clocks, read at the same time but for some µs.
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
