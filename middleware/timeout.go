package middleware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/lease"
)

// Timeout bounds each attempt by d, or by the job's own Timeout if that is shorter. A d of 0 or less
// is no bound. When the time is up, the handler's context ends with cause [signalbox.ErrTimeout]. If
// the handler then returns an error, Timeout wraps ErrTimeout around it. A Snooze, a Cancel and nil
// keep their meaning. It does not if the job's deadline has ended the context before: see [signalbox.ErrDeadline].
//
// Timeout waits until the handler returns, however long. Otherwise a retry could run at the same
// time. So a handler must heed its context.
func Timeout(d time.Duration) signalbox.Middleware {
	return func(next signalbox.Handler) signalbox.Handler {
		return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
			limit := d
			if job.Timeout > 0 && (limit <= 0 || job.Timeout < limit) {
				limit = job.Timeout
			}
			if limit <= 0 {
				return next.Handle(ctx, job)
			}
			bounded := lease.Bound(ctx, limit, signalbox.ErrTimeout)
			defer bounded.End(nil)
			err := next.Handle(bounded, job)
			if outcomeOf(bounded, err) == timedOut && !errors.Is(err, signalbox.ErrTimeout) && !errors.Is(context.Cause(bounded), signalbox.ErrDeadline) {
				return fmt.Errorf("%w after %v: %w", signalbox.ErrTimeout, limit, err)
			}
			return err
		})
	}
}
