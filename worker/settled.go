package worker

import (
	"errors"
	"runtime/debug"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/handlerctx"
	"github.com/signalbox-go/signalbox/internal/store"
)

// settling notes how the delivery is about to be settled, for traces, the log and those who wait for its end. err is what the
// outermost middleware returned.
func (d *delivery) settling(r *store.Settlement, err error) {
	d.watch.settling(d, r)
	d.waiters = d.ends.Seal()
	if d.waiters == nil && d.watch == nil {
		return
	}
	r.Ref = d
	if d.waiters == nil {
		return
	}
	d.end = &signalbox.Settled{Err: err, Started: d.started, Returned: time.Now()}
	d.end.Asked = outcomeOf(r, d.claimed.Err == nil && err != errPutBack)
	if (r.Outcome == store.Retry || r.Outcome == store.Delay) && r.Delay > 0 {
		d.end.Next = d.end.Returned.Add(r.Delay)
	}
}

// outcomeOf translates what Redis is asked for into what it means. handled says that a handler was called.
func outcomeOf(r *store.Settlement, handled bool) signalbox.Outcome {
	switch r.Outcome {
	case store.Completed:
		return signalbox.OutcomeCompleted
	case store.Retry:
		return signalbox.OutcomeRetried
	case store.Dead:
		return signalbox.OutcomeDead
	case store.Cancelled:
		return signalbox.OutcomeCancelled
	case store.Delay:
		if handled {
			return signalbox.OutcomeSnoozed
		}
	}
	return signalbox.OutcomeReturned // of no use to this worker, or it shuts down
}

// tellSettled calls the functions that wait for the end of a batch's deliveries. unknown says that nobody knows what became of
// them in Redis. Of others, those at the indices in refused were superseded, and those in overruled ended cancelled. q.mu is not held.
func (q *queue) tellSettled(batch []store.Settlement, refused, overruled []int, unknown bool) {
	var now time.Time
	for i := range batch {
		superseded := len(refused) > 0 && refused[0] == i
		if superseded {
			refused = refused[1:]
		}
		cancelled := len(overruled) > 0 && overruled[0] == i
		if cancelled {
			overruled = overruled[1:]
		}
		d, ok := batch[i].Ref.(*delivery)
		if !ok || d.waiters == nil {
			continue
		}
		if now.IsZero() {
			now = time.Now()
		}
		d.end.Ended, d.end.Outcome = now, d.end.Asked
		switch {
		case unknown:
			d.end.Outcome = signalbox.OutcomeUnknown
		case superseded:
			d.end.Outcome = signalbox.OutcomeSuperseded
		case cancelled:
			d.end.Outcome, d.end.Next = signalbox.OutcomeCancelled, time.Time{}
		}
		if err := tell(d.waiters, *d.end); err != nil {
			q.warn("settled", "signalbox: a function panicked that was called at the end of a delivery", "job", d.id, "token", d.token, "error", brief(err))
		}
		d.waiters, d.end = nil, nil // the delivery may be kept for as long as others of its call run
	}
}

// tell calls each function that waits for an end. The error wraps a [*signalbox.PanicError] for each of them that panicked.
func tell(first *handlerctx.Waiter, s signalbox.Settled) error {
	var panics []error
	for w := first; w != nil; w = w.Next {
		if err := hear(w.F.(func(signalbox.Settled)), s); err != nil {
			panics = append(panics, err)
		}
	}
	return errors.Join(panics...)
}

// hear calls f. It returns the panic of f as an error, or nil.
func hear(f func(signalbox.Settled), s signalbox.Settled) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &signalbox.PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	f(s)
	return nil
}
