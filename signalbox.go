// Package signalbox is the vocabulary of a job-queue framework on Redis.
//
// A [Job] is one piece of work: typed arguments ([Args]) under a kind, in a queue.
// Package scheduler puts jobs in: now, later or on a cron. Package worker takes
// them out. It runs a [Handler] for each, inside [Middleware], under a lease with
// a fencing token. Package lock is the lock library underneath. It can be used
// with no queue at all.
//
// The handler's result says how the job ends: nil completes it, [Snooze] puts it back for a while, and [Cancel] ends
// it for good. Any other error is a failed attempt, which is retried until the job's attempts are used up. [RetryAfter]
// says when, and [Dead] ends the attempts. [OnSettled] reports what became of the job in Redis.
//
// A job is delivered at least once. Two deliveries of one job can overlap if a
// process is paused for longer than its lease. [Job.Token] orders them. To have an
// effect at most once, record [Job.EffectKey] in the transaction of the effect.
//
// The guide is docs/jobs.md.
//
// This package needs nothing but the standard library.
package signalbox

import "context"

// Args are the typed arguments of a job. They are encoded as JSON.
//
// Args may have a method Validate() error. It is called before a job is enqueued, so that the producer learns of a
// mistake at once. It is called again before the handler, because other programs and older releases may have enqueued
// the job.
//
// Args may have a method Defaults() [Defaults]. Then they are a [Defaulter].
type Args interface {
	// Kind names the type of work, such as "email.welcome". It must return a constant of 1 to 200 bytes:
	// it is called on a zero value when a handler is registered.
	Kind() string
}

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
