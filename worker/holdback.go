package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-go/signalbox"
)

// holdBack is what [signalbox.HoldBack] does for the handlers of the queue.
func (h *handlers) holdBack(ctx context.Context, until time.Time) error {
	d, _ := ctx.Value(deliveryKey{}).(*delivery)
	if d == nil {
		return errors.New("signalbox: HoldBack: the context is not that of a handler")
	}
	left := time.Until(until)
	if left <= 0 {
		return nil
	}
	if _, err := h.q.own.Settings().HoldBack(ctx, d.claimed.Group(), d.id, max(left, time.Microsecond)); err != nil {
		return fmt.Errorf("signalbox: HoldBack: %w", err)
	}
	return nil
}

// holdPatience bounds how long a failed attempt waits for Redis to hold back other jobs.
const holdPatience = 5 * time.Second

// holdBackAfter holds back other jobs after a failed attempt, if its error or the job's kind asks for it. They are held back before the attempt is settled, so the
// job itself is due after that.
func (h *handlers) holdBackAfter(d *delivery, job *signalbox.Job, err error) {
	k := h.q.w.kinds.of(job.Kind)
	if k == nil || d.Err() != nil {
		return
	}
	in, all := h.askedFor(err)
	if in <= 0 || !all && !k.retryAll {
		return
	}
	ctx, cancel := context.WithTimeout(d, holdPatience)
	defer cancel()
	if err := signalbox.HoldBack(ctx, time.Now().Add(in)); err != nil {
		h.q.warn("hold:"+job.Kind, "signalbox: other jobs are not held back, though a failed attempt asks for it", d.about(job, "for", in.String(), "error", brief(err))...)
		return
	}
	h.q.warn("held:"+job.Kind, "signalbox: jobs are held back, as a failed attempt asks for it", d.about(job, "group", job.Group, "for", in.String())...)
}

// askedFor is retryAfter of an error whose methods may panic. Refused arguments ask for nothing.
func (h *handlers) askedFor(err error) (in time.Duration, all bool) {
	defer func() { _ = recover() }() // judge has counted the panic
	if isRefused(err) {
		return 0, false
	}
	return retryAfter(err)
}
