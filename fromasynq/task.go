package fromasynq

import (
	"errors"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/asynq"
)

// A State is that of a task, as asynq names it.
type State string

// The states of tasks that are moved.
const (
	StatePending   State = "pending"
	StateScheduled State = "scheduled"
	StateRetry     State = "retry"
	StateArchived  State = "archived" // becomes a dead job
)

// A Task is one of asynq, as [Config.Map] gets it.
type Task struct {
	Queue, ID, Type string
	Payload         []byte
	Headers         map[string]string
	State           State
	// At is since when a pending task has waited, when a scheduled or retrying one is due, and when an archived one was archived. It is zero if asynq doesn't say.
	At time.Time
	// MaxRetry is how often the task may be retried, and Retried how often it was.
	MaxRetry, Retried int
	LastError         string
	LastFailedAt      time.Time     // zero if it hasn't failed
	Timeout           time.Duration // 0 is none
	Deadline          time.Time     // zero is none
	Retention         time.Duration // how long it is kept after it has completed
	// UniqueFor is how long the task still has its unique lock. 0 if it has none, or none any more.
	UniqueFor time.Duration
	// Group is the group with which the task was enqueued. Such a task that isn't in its group any more runs alone.
	Group string
}

// taskOf returns a task whose message could be read.
func taskOf(queue string, t *asynq.Task) Task {
	m := t.Message
	return Task{
		Queue: queue, ID: t.ID, Type: m.Type, Payload: m.Payload, Headers: m.Headers, State: State(t.State), At: t.At, MaxRetry: m.Retry, Retried: m.Retried,
		LastError: m.Error, LastFailedAt: m.Failed, Timeout: m.Timeout, Deadline: m.Deadline, Retention: m.Retention, UniqueFor: t.Unique, Group: m.Group,
	}
}

// A Job is what a task becomes. [Config.Map] gets it as it is without a map, and changes it.
type Job struct {
	Queue string // that of the task. It must be a name that a queue here can have
	ID    string // that of the task
	Kind  string // the type of the task
	// Payload is that of the task, or {} for an empty one. It must be JSON, unless Encoding names the codec that the workers have for it.
	Payload  []byte
	Encoding string
	// Headers are those of the task but traceparent, tracestate and baggage, which a scheduler sets here.
	Headers     map[string]string
	Priority    signalbox.Priority
	MaxAttempts int           // MaxRetry + 1
	Timeout     time.Duration // of one attempt; 0 is none
	// Retain is how long the job is kept after it has ended: the retention of the task. 0 leaves that to the queue.
	Retain time.Duration
	// Deadline is when the time for the job is over: that of the task; zero is none. See scheduler.Deadline.
	Deadline time.Time
	// ExpireAfter is how long after it is due the job expires if it hasn't started. 0, as it is without a map, means never. A job can't have both.
	ExpireAfter time.Duration
	// Unique says that the job has a unique key until it has ended: the task has its lock. It takes the key as if it were enqueued with scheduler.UniqueBy(scheduler.UntilEnded), or with scheduler.Unique
	// and the name in UniqueKey.
	Unique    bool
	UniqueKey string
	// EffectKey is asynq/<queue>/<id>, with the names that the task has.
	EffectKey string
}

// ErrStay is returned by a [Config.Map] that leaves a task in asynq.
var ErrStay = errors.New("fromasynq: the map leaves it there")
