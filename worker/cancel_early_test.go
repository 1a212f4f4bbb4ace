package worker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// A message names deliveries that a call is about to come back with: they are noted while a call is under way, by their tokens, and
// no longer.
func TestCancelEarly(t *testing.T) {
	t.Parallel()
	q := still(t, 4)
	came := func(id string, token int64) *delivery {
		d := make([]delivery, 1)
		d[0].begin(q.session, &slot{}, store.Delivery{Job: &signalbox.Job{ID: id, Token: token}}, time.Now())
		q.mu.Lock()
		q.claimer.cancelEarly(d)
		q.mu.Unlock()
		return &d[0]
	}
	ended := func(d *delivery) bool {
		t.Helper()
		if cause := context.Cause(d); cause != nil && !errors.Is(cause, signalbox.ErrCancelled) {
			t.Errorf("%s ended with %v", d.id, cause)
		}
		return d.Err() != nil
	}
	q.claimer.cancel(map[string]int64{"a": 1})
	if ended(came("a", 1)) {
		t.Error("a delivery was noted though no call is under way")
	}
	q.dispatch.calls = 1
	q.claimer.cancel(map[string]int64{"a": 1, "b": 2})
	if ended(came("a", 3)) || ended(came("c", 1)) {
		t.Error("another delivery was ended")
	}
	if !ended(came("a", 1)) || !ended(came("b", 2)) {
		t.Error("a delivery was not ended")
	}
	if ended(came("b", 2)) {
		t.Error("a delivery is noted for good")
	}
	q.claimer.cancel(map[string]int64{"d": 4})
	q.mu.Lock()
	q.claimer.forgetEarly()
	known := len(q.claimer.early)
	q.dispatch.calls = 0
	q.claimer.forgetEarly()
	left := len(q.claimer.early)
	q.mu.Unlock()
	if known != 1 || left != 0 {
		t.Errorf("%d are noted while a call is under way, %d afterwards", known, left)
	}

	// Of a job that runs, only the delivery that is named.
	sl := &slot{}
	sl.now = came("f", 6)
	q.mu.Lock()
	q.slots.all = append(q.slots.all, sl)
	q.mu.Unlock()
	q.dispatch.calls = 0
	q.claimer.cancel(map[string]int64{"f": 5, "g": 6})
	if ended(sl.now) {
		t.Error("a later delivery was ended")
	}
	q.claimer.cancel(map[string]int64{"f": 6})
	if !ended(sl.now) {
		t.Error("a delivery that runs was not ended")
	}

	// Where there are too many, the worker looks when a call comes back.
	many := make(map[string]int64)
	for i := range maxEarly + 1 {
		many[fmt.Sprint(i)] = 1
	}
	q.dispatch.calls = 1
	q.claimer.cancel(many)
	if len(q.claimer.early) > 0 {
		t.Errorf("%d are noted", len(q.claimer.early))
	}
	came("e", 5)
	select {
	case <-q.keeper.marked:
	default:
		t.Error("nobody looks for marks")
	}
}

// A worker that begins to hear messages while a call is under way looks for marks when the call comes back, and at once if it runs
// anything.
func TestLookAfterSubscribing(t *testing.T) {
	t.Parallel()
	q := still(t, 1)
	looks := func() bool {
		select {
		case <-q.keeper.marked:
			return true
		default:
			return false
		}
	}
	q.listening(q.session, "p1")
	if looks() {
		t.Error("it looks though it runs nothing")
	}
	q.dispatch.calls = 1
	q.listening(q.session, "p1")
	if looks() {
		t.Error("it looks before the call has come back")
	}
	q.mu.Lock()
	q.claimer.cancelEarly(nil)
	q.mu.Unlock()
	if !looks() {
		t.Error("it doesn't look when the call has come back")
	}
	q.session.running = 1
	q.listening(q.session, "p1")
	if !looks() {
		t.Error("it doesn't look though it runs a job")
	}
	q.listening(q.session, "")
	if looks() {
		t.Error("it looks when it hears nothing any more")
	}
}
