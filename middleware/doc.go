// Package middleware holds what wraps handlers: locks, panics, time, logs and traces.
// None of it is privileged: each could have been written by a user.
//
// A worker wraps every handler in this order, the outermost first:
//
//	Recover            panics become failed attempts
//	Lock(nil)          the job's own lease: nothing starts once it is lost
//	worker.Use         the program's middleware, in the order given
//	worker.With        the handler's own, in the order given
//	Timeout            the bound of one attempt, around the handler itself
//
// A named lock, for one handler by worker.With or for all by worker.Use, stands inside the
// lease: Lock(locker, Key("digest")). Where it can't be had, a [Policy] says what
// becomes of the job.
//
// [Log] and [Trace] are opt-in, by worker.Use; give Trace first, so that the log's
// records carry the trace.
//
// The context that a handler gets reads the clock in its Err: after a pause of the
// process it tells at once that the lease is lost. The contexts made here keep that.
// One that a handler derives by context.WithTimeout or WithCancel doesn't; ask its
// parent too where it matters.
package middleware
