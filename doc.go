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
// The guide is docs/guide/README.md, the reference begins at docs/jobs.md.
//
// This package needs nothing but the standard library.
package signalbox
