package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/looks"
)

// ErrNoJob is wrapped by the error of a call that names a job which isn't in the queue: it is completed, was dropped, or never was there.
var ErrNoJob = errors.New("inspect: no such job")

// A Job is what a queue has of a job at one moment. Times are by the clock of Redis.
type Job struct {
	Queue string
	ID    string // names one live job of its queue
	Kind  string // which handler runs it
	State signalbox.State
	// Payload is the encoded arguments: JSON, unless Encoding says otherwise.
	Payload  []byte
	Encoding string            // how Payload and Result are encoded: the name of a [signalbox.Codec]; "" is JSON
	Headers  map[string]string // the producer's metadata and the trace context; may be nil
	Priority signalbox.Priority

	Failed      int           // failed attempts
	MaxAttempts int           // the job is dead when so many have failed
	Crashes     int           // deliveries whose worker died or lost its lease; docs/guarantees/attempts.md says which count
	Survived    int           // deliveries in a row since the last crash whose handler has returned, 0 to 4; with the fifth, Crashes is 0
	Timeout     time.Duration // bound of one attempt; 0 is none
	// Retain is how long the job is kept after it has ended, as its producer said, or [signalbox.RetainNone]. 0: that is up to the queue.
	Retain time.Duration
	// ExpiresAt is when the job expires if it hasn't started by then, of a job that is scheduled or ready; else zero: see scheduler.ExpireAfter.
	ExpiresAt time.Time
	// Deadline is when the time for the job is over: for its start, its attempts and its retries; zero is none. See scheduler.Deadline.
	Deadline time.Time

	EnqueuedAt time.Time
	DueAt      time.Time // when it is due, or was: its schedule, the end of a retry's delay, or EnqueuedAt
	EndedAt    time.Time // when it ended, if it is dead, cancelled or completed; else zero

	// Group is the key of the job's group, or "". Serial says that one job of the group runs at a time, and YieldOnRetry that others of it may run while
	// this one waits for its retry.
	Group        string
	Serial       bool
	YieldOnRetry bool

	// Batch is the ID of the batch that the job is of, or that it waits for or has waited for; "" if there is none.
	Batch string

	// UniqueKey is the job's unique key, or "": that of scheduler.Unique, or a digest of the arguments of scheduler.UniqueBy.
	UniqueKey string
	// UniqueUntil says until when the job has the key, in words: "started", "ended", or for how long from its enqueue on, such as "1h0m0s". Of a throttled
	// job it is "started, then 1h0m0s". It is ""
	// without a key.
	UniqueUntil string

	// EffectKey is the key under which the job's effect is recorded: see [signalbox.Job.EffectKey].
	EffectKey string
	// LastError is the message of the latest failed attempt, or "". Before the first one it may say that a worker had no handler for the
	// kind, and put the job back.
	LastError string
	// Attempts are the last ten that failed, oldest first.
	Attempts []Attempt
	// Success is the attempt that completed the job, if it is completed; else nil.
	Success *Attempt
	// Result is what the handler of a completed job said is its result, encoded as Payload is; nil if it said nothing: see [signalbox.SetResult].
	Result []byte

	// Worker is the ID of the worker that has the job, if it is running; else "".
	Worker string
	// Token is the fencing token of the delivery, if the job is running; else 0.
	Token int64
	// Since is when the worker got the job, if it is running; else zero. It is read from the token, and is a little later than the truth where
	// the clock of Redis was stepped back.
	Since time.Time
	// Cancelling says that the job is running, and was asked to end.
	Cancelling bool
	// Progress is how far the job is, if it is running and its handler has said so; else nil. [Inspector.Jobs] doesn't have it.
	Progress *Progress

	// TraceID and SpanID are those of the span that enqueued the job, in hexadecimal, or "".
	TraceID, SpanID string
	// RunTraceID and RunSpanID are those of the last attempt that Redis knows of, in hexadecimal, or "". A worker leaves them while it
	// runs a job that is traced. [Inspector.Jobs] has them for running jobs only.
	RunTraceID, RunSpanID string

	// Nowhere says that the job has a record, but no place in the queue, so that it never runs: another program has changed the queue.
	// State is ready then. [Inspector.Doctor] repairs it. It is false if more than 100,000 jobs are ready: then nobody has looked.
	Nowhere bool
	// Waits says why the job isn't running, in words, if it is scheduled or ready; else "". [Inspector.Jobs] doesn't know whether a job
	// waits for others of its group, for the group's limits, or since the group is paused or held back: of a job with a group it says nothing but what holds for the queue.
	Waits string
	// Cursor is where a listing goes on behind the job: see [Filter]. A job of [Inspector.Job] has none.
	Cursor string
	held   bool // it is being moved

	// Err says why the job's record can't be read. The other fields are as far as known then. It is nil for a sound record.
	Err error
}

// An Attempt is one that failed, or the one that completed the job.
type Attempt struct {
	Number int           // from 1
	At     time.Time     // when a worker got the job for it, by the clock of Redis
	Ran    time.Duration // until the handler had returned
	Worker string        // the worker's ID
	Error  string        // its message, up to 512 bytes of it
	// Stack is that of a panic, or "". It may be left out: the stacks of a job are kept up to a total size.
	Stack string
	// TraceID and SpanID are those of the attempt, in hexadecimal, or "" if it wasn't traced.
	TraceID, SpanID string
}

// Job returns what a queue has of one job, at one moment. The error wraps [ErrNoJob] if the queue has no such job, and [ErrNoQueue] if nobody
// has used the queue. A record that can't be read is no error: see Err of [Job].
func (i *Inspector) Job(ctx context.Context, queue, id string) (Job, error) {
	if err := layout.ValidateQueue(queue); err != nil {
		return Job{}, fmt.Errorf("inspect: %w", err)
	}
	q := i.store(queue)
	if err := q.Site().CheckLayout(ctx); err != nil {
		return Job{}, fmt.Errorf("inspect: queue %s: %w", queue, err)
	}
	view, s, found, err := q.Looks().Show(ctx, id)
	if err != nil {
		return Job{}, fmt.Errorf("inspect: job %s of queue %s: %w", id, queue, err)
	}
	if !found {
		if err := i.known(ctx, queue); err != nil {
			return Job{}, err
		}
		return Job{}, fmt.Errorf("%w: %.200q in queue %.200q: it is completed, or was dropped, or its ID is misspelt", ErrNoJob, id, queue)
	}
	job := jobOf(&view, &s)
	if view.Session != "" {
		progress, err := q.Sessions().Progress(ctx, view.Session)
		if err != nil {
			return Job{}, fmt.Errorf("inspect: the progress of job %s of queue %s: %w", id, queue, err)
		}
		job.Progress = progressOf(progress, job.ID, job.Token)
	}
	return job, nil
}

// jobOf returns the job of a view.
func jobOf(v *looks.View, s *looks.Situation) Job {
	r := &v.Job
	job := Job{
		Queue: r.Queue, ID: r.ID, Kind: r.Kind, State: v.State, Payload: r.Payload, Encoding: r.Encoding, Headers: r.Headers, Priority: r.Priority,
		Failed: max(r.Attempt-1, 0), MaxAttempts: r.MaxAttempts, Crashes: r.Crashes, Survived: v.Survived, Timeout: r.Timeout, Retain: r.Retain, Deadline: r.Deadline,
		EnqueuedAt: r.EnqueuedAt, DueAt: r.ScheduledAt, LastError: r.LastError, Cursor: v.Cursor,
		Group: r.Group, Serial: r.Serial, YieldOnRetry: r.YieldOnRetry,
	}
	if v.Unique.Scope != 0 {
		job.UniqueKey, _ = v.Unique.Name()
		job.UniqueUntil = v.Unique.Until()
	}
	if v.Err != nil {
		job.Err = fmt.Errorf("inspect: the record of job %s can't be read: %w", r.ID, v.Err)
	} else {
		job.EffectKey = r.EffectKey()
	}
	switch v.State {
	case signalbox.StateScheduled:
		job.DueAt = v.At
	case signalbox.StateDead, signalbox.StateCancelled, signalbox.StateCompleted:
		job.EndedAt = v.At
	case signalbox.StateRunning:
		job.Worker, job.Token, job.Since, job.Cancelling = v.Worker(), r.Token, r.ClaimedAt, v.Cancelling()
	case signalbox.StateReady:
	}
	if r.ExpireAfter > 0 && !v.Job.ScheduledAt.Equal(store.HeldUntil) && (v.State == signalbox.StateScheduled || v.State == signalbox.StateReady) {
		job.ExpiresAt = r.ScheduledAt.Add(r.ExpireAfter)
	}
	for _, a := range v.Attempts {
		job.Attempts = append(job.Attempts, Attempt(a))
	}
	if v.Success != nil {
		success := Attempt(*v.Success)
		job.Success = &success
		job.Result = v.Result
	}
	job.TraceID, job.SpanID = spanOf(r.Headers["traceparent"])
	job.RunTraceID, job.RunSpanID = spanOf(v.Note)
	job.Nowhere, job.Batch = v.Unlisted, v.Flow
	job.Waits = waits(&job, v, s)
	if v.Held != nil {
		job.held, job.Waits = true, heldFor(v.Held)
	}
	return job
}

// waits says why a job isn't running.
func waits(job *Job, v *looks.View, s *looks.Situation) string {
	later := ""
	switch job.State {
	case signalbox.StateScheduled:
		if v.Brakes.Paused {
			return "its group is paused"
		}
		if job.DueAt.After(s.At) {
			return "until " + clock(job.DueAt)
		}
		later = "its time has come; "
	case signalbox.StateAwaiting:
		return awaited(v)
	case signalbox.StateReady:
		if job.Nowhere {
			return "in vain: it is in no place, and the doctor repairs that"
		}
	case signalbox.StateRunning, signalbox.StateCompleted, signalbox.StateDead, signalbox.StateCancelled:
		return ""
	}
	workers := s.Workers()
	loud := slices.ContainsFunc(workers, func(worker string) bool { return !slices.Contains(s.Settings.Quiet, worker) })
	switch {
	case s.Settings.Paused:
		return later + "the queue is paused"
	case v.Brakes.Paused:
		return later + "its group is paused"
	case len(s.Sessions) == 0:
		return later + "no worker works the queue"
	case len(workers) > 0 && !loud:
		return later + "all workers of the queue are quiet"
	}
	if text := braked(&s.Queue, "the queue"); text != "" {
		return later + text
	}
	if text := braked(&v.Brakes, "its group"); text != "" {
		return text
	}
	switch {
	case v.Blocked:
		return "for the jobs of its group that run, or wait for a retry"
	case v.Lined && job.Group != "":
		return freeSlot + ", and the turn of its group"
	case job.Crashes >= store.SuspectAt:
		return later + fmt.Sprintf("for a worker that may try a job which has crashed %d times", job.Crashes)
	}
	return later + freeSlot
}

// awaited says what a callback of a batch waits for.
func awaited(v *looks.View) string {
	switch v.Awaits {
	case store.AwaitsSuccess:
		return "for all jobs of batch " + v.Flow + " to complete"
	case store.AwaitsFailure:
		return "for a job of batch " + v.Flow + " that doesn't complete; if all do, it is deleted"
	}
	return "for batch " + v.Flow + " to be over"
}

// freeSlot is what a job waits for if nothing keeps it from starting.
const freeSlot = "for a free slot"

// braked says how a job is kept from starting by holds and limits of its queue or of its group, or returns "".
func braked(b *looks.Brakes, whose string) string {
	switch r := b.Limits.Rate; {
	case !b.HeldUntil.IsZero():
		return whose + " is held back until " + clock(b.HeldUntil)
	case b.AtLimit && b.Limits.Running == 1:
		return "for " + whose + "'s limit of 1 running job"
	case b.AtLimit:
		return fmt.Sprintf("for %s's limit of %d running jobs", whose, b.Limits.Running)
	case !b.Allowed.IsZero():
		return fmt.Sprintf("for %s's rate, %d per %v: the next job may start at %s", whose, r.Jobs, r.Per, clock(b.Allowed))
	}
	return ""
}

// clock returns a time as Waits has it.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") }

// spanOf returns the trace ID and the span ID of a traceparent, or "" and "".
func spanOf(traceparent string) (trace, span string) {
	parts := strings.Split(traceparent, "-")
	if len(parts) < 4 || len(parts[0]) != 2 || !isID(parts[1], 32) || !isID(parts[2], 16) {
		return "", ""
	}
	return parts[1], parts[2]
}

// isID reports whether text is n lower-case hexadecimal digits that aren't all zero.
func isID(text string, n int) bool {
	return len(text) == n && strings.Trim(text, "0123456789abcdef") == "" && strings.Trim(text, "0") != ""
}
