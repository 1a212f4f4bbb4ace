package signalbox

import (
	"context"
	"errors"
	"time"

	"github.com/signalbox-go/signalbox/internal/handlerctx"
)

// HoldBack keeps jobs from starting until then, by the clock of Redis: those of the group of the handler's job, or all of its queue if the job has no
// group. Use it when another system says that it takes nothing for a while, such as an HTTP server with status 429. Return [RetryAfter] or [Snooze] beside it:
// the job itself isn't put off, and a job of a scheduler.Serial that fails with another error runs again when its retry is due. Jobs that run go on, in all
// workers. Jobs that are put in wait.
//
// [RetryAllAfter] is an error that does the same.
//
// An earlier time than one that was set before changes nothing. A time of more than 24 h ahead counts as 24 h. inspect.Inspector.HoldBack
// ends it sooner.
//
// ctx is the handler's context, or one that was made from it. The error says why Redis doesn't know of it: then jobs start as before.
func HoldBack(ctx context.Context, until time.Time) error {
	hold := handlerctx.HoldOf(ctx)
	if hold == nil {
		return errors.New("signalbox: HoldBack: the context is not that of a handler")
	}
	return hold(ctx, until)
}
