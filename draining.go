package signalbox

import (
	"context"

	"github.com/signalbox-go/signalbox/internal/handlerctx"
)

// Draining returns a channel that is closed when the worker begins to shut down. From then on the worker claims nothing
// more from the handler's queue. The handler's context goes on until the worker's drain timeout is over. A handler that
// takes long can save its progress and return [Snooze](0). Then another worker can take the job at once.
//
// ctx is the handler's context, or one that was made from it. For any other context Draining returns nil, a channel
// that is never ready.
func Draining(ctx context.Context) <-chan struct{} {
	return handlerctx.Draining(ctx)
}
