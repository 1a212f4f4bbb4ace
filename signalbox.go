// Package signalbox is the vocabulary of a job-queue framework on Redis.
//
// A [Job] is one piece of work: typed arguments ([Args]) under a kind, in a queue.
// Package scheduler puts jobs in, now, later or on a cron. Package worker takes
// them out and runs a [Handler] for each, inside [Middleware], under a lease with
// a fencing token. Package lock is the lock library underneath, and can be used
// with no queue at all.
//
// A handler says how a job ends by what it returns: nil completes it, [Snooze]
// puts it back for a while, [Cancel] ends it for good, and any other error is a
// failed attempt, retried until the job's attempts are used up.
//
// A job is delivered at least once. Two deliveries of one job can overlap when a
// process is paused for longer than its lease; [Job.Token] orders them. Record
// {Job.Queue, Job.ID} in the transaction of the effect to have the effect at most once.
//
// This package imports nothing but the standard library.
package signalbox

import "context"

// Args are the typed arguments of a job. They are encoded as JSON.
type Args interface {
	// Kind names the type of work, such as "email.welcome". It must be constant:
	// it is called on a zero value when a handler is registered. 1 to 200 bytes.
	Kind() string
}

// A Handler runs one delivery of a job. The context ends when the job's lease is
// lost, its time is up or the worker shuts down; [context.Cause] tells which.
// Handlers are called concurrently.
type Handler interface {
	Handle(ctx context.Context, job *Job) error
}

// HandlerFunc is a function that is a [Handler].
type HandlerFunc func(ctx context.Context, job *Job) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, job *Job) error { return f(ctx, job) }

// Middleware wraps a handler in another. It is called once, when the worker starts,
// and what it returns is called for every delivery.
type Middleware func(next Handler) Handler

// Chain joins middleware into one; the first is the outermost.
func Chain(mw ...Middleware) Middleware {
	return func(next Handler) Handler {
		for i := len(mw) - 1; i >= 0; i-- {
			next = mw[i](next)
		}
		return next
	}
}
