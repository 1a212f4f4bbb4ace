package signalbox

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrInvalid is wrapped by every error about a wrong argument, option or
	// configuration field. Nothing was changed.
	ErrInvalid = errors.New("signalbox: invalid")
	// ErrOutdated is wrapped by the error of a call to a queue whose layout is newer than this release knows.
	// Nothing was changed. Update the program.
	ErrOutdated = errors.New("signalbox: this release is too old for the queue")
	// ErrQueueFull is wrapped by the error of a job that was refused since its queue has as many jobs as it may have. The job is not
	// enqueued. See [QueueFullError].
	ErrQueueFull = errors.New("signalbox: the queue is full")
	// ErrShutdown is the cause of a handler's context that ended because the worker's drain timeout was over.
	// The job is given back and no attempt is used.
	ErrShutdown = errors.New("signalbox: worker is shutting down")
	// ErrTimeout is the cause of a handler's context that ended because the attempt took too long.
	ErrTimeout = errors.New("signalbox: job timed out")
	// ErrCrashed is wrapped by the error of a job that is dead because its workers died, or lost their leases, too often.
	ErrCrashed = errors.New("signalbox: the process running the job died, or lost its lease")
	// ErrExpired is wrapped by the error of a job that is dead because it had not started in time: see scheduler.ExpireAfter.
	ErrExpired = errors.New("signalbox: the job had not started in time")
	// ErrDeadline is the cause of a handler's context that ended because the job's deadline was over, and is wrapped by the error of a job that is dead since there was
	// no time for another attempt: see scheduler.Deadline. It wraps [ErrTimeout]. A job that had not started by its deadline has [ErrExpired].
	ErrDeadline error = deadlineError{}
	// ErrCancelled is the cause of a handler's context whose job was cancelled while it runs. The job ends cancelled, and never
	// runs again, whatever the handler returns.
	ErrCancelled = errors.New("signalbox: job was cancelled")
	// ErrSuperseded is wrapped by the error of a [Step], a [Checkpoint] or a [SetResult] that was refused: the delivery is over, or another one has taken over the job. Return it.
	ErrSuperseded = errors.New("signalbox: the delivery is over, or another one has taken over its job")
	// ErrStepName is wrapped by the error of a [Step] whose name is that of another step of the delivery, or can't be one. Its function was not called.
	ErrStepName = errors.New("signalbox: no name for a step")
	// ErrStepChanged is wrapped by the error of a [Step] or a [Resume] that found a value which doesn't decode into its type: the program was changed since.
	ErrStepChanged = errors.New("signalbox: what was saved doesn't fit the type")
	// ErrStateSize is wrapped by the error of a [Step] or a [Checkpoint] after which a job would have saved more than [MaxSaved] bytes.
	ErrStateSize = errors.New("signalbox: too much was saved")
	// ErrResultSize is wrapped by the error of a [SetResult] whose value takes more than [MaxResult] bytes.
	ErrResultSize = errors.New("signalbox: the result is too large")
)

// deadlineError is the type of ErrDeadline.
type deadlineError struct{}

func (deadlineError) Error() string { return "signalbox: the deadline of the job is over" }
func (deadlineError) Unwrap() error { return ErrTimeout }

// QueueFullError is the error of a job that was refused since its queue was full. The job is not enqueued. It wraps [ErrQueueFull].
type QueueFullError struct {
	Queue  string
	Length int // jobs of the queue that hadn't ended: those that wait, for whatever reason, and those that run
	Max    int // how many there may be. Ticks, and what operators do, can bring Length above it
}

func (e *QueueFullError) Error() string {
	return fmt.Sprintf("%v: queue %s has %d jobs that haven't ended, and may have %d", ErrQueueFull, e.Queue, e.Length, e.Max)
}

// Unwrap returns [ErrQueueFull].
func (e *QueueFullError) Unwrap() error { return ErrQueueFull }

// CancelError ends a job for good: it is not retried. Make one with [Cancel].
type CancelError struct {
	Err error // why; may be nil
}

// Cancel returns an error that ends the job as cancelled, even if attempts are left. err says why and may be
// nil.
func Cancel(err error) error { return &CancelError{Err: err} }

func (e *CancelError) Error() string {
	if e.Err == nil {
		return "job cancelled"
	}
	return "job cancelled: " + e.Err.Error()
}

func (e *CancelError) Unwrap() error { return e.Err }

// DeadError is a failed attempt that is not retried: the job is dead, whatever attempts are left. Make one with [Dead].
type DeadError struct {
	Err error // why
}

// Dead returns an error that makes the job dead at once, as if its attempts were used up. Use it for an error that no other
// attempt would mend. [Cancel] is for a job that nobody needs any more. err says why; its message is kept with the job.
func Dead(err error) error {
	if err == nil {
		err = errors.New("the handler gave the job up")
	}
	return &DeadError{Err: err}
}

func (e *DeadError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *DeadError) Unwrap() error { return e.Err }

// RetryAfterError is a failed attempt that says when the next one has a chance. Make one with [RetryAfter].
type RetryAfterError struct {
	Delay time.Duration
	Err   error
	All   bool // the job's whole group, or its queue, is held back as long: see [RetryAllAfter]
}

// RetryAfter returns the error of a failed attempt whose job runs again after d, in the place of what the kind's retry policy says: for
// an HTTP server that said so with status 429 or 503. d is at most 24 h; a longer one counts as 24 h. 0 or less says nothing: then the
// policy decides. err says why the attempt failed.
//
// Any error in the chain that has a method RetryAfter() time.Duration does the same. Other jobs aren't concerned: what one call was told need not hold
// for all. If it does, return [RetryAllAfter], or give the kind the option worker.RetryAllAfter.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		err = errors.New("the attempt failed")
	}
	return &RetryAfterError{Delay: d, Err: err}
}

// RetryAllAfter is [RetryAfter] for what holds for other jobs, too, such as a limit of the account that all of them use: until the job runs
// again, no job of its group starts, or none of its queue if it has no group. It holds them back as [HoldBack] does, before the attempt ends.
// They are also held back if the job isn't retried, since its attempts are used up.
func RetryAllAfter(d time.Duration, err error) error {
	if err == nil {
		err = errors.New("the attempt failed")
	}
	return &RetryAfterError{Delay: d, Err: err, All: true}
}

func (e *RetryAfterError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *RetryAfterError) Unwrap() error { return e.Err }

// RetryAfter returns Delay.
func (e *RetryAfterError) RetryAfter() time.Duration { return e.Delay }

// SnoozeError puts a job back for a while. Make one with [Snooze].
type SnoozeError struct {
	Delay time.Duration
	Err   error // why a middleware put the job back, such as a lock that is held; nil if the handler did
}

// Snooze returns an error that runs the job again after d, with no attempt used.
// A negative d counts as 0.
func Snooze(d time.Duration) error { return &SnoozeError{Delay: max(d, 0)} }

func (e *SnoozeError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("job snoozed for %v: %v", e.Delay, e.Err)
	}
	return fmt.Sprintf("job snoozed for %v", e.Delay)
}

// Unwrap returns Err.
func (e *SnoozeError) Unwrap() error { return e.Err }

// PayloadError is the error of an attempt whose handler was not called: the job's payload can't be decoded
// into the type of the arguments, or their method Validate refused them. Another release of the program may
// understand the payload. So the job is tried a few times before it is dead. A middleware can decide
// otherwise: it can return [Cancel] or another error.
type PayloadError struct {
	Err error // where the payload doesn't fit, or the error of Validate
}

func (e *PayloadError) Error() string { return e.Err.Error() }

func (e *PayloadError) Unwrap() error { return e.Err }

// PanicError is the error of an attempt whose handler panicked.
type PanicError struct {
	Value any    // what was passed to panic
	Stack []byte // of the goroutine that panicked
}

func (e *PanicError) Error() string { return fmt.Sprintf("handler panicked: %v", e.Value) }

// Unwrap returns the panic's value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
