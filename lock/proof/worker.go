package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/signalbox-go/signalbox/lock"
)

// maxError bounds the text of an error in an event: an event is written in one piece.
const maxError = 500

// A worker acquires locks, one after the other.
type worker struct {
	client *client
	rand   *rand.Rand
}

// run works until ctx ends, and fails if what it did can't be told.
func (w *worker) run(ctx context.Context) error {
	for ctx.Err() == nil {
		key := w.client.key(w.rand)
		l, id, err := w.acquire(ctx, key)
		if err != nil {
			return err
		}
		if l == nil {
			w.wait(ctx, w.upTo(10*time.Millisecond))
			continue
		}
		if err := w.hold(ctx, l, id); err != nil {
			return err
		}
	}
	return nil
}

// acquire returns nil if the lock wasn't granted.
func (w *worker) acquire(ctx context.Context, key string) (lock.Lock, int64, error) {
	ask := w.client.locker.Acquire
	if w.rand.IntN(4) == 0 {
		ask = w.client.locker.TryAcquire
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond+w.upTo(2*ttl))
	defer cancel()
	var l lock.Lock
	e := event{Do: acquire, Key: key}
	err := w.operation(&e, func() (err error) {
		l, err = ask(ctx, key)
		return err
	}, func() {
		e.Token, e.Until = l.Token(), w.client.clocks.of(l.Until())
	})
	if e.Result != done {
		l = nil
	}
	return l, e.Op, err
}

// hold holds the lock for a while, mostly short, sometimes until the end of the promise, when others
// wait for it, and with extensions.
func (w *worker) hold(ctx context.Context, l lock.Lock, id int64) error {
	switch n := w.rand.IntN(1000); {
	case n < 700:
	case n < 950:
		w.wait(ctx, w.upTo(5*time.Millisecond))
	case n < 980:
		w.wait(ctx, w.upTo(40*time.Millisecond))
	case n < 990:
		for range 1 + w.rand.IntN(6) { // as lock.Do does
			w.wait(ctx, ttl/3)
			if err := w.extend(ctx, l, id); err != nil {
				return err
			}
		}
	default:
		<-l.Context().Done()
	}
	for w.rand.IntN(5) == 0 {
		if err := w.extend(ctx, l, id); err != nil {
			return err
		}
		w.wait(ctx, w.upTo(5*time.Millisecond))
	}
	e := event{Do: release, Key: l.Key(), Lease: id}
	return w.operation(&e, func() error { return l.Release(ctx) }, nil)
}

func (w *worker) extend(ctx context.Context, l lock.Lock, id int64) error {
	e := event{Do: extend, Key: l.Key(), Lease: id}
	return w.operation(&e, func() error { return l.Extend(context.WithoutCancel(ctx)) }, func() {
		e.Until = w.client.clocks.of(l.Until())
	})
}

// operation does something and tells of its call and its return. What it is about is in e; what came of it is
// added, by granted if it was nil.
func (w *worker) operation(e *event, do func() error, granted func()) error {
	e.Op = w.client.ops.Add(1)
	e.At = monotonic()
	if err := w.client.tell(*e); err != nil {
		return err
	}
	err := do()
	e.At, e.End = monotonic(), true
	switch {
	case err == nil:
		e.Result = done
		if granted != nil {
			granted()
		}
	case errors.Is(err, lock.ErrLost):
		e.Result = lost
	case errors.Is(err, lock.ErrHeld):
		e.Result = held
	default:
		e.Result = failed
	}
	if err != nil && e.Result != held {
		text := err.Error()
		e.Error = text[:min(len(text), maxError)]
	}
	return w.client.tell(*e)
}

func (w *worker) upTo(d time.Duration) time.Duration { return time.Duration(w.rand.Int64N(int64(d))) }

// wait waits, or until ctx ends.
func (w *worker) wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
