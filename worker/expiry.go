package worker

import (
	"fmt"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// tooLate writes to metrics and the log which jobs a call has ended because they had not started in time. They are dead.
func (q *queue) tooLate(late []store.Delivery) {
	for i := range late {
		d := &late[i]
		q.w.consumer.Expired(q.base, q.store.Name(), q.w.kinds.metric(d))
		about := []any{"job", d.Job.ID}
		if d.Job.Kind != "" { // it could be read
			about = append(about, "kind", d.Job.Kind, "due", d.Job.ScheduledAt)
			if d.Job.Deadline.IsZero() {
				about = append(about, "expire_after", d.Job.ExpireAfter)
			} else {
				about = append(about, "deadline", d.Job.Deadline)
			}
		}
		q.log.Warn("signalbox: a job has expired, since it had not started in time; it is dead", about...)
		if f := q.w.cfg.OnDead; f != nil {
			failure := Failure{Job: *d.Job, Err: fmt.Errorf("%w: within %v of %v", signalbox.ErrExpired, d.Job.ExpireAfter, d.Job.ScheduledAt.UTC())}
			if !d.Job.Deadline.IsZero() {
				failure.Err = fmt.Errorf("%w: before %v", signalbox.ErrExpired, d.Job.Deadline.UTC())
			}
			failure.Job.Namespace = q.w.namespace()
			q.w.hooks.add(func() { f(q.base, failure) })
		}
		q.copier.died(d.Job.ID)
	}
	q.keeper.tender.wake()
}
