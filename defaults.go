package signalbox

import "time"

// Defaults say how jobs of a kind are enqueued when the call doesn't say it. They belong to the type of the
// arguments: see [Defaulter]. A field with its zero value changes nothing.
type Defaults struct {
	// Queue is the queue: 1 to 200 bytes of printable ASCII without spaces and braces. "" is [DefaultQueue].
	Queue string
	// Priority is the priority within the queue. The zero value is [PriorityNormal].
	Priority Priority
	// MaxAttempts is how often the job is tried before it is dead: 1 to 1,000,000. 0 is [DefaultMaxAttempts].
	MaxAttempts int
	// Timeout bounds each attempt, with a resolution of 1 µs. 0 is no bound.
	Timeout time.Duration
	// Retain is how long a job is kept after it has ended, as for scheduler.Retain. [RetainNone] keeps none. 0 leaves it to the queue.
	Retain time.Duration
	// Group is the key of a group of all jobs of the kind, as for scheduler.Group, and Serial that of a serial one, as for scheduler.Serial: 1 to 200
	// bytes of printable ASCII without spaces and braces. "" is none. One of them can be set. With a group of its own a kind can have limits of its own:
	// see LimitsOf of a worker's Queue.
	Group, Serial string
	// YieldOnRetry lets the next job of a serial group run while this one waits for its retry, as scheduler.YieldOnRetry does.
	YieldOnRetry bool
	// ExpireAfter is how long after it is due a job expires if it hasn't started, as for scheduler.ExpireAfter. 0 is no bound.
	ExpireAfter time.Duration
	// TraceMode says how the deliveries are connected with the span that enqueues the job. The zero value is
	// [TraceAuto].
	TraceMode TraceMode
}

// A Defaulter is Args with defaults of its own. They can depend on the arguments. For a cron entry, Defaults is
// called once, when the entry is registered.
//
// Give Defaults the same receiver as Kind: arguments that are enqueued as a value don't have the methods of
// their pointer.
type Defaulter interface {
	Args
	Defaults() Defaults
}
