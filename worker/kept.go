package worker

import (
	"context"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// look has the keeper read what becomes of jobs that have ended. It doesn't block.
func (q *queue) look() {
	select {
	case q.settingsNews <- struct{}{}:
	default: // it is about to
	}
}

// readEnding notes which completed jobs the queue keeps, and whether its dead jobs are copied, as its settings say. If they can't be
// read, what is known stays: a sweep tries again within a minute. Only the keeper calls it.
func (q *queue) readEnding(ctx context.Context) {
	ending, err := q.own.Ending(ctx)
	if err != nil {
		return
	}
	q.copyAll(ending.Copies != "")
	q.sayCopies(ending.Copies)
	now := ending.Completed
	q.keeps.Store(now != signalbox.Retention{})
	want := q.w.cfg.Queues[q.store.Name()].CompletedRetention
	if want == (signalbox.Retention{}) || now == q.keptCompleted {
		return
	}
	q.keptCompleted = now
	if store.Filled(want) != now {
		q.log.Info("signalbox: the queue's settings say another retention of completed jobs than this worker's Config, and count; inspect.SetCompletedRetention changes them",
			"jobs", now.Jobs, "bytes", now.Bytes, "age", now.Age.String())
	}
}

// sayCopies logs that dead jobs are copied elsewhere than this worker's Config says: once for each queue that gets them. Only the keeper
// calls it.
func (q *queue) sayCopies(to string) {
	want := q.w.cfg.Queues[q.store.Name()].CopyDead
	if want == "" || q.copiesTo == to {
		return
	}
	q.copiesTo = to
	if to != want {
		q.log.Info("signalbox: the queue's settings say another queue for copies of dead jobs than this worker's Config, and count; inspect.SetCopyDead changes it", "to", to)
	}
}

// keepCompleted asks Redis to keep the job with the attempt that has completed it.
func (q *queue) keepCompleted(r *store.Settlement, d *delivery, job *signalbox.Job) {
	r.Keep = store.Kept(q.attempt(d, job, nil))
}
