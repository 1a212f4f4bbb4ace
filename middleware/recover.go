package middleware

import (
	"context"
	"runtime/debug"

	"github.com/signalbox-go/signalbox"
)

// Recover turns a panic into a [*signalbox.PanicError] with the stack: a failed attempt,
// and no end of the process. A worker wraps every handler in it by default. A panic
// in a goroutine that the handler started can't be caught by anybody, and
// runtime.Goexit ends the goroutine as it should: that is a failed attempt, too, which [Trace],
// [Metrics] and [Log] can't tell from a panic.
func Recover() signalbox.Middleware {
	return func(next signalbox.Handler) signalbox.Handler {
		return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) (err error) {
			defer func() {
				if v := recover(); v != nil {
					err = &signalbox.PanicError{Value: v, Stack: debug.Stack()}
				}
			}()
			return next.Handle(ctx, job)
		})
	}
}
