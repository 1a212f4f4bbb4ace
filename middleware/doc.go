// Package middleware has the middleware of a worker: traces, metrics, recovery from panics, locks, timeouts and logs.
// Only [Trace] needs the worker: the worker calls it for the spans inside a delivery. All others could be written by a
// user. A middleware that must know how a delivery ended calls [signalbox.OnSettled], as [Metrics] does.
//
// A worker wraps every handler in this order, the outermost first:
//
//	Trace, Metrics     record nothing, and cost nothing, without an OpenTelemetry provider
//	Recover            panics become failed attempts
//	Lock(nil)          the job's own lease: nothing starts once it is lost
//	worker.Use         the program's middleware, in the order given
//	worker.With        the handler's own, in the order given; worker.LockBy is one of them
//	Timeout            the bound of one attempt, around the handler itself
//
// A program adds the others: [Log] by worker.Use, and named locks by worker.With for one handler
// or by worker.Use for all.
//
// A named lock is held in addition to the job's lease: Lock(locker, LockName("digest")). In Redis its key has a prefix:
// "signalbox:lock:digest". If the lock can't be had, a [Policy] says what becomes of the job.
//
// The Err method of a handler's context reads the clock. So after a pause of the
// process it reports at once that the lease is lost. The contexts of this package do the same.
// A context that a handler derives by context.WithTimeout or WithCancel doesn't. Where it matters, ask its
// parent too.
package middleware
