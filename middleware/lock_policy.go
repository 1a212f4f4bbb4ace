package middleware

import (
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-go/signalbox"
)

// A Policy says what becomes of a job whose handler needs a named lock that can't be had.
// See [WhenHeld] and [WhenDown].
type Policy int

const (
	// Snooze puts the job back, for about [RetryIn]. Its slot is free and no attempt is used.
	Snooze Policy = iota
	// Fail makes it a failed attempt, with the locker's error: it wraps [lock.ErrHeld] if
	// another holds the lock. The job is retried with the kind's backoff, and dead after
	// its last attempt.
	Fail
	// Drop completes the job though its handler was not called: for a task that several
	// machines are told to do at the same time and only one should do. Have the locker
	// keep the lock for as long as they may be apart, by [lock.MinHold]: the task itself may
	// be over before the last of them asks.
	//
	// A dropped job may never be done. A tick is dropped while the one before it still runs;
	// so is a retry within MinHold, and a job that comes again after its worker died holding
	// the lock, until the lock's TTL is over. The next tick makes up for it. Since the
	// default key is the job's own, WhenHeld(Drop) needs a [Key].
	Drop
	// RunAnyway calls the handler without the lock. Then nothing keeps others out: a holder
	// of the lock, and all who run anyway, may run at the same time. [lock.FromContext]
	// gives the job's own lease, whose Key is not the lock's, and whose token orders only
	// the deliveries of this one job: it fences off nobody else. Take it where the
	// lock only saves work, and never where two at a time do harm.
	RunAnyway
)

// String is the policy's name in spans: snooze, fail, drop or run_anyway.
func (p Policy) String() string {
	switch p {
	case Snooze:
		return "snooze"
	case Fail:
		return "fail"
	case Drop:
		return "drop"
	case RunAnyway:
		return "run_anyway"
	}
	return fmt.Sprintf("Policy(%d)", int(p))
}

func (p Policy) known() bool { return p >= Snooze && p <= RunAnyway }

// WhenHeld says what becomes of a job when another holds the lock, after [Wait] if that is
// given. The default is [Snooze].
func WhenHeld(p Policy) LockOption { return func(c *lockConfig) { c.whenHeld = p } }

// WhenDown says what becomes of a job when the lock service is down: nobody knows whether
// another holds the lock, since Redis or too many nodes of a Redlock don't answer as they
// should, or so late that the lock is over. The default is [Fail]. A long outage can use up
// a job's attempts; [Snooze] uses none.
//
// An error that wraps [lock.ErrInvalid] is no outage but a mistake that stays, such as a bad
// key, a Redis that evicts locks or too many such nodes of a Redlock. It fails the attempt,
// whatever the policy.
func WhenDown(p Policy) LockOption { return func(c *lockConfig) { c.whenDown = p } }

// Wait waits up to d for a lock that is held, before [WhenHeld] applies: from 0, the
// default, to 1 h. The wait ends early with the handler's context or if the lock service
// fails. All the while the job takes up its slot in the worker, its lease is renewed and
// a shutdown waits for it; the time is not part of the job's Timeout. Give it to jobs
// that wait for less than a snooze takes, and let others be snoozed.
func Wait(d time.Duration) LockOption { return func(c *lockConfig) { c.wait = d } }

// RetryIn is the mean delay after which a snoozed job is run again; with jitter it is from
// half to one and a half of it. The default is 1 s; it is from 10 ms to 24 h.
func RetryIn(d time.Duration) LockOption { return func(c *lockConfig) { c.retryIn = d } }

const (
	defaultRetryIn = time.Second
	minRetryIn     = 10 * time.Millisecond
	maxRetryIn     = 24 * time.Hour
	maxWait        = time.Hour
)

// check reports every mistake.
func (c *lockConfig) check() error {
	err := c.err
	mistake := func(format string, args ...any) {
		err = errors.Join(err, fmt.Errorf("%w: middleware.Lock: "+format, append([]any{signalbox.ErrInvalid}, args...)...))
	}
	if !c.whenHeld.known() {
		mistake("WhenHeld is %v; it must be Snooze, Fail, Drop or RunAnyway", c.whenHeld)
	}
	if !c.whenDown.known() {
		mistake("WhenDown is %v; it must be Snooze, Fail, Drop or RunAnyway", c.whenDown)
	}
	if c.whenHeld == Drop && c.key == nil {
		mistake("WhenHeld is Drop and there is no Key; by the default one a job is dropped because of an earlier run of its own, and never done")
	}
	if c.wait < 0 || c.wait > maxWait {
		mistake("Wait is %v; it must be from 0 to %v", c.wait, maxWait)
	}
	if c.retryIn < minRetryIn || c.retryIn > maxRetryIn {
		mistake("RetryIn is %v; it must be from %v to %v", c.retryIn, minRetryIn, maxRetryIn)
	}
	return err
}
