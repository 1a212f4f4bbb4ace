package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/looks"
)

var (
	// ErrNotFound is wrapped by the error of a [Scheduler.Status] or a [Wait] of a job of which nothing is known: it has completed and wasn't kept, was dropped, deleted or moved, or never was there.
	ErrNotFound = errors.New("scheduler: no such job")
	// ErrNoResult is wrapped by the error of a [ReadResult] of a job that has no result: it hasn't completed, or its handler has set none.
	ErrNoResult = errors.New("scheduler: the job has no result")
)

// A Status is how a job is, for those who wait for it. All times are by the clock of Redis. Package inspect has more, for operators.
type Status struct {
	Ref   Ref
	Kind  string
	State signalbox.State

	Failed      int // attempts that have failed
	MaxAttempts int // the job is dead when so many have failed
	// LastError is the message of the latest attempt that failed, or "". It is of the handler: don't show it to those who mustn't know what went wrong inside.
	LastError string

	EnqueuedAt time.Time
	DueAt      time.Time // when it is due, or was: its schedule, the end of a retry's delay, or EnqueuedAt
	StartedAt  time.Time // when the worker got it that runs it, if it is running; of a job that has completed, when the worker got it that has completed it; else zero
	EndedAt    time.Time // when it ended, if it is dead, cancelled or completed; else zero

	Cancelling bool      // it is running, and was asked to end
	Progress   *Progress // how far it is, if it is running and its handler has said so; else nil

	job    *signalbox.Job // for the codec; nil: there is no result
	result []byte
	codec  signalbox.Codec // that of its scheduler; nil: JSON
}

// A Progress is how far a running job is, as its handler has said by [signalbox.Progress]: up to a second ago, or longer if it says nothing.
type Progress struct {
	Done, Total int64     // units of work; a Total of 0 is not known
	Note        string    // for people, at most [signalbox.MaxProgressNote] bytes
	At          time.Time // when the handler said it, by the clock of Redis
}

// Status returns how a job is, at one moment. It is for a service that shows its users their jobs. Nothing waits for a change: ask again, each second or less often. [Wait] waits for the job's end.
//
// It is three short calls to Redis, and a fourth if the job is running. The user of Redis needs the rights to HGETALL and LPOS beside those of a producer.
//
// The error wraps [ErrNotFound] if nothing is known of the job. A completed job is known for as long as it is kept: see [Retain]. It wraps
// [signalbox.ErrInvalid] if the reference isn't one, or is of another namespace than the scheduler's. Any other error is that of Redis, or says that the job's record can't be read. If ctx has no
// deadline, Config.EnqueueTimeout bounds the call.
func (s *Scheduler) Status(ctx context.Context, ref Ref) (Status, error) {
	q, err := s.home(ref)
	if err != nil {
		return Status{}, err
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	st, err := s.status(ctx, q, ref)
	if err != nil {
		return Status{}, fmt.Errorf("scheduler: status of job %s: %w", ref, err)
	}
	return st, nil
}

// bounded returns a context of a call that reads: Config.EnqueueTimeout ends it if ctx has no deadline.
func (s *Scheduler) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, bounded := ctx.Deadline(); bounded {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.timeout)
}

// home returns the queue of a job, or of a batch. It isn't one of the scheduler's: whoever wrote the reference may have made up the queue.
func (s *Scheduler) home(ref Ref) (*store.Queue, error) {
	if err := ref.check(); err != nil {
		return nil, err
	}
	q := store.New(s.rdb, s.namespace, ref.Queue)
	if q.Namespace() != ref.Namespace {
		return nil, fmt.Errorf("scheduler: %w reference: it is of namespace %s, and this scheduler's is %s", signalbox.ErrInvalid, ref.Namespace, q.Namespace())
	}
	return q, nil
}

func (s *Scheduler) status(ctx context.Context, q *store.Queue, ref Ref) (Status, error) {
	if err := q.Site().CheckLayout(ctx); err != nil {
		return Status{}, err
	}
	v, found, err := q.Looks().ShowJob(ctx, ref.ID)
	switch {
	case err != nil:
		return Status{}, err
	case !found:
		return Status{}, errGone
	case v.Err != nil:
		return Status{}, v.Err
	}
	st := statusOf(ref, &v, s.codec)
	if v.State != signalbox.StateRunning {
		return st, nil
	}
	all, err := q.Sessions().Progress(ctx, v.Session)
	if err != nil {
		return Status{}, err
	}
	for i := range all {
		if p := &all[i]; p.ID == v.Job.ID && p.Token == v.Job.Token {
			st.Progress = &Progress{Done: p.Done, Total: p.Total, Note: p.Note, At: p.At}
		}
	}
	return st, nil
}

// errGone says what may have become of a job of which nothing is known.
var errGone = fmt.Errorf("%w: it has completed and wasn't kept, was dropped, deleted or moved, or never was there", ErrNotFound)

// statusOf returns what is known of a job whose record could be read, but for its progress. codec is for results that aren't JSON.
func statusOf(ref Ref, v *looks.View, codec signalbox.Codec) Status {
	job := &v.Job
	st := Status{
		Ref: ref, Kind: job.Kind, State: v.State, Failed: max(job.Attempt-1, 0), MaxAttempts: job.MaxAttempts, LastError: job.LastError,
		EnqueuedAt: job.EnqueuedAt, DueAt: job.ScheduledAt, Cancelling: v.Cancelling(),
	}
	if v.Held != nil {
		st.State, st.DueAt, st.EndedAt = signalbox.State(v.Held.State), v.Held.Due, v.Held.Ended
		return st
	}
	switch v.State {
	case signalbox.StateScheduled:
		st.DueAt = v.At
	case signalbox.StateRunning:
		st.StartedAt = job.ClaimedAt
	case signalbox.StateDead, signalbox.StateCancelled, signalbox.StateCompleted:
		st.EndedAt = v.At
	case signalbox.StateReady:
	}
	if v.Success != nil {
		st.StartedAt = v.Success.At
	}
	if v.Result != nil {
		st.job, st.result, st.codec = job, v.Result, codec
	}
	return st
}

// ReadResult returns the result of a completed job, which its handler has set by [signalbox.SetResult], decoded by the codec that has encoded the job's arguments: JSON, or that of the
// scheduler. It calls no Redis.
//
// The error wraps [ErrNoResult] if there is none; [signalbox.ErrUnknownEncoding] if the job has another codec than JSON and that of the scheduler; or it is the codec's: the result doesn't fit T.
func ReadResult[T any](st Status) (T, error) {
	var value, none T
	if st.job == nil {
		return none, fmt.Errorf("%w: job %s is %s", ErrNoResult, st.Ref, st.State)
	}
	codec := signalbox.Codec(signalbox.JSON{})
	if encoding := st.job.Encoding; encoding != "" {
		if st.codec == nil || st.codec.Encoding() != encoding {
			return none, fmt.Errorf("scheduler: result of job %s: %w: %s, and the scheduler's Config.Codec is another", st.Ref, signalbox.ErrUnknownEncoding, encoding)
		}
		codec = st.codec
	}
	job := *st.job
	if err := codec.Decode(&job, st.result, &value); err != nil {
		return none, fmt.Errorf("scheduler: result of job %s: %w", st.Ref, err)
	}
	return value, nil
}
