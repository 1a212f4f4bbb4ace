package worker

import (
	"context"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// look has the keeper read whether the queue keeps completed jobs. It doesn't block.
func (q *queue) look() {
	select {
	case q.settingsNews <- struct{}{}:
	default: // it is about to
	}
}

// readCompleted notes which completed jobs the queue keeps, as its settings say. If they can't be read, what is known stays: a sweep
// tries again within a minute. Only the keeper calls it.
func (q *queue) readCompleted(ctx context.Context) {
	now, err := q.own.Completed(ctx)
	if err != nil {
		return
	}
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

// seedCompleted gives the queue the retention of completed jobs of this worker's Config, if nobody has set one. It returns false if a sweep
// might drop more than Config says.
func (q *queue) seedCompleted(ctx context.Context) bool {
	want := q.w.cfg.Queues[q.store.Name()].CompletedRetention
	if want != (signalbox.Retention{}) {
		if err := q.own.SeedCompleted(ctx, want); err != nil {
			return false
		}
	}
	q.readCompleted(ctx)
	return true
}

// keepCompleted asks Redis to keep the job with the attempt that has completed it.
func (q *queue) keepCompleted(r *store.Settlement, d *delivery, job *signalbox.Job) {
	r.Keep = store.Kept(q.attempt(d, job, nil))
}
