package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/signalbox-go/signalbox/lock"
)

// maxError bounds the text of an error in an event, since an event is written in one call.
const maxError = 500

// A worker acquires locks, one after the other.
type worker struct {
	client *client
	rand   *rand.Rand
	// newcomer makes it use a new locker each time. Such a locker knows nothing of the nodes and their
	// clocks.
	newcomer bool
	locker   lock.Locker
	crowded  bool // the other workers of the process want the same key
}

// run works until ctx ends. It returns an error if it can't report an operation.
func (w *worker) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := w.once(ctx); err != nil {
			return err
		}
	}
	return nil
}

// once acquires a lock, holds it and releases it.
func (w *worker) once(ctx context.Context) error {
	if w.newcomer {
		locker, closeLocker, err := w.client.task.newLocker()
		if err != nil {
			return err
		}
		defer func() { _ = closeLocker() }()
		w.locker = locker
	}
	l, id, err := w.acquire(ctx, w.key())
	if err != nil {
		return err
	}
	if l == nil {
		w.wait(ctx, w.upTo(10*time.Millisecond))
		return nil
	}
	return w.hold(ctx, l, id)
}

// key returns the next key to lock.
func (w *worker) key() string {
	if w.newcomer {
		w.crowded = false
		if w.rand.IntN(2) == 0 {
			return w.client.longKey()
		}
		return w.client.key(w.rand)
	}
	key, crowded := w.client.crowdKey()
	if w.crowded = crowded; crowded {
		return key
	}
	return w.client.key(w.rand)
}

// acquire asks for a lock. If the lock wasn't granted, it returns a nil lock.
func (w *worker) acquire(ctx context.Context, key string) (lock.Lock, int64, error) {
	ask := w.locker.Acquire
	if !w.crowded && w.rand.IntN(4) == 0 {
		ask = w.locker.TryAcquire
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond+w.upTo(2*ttl))
	defer cancel()
	return w.ask(ctx, key, ask)
}

// ask asks for a lock in the way given. If the lock wasn't granted, it returns a nil lock.
func (w *worker) ask(ctx context.Context, key string, how func(context.Context, string) (lock.Lock, error)) (lock.Lock, int64, error) {
	var l lock.Lock
	e := event{Do: acquire, Key: key}
	err := w.operation(&e, func() (err error) {
		l, err = how(ctx, key)
		return err
	}, func() {
		e.Token, e.Until = l.Token(), w.client.clocks.of(l.Until())
	})
	if e.Result != done {
		l = nil
	}
	return l, e.Op, err
}

// hold holds the lock for a while and releases it. Mostly that is short. Sometimes it lasts until the end of
// the promise while others wait, and sometimes the lock is extended.
func (w *worker) hold(ctx context.Context, l lock.Lock, id int64) error {
	switch n := w.rand.IntN(1000); {
	case w.crowded: // after several grants, others of the process still wait
		w.wait(ctx, w.upTo(30*time.Millisecond))
	case n < 700:
	case n < 950:
		w.wait(ctx, w.upTo(5*time.Millisecond))
	case n < 980:
		w.wait(ctx, w.upTo(40*time.Millisecond))
	case n < 990:
		for range 1 + w.rand.IntN(6) { // like lock.Do
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
	return w.release(ctx, l, id)
}

func (w *worker) release(ctx context.Context, l lock.Lock, id int64) error {
	e := event{Do: release, Key: l.Key(), Lease: id}
	return w.operation(&e, func() error { return l.Release(ctx) }, nil)
}

func (w *worker) extend(ctx context.Context, l lock.Lock, id int64) error {
	e := event{Do: extend, Key: l.Key(), Lease: id}
	return w.operation(&e, func() error { return l.Extend(context.WithoutCancel(ctx)) }, func() {
		e.Until = w.client.clocks.of(l.Until())
	})
}

// operation calls do, and reports its call and its return. e describes the operation. operation adds the
// result. If do returns nil, granted adds more.
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

// wait waits for d, or until ctx ends.
func (w *worker) wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
