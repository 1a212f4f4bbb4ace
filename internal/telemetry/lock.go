package telemetry

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Outcomes of asking for a lock.
const (
	LockAcquired = "acquired"
	LockHeld     = "held"  // by another, when the waiting ended
	LockFailed   = "error" // the lock service didn't answer as it should
)

// Events of named locks, on the span around them.
const (
	EventLockLost        = "signalbox.lock.lost"
	EventLockUnavailable = "signalbox.lock.unavailable"
)

// LockPolicy is what becomes of a job whose lock is unavailable.
const LockPolicy = attribute.Key("signalbox.lock.policy")

// An Acquire is the span of asking for a lock. The zero value records nothing.
type Acquire struct {
	span  trace.Span
	start time.Time
	ctx   context.Context // the caller's
}

// StartAcquire starts the span as a child of the one in ctx, with that one's provider.
// Without one there is nothing to tell it to: a lock by itself makes no trace.
func StartAcquire(ctx context.Context) (context.Context, Acquire) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, Acquire{}
	}
	spanCtx, span := Tracer(parent.TracerProvider()).Start(ctx, nameAcquire,
		trace.WithSpanKind(trace.SpanKindInternal), trace.WithAttributes(semconv.MessagingSystemKey.String(System)))
	return spanCtx, Acquire{span: span, start: time.Now(), ctx: ctx}
}

// A lockError is what a failed span says instead of the error, whose message names the key.
type lockError struct {
	text string
	err  error
}

func (e lockError) Error() string     { return e.text }
func (e lockError) ErrorType() string { return semconv.ErrorType(e.err).Value.AsString() }

// End ends the span. token is 0 if none was granted. An error is recorded only if
// the lock service failed: a held lock is none. Of the error there is the type alone.
func (a Acquire) End(outcome string, token int64, err error) {
	if a.span == nil {
		return
	}
	a.span.SetAttributes(LockOutcome.String(outcome), LockWait.Int64(time.Since(a.start).Milliseconds()))
	if token != 0 {
		a.span.SetAttributes(LockToken.Int64(token))
	}
	if outcome == LockFailed {
		text := "the lock service failed"
		if ended := a.ctx.Err(); ended != nil && errors.Is(err, ended) {
			text = "the context ended before the lock service answered"
		}
		Fail(a.span, lockError{text, err}, "")
	}
	a.span.End()
}
