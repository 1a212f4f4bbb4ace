package middleware

import (
	"context"
	"runtime/debug"

	"github.com/signalbox-go/signalbox"
)

// Recover turns a panic into a [*signalbox.PanicError] with the stack. The attempt has failed, and
// the process goes on. A worker wraps every handler in it by default. A panic in a goroutine that
// the handler started can't be caught: it ends the process. runtime.Goexit ends the handler's
// goroutine. That is a failed attempt as well; [Trace], [Metrics] and [Log] can't distinguish it
// from a panic.
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
