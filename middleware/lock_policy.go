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
	// PolicySnooze puts the job back, for about [RetryIn]. Its slot is free and no attempt is used.
	PolicySnooze Policy = iota
	// PolicyFail makes it a failed attempt, with the locker's error: it wraps [lock.ErrHeld] if another client holds
	// the lock. The job is retried with the kind's backoff, and is dead after its last attempt.
	PolicyFail
	// PolicyDrop completes the job without calling its handler. It is for a task that several machines start at the
	// same time and only one should do. The task may be over before the last machine asks for the lock. So set MinHold
	// of [lock.Config]: the locker must keep the lock for as long as the machines' clocks may differ.
	//
	// A job is not dropped because of an earlier delivery of its own. If the handler fails, snoozes
	// or is interrupted by a shutdown, the lock is released at once, whatever the MinHold, so that the
	// next delivery can have it. After a crash the lock stays for the rest of its TTL. A job that
	// counts a crash is snoozed instead of dropped.
	//
	// The work of a dropped job may never be done. For example, a tick of a cron entry is dropped while the one before
	// it still runs, even if that one fails later. Then the next tick has to do the work. The default key is the job's
	// own, so WhenHeld(PolicyDrop) needs a [LockName].
	PolicyDrop
	// PolicyRunAnyway calls the handler without the lock. Then it may run at the same time as a holder of the lock, and
	// as all others that run anyway. [lock.FromContext] returns the job's own lease: its Key is not the lock's, and its
	// token orders only the deliveries of this one job. Use PolicyRunAnyway where the lock only saves work. Never use
	// it where two at a time do harm.
	PolicyRunAnyway
)

// String returns the policy's name in spans: snooze, fail, drop or run_anyway.
func (p Policy) String() string {
	switch p {
	case PolicySnooze:
		return "snooze"
	case PolicyFail:
		return "fail"
	case PolicyDrop:
		return "drop"
	case PolicyRunAnyway:
		return "run_anyway"
	}
	return fmt.Sprintf("Policy(%d)", int(p))
}

func (p Policy) known() bool { return p >= PolicySnooze && p <= PolicyRunAnyway }

// WhenHeld says what becomes of a job when another holds the lock, after [MaxWait] if that is
// given. The default is [PolicySnooze].
func WhenHeld(p Policy) LockOption { return func(c *lockConfig) { c.whenHeld = p } }

// WhenDown says what becomes of a job when the lock service is down. Then it is not known whether another client holds
// the lock: Redis, or too many nodes of a Redlock, returned an error, gave no answer, or answered so late that the lock
// is over. The default is [PolicyFail]. A long outage can use up a job's attempts. [PolicySnooze] uses none. With every
// policy the worker logs the outage. With PolicySnooze, PolicyDrop and PolicyRunAnyway it logs at most one record a
// minute for each kind.
//
// An error that wraps [lock.ErrInvalid] is no outage. It is a permanent mistake, such as a bad key, or a Redis that
// evicts keys, or too many such nodes of a Redlock. It fails the attempt, whatever the policy.
func WhenDown(p Policy) LockOption { return func(c *lockConfig) { c.whenDown = p } }

// MaxWait waits up to d for a lock that is held, before [WhenHeld] applies. d is from 0, the default, to 1 h. The wait
// ends early if the handler's context ends, or if the lock service fails. Meanwhile the job keeps its slot in the
// worker, its lease is renewed, and a shutdown waits for it. The time is not part of the job's Timeout. Use MaxWait if
// the lock is usually free again sooner than after a snooze.
func MaxWait(d time.Duration) LockOption { return func(c *lockConfig) { c.wait = d } }

// RetryIn sets the mean delay after which a snoozed job runs again: 10 ms to 24 h, by default 1 s. With jitter the delay is
// between half of d and one and a half of it.
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
		mistake("WhenHeld is %v; it must be PolicySnooze, PolicyFail, PolicyDrop or PolicyRunAnyway", c.whenHeld)
	}
	if !c.whenDown.known() {
		mistake("WhenDown is %v; it must be PolicySnooze, PolicyFail, PolicyDrop or PolicyRunAnyway", c.whenDown)
	}
	if c.whenHeld == PolicyDrop && c.name == nil && c.err == nil {
		mistake("WhenHeld is PolicyDrop and there is no LockName; by the default one only runs of the same job exclude each other, and one of them would be dropped for the other")
	}
	if c.wait < 0 || c.wait > maxWait {
		mistake("MaxWait is %v; it must be from 0 to %v", c.wait, maxWait)
	}
	if c.retryIn < minRetryIn || c.retryIn > maxRetryIn {
		mistake("RetryIn is %v; it must be from %v to %v", c.retryIn, minRetryIn, maxRetryIn)
	}
	return err
}
