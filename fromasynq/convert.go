package fromasynq

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/asynq"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/wire"
	"github.com/signalbox-go/signalbox/scheduler"
)

// traceHeaders are headers that only a scheduler sets.
func traceHeaders() []string { return []string{"traceparent", "tracestate", "baggage"} }

// maxLastError is how many bytes of a last error are taken along.
const maxLastError = 16 << 10

// A reason says why a task stays. It has nothing of the task's payload.
type reason string

func (r reason) Error() string { return string(r) }

// A converted is a task with the job that it becomes.
type converted struct {
	queue   string // where it goes
	stored  store.Stored
	differs []string
}

// convert returns what a task becomes, or a reason why it can't.
func (m *Mover) convert(from string, t *asynq.Task, now time.Time) (*converted, error) {
	if t.Message == nil {
		return nil, reason("its message can't be read: asynq's newer than 0.26?")
	}
	task := taskOf(from, t)
	live := task.State != StateArchived
	due := task.At
	if due.IsZero() {
		due = now
	}
	job := Job{
		Queue: task.Queue, ID: task.ID, Kind: task.Type, Payload: task.Payload, Headers: maps.Clone(task.Headers), MaxAttempts: task.MaxRetry + 1, Timeout: task.Timeout,
		EffectKey: "asynq/" + task.Queue + "/" + task.ID, Unique: live && task.UniqueFor > 0,
	}
	c := new(converted)
	differ := func(is bool, what string) {
		if is {
			c.differs = append(c.differs, what)
		}
	}
	differ(job.Unique, "unique: until the job has ended, without a time to live")
	differ(!live && task.UniqueFor > 0, "archived with its unique lock: a dead job has none")
	if live {
		job.Retain = task.Retention
		differ(job.Retain > 0, "retention: the job is kept as long when it dies")
	}
	if !task.Deadline.IsZero() && live {
		job.Deadline = task.Deadline
		differ(true, "deadline: no attempt begins after it; asynq goes on with retries, each of which ends at once")
	}
	for _, name := range traceHeaders() {
		if _, has := job.Headers[name]; has {
			delete(job.Headers, name)
			differ(true, "header "+name+": dropped")
		}
	}
	if len(job.Payload) == 0 {
		job.Payload = []byte("{}")
	}
	if m.cfg.Map != nil {
		if err := m.cfg.Map(&task, &job); err != nil {
			return nil, reason(err.Error())
		}
	}
	made, key, err := job.check()
	if err != nil {
		return nil, err
	}
	made.Attempt, made.EnqueuedAt, made.ScheduledAt, made.LastError = task.Retried+1, due, due, cut(task.LastError)
	if due.After(now) {
		made.EnqueuedAt = now
	}
	if task.State == StateScheduled {
		made.Born = due
	}
	state := signalbox.StateScheduled
	if !live {
		state = signalbox.StateDead
		if task.LastError != "" || !task.LastFailedAt.IsZero() {
			made.Attempt++ // the last failure isn't counted there
		}
		key = store.Unique{}
	}
	c.queue, c.stored = job.Queue, store.NewStored(made, state, key)
	if !live {
		c.stored.Ended = due
	}
	if err := m.target(job.Queue).q.Transfer().Prepare(&c.stored); err != nil {
		return nil, reason(err.Error())
	}
	if n := len(wire.AppendEnvelope(nil, &made)); n > wire.MaxEnvelope {
		return nil, reason(fmt.Sprintf("it takes more than %d bytes", wire.MaxEnvelope))
	}
	return c, nil
}

// raw are args that are encoded already.
type raw struct {
	kind    string
	payload []byte
}

func (r raw) Kind() string                 { return r.kind }
func (r raw) MarshalJSON() ([]byte, error) { return r.payload, nil }

// check returns the job, without what is of its past, and its unique key, or a reason why it can't be a job.
func (j *Job) check() (signalbox.Job, store.Unique, error) {
	refuse := func(why string) (signalbox.Job, store.Unique, error) {
		return signalbox.Job{}, store.Unique{}, reason(why)
	}
	payload := j.Payload
	switch {
	case layout.ValidateID(j.ID) != nil: // what is quoted would be a reason of its own for each task
		return refuse("its ID can't be one here: want at most 200 characters of printable ASCII, without spaces and braces")
	case layout.ValidateEffectKey(j.EffectKey) != nil:
		return refuse("its effect key can't be one: want at most 200 characters of printable ASCII, without spaces and braces")
	case j.Encoding == "" && !json.Valid(payload):
		return refuse("its payload isn't JSON: map it, or name its encoding and give the workers a codec")
	case j.Encoding != "" && layout.ValidateKind(j.Encoding) != nil:
		return refuse("its encoding has no name that a codec can have")
	case j.Encoding != "" && j.Unique && j.UniqueKey == "":
		return refuse("its unique key is made of JSON, and it has another encoding: set UniqueKey")
	case j.Encoding != "":
		payload = []byte("{}")
	}
	opts := []scheduler.EnqueueOption{
		scheduler.Queue(j.Queue), scheduler.ID(j.ID), scheduler.EffectKey(j.EffectKey), scheduler.Priority(j.Priority), scheduler.MaxAttempts(j.MaxAttempts), scheduler.Timeout(j.Timeout),
		scheduler.Headers(j.Headers),
	}
	if j.ExpireAfter != 0 {
		opts = append(opts, scheduler.ExpireAfter(j.ExpireAfter))
	}
	if !j.Deadline.IsZero() {
		opts = append(opts, scheduler.Deadline(j.Deadline))
	}
	if j.Retain != 0 {
		opts = append(opts, scheduler.Retain(j.Retain))
	}
	switch {
	case j.Unique && j.UniqueKey != "":
		opts = append(opts, scheduler.Unique(j.UniqueKey, scheduler.UntilEnded))
	case j.Unique:
		opts = append(opts, scheduler.UniqueBy(scheduler.UntilEnded))
	}
	plan, err := scheduler.Resolve(raw{j.Kind, payload}, opts...)
	if err != nil {
		return refuse(strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\n", "; "), "scheduler: resolve: "))
	}
	made := plan.Job
	made.Payload, made.Encoding = j.Payload, j.Encoding
	if !j.Unique {
		return made, store.Unique{}, nil
	}
	return made, store.Unique{Key: store.UniqueKey(j.Kind, plan.UniqueKey, j.UniqueKey == ""), Scope: store.UntilEnded}, nil
}

// cut returns a last error as a record can have it.
func cut(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxLastError)], "")
}

// reasonOf returns the text of a reason. ok is false for another error.
func reasonOf(err error) (text string, ok bool) {
	var r reason
	ok = errors.As(err, &r)
	return string(r), ok
}
