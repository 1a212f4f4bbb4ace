package pglock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/internal/held"
)

// pgLock is the lock that a [Locker] grants.
type pgLock struct {
	held.Lock
	locker     *Locker
	key, value string

	sending   chan struct{} // has room for one: the release on its way, of the caller or of a repetition
	asked     bool          // a release may have freed the lock: its reply never came, or came to a repetition. Owned by who sends
	repeating bool          // a goroutine repeats the release; GiveUp is called by one goroutine at a time
}

var _ lock.Origin = (*pgLock)(nil)

func (l *pgLock) Key() string { return l.key }

// Issuer and Holder implement [lock.Origin]. The holder is the value in the row's column of that name.
func (l *pgLock) Issuer() string { return "postgres" }
func (l *pgLock) Holder() string { return l.value }

// granted fills in a grant. Its TTL began after start.
func (l *pgLock) granted(ctx context.Context, start lease.Instant, value string, token int64) error {
	l.value = value
	l.Grant(token)
	if l.Validity.Extend(start, l.TTL) {
		return nil
	}
	took := time.Since(start.Time())
	return errors.Join(
		fmt.Errorf("%w: it was granted with no validity left: PostgreSQL took %v of a TTL of %v", lock.ErrLost, took, l.TTL),
		l.locker.giveBackAtLast(ctx, l.key, value))
}

func (l *pgLock) Extend(ctx context.Context) error { return l.failed("extend", l.ExtendBy(ctx, l)) }

// An extended is the row of extend.sql.
type extended struct{ Extended, Same bool }

// Renew is part of [held.Service].
func (l *pgLock) Renew(ctx context.Context) error {
	p := l.locker
	e, err := call[extended](ctx, p, p.askTimeout, p.sql.extend, []any{[]byte(l.key), l.value, p.ttl.Microseconds()}, nil)
	switch {
	case err != nil:
		return err
	case e.Extended:
		return nil
	case e.Same:
		return lock.ErrExpired
	}
	return lock.ErrTaken
}

func (l *pgLock) Release(ctx context.Context) error {
	return l.failed("release", l.ReleaseBy(ctx, l))
}

// GiveUp is part of [held.Service]. A release that failed is repeated in the background.
func (l *pgLock) GiveUp(ctx context.Context, _ time.Time) error {
	err := l.send(ctx)
	if !l.repeating && unfreed(err) {
		l.repeating = l.locker.repeat(func() error { return l.send(context.Background()) })
	}
	return err
}

// send releases the lock, once no other release is on its way.
func (l *pgLock) send(ctx context.Context) error {
	end := time.Now().Add(callTimeout)
	timer := time.NewTimer(callTimeout)
	defer timer.Stop()
	select {
	case l.sending <- struct{}{}:
		defer func() { <-l.sending }()
	case <-timer.C:
		return fmt.Errorf("PostgreSQL has not answered an earlier release within %v: %w", callTimeout, context.DeadlineExceeded)
	}
	a := l.locker.giveBack(ctx, l.key, l.value, time.Until(end))
	again := l.asked || a.again
	l.asked = again || !isAnswer(a.err) && !errors.Is(a.err, lock.ErrLost) // nil: a repetition has freed it
	if again && errors.Is(a.err, lock.ErrTaken) {
		return l.Earlier(a.err)
	}
	return a.err
}

func (l *pgLock) failed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("lock: %s %.200q: %w", what, l.key, err)
}
