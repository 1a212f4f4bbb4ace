package signalbox

import (
	"encoding/binary"
	"encoding/hex"
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
	// Deadline is when the time for the job is over, as scheduler.Deadline set it, by the clock of Redis; zero is none.
	Deadline time.Time
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
	// Saved is what [Step] and [Checkpoint] of earlier deliveries have saved, in a form of their own. Step and [Resume] read it.
	Saved []byte
}

// EffectKey returns the key under which to record the effect of the job, so that the effect happens once. Insert the
// key in the transaction of the effect, into a column with a unique index. If the key is there already, an earlier
// delivery had the effect: roll back. If the effect is a call of an API, pass the key as the idempotency key.
//
// The key is the same in every delivery of a job, after retries and after crashes. A later job with the same ID has
// another key. The copy of a dead job has the key of that job: see CopyDead of worker.Queue. The key stays the same wherever a job is moved, so a [Codec] can bind a
// payload to it and to the kind. Then the payload of one job can't be put into another one. The key is one of
//
//   - the key that the producer gave with scheduler.EffectKey, as it is
//   - {queue}id, for an ID that the producer drew at random
//   - {queue}id{incarnation}, for an ID that the caller chose: 16 hexadecimal digits, drawn once for each Enqueue
//   - {queue}entry{@time}, for the tick of a cron entry: µs since the Unix epoch
//
// In a namespace other than the default one, {namespace:queue} replaces {queue}.
//
// The key has 1 to 622 bytes of printable ASCII without spaces. Keys that Signalbox makes begin with a brace. Keys of
// callers have no braces.
func (j *Job) EffectKey() string {
	if j.Effect != "" {
		return j.Effect
	}
	key := make([]byte, 0, len(j.Namespace)+len(j.Queue)+len(j.ID)+21)
	key = append(key, '{')
	if j.Namespace != "" {
		key = append(key, j.Namespace...)
		key = append(key, ':')
	}
	key = append(key, j.Queue...)
	key = append(key, '}')
	key = append(key, j.ID...)
	if j.Incarnation != 0 {
		key = append(key, '{')
		key = hex.AppendEncode(key, binary.BigEndian.AppendUint64(nil, j.Incarnation))
		key = append(key, '}')
	}
	return string(key)
}

// A State says where a job is in its life. The zero value "" means that it is not known.
type State string

// The states.
const (
	StateScheduled State = "scheduled" // waits for its time: At, After, a retry or a snooze
	StateAwaiting  State = "awaiting"  // waits for a batch: see scheduler.Scheduler.Batch
	StateReady     State = "ready"     // waits for a worker
	StateRunning   State = "running"   // a worker has it
	StateCompleted State = "completed" // done; its record is deleted, unless the queue keeps completed jobs
	StateDead      State = "dead"      // failed for good; its record is kept for a while
	StateCancelled State = "cancelled" // ended by Cancel, or cancelled from outside; its record is kept for a while
)

// Live reports whether the job is not over yet: scheduled, awaiting, ready or running.
func (s State) Live() bool {
	return s == StateScheduled || s == StateAwaiting || s == StateReady || s == StateRunning
}

// A TraceMode says how the spans of a delivery are connected with the span that enqueued the job. It can be set for a
// worker, for a kind of job and for one job. The setting of the job overrides that of the kind, and both override that
// of the worker. TraceAuto for a job or a kind means that the next one decides. The jobs of a bulk are always linked,
// unless their mode is TraceNone.
type TraceMode uint8

// The modes.
const (
	// TraceAuto is TraceParent for a job that was enqueued alone and not long ago, and TraceLink for all others. So one
	// job reads as one trace, and no trace grows without end. If handlers enqueue one job after the other, the age of
	// the first one counts.
	TraceAuto TraceMode = iota
	// TraceParent makes deliveries children of the span that enqueued the job.
	TraceParent
	// TraceLink makes each delivery the root of a trace of its own, with a link to the span that enqueued the job.
	TraceLink
	// TraceNone makes each delivery the root of a trace of its own, without a link.
	TraceNone
)

var traceModes = [...]string{"auto", "parent", "link", "none"}

// String returns "auto", "parent", "link" or "none".
func (m TraceMode) String() string {
	if int(m) < len(traceModes) {
		return traceModes[m]
	}
	return "invalid"
}

// The headers of a copy of a dead job. A queue can have its dead jobs copied to another queue: see CopyDead of worker.Queue. They say of which
// job it is a copy. A job that has [HeaderDeadID] is not copied when it dies.
const (
	HeaderDeadQueue = "signalbox-dead-queue" // the queue of the dead job
	HeaderDeadID    = "signalbox-dead-id"    // its ID
	HeaderDeadError = "signalbox-dead-error" // the first 512 bytes of its last error; left out if there is none
	// HeaderDeadAt says when it died, by the clock of Redis, as in 2026-01-31T03:00:00.000001Z. It differs between the deaths of a job. A copy has the effect key of the
	// dead job, so an effect that is to be had once for each death, such as an alert, needs this time in its name.
	HeaderDeadAt = "signalbox-dead-at"
)
