package worker

import (
	"time"

	"github.com/signalbox-go/signalbox/internal/store"
)

// heed acts on the queue's standing in a reply: whether the queue gives jobs to this worker. It logs each change. A worker that is too
// old for the queue doesn't wait for wake-up markers, since other workers can use them. It asks again when it renews its session.
//
// began is when the call began. An older reply may arrive after a newer one, and is ignored. Two clocks decide which reply is older:
// this process's, and Redis's. One alone is not enough, since calls overlap and Redis's clock may be set back. q.mu is held.
func (q *queue) heed(h store.Hints, began time.Time) {
	if h.At.Before(q.stood) && began.Before(q.stoodAt) {
		return
	}
	q.resize(h.Slots)
	before, now := q.standing, h.Standing
	q.standing, q.stood, q.stoodAt = now, h.At, time.Now()
	if now == before {
		return
	}
	q.stoodSince = q.stoodAt
	stopping := q.dispatch.stopping
	q.mu.later(func() {
		switch {
		case now.Layout > 0:
			text := "signalbox: this worker is too old for the queue: it settles the jobs that it has and takes no others; update it"
			if now.Layout < store.Layout {
				text = "signalbox: " + store.OldLayout(now.Layout)
			}
			q.log.Error(text, "layout", now.Layout, "known", store.Protocol)
		case before.Layout > 0:
			q.log.Info("signalbox: this worker is no longer too old for the queue")
		}
		switch {
		case now.Paused && !before.Paused:
			q.log.Info("signalbox: the queue is paused: jobs wait until it is resumed")
		case before.Paused && !now.Paused && now.Layout == 0:
			q.log.Info("signalbox: the queue is resumed")
		}
		switch {
		case stopping: // it drains already, and its own calls have said so to Redis
		case now.Stop && !before.Stop:
			q.log.Info("signalbox: this worker was asked to stop: it drains, and Run returns")
			q.w.stop()
		case now.Quiet && !before.Quiet:
			q.log.Info("signalbox: this worker is quiet: it takes no more jobs of the queue; those that it has go on")
		case before.Quiet && now == (store.Standing{}):
			q.log.Info("signalbox: this worker is no longer quiet: it takes jobs of the queue")
		}
	})
	if now.Away() != before.Away() {
		q.dispatch.hint(false)
	}
}

// resize gives the queue as many slots as its settings say. If set is 0, the worker's Config counts. It logs a change. q.mu is held.
func (q *queue) resize(set int) {
	want := set
	if want == 0 {
		want = q.configured
	}
	before := q.slots.size
	if want == before {
		return
	}
	q.slots.resize(want)
	q.mu.later(func() {
		q.log.Info("signalbox: the queue has another number of slots here", "slots", want, "before", before, "by", settingsOr(set))
	})
	if want > before {
		q.dispatch.hint(false)
	}
}

func settingsOr(set int) string {
	if set > 0 {
		return "the queue's settings"
	}
	return "this worker's Config"
}
