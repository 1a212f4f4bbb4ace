package signalbox

import (
	"context"

	"github.com/signalbox-go/signalbox/internal/handlerctx"
)

// MaxResult is the largest result of a job, in bytes, as it is encoded.
const MaxResult = 64 << 10

// SetResult makes value the result of the job, in place of that of an earlier call. If the job completes and is kept, as scheduler.Retain or the retention of its queue say,
// the result is kept with it, and read by Scheduler.Status of package scheduler, package inspect and signalbox job show. It is gone with the job. Of a job that isn't kept nobody reads it.
//
// It goes with the settlement, in one act: there is no result without a completed job, and SetResult calls no Redis. Of a delivery that ends in any other way the result is
// dropped: by an error, a snooze, a cancel, a lost lease. So is that of a job that has completed, once somebody runs it again and it completes anew: then it has the result of that run, or none.
//
// The value is encoded as the job's arguments are: as JSON, or by the job's [Codec]. The error wraps [ErrResultSize] if it takes more than [MaxResult] bytes then; [ErrSuperseded] if the
// handler has returned; or the codec's error. After an error the result is what it was before.
//
// ctx is the handler's context, or one that was made from it; in worker.HandleMany that of a job of the call. Any other is an error.
func SetResult(ctx context.Context, value any) error {
	s := handlerctx.SaverOf(ctx)
	if s == nil {
		return errNotHandler
	}
	return s.SetResult(value)
}
