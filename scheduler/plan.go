package scheduler

import (
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// A Plan is the job that an Enqueue with the same args and options would enqueue.
type Plan struct {
	// Job has the kind, the payload and the values of the options. Its ID is "" if Enqueue would draw one. It has
	// no times, no trace context and no incarnation.
	Job signalbox.Job
	// At is when the job is due, if the option At was given. Otherwise it is zero.
	At time.Time
	// After is how long the job is delayed, if the option After was given. Otherwise it is 0.
	After time.Duration
	// IfAbsent reports whether the option IfAbsent was given.
	IfAbsent bool
	// UniqueKey is the key of the option Unique, or a digest for the option UniqueBy. Without them it is "".
	UniqueKey string
	// UniqueScope is the scope of that key.
	UniqueScope Scope
	// Replace reports whether the option Replace, Debounce or Throttle was given.
	Replace bool
	// Throttle is the time of the option Throttle. Without it, it is 0. UniqueScope is UntilStarted then.
	Throttle time.Duration
}

// Resolve returns the job that [Scheduler.Enqueue] would enqueue, or its error about a wrong argument or option. It
// needs no Redis. It is made for tests: write a fake with the method Enqueue, let it call Resolve, and check the
// queue, the time or the priority.
func Resolve(args signalbox.Args, opts ...EnqueueOption) (Plan, error) {
	k, kind, payload, err := marshal(args, nil)
	o, optErr := resolve(k, reservedHeaders, opts)
	if err != nil || optErr != nil {
		return Plan{}, fmt.Errorf("scheduler: resolve: %w", errors.Join(optErr, err))
	}
	job := o.job(o.id, kind, payload)
	job.Headers = o.headers
	plan := Plan{Job: job, At: o.when.At, After: max(o.when.After, 0), IfAbsent: o.cautious, Replace: o.replace}
	if o.isUnique() {
		unique, err := o.uniqueOf(kind, args, payload)
		if err != nil {
			return Plan{}, fmt.Errorf("scheduler: resolve: %w", err)
		}
		plan.UniqueKey, _ = unique.Name()
		plan.UniqueScope = scopeOf(unique)
		if unique.Scope == store.Throttled {
			plan.Throttle = unique.Window
		}
	}
	return plan, nil
}

// reservedHeaders are the headers that only the scheduler sets, with any propagator.
func reservedHeaders() []string {
	return []string{"traceparent", "tracestate", "baggage", telemetry.ModeHeader, telemetry.SinceHeader, store.SequenceHeader}
}
