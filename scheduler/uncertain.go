package scheduler

import (
	"errors"
	"fmt"
	"strings"
)

// ErrUncertain is wrapped by the error of an enqueue whose outcome is not known: the job may
// have been enqueued, or may be enqueued a little later. See [UncertainError].
var ErrUncertain = errors.New("the job may or may not have been enqueued")

// An UncertainError is the error of a job that may or may not have been enqueued. It wraps [ErrUncertain]
// and has what it takes to make the call again, so that the job is in once:
//
//	opts := []scheduler.EnqueueOption{scheduler.Queue("mail")}
//	res, err := s.Enqueue(ctx, args, opts...)
//	var u *scheduler.UncertainError
//	for try := 1; errors.As(err, &u) && try < 5 && ctx.Err() == nil; try++ {
//		time.Sleep(time.Second) // Redis may have refused at once
//		res, err = s.Enqueue(ctx, args, append(opts, u.Again())...)
//	}
//
// A call with Again returns nil or another UncertainError. Only Redis' answer says what the first
// call did. If the loop ends without an answer, keep ID, and assume that the job may run.
type UncertainError struct {
	ID  string // of the job
	Err error  // what happened; wraps ErrUncertain

	incarnation uint64
}

func (e *UncertainError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *UncertainError) Unwrap() error { return e.Err }

// Again returns the option with which to make the call again. It sets the same ID, the same effect key, and [IfAbsent]. Give it after
// the options of the first call. If the first call did put the job in, and there is still a record of it, New in the result is
// false. If the job has completed meanwhile, it is put in again. Its
// [signalbox.Job.EffectKey] is the same, so its effect doesn't happen twice.
//
// Each error of a call with this option is an UncertainError, since the first call may have put the job in. That is so even
// if the second call was not sent, if Redis refused it, or if its arguments are wrong. The error wraps what happened.
func (e *UncertainError) Again() EnqueueOption {
	return forOne(func(o *options) {
		o.id, o.incarnation, o.drawn, o.cautious = e.ID, e.incarnation, true, true
	})
}

// settle returns err, as an UncertainError if the job may be in. It may be after any error of a call that was made
// with Again.
func (o *options) settle(err error, id string, incarnation uint64) error {
	if o.drawn && !errors.Is(err, ErrUncertain) {
		err = repeatedError{err}
	}
	if errors.Is(err, ErrUncertain) {
		return &UncertainError{ID: id, Err: err, incarnation: incarnation}
	}
	return err
}

// A repeatedError is that of a call that did not put the job in, after one that may have.
type repeatedError struct{ err error }

func (e repeatedError) Error() string {
	return fmt.Sprintf("%v by an earlier call, and was not by this one: %s", ErrUncertain, strings.TrimPrefix(e.err.Error(), notEnqueued))
}

func (e repeatedError) Unwrap() []error { return []error{ErrUncertain, e.err} }

// notEnqueued begins the error of a job that Redis has not got.
const notEnqueued = "not enqueued: "

func uncertain(err error) error { return fmt.Errorf("%w: %w", ErrUncertain, err) }
