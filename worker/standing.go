package worker

import (
	"time"

	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// A standing is what Redis last said of a queue, and since when it says so. The queue's mu guards it.
type standing struct {
	q     *queue
	now   store.Standing
	at    time.Time // when Redis said it, by its clock
	taken time.Time // when its reply was taken, by our clock
	since time.Time // when Redis first said it, by our clock
}

// heed acts on the queue's standing in a reply: whether the queue gives jobs to this worker. It logs each change. A worker that is too
// old for the queue doesn't wait for wake-up markers, since other workers can use them. It asks again when it renews its session.
//
// began is when the call began. An older reply may arrive after a newer one, and is ignored. Two clocks decide which reply is older:
// this process's, and Redis's. One alone is not enough, since calls overlap and Redis's clock may be set back. The queue's mu is held.
func (st *standing) heed(h store.Hints, began time.Time) {
	if h.At.Before(st.at) && began.Before(st.taken) {
		return
	}
	st.resize(h.Slots)
	st.stand(h.Standing, h.At)
}

// misfits acts on a call that was refused because of the queue's layout. began is when the call began. The queue's mu is held.
func (st *standing) misfits(err *layout.Error, began time.Time) {
	if began.Before(st.taken) {
		return
	}
	now := st.now
	now.Layout = err.Layout
	st.stand(now, time.Time{})
}

// stand notes the queue's standing, as Redis said at a time of its clock; zero: it didn't say when. The queue's mu is held.
func (st *standing) stand(now store.Standing, at time.Time) {
	before := st.now
	st.now, st.at, st.taken = now, at, time.Now()
	if now == before {
		return
	}
	st.since = st.taken
	stopping := st.q.dispatch.stopping
	st.q.mu.later(func() {
		switch {
		case now.Layout > 0:
			misfit := layout.Error{Layout: now.Layout}
			text := "signalbox: the queue has another layout than this release knows: the worker settles the jobs that it has and takes no others"
			if misfit.Newer() {
				text = "signalbox: this worker is too old for the queue: it settles the jobs that it has and takes no others; update it"
			}
			st.q.log.Error(text, "error", misfit.Reason())
		case before.Layout > layout.Protocol:
			st.q.log.Info("signalbox: this worker is no longer too old for the queue")
		case before.Layout > 0:
			st.q.log.Info("signalbox: the queue has a layout of this release now")
		}
		switch {
		case now.Paused && !before.Paused:
			st.q.log.Info("signalbox: the queue is paused: jobs wait until it is resumed")
		case before.Paused && !now.Paused && now.Layout == 0:
			st.q.log.Info("signalbox: the queue is resumed")
		}
		switch {
		case stopping: // it drains already, and its own calls have said so to Redis
		case now.Stop && !before.Stop:
			st.q.log.Info("signalbox: this worker was asked to stop: it drains, and Run returns")
			st.q.w.stop()
		case now.Quiet && !before.Quiet:
			st.q.log.Info("signalbox: this worker is quiet: it takes no more jobs of the queue; those that it has go on")
		case before.Quiet && now == (store.Standing{}):
			st.q.log.Info("signalbox: this worker is no longer quiet: it takes jobs of the queue")
		}
	})
	if now.Away() != before.Away() {
		st.q.dispatch.hint(false)
	}
}

// resize gives the queue as many slots as its settings say. If set is 0, the worker's Config counts. It logs a change. The queue's mu is held.
func (st *standing) resize(set int) {
	want := set
	if want == 0 {
		want = st.q.slots.configured
	}
	before := st.q.slots.size
	if want == before {
		return
	}
	st.q.slots.resize(want)
	st.q.mu.later(func() {
		st.q.log.Info("signalbox: the queue has another number of slots here", "slots", want, "before", before, "by", settingsOr(set))
	})
	if want > before {
		st.q.dispatch.hint(false)
	}
}

func settingsOr(set int) string {
	if set > 0 {
		return "the queue's settings"
	}
	return "this worker's Config"
}
