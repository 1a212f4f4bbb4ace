package signalboxtest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/testseam"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// A Verdict is what becomes of a job after one delivery.
type Verdict struct {
	// Job is the job as the handler got it.
	Job *signalbox.Job
	// Outcome is how the delivery ended. OutcomeReturned means that no attempt was used: the worker has no handler for the kind, or
	// was shutting down.
	Outcome signalbox.Outcome
	// Err is what the handler returned, with all middleware around it. It is a [*signalbox.PanicError] after a panic, and a
	// [*signalbox.PayloadError] if the handler's arguments were refused. errors.As finds them.
	Err error
	// Delay is how long the job waits until it runs again. 0: it doesn't wait, or doesn't run again.
	Delay time.Duration
	// Next is the job as its next delivery has it. It is nil if the job has completed. If the job is dead or cancelled, it is as
	// Redis keeps it.
	Next *signalbox.Job

	result func(into any) error
}

// Result decodes the result that the handler has given the job by [signalbox.SetResult] into what into points to, and reports whether there is one: only if the job
// has completed, whether it is kept or not. The error is that of the codec: the result doesn't fit the type.
func (v Verdict) Result(into any) (found bool, err error) {
	if v.result == nil {
		return false, nil
	}
	return true, v.result(into)
}

// String says it in a line, without anything of the payload.
func (v Verdict) String() string {
	s := string(v.Outcome)
	if v.Delay > 0 {
		s += fmt.Sprintf(" in %v", v.Delay)
	}
	if v.Job != nil {
		s += fmt.Sprintf(" after attempt %d of %d", v.Job.Attempt, v.Job.MaxAttempts)
	}
	if v.Err != nil {
		s += ": " + v.Err.Error()
	}
	return s
}

// Work runs one delivery of a job by w, now, whatever its time, and returns the verdict. The handler runs inside all middleware of the
// worker, in the goroutine that calls Work, under a lease that lasts. Functions of [signalbox.OnSettled] are called with
// the outcome, and so are OnRetry and OnDead of the worker's Config, before Work returns.
// OnRetry and OnDead must not call Work: it would wait for the hook that calls it, for good.
// w needs no Run. Handlers and middleware can't be registered any more, as after Run.
//
// The job is one of [Jobs.Enqueued], [Jobs.NewJob] or [Verdict.Next], or yours. The handler gets a copy. If the job waits in these Jobs, its
// state there changes: it is gone, or waits for its next time, or is dead or cancelled.
//
// If the job completes, its follow-ups ([scheduler.Then]) are enqueued, as those of a scheduler: [One], [All] and [Jobs.Enqueued] have them, and [Jobs.WorkAll] works them.
//
// The values of ctx are those of the handler's context. The end of ctx is the shutdown of the worker: [signalbox.Draining] is closed
// then, and the handler's context ends after the worker's DrainTimeout.
//
// Work ends the test if w doesn't work the job's queue. It also does if the job waits in these Jobs in a namespace other than that of w. A job of
// [Jobs.NewJob] has no namespace: any w takes it.
func (j *Jobs) Work(ctx context.Context, w *worker.Worker, job *signalbox.Job) Verdict {
	j.t.Helper()
	namespace, works := testseam.Works(w, job.Queue)
	if !works {
		j.t.Fatalf("signalboxtest: the worker doesn't work queue %q, which job %s of kind %q is in; its Config.Queues don't name it", job.Queue, job.ID, job.Kind)
		return Verdict{}
	}
	if !j.standIn.Has(namespace, job.Queue, job.ID) && j.standIn.Has(job.Namespace, job.Queue, job.ID) {
		j.t.Fatalf("signalboxtest: job %s of kind %q is in namespace %q, and the worker works %q", job.ID, job.Kind, job.Namespace, namespace)
		return Verdict{}
	}
	return j.work(ctx, w, namespace, job)
}

func (j *Jobs) work(ctx context.Context, w *worker.Worker, namespace string, job *signalbox.Job) Verdict {
	delivered := *job
	delivered.Namespace = namespace
	delivered.Attempt = max(job.Attempt, 1)
	delivered.ClaimedAt = time.Now()
	delivered.Token = job.Token + 1
	got := delivered
	j.standIn.Start(namespace, job.Queue, job.ID)
	v := testseam.Work(ctx, w, &delivered)
	j.standIn.Settle(namespace, job.Queue, job.ID, v.Outcome, v.Next)
	if len(v.FollowUps) > 0 {
		q := store.New(j.rdb, namespace, job.Queue)
		if _, err := q.Enqueue(ctx, q.NewLane(), v.FollowUps); err != nil {
			j.t.Fatalf("signalboxtest: the follow-ups of job %s of kind %q: %v", job.ID, job.Kind, err)
		}
	}
	return Verdict{Job: &got, Outcome: v.Outcome, Err: v.Err, Delay: v.Delay, Next: v.Next, result: v.Result}
}

// maxWorked bounds the deliveries of a WorkAll.
const maxWorked = 10_000

// WorkAll runs the jobs that are due, one after the other, as [Jobs.Work] does, until none is or ctx ends: also those that handlers enqueue
// meanwhile, and those that are put back without a delay. Jobs of queues that w doesn't work, and jobs whose time has not come,
// wait on. The verdicts are in the order of the deliveries.
//
// WorkAll ends the test after 10,000 deliveries: then the jobs make each other.
func (j *Jobs) WorkAll(ctx context.Context, w *worker.Worker) []Verdict {
	j.t.Helper()
	var all []Verdict
	for ctx.Err() == nil {
		job := j.standIn.Due(func(namespace, queue string) bool {
			own, works := testseam.Works(w, queue)
			return works && own == namespace
		})
		if job == nil {
			break
		}
		if len(all) == maxWorked {
			j.t.Fatalf("signalboxtest: WorkAll: %d deliveries, and %d jobs still wait; the next one has kind %q", len(all), len(j.Waiting()), job.Kind)
			break
		}
		all = append(all, j.work(ctx, w, job.Namespace, job))
	}
	return all
}

// newJob returns the job of a plan.
func newJob(plan scheduler.Plan) *signalbox.Job {
	job := plan.Job
	if job.ID == "" {
		job.ID = store.NewID()
	}
	job.Attempt = 1
	job.EnqueuedAt = time.Now().Truncate(time.Microsecond)
	job.ScheduledAt = job.EnqueuedAt.Add(plan.After)
	if plan.At.After(job.ScheduledAt) {
		job.ScheduledAt = plan.At
	}
	job.Payload = slices.Clone(job.Payload)
	return &job
}
