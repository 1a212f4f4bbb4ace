package inspect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// ErrState is wrapped by the error of a call whose action isn't for the state that the job, the cron entry or the worker is in.
// Nothing was changed.
var ErrState = errors.New("inspect: not in this state")

// ErrKeyTaken is wrapped by the error of a call that would have a job run again, or move it, while another job has its unique key. Nothing was changed.
var ErrKeyTaken = errors.New("inspect: another job has its unique key")

// ErrInBatch is wrapped by the error of a call that would move a job of a batch, which stays in its queue, or have one run again whose batch was cancelled, or that waited for what can't come any more: [scheduler.OnSuccess] of a batch with a
// member that is dead. Nothing was changed.
var ErrInBatch = errors.New("inspect: its batch doesn't let it")

// An Action is what can be done to a job: [Cancel], [Archive], [Retry], [Reschedule], [Delete], [Prioritise], [Edit] or [Move]. Each is for jobs in some states
// only. Redis looks at the state and acts in one step, so a job that moves meanwhile is never changed in a state that the action isn't for.
type Action interface {
	// validate returns an error that wraps signalbox.ErrInvalid.
	validate() error
	// act does it to jobs, of these states only if there are any. It returns an answer for each job that it got to. If the error is a
	// failures, it got to all of them.
	act(ctx context.Context, q *store.Queue, ids []string, states ...signalbox.State) ([]store.Answer, error)
	// done reports whether there is nothing to do for a job.
	done(job *Job) bool
	// about returns the name of the action, and the states that it is for.
	about() (name string, states []signalbox.State)
}

// maxWhy is the longest reason of a [Cancel] or an [Archive], in bytes.
const maxWhy = 500

// Cancel ends a job that is scheduled, ready or running. It ends cancelled, and doesn't run again.
//
// The context of a handler that runs ends with cause [signalbox.ErrCancelled], within a second.
// If its worker drains, or has no subscription, the context ends at the next renewal of its session: see docs/jobs/failures.md.
//
// The job ends when the handler has
// returned, whatever that returns, or when its worker has died. If the handler returns nil, the job's last error says that it had finished.
// For a job that is cancelled already there is nothing to do.
type Cancel struct {
	Why string // the job's last error says so; at most 500 bytes; may be ""
}

func (a Cancel) store() store.Act { return store.CancelJobs(a.Why) }

func (a Cancel) validate() error {
	if len(a.Why) > maxWhy {
		return fmt.Errorf("%w Cancel.Why: %d bytes; at most %d are allowed", signalbox.ErrInvalid, len(a.Why), maxWhy)
	}
	return nil
}

func (a Cancel) act(ctx context.Context, q *store.Queue, ids []string, states ...signalbox.State) ([]store.Answer, error) {
	return do(ctx, q, a.store(), ids, states)
}
func (a Cancel) done(job *Job) bool                 { return job.Cancelling }
func (a Cancel) about() (string, []signalbox.State) { return "Cancel", a.store().States() }

// Archive makes a job dead that is scheduled or ready, or waits for its batch: it is kept as dead jobs are, and doesn't run unless somebody has it retried. A job that runs must be cancelled, or end. Nobody is told: OnDead of a worker's Config isn't
// called, and the queue's copies of dead jobs don't get it. For a member of a batch it is an end as any other death. For a job that is dead already there is nothing to do.
type Archive struct {
	Why string // the job's last error says so, in place of the one before; at most 500 bytes; may be ""
}

func (a Archive) store() store.Act { return store.ArchiveJobs(a.Why) }

func (a Archive) validate() error {
	if len(a.Why) > maxWhy {
		return fmt.Errorf("%w Archive.Why: %d bytes; at most %d are allowed", signalbox.ErrInvalid, len(a.Why), maxWhy)
	}
	return nil
}

func (a Archive) act(ctx context.Context, q *store.Queue, ids []string, states ...signalbox.State) ([]store.Answer, error) {
	return do(ctx, q, a.store(), ids, states)
}
func (Archive) done(_ *Job) bool                     { return false }
func (a Archive) about() (string, []signalbox.State) { return "Archive", a.store().States() }

// Retry makes a job ready now that is scheduled, dead, cancelled or completed. One that has ended begins anew: its attempts and crashes count
// from 0. It takes its unique key again, if that wasn't a window's: while another job has the key, the error wraps [ErrKeyTaken]. Its last error stays until
// the next one. For a job that is ready already there is nothing to do. A completed job has the same effect key when it runs again: if its handler records
// its effect, the effect doesn't happen twice.
type Retry struct{}

func (Retry) store() store.Act { return store.RunJobs(time.Time{}) }
func (Retry) validate() error  { return nil }
func (a Retry) act(ctx context.Context, q *store.Queue, ids []string, states ...signalbox.State) ([]store.Answer, error) {
	return do(ctx, q, a.store(), ids, states)
}
func (Retry) done(_ *Job) bool                     { return false }
func (a Retry) about() (string, []signalbox.State) { return "Retry", a.store().States() }

// Reschedule gives a job another time that isn't running. One that has ended begins anew, as with [Retry].
type Reschedule struct {
	At time.Time // by the clock of Redis, until 2255; a time that has passed makes the job ready
}

// latest is the last time that a score holds to the microsecond.
var latest = time.UnixMicro(1<<53 - 1).UTC()

func (a Reschedule) store() store.Act { return store.RunJobs(a.At) }

func (a Reschedule) validate() error {
	if a.At.IsZero() {
		return fmt.Errorf("%w Reschedule.At: it is zero; name a time; Retry has the job run at once", signalbox.ErrInvalid)
	}
	if a.At.After(latest) {
		return fmt.Errorf("%w Reschedule.At: it is after %s, the last time that Redis can hold", signalbox.ErrInvalid, latest.Format(time.DateOnly))
	}
	return nil
}

func (a Reschedule) act(ctx context.Context, q *store.Queue, ids []string, states ...signalbox.State) ([]store.Answer, error) {
	return do(ctx, q, a.store(), ids, states)
}

func (a Reschedule) done(job *Job) bool {
	return job.State == signalbox.StateScheduled && job.DueAt.Equal(a.At.Truncate(time.Microsecond))
}
func (a Reschedule) about() (string, []signalbox.State) { return "Reschedule", a.store().States() }

// Delete deletes a job that isn't running, with all that Redis has of it. A job that runs must be cancelled first.
type Delete struct{}

func (Delete) store() store.Act { return store.DeleteJobs() }
func (Delete) validate() error  { return nil }
func (a Delete) act(ctx context.Context, q *store.Queue, ids []string, states ...signalbox.State) ([]store.Answer, error) {
	return do(ctx, q, a.store(), ids, states)
}
func (Delete) done(_ *Job) bool                     { return false }
func (a Delete) about() (string, []signalbox.State) { return "Delete", a.store().States() }

// Prioritise gives another priority to a job that is scheduled or ready. One that is ready goes behind those that are ready in its new
// priority. One that has this priority stays where it is. A job that has crashed twice waits apart from others, whatever its priority.
type Prioritise struct {
	To signalbox.Priority
}

func (a Prioritise) store() store.Act { return store.PrioritiseJobs(a.To) }

func (a Prioritise) validate() error {
	switch a.To {
	case signalbox.PriorityNormal, signalbox.PriorityHigh, signalbox.PriorityLow:
		return nil
	}
	return fmt.Errorf("%w Prioritise.To: %v is no priority", signalbox.ErrInvalid, a.To)
}

func (a Prioritise) act(ctx context.Context, q *store.Queue, ids []string, states ...signalbox.State) ([]store.Answer, error) {
	return do(ctx, q, a.store(), ids, states)
}
func (a Prioritise) done(job *Job) bool                 { return job.Priority == a.To }
func (a Prioritise) about() (string, []signalbox.State) { return "Prioritise", a.store().States() }

// Edit changes what a producer has said of a job that isn't running. What it doesn't name stays as it is at that moment, whoever changes the
// job meanwhile. What it names is replaced: of two who edit the same field, the later one wins.
type Edit struct {
	Payload     []byte        // the encoded arguments; nil: as they are
	MaxAttempts int           // 0: as it is
	Timeout     time.Duration // 0: as it is
	Run         bool          // also does what [Retry] does, in the same step
}

func (a Edit) validate() error {
	var errs []error
	if a.MaxAttempts < 0 {
		errs = append(errs, fmt.Errorf("%w Edit.MaxAttempts: %d; 0 leaves it as it is", signalbox.ErrInvalid, a.MaxAttempts))
	}
	if a.Timeout < 0 {
		errs = append(errs, fmt.Errorf("%w Edit.Timeout: %v; 0 leaves it as it is", signalbox.ErrInvalid, a.Timeout))
	}
	if a.Payload == nil && a.MaxAttempts == 0 && a.Timeout == 0 {
		errs = append(errs, fmt.Errorf("%w Edit: it changes nothing; to run the job as it is, use Retry", signalbox.ErrInvalid))
	}
	return errors.Join(errs...)
}

func (a Edit) act(ctx context.Context, q *store.Queue, ids []string, states ...signalbox.State) ([]store.Answer, error) {
	e := store.Edit{Payload: a.Payload, MaxAttempts: a.MaxAttempts, Timeout: a.Timeout}
	answers := make([]store.Answer, 0, len(ids))
	var failed failures
	for _, id := range ids {
		answer, err := q.Edit(ctx, id, e, a.Run, states...)
		if err != nil {
			err = fmt.Errorf("job %s: %w", id, err)
			if answer.Acted != store.Failed {
				return answers, err
			}
			failed.add(err)
		}
		switch answer.Acted {
		case store.KeyTaken:
			failed.add(keyTaken(id))
		case store.InFlow:
			failed.add(inBatch(id))
		default:
		}
		answers = append(answers, answer)
	}
	return answers, failed.err()
}

func (a Edit) done(job *Job) bool {
	return job.Err == nil && (!a.Run || job.State == signalbox.StateReady) &&
		(a.Payload == nil || bytes.Equal(a.Payload, job.Payload)) &&
		(a.MaxAttempts == 0 || a.MaxAttempts == job.MaxAttempts) &&
		(a.Timeout == 0 || max(a.Timeout.Truncate(time.Microsecond), time.Microsecond) == job.Timeout)
}
func (a Edit) about() (string, []signalbox.State) { return "Edit", store.DeleteJobs().States() }

// keyTaken returns the error of a job that can't run again, since another one has its unique key.
func keyTaken(id string) error { return fmt.Errorf("job %s: %w", id, ErrKeyTaken) }

// inBatch returns the error of a job that its batch doesn't let run again.
func inBatch(id string) error {
	return fmt.Errorf("job %s: %w run again: the batch was cancelled, or what the job waited for can't come any more; retry the members that haven't completed first", id, ErrInBatch)
}

// failures are the errors of single jobs: the first few.
type failures []error

const maxFailures = 3

func (f *failures) add(errs ...error) {
	*f = append(*f, errs[:min(len(errs), maxFailures-len(*f))]...)
}

// err returns nil if there are none.
func (f failures) err() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

func (f failures) Error() string {
	texts := make([]string, len(f))
	for i, err := range f {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}
func (f failures) Unwrap() []error { return f }

// do is the act of actions that are the same for all jobs.
func do(ctx context.Context, q *store.Queue, a store.Act, ids []string, states []signalbox.State) ([]store.Answer, error) {
	if len(states) > 0 {
		a = a.Of(states...)
	}
	answers, err := q.Do(ctx, a, ids)
	if err != nil {
		return answers, err
	}
	var failed failures
	for i, answer := range answers {
		if answer.Acted == store.Failed {
			failed.add(fmt.Errorf("job %s: its record can't be read", ids[i]))
		}
		if answer.Acted == store.KeyTaken {
			failed.add(keyTaken(ids[i]))
		}
		if answer.Acted == store.InFlow {
			failed.add(inBatch(ids[i]))
		}
	}
	return answers, failed.err()
}

var errNoAction = fmt.Errorf("%w action: it is nil; give one, such as Retry{}", signalbox.ErrInvalid)

// Do acts on one job, and returns the state that the job was in. It may be called again if its reply was lost.
//
// The error wraps [ErrNoJob] if the queue has no such job, [ErrState] if the action isn't for the state that the job is in, [ErrNoQueue] if
// nobody has used the queue, and [signalbox.ErrInvalid] if the action makes no sense. Nothing was changed then.
func (i *Inspector) Do(ctx context.Context, queue, id string, a Action) (was signalbox.State, err error) {
	if a == nil {
		return "", fmt.Errorf("inspect: %w", errNoAction)
	}
	if err := errors.Join(layout.ValidateQueue(queue), a.validate()); err != nil {
		return "", fmt.Errorf("inspect: %w", err)
	}
	if err := i.reaches(ctx, queue, a); err != nil {
		return "", err
	}
	name, states := a.about()
	answers, err := a.act(ctx, i.store(queue), []string{id})
	if err != nil {
		return "", fmt.Errorf("inspect: %s of job %s of queue %s: %w", name, id, queue, err)
	}
	was = answers[0].State
	switch answers[0].Acted {
	case store.Gone:
		if err := i.known(ctx, queue); err != nil {
			return "", err
		}
		return "", fmt.Errorf("%w: %.200q in queue %.200q: it is completed, or was dropped, or its ID is misspelt", ErrNoJob, id, queue)
	case store.Wrong:
		return was, fmt.Errorf("%w: job %s of queue %s is %s, and %s is for jobs that are %s; %s", ErrState, id, queue, was, name, words(states), instead(a, was))
	case store.Lost:
		return was, fmt.Errorf("inspect: job %s of queue %s has a record, and is in no list: another program has changed the queue", id, queue)
	case store.Done, store.Changed, store.Failed, store.Occupied, store.KeyTaken, store.InFlow: // those have an error
	}
	return was, nil
}

// instead says what can be done with a job that the action isn't for.
func instead(a Action, state signalbox.State) string {
	_, cancel := a.(Cancel)
	switch {
	case cancel && !state.Live() && state != store.StateHeld:
		return "it has ended, and doesn't run again by itself; delete it, or leave it"
	case state == signalbox.StateRunning:
		return "cancel it, or wait until it has ended"
	case state == signalbox.StateAwaiting:
		return "it waits for its batch; cancel or delete it, or wait until the batch is over"
	case state == store.StateHeld:
		return "it is being moved: look at it to see whereto, and move it there once more"
	}
	return "retry it first, or leave it"
}

// words lists states.
func words(states []signalbox.State) string {
	all := make([]string, len(states))
	for i, s := range states {
		all[i] = string(s)
	}
	last := len(all) - 1
	if last < 1 {
		return strings.Join(all, "")
	}
	return strings.Join(all[:last], ", ") + " or " + all[last]
}
