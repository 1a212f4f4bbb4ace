// Package testseam is how package signalboxtest reaches into package worker, so that worker exports nothing for tests.
package testseam

import (
	"context"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// A Verdict is what became of one delivery.
type Verdict struct {
	Outcome signalbox.Outcome
	Err     error          // what the handler, with all middleware around it, returned
	Delay   time.Duration  // until the job runs again
	Next    *signalbox.Job // as the next delivery has it; as it is kept, if it is dead or cancelled; nil: completed
	// Result decodes the result of a job that has completed; nil: it has none.
	Result func(into any) error

	FollowUps []store.Item // jobs that are put in since this one has completed
}

// Work runs one delivery of a job by a *worker.Worker, in the goroutine that calls it, and returns the verdict. No Redis hears of
// it. The end of ctx is the shutdown of the worker. Package worker sets it.
var Work func(ctx context.Context, w any, job *signalbox.Job) Verdict

// Works returns the namespace of a *worker.Worker, "" for the default one, and whether it works a queue. Package worker sets it.
var Works func(w any, queue string) (namespace string, works bool)
