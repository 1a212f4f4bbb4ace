package scheduler

import (
	"errors"
	"fmt"
	"strings"
)

// ErrUncertain is wrapped by the error of an enqueue whose outcome is not known: the job may
// have been enqueued, or may be enqueued a little later. See [UncertainError].
var ErrUncertain = errors.New("the job may or may not have been enqueued")

// An UncertainError is the error of a job that may or may not have been enqueued. It wraps [ErrUncertain]. With its
// Again the call can be made again, so that the job is enqueued once:
//
//	opts := []scheduler.EnqueueOption{scheduler.Queue("mail")}
//	res, err := s.Enqueue(ctx, args, opts...)
//	var u *scheduler.UncertainError
//	for try := 1; errors.As(err, &u) && try < 5 && ctx.Err() == nil; try++ {
//		time.Sleep(time.Second) // Redis may have refused at once
//		res, err = s.Enqueue(ctx, args, append(opts, u.Again())...)
//	}
//
// A call with Again returns nil or another UncertainError. Only an answer from Redis shows what the first call did. If
// the loop ends without an answer, keep ID, and assume that the job may run.
type UncertainError struct {
	ID  string // of the job
	Err error  // what happened; wraps ErrUncertain

	incarnation uint64
}

func (e *UncertainError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *UncertainError) Unwrap() error { return e.Err }

// Again returns the option for making the call again. It sets the same ID, the same effect key, and [IfAbsent]. Give it
// after the options of the first call. If the first call did enqueue the job, and Redis still has a record of it, New
// in the result is false. If the job has completed meanwhile, it is enqueued again. Its [signalbox.Job.EffectKey] is
// the same, so its effect doesn't happen twice.
//
// With [Replace] or [Debounce] that isn't so: if the first call updated a job that was there, and that job has started since, the second call
// enqueues another one, with another effect key.
//
// Every error of a call with this option is an UncertainError, since the first call may have enqueued the job. That is
// so even if the second call was not sent, if Redis refused it, or if its arguments are wrong. The error wraps the
// reason.
func (e *UncertainError) Again() EnqueueOption {
	return forOne(func(o *options) {
		o.id, o.incarnation, o.drawn, o.cautious = e.ID, e.incarnation, true, true
	})
}

// settle is settle for a job with these options.
func (o *options) settle(err error, id string, incarnation uint64) error {
	return settle(err, id, incarnation, o.drawn)
}

// settle returns err, or an UncertainError that wraps it if the job may be enqueued. After a call with Again every
// error is such a one.
func settle(err error, id string, incarnation uint64, again bool) error {
	if bad := (*undurable)(nil); errors.As(err, &bad) {
		return &NotDurableError{ID: id, Replicas: bad.reached.Replicas, Local: bad.reached.Local, Err: err, incarnation: incarnation}
	}
	if again && !errors.Is(err, ErrUncertain) {
		err = repeatedError{err}
	}
	if errors.Is(err, ErrUncertain) {
		return &UncertainError{ID: id, Err: err, incarnation: incarnation}
	}
	return err
}

// A repeatedError is the error of a call that did not enqueue the job, after an earlier call that may have.
type repeatedError struct{ err error }

func (e repeatedError) Error() string {
	return fmt.Sprintf("%v by an earlier call, and was not by this one: %s", ErrUncertain, strings.TrimPrefix(e.err.Error(), notEnqueued))
}

func (e repeatedError) Unwrap() []error { return []error{ErrUncertain, e.err} }

// notEnqueued begins the error of a job that is certainly not in Redis.
const notEnqueued = "not enqueued: "

func uncertain(err error) error { return fmt.Errorf("%w: %w", ErrUncertain, err) }
