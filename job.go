package signalbox

import (
	"fmt"
	"time"
)

// Defaults of a job.
const (
	DefaultQueue       = "default"
	DefaultMaxAttempts = 25
)

// Priority orders the jobs of one queue: all ready jobs of a higher priority are
// taken before those of a lower one. The zero value is [PriorityNormal].
type Priority uint8

// The priorities.
const (
	PriorityNormal Priority = iota
	PriorityHigh
	PriorityLow
)

// String returns "normal", "high" or "low".
func (p Priority) String() string {
	switch p {
	case PriorityNormal:
		return "normal"
	case PriorityHigh:
		return "high"
	case PriorityLow:
		return "low"
	}
	return fmt.Sprintf("Priority(%d)", uint8(p))
}

// A Job is one delivery of a piece of work to a handler. If a handler changes it, nothing else changes.
type Job struct {
	ID    string // names one live job of its queue
	Kind  string // which handler runs it
	Queue string // the queue it was taken from
	// Namespace is the namespace of the queue, as in worker.Config. It is "" for the default namespace.
	Namespace string
	Payload   []byte            // the encoded arguments: JSON, unless Encoding says otherwise
	Encoding  string            // how Payload is encoded: the name of a [Codec]; "" is JSON
	Headers   map[string]string // the caller's metadata and the trace context; may be nil
	Priority  Priority

	Attempt     int           // number of this attempt, from 1; snoozes and crashes don't count
	MaxAttempts int           // if this attempt fails, the job is dead
	Crashes     int           // deliveries whose worker died or lost its lease; five in a row whose handler has returned set it to 0
	Timeout     time.Duration // bound of one attempt; 0 is none
	// Retain is how long the job is kept after it has ended, or [RetainNone]. 0 leaves that to the queue.
	Retain time.Duration
	// ExpireAfter is how long after ScheduledAt the job expires if it hasn't started. 0 means never. A handler finds 0: its job has started.
	ExpireAfter time.Duration
	// Group is the key of the job's group, as scheduler.Group or scheduler.Serial set it; "" is none.
	Group string
	// Serial says that one job of the group runs at a time. Without a Group it has no effect.
	Serial bool
	// YieldOnRetry says that the next job of a Serial group may run while this one waits for its retry, or is snoozed. Without Serial it has no effect.
	YieldOnRetry bool

	EnqueuedAt  time.Time // by the clock of Redis, as are the next two times
	ScheduledAt time.Time // when it was due: its schedule, the end of a retry's delay, or EnqueuedAt
	ClaimedAt   time.Time // when this delivery was granted
	// Born is when the job was to run first, by the producer's clock, if its producer gave a time or a delay. In the copy of a dead job it is
	// when that one was to run first. Otherwise it is zero: the job was to run at EnqueuedAt. It is the same in every delivery. ScheduledAt changes with each retry.
	Born time.Time

	// Token is the fencing token of this delivery: larger than the token of every
	// earlier delivery of this job.
	Token int64
	// Effect is the key that the producer gave with scheduler.EffectKey, or "". Read it with
	// [Job.EffectKey].
	Effect string
	// Incarnation differs between jobs that use the same ID one after the other. It is 0 if the producer drew the ID at
	// random. It is part of [Job.EffectKey].
	Incarnation uint64
	// LastError is the message of the latest failed attempt, or "". Before the first one it may say that a worker had no handler for the
	// kind, and put the job back.
	LastError string
	// Finished says that an earlier delivery's handler had returned nil, but the job was cancelled before that, and ended so.
	// Somebody has retried it since.
	Finished bool
}
