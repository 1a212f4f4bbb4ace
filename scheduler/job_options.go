package scheduler

import (
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// Queue names the queue: 1 to 200 bytes of printable ASCII without spaces and braces.
// The default is [signalbox.DefaultQueue].
func Queue(name string) JobOption {
	return forJob(func(o *options) {
		o.check(layout.ValidateQueue(name))
		o.queue = name
	})
}

// At makes the job due at t, by the clock of Redis. If t has passed, the job is due now. t must be before the year
// 2255. A call can't have both At and [After].
func At(t time.Time) BulkOption {
	return forBulk(func(o *options) {
		if t.IsZero() {
			o.wrong("At", "it is the zero time, as of a field that nobody has set; leave At out for a job that is due now")
		} else if t.After(latest) {
			o.wrong("At", "%v; want a time before %d", t, latest.Year())
		}
		o.at = true
		o.when = store.When{At: t}
	})
}

// After makes the job due when d has passed by the clock of Redis, with a resolution of
// 1 µs. If d is 0 or negative, the job is due now. d is at most 100 years. A call can't have both After and [At].
func After(d time.Duration) BulkOption {
	return forBulk(func(o *options) {
		if d > maxDelay {
			o.wrong("After", "%v; want at most %v", d, maxDelay)
		}
		o.after = true
		o.when = store.When{After: d}
	})
}

// ID sets the job's ID: 1 to 200 bytes of printable ASCII without spaces and braces. The default is a new random ID.
//
// An ID names one live job of its queue. While a job with this ID is scheduled, ready or running, an enqueue leaves it
// as it is, and the [Result] says so. When the job has completed, the ID is free, unless the queue or its [Retain] keeps it. A dead or cancelled
// job, or a completed one that is kept, is replaced by the new one, except with [IfAbsent]. So an ID doesn't prevent that the same work is enqueued again later. To have
// an effect only once, record [signalbox.Job.EffectKey].
func ID(id string) EnqueueOption {
	return forOne(func(o *options) {
		o.check(layout.ValidateID(id))
		o.id, o.incarnation, o.drawn = id, 0, false
	})
}

// IfAbsent enqueues the job only if Redis has no record with its ID. That includes the records of dead and cancelled
// jobs, which are kept for 30 days by default, and those of completed jobs that are kept. Without IfAbsent the job replaces such a
// one.
func IfAbsent() BulkOption {
	return forBulk(func(o *options) { o.cautious = true })
}

// EffectKey sets the key that [signalbox.Job.EffectKey] returns. Use it for an effect that has a name of its own, such
// as the number of an order: all jobs with this key have one effect together, whatever their IDs. The key is 1 to 200
// bytes of printable ASCII without spaces and braces. The default is made from the queue and the ID.
func EffectKey(key string) EnqueueOption {
	return forOne(func(o *options) {
		o.check(layout.ValidateEffectKey(key))
		o.effect = key
	})
}

// Group puts the job into a group of its queue, by a key such as a tenant's name: 1 to 200 bytes of printable ASCII without spaces and braces.
// The jobs of a group stand in a line of their own for each priority, in the order of their times. Lines take turns. So one group's million jobs
// delay the first job of another by one turn. Jobs without a group share the queue with the lines: each side gets half, and what the other leaves.
//
// A job that is retried or snoozed goes back to its line, at the place of the time when it is due. A call can't have both Group and [Serial].
func Group(key string) JobOption { return inGroup(key, false) }

// Serial puts the job into a group as [Group] does. One job of a serial group runs at a time, across all workers. They run in strict order within a
// priority, also while one waits for its retry: the others wait for it until it has completed, died or was cancelled. Serial("a") and Group("a") are
// different groups.
//
// Jobs that are enqueued one after the other keep their order. So do the jobs of one chunk of [Scheduler.EnqueueMany]. Its chunks have no order. Jobs of a cron
// entry come into the line at the places of their ticks.
func Serial(key string) JobOption { return inGroup(key, true) }

// YieldOnRetry lets the next job of a [Serial] group run while this one waits for its retry, is snoozed, or waits for a worker that has its handler.
// When its time has come, it stands in the line at the place of that time: behind jobs that were put in before. Still no two run at a time. Without
// this the others wait for it. A job that comes back from a crash or a shutdown, and a suspect, don't yield. Without a Serial, in the same list or in the
// [signalbox.Defaults] of the kind, it is an error that wraps [signalbox.ErrInvalid]. As such a default it has no effect on jobs without one.
func YieldOnRetry() JobOption { return forJob(func(o *options) { o.yields, o.isYields = true, true }) }

func inGroup(key string, serial bool) JobOption {
	return forJob(func(o *options) {
		o.check(layout.ValidateGroup(key))
		o.group, o.serial = key, serial
		o.isGroup, o.isSerial = o.isGroup || !serial, o.isSerial || serial
	})
}

// MaxAttempts sets how often the job is tried before it is dead: 1 to 1,000,000. The default
// is [signalbox.DefaultMaxAttempts].
func MaxAttempts(n int) JobOption {
	return forJob(func(o *options) {
		if n < 1 || n > maxAttemptsLimit {
			o.wrong("MaxAttempts", "%d; want 1 to %d", n, maxAttemptsLimit)
		}
		o.maxAttempts = n
	})
}

// Priority sets the job's priority within its queue. The default is [signalbox.PriorityNormal].
func Priority(p signalbox.Priority) JobOption {
	return forJob(func(o *options) {
		if p > signalbox.PriorityLow {
			o.wrong("Priority", "%v; want PriorityHigh, PriorityNormal or PriorityLow", p)
		}
		o.priority = p
	})
}

// Timeout bounds each attempt, with a resolution of 1 µs. 0, the default, is no bound.
func Timeout(d time.Duration) JobOption {
	return forJob(func(o *options) {
		if d < 0 {
			o.wrong("Timeout", "%v; want 0 or more", d)
		}
		o.timeout = d
	})
}

// Retain sets how long the job is kept after it has ended: completed, dead or cancelled. d is 1 µs to 10,000 days, in whole microseconds. It counts
// instead of the age in the queue's [signalbox.Retention], and also where the queue keeps no completed jobs. The queue's limits of number and bytes
// hold all the same: they drop jobs without Retain first. Where the queue keeps no completed jobs, their default limits hold.
//
// [signalbox.RetainNone] keeps nothing, however the job ends. A dead job is counted, logged and reported to OnDead then, but nobody can look at
// it or retry it. 0, the default, leaves it to the queue.
func Retain(d time.Duration) JobOption {
	return forJob(func(o *options) {
		if !retainable(d) {
			o.wrong("Retain", retainHelp, d)
		}
		o.retain = wholeMicros(d)
	})
}

// wholeMicros truncates a time for which jobs are kept as their records do.
func wholeMicros(d time.Duration) time.Duration {
	if d == signalbox.RetainNone {
		return d
	}
	return d.Truncate(time.Microsecond)
}

const retainHelp = "%v; want 1µs to 240000h (10,000 days), RetainNone, or 0 to leave it to the queue"

// retainable reports whether a job can be kept for d after it has ended.
func retainable(d time.Duration) bool {
	return d == 0 || d == signalbox.RetainNone || d >= time.Microsecond && d <= store.MaxRetain
}

// ExpireAfter ends the job if no worker has started it within d after it is due: 1 µs to 10,000 days, in whole microseconds, by the clock of Redis. It is
// dead then, with a last error that begins with "expired", and is counted, logged and reported to OnDead with [signalbox.ErrExpired]. That also holds in a
// paused queue, behind a group that is blocked, and where no worker has a free slot. A worker of the queue must run: without one, the job ends when the next
// one starts. A job that has started never expires. 0, the default, is no bound.
//
// A job that was run again by an operator after it had expired has d from then on. Jobs without a group stand in one line for each priority, which takes turns with the lines of groups.
func ExpireAfter(d time.Duration) JobOption {
	return forJob(func(o *options) {
		if !expirable(d) {
			o.wrong("ExpireAfter", expireHelp, d)
		}
		o.expire, o.deadline, o.expires = d.Truncate(time.Microsecond), time.Time{}, true
	})
}

// Deadline sets when the time for the job is over, by the clock of Redis: t is after 1970 and before 2255, in whole microseconds. It may have passed.
//
//   - A job that hasn't started by then ends as one with [ExpireAfter] does: dead, with [signalbox.ErrExpired].
//   - No attempt begins at or after t. The context of one that runs ends at t with cause [signalbox.ErrDeadline], or before, when its timeout is over. A handler that returns nil all the same has completed the job.
//   - A retry or a snooze that would be due at or after t isn't made: the job is dead at once, with an error that wraps [signalbox.ErrDeadline].
//
// A job that has started, and waits then for a worker, for a retry or after a crash, ends when a worker gets it: not while its queue is paused. An operator who runs the job again doesn't change t. It counts
// instead of an ExpireAfter in the [signalbox.Defaults] of the kind. A call can't have both.
func Deadline(t time.Time) BulkOption {
	return forBulk(func(o *options) {
		switch {
		case t.IsZero():
			o.wrong("Deadline", "it is the zero time, as of a field that nobody has set; leave Deadline out for a job without one")
		case t.UnixMicro() <= 0 || t.After(latest):
			o.wrong("Deadline", "%v; want a time after 1970 and before %d", t, latest.Year())
		}
		o.deadline, o.expire, o.isEnd = t.Truncate(time.Microsecond), 0, true
	})
}

const expireHelp = "%v; want 1µs to 240000h (10,000 days), or 0 for no bound"

// expirable reports whether a job can expire d after it is due.
func expirable(d time.Duration) bool {
	return d == 0 || d >= time.Microsecond && d <= store.MaxExpires
}

// Header adds a header, which the handler finds in [signalbox.Job.Headers]. Name and value are
// UTF-8, and the name is not empty. All headers of a job take at most 64 KiB. The names of the trace context
// (traceparent, tracestate, baggage, signalbox-trace-mode, signalbox-trace-since) and of the outbox (signalbox-sequence) are reserved.
func Header(name, value string) JobOption {
	return forJob(func(o *options) {
		o.addHeaders(map[string]string{name: value})
	})
}

// Headers adds each of the headers, as [Header] does. It copies the map.
func Headers(headers map[string]string) JobOption {
	return forJob(func(o *options) { o.addHeaders(headers) })
}

// TraceMode sets how the job's deliveries are connected with the span that enqueues it. It overrides the modes of the
// kind and of the worker. With the default, [signalbox.TraceAuto], those apply. The jobs of an [Scheduler.EnqueueMany]
// are always linked: there, TraceParent means TraceLink. TraceMode has no effect on a job without a trace context.
func TraceMode(m signalbox.TraceMode) JobOption {
	return forJob(func(o *options) {
		if m > signalbox.TraceNone {
			o.wrong("TraceMode", "%d; want TraceAuto, TraceParent, TraceLink or TraceNone", m)
		}
		o.mode = m
	})
}
