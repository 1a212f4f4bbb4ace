package worker

import (
	"time"

	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// orders are what Redis last said to this worker of a queue: whether to take jobs, and with how many slots. The queue's mu guards them.
type orders struct {
	q        *queue
	withheld store.Withheld // why the queue gives this worker no jobs
	at       time.Time      // when Redis said it, by its clock
	taken    time.Time      // when its reply was taken, by our clock
	since    time.Time      // when Redis first said it, by our clock
}

// heed acts on what a reply says of the queue: whether it gives jobs to this worker, and for how many slots. It logs each change. A worker that is too
// old for the queue doesn't wait for wake-up markers, since other workers can use them. It asks again when it renews its session.
//
// began is when the call began. An older reply may arrive after a newer one, and is ignored. Two clocks decide which reply is older:
// this process's, and Redis's. One alone is not enough, since calls overlap and Redis's clock may be set back. The queue's mu is held.
func (o *orders) heed(h store.Hints, began time.Time) {
	if h.At.Before(o.at) && began.Before(o.taken) {
		return
	}
	o.resize(h.Slots)
	o.withhold(h.Withheld, h.At)
}

// misfits acts on a call that was refused because of the queue's layout. began is when the call began. The queue's mu is held.
func (o *orders) misfits(err *layout.Error, began time.Time) {
	if began.Before(o.taken) {
		return
	}
	now := o.withheld
	now.Layout = err.Layout
	o.withhold(now, time.Time{})
}

// withhold notes why the queue gives this worker no jobs, as Redis said at a time of its clock; zero: it didn't say when. The queue's mu is held.
func (o *orders) withhold(now store.Withheld, at time.Time) {
	before := o.withheld
	o.withheld, o.at, o.taken = now, at, time.Now()
	if now == before {
		return
	}
	o.since = o.taken
	stopping := o.q.dispatch.stopping
	o.q.mu.later(func() {
		switch {
		case now.Layout > 0:
			misfit := layout.Error{Layout: now.Layout}
			text := "signalbox: the queue has another layout than this release knows: the worker settles the jobs that it has and takes no others"
			if misfit.Newer() {
				text = "signalbox: this worker is too old for the queue: it settles the jobs that it has and takes no others; update it"
			}
			o.q.log.Error(text, "error", misfit.Reason())
		case before.Layout > layout.Protocol:
			o.q.log.Info("signalbox: this worker is no longer too old for the queue")
		case before.Layout > 0:
			o.q.log.Info("signalbox: the queue has a layout of this release now")
		}
		switch {
		case now.Paused && !before.Paused:
			o.q.log.Info("signalbox: the queue is paused: jobs wait until it is resumed")
		case before.Paused && !now.Paused && now.Layout == 0:
			o.q.log.Info("signalbox: the queue is resumed")
		}
		switch {
		case stopping: // it drains already, and its own calls have said so to Redis
		case now.Stop && !before.Stop:
			o.q.log.Info("signalbox: this worker was asked to stop: it drains, and Run returns")
			o.q.w.stop()
		case now.Quiet && !before.Quiet:
			o.q.log.Info("signalbox: this worker is quiet: it takes no more jobs of the queue; those that it has go on")
		case before.Quiet && now == (store.Withheld{}):
			o.q.log.Info("signalbox: this worker is no longer quiet: it takes jobs of the queue")
		}
	})
	if now.Away() != before.Away() {
		o.q.dispatch.hint(false)
	}
}

// resize gives the queue as many slots as its settings say. If set is 0, the worker's Config counts. It logs a change. The queue's mu is held.
func (o *orders) resize(set int) {
	want := set
	if want == 0 {
		want = o.q.slots.configured
	}
	before := o.q.slots.size
	if want == before {
		return
	}
	o.q.slots.resize(want)
	o.q.dispatch.tell()
	o.q.mu.later(func() {
		o.q.log.Info("signalbox: the queue has another number of slots here", "slots", want, "before", before, "by", settingsOr(set))
	})
	if want > before {
		o.q.dispatch.hint(false)
	}
}

func settingsOr(set int) string {
	if set > 0 {
		return "the queue's settings"
	}
	return "this worker's Config"
}
