package signalbox

import (
	"context"
	"errors"

	"github.com/signalbox-go/signalbox/internal/handlerctx"
)

const (
	// MaxSaved is the most that a job's steps and its checkpoint take together, in bytes, with some for each name.
	MaxSaved = 256 << 10
	// MaxStepName is the longest name of a [Step], in bytes.
	MaxStepName = 64
)

// errNotHandler says that a context isn't that of a handler.
var errNotHandler = errors.New("signalbox: the context is not that of a handler")

// Step calls fn and saves its value with the job. Once it is saved, the step has finished: later deliveries of the job, after a retry, a snooze or a crash, get the
// value, and don't call fn. If fn fails, Step returns its error, and the next delivery calls it again.
//
// What a step does outside and its value are not saved in one act. If the process dies in between, or Redis can't be reached, fn is called again. So an effect
// that must happen once needs a key of its own, such as [Job.EffectKey] with the name of the step.
//
// The value is encoded as the job's arguments are: as JSON, or by the job's [Codec]. Names are 1 to [MaxStepName] bytes of UTF-8, and unique in a delivery: else the
// error wraps [ErrStepName]. Steps may run side by side. The error wraps [ErrStepChanged], with the name, if a value that was saved doesn't decode into T, and [ErrStateSize] if the job would
// have saved more than [MaxSaved] bytes: then the step hasn't finished. It wraps [ErrSuperseded] if Redis has refused to save it, since the delivery is over.
//
// Saving a step is one call to Redis. It writes the job's record anew, with its arguments and all that it has saved. Other jobs pay nothing.
//
// ctx is the handler's context, or one that was made from it; in worker.HandleMany that of a job of the call.
func Step[T any](ctx context.Context, name string, fn func(ctx context.Context) (T, error)) (T, error) {
	var value, none T
	s := handlerctx.SaverOf(ctx)
	if s == nil {
		return none, errNotHandler
	}
	done, err := s.Begin(ctx, name, &value)
	if err != nil {
		return none, err
	}
	if done {
		return value, nil
	}
	ended := false
	defer func() {
		if !ended { // fn has failed or panicked
			s.Abandon(name)
		}
	}()
	if value, err = fn(ctx); err != nil {
		return none, err
	}
	ended = true
	if err := s.End(ctx, name, value); err != nil {
		return none, err
	}
	return value, nil
}

// Checkpoint saves value with the job, in place of what it has saved before. Later deliveries read it with [Resume]: they go on where this one was. Steps that have
// finished are saved beside it. Once Checkpoint has returned nil, the value is in Redis.
//
// The value, its bounds, the cost and the errors are as with [Step].
func Checkpoint(ctx context.Context, value any) error {
	s := handlerctx.SaverOf(ctx)
	if s == nil {
		return errNotHandler
	}
	return s.Checkpoint(ctx, value)
}

// Resume decodes what [Checkpoint] has saved last into what into points to, and reports whether there was something. It calls no Redis: the job came with it. If
// nothing was saved, into stays as it is. The error wraps [ErrStepChanged] if the value doesn't decode.
func Resume[T any](ctx context.Context, into *T) (found bool, err error) {
	s := handlerctx.SaverOf(ctx)
	if s == nil {
		return false, errNotHandler
	}
	return s.Resume(into)
}
