package middleware

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// A TraceOption changes how [Trace] traces.
type TraceOption func(*traceConfig)

type traceConfig struct {
	provider   trace.TracerProvider
	propagator propagation.TextMapPropagator
}

// WithTracerProvider says where spans go. The default is OpenTelemetry's global provider.
// It stays the caller's, to flush and to shut down.
func WithTracerProvider(tp trace.TracerProvider) TraceOption {
	return func(c *traceConfig) { c.provider = tp }
}

// WithPropagator says how the trace context is read from a job's headers. The default is
// OpenTelemetry's global propagator, which reads nothing until the program sets it.
func WithPropagator(p propagation.TextMapPropagator) TraceOption {
	return func(c *traceConfig) { c.propagator = p }
}

// Trace makes two spans for each delivery: "process {queue}", a CONSUMER span whose parent
// is the span that enqueued the job, and in it "handle {kind}", the handler's own, which
// the handler's spans go under. Without a valid trace context in the job's headers
// the first is the root of a new trace.
//
// A failed attempt is recorded as an error on both. A snooze, a cancel and the worker's
// shutdown are none. No payload, header or lock key is in a span.
func Trace(opts ...TraceOption) signalbox.Middleware {
	var c traceConfig
	for _, opt := range opts {
		opt(&c)
	}
	return func(next signalbox.Handler) signalbox.Handler {
		tracer := telemetry.Tracer(c.provider)
		return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
			about := telemetry.Job{
				ID: job.ID, Kind: job.Kind, Queue: job.Queue,
				Attempt: job.Attempt, MaxAttempts: job.MaxAttempts,
				Wait: job.ClaimedAt.Sub(job.ScheduledAt),
			}
			ctx = telemetry.Extract(ctx, telemetry.Propagator(c.propagator), job.Headers)
			ctx, process := telemetry.StartProcess(ctx, tracer, about)
			ctx, handle := telemetry.StartHandle(ctx, tracer, about)

			how, err := panicked, errPanicked // unless the handler returns
			defer func() {
				if how.isFailure() {
					telemetry.Fail(handle, err, errorType(how))
					telemetry.Fail(process, err, errorType(how))
				}
				handle.End()
				process.End()
			}()
			err = next.Handle(ctx, job)
			how = outcomeOf(ctx, err)
			return err
		})
	}
}

// errPanicked stands for a panic on its way to Recover. Its value stays out of the span:
// it may be anything.
var errPanicked = errors.New("handler panicked")

// errorType is the value of error.type, or "" for the type of the Go error.
func errorType(how outcome) string {
	switch how {
	case panicked:
		return telemetry.ErrorPanic
	case timedOut:
		return telemetry.ErrorTimeout
	case lost:
		return telemetry.ErrorLeaseLost
	}
	return ""
}
