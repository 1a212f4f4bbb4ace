package scheduler

import (
	"time"

	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// A layoutMisfit says that a queue's layout isn't one of this release, which then enqueues none of its ticks. The zero value says that it is one.
type layoutMisfit struct {
	err   *layout.Error
	since time.Time
}

func (m layoutMisfit) is() bool { return m.err != nil }

// fitsNot notes that the queue has refused a call because of its layout. The log says so once, until the queue takes ticks again.
func (l *loop) fitsNot(err *layout.Error) {
	if l.misfit.is() {
		l.misfit.err = err
		return
	}
	l.misfit = layoutMisfit{err, time.Now()}
	text := "scheduler: cron: the queue has another layout than this release knows, and none of its ticks are enqueued"
	if err.Newer() {
		text = "scheduler: cron: this scheduler is too old for the queue, and enqueues none of its ticks; update this program"
	}
	l.s.log.Error(text, "queue", l.queue, "error", err)
}

// fits notes that the queue has taken a call that it refuses from a release that doesn't know its layout.
func (l *loop) fits() {
	if !l.misfit.is() {
		return
	}
	text := "scheduler: cron: the queue has a layout of this release now"
	if l.misfit.err.Newer() {
		text = "scheduler: cron: this scheduler is no longer too old for the queue"
	}
	l.misfit, l.fails = layoutMisfit{}, time.Time{}
	l.s.log.Info(text, "queue", l.queue)
}
