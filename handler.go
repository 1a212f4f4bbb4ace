package signalbox

import (
	"context"
	"errors"
	"time"

	"github.com/signalbox-go/signalbox/internal/handlerctx"
)

// A Handler runs one delivery of a job. The context ends when the job's lease is lost, when the attempt takes too
// long, or when the worker shuts down. [context.Cause] says which. It also ends when the handler has returned, like
// the context of an HTTP request. For work that goes on after that, use [context.WithoutCancel]. Handlers are called
// concurrently.
type Handler interface {
	Handle(ctx context.Context, job *Job) error
}

// HandlerFunc is a function that is a [Handler].
type HandlerFunc func(ctx context.Context, job *Job) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, job *Job) error { return f(ctx, job) }

// Middleware wraps a handler in another handler. The worker calls it once, when the worker starts. The handler that
// it returns is called for every delivery.
type Middleware func(next Handler) Handler

// Chain joins several middleware into one. The first is the outermost.
func Chain(mw ...Middleware) Middleware {
	return func(next Handler) Handler {
		for i := len(mw) - 1; i >= 0; i-- {
			next = mw[i](next)
		}
		return next
	}
}

// NewContext returns a copy of ctx in which [FromContext] finds the job. It is for tests of functions that call FromContext, or Once and its like in package
// fence. Handlers get such a context from their worker, and package signalboxtest has all that a worker does: it is for tests of handlers and of middleware.
func NewContext(ctx context.Context, job *Job) context.Context {
	return context.WithValue(ctx, handlerctx.JobKey{}, job)
}

// FromContext returns the job whose handler ctx belongs to. ctx is the handler's context, or one that was made from it.
// It is the *Job that the handler got. For any other context ok is false.
func FromContext(ctx context.Context) (job *Job, ok bool) {
	job, _ = ctx.Value(handlerctx.JobKey{}).(*Job)
	return job, job != nil
}

// Draining returns a channel that is closed when the worker begins to shut down. From then on the worker claims nothing
// more from the handler's queue. The handler's context goes on until the worker's drain timeout is over. A handler that
// takes long can save its progress and return [Snooze](0). Then another worker can take the job at once.
//
// ctx is the handler's context, or one that was made from it. For any other context Draining returns nil, a channel
// that is never ready.
func Draining(ctx context.Context) <-chan struct{} {
	return handlerctx.Draining(ctx)
}

// HoldBack keeps jobs from starting until then, by the clock of Redis: those of the group of the handler's job, or all of its queue if the job has no
// group. Use it when another system says that it takes nothing for a while, such as an HTTP server with status 429. Return [RetryAfter] or [Snooze] beside it:
// the job itself isn't put off, and a job of a scheduler.Serial that fails with another error runs again when its retry is due. Jobs that run go on, in all
// workers. Jobs that are put in wait.
//
// [RetryAllAfter] is an error that does the same.
//
// An earlier time than one that was set before changes nothing. A time of more than 24 h ahead counts as 24 h. inspect.Inspector.HoldBack
// ends it sooner.
//
// ctx is the handler's context, or one that was made from it. The error says why Redis doesn't know of it: then jobs start as before.
func HoldBack(ctx context.Context, until time.Time) error {
	hold := handlerctx.HoldOf(ctx)
	if hold == nil {
		return errors.New("signalbox: HoldBack: the context is not that of a handler")
	}
	return hold(ctx, until)
}
