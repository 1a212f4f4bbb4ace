package telemetry

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Outcomes of a call that asks for a lock.
const (
	LockAcquired = "acquired"
	LockHeld     = "held"  // by another client when the wait ended
	LockFailed   = "error" // the lock service failed
)

// Events of named locks, on the span around them.
const (
	EventLockLost        = "signalbox.lock.lost"
	EventLockUnavailable = "signalbox.lock.unavailable"
)

// LockPolicy is the attribute that says what becomes of a job whose lock is unavailable.
const LockPolicy = attribute.Key("signalbox.lock.policy")

// LockLogKey is the context key of the delivery's LockLog.
type LockLogKey struct{}

// A LockLog writes the log of a delivery.
type LockLog interface {
	// LockDown logs that the lock service is down and what becomes of the job. If called is true, its handler is called
	// without the lock. Otherwise the job is dropped.
	LockDown(called bool, err error)
}

// An Acquire is a call that asks for a lock, with its span and its measurement. The zero value records nothing.
type Acquire struct {
	caller context.Context
	ctx    context.Context // with the span
	span   trace.Span      // nil: not traced
	start  time.Time
	asking Asking
	asks   *Asks // nil: the call is not part of an Asks
}

// StartAcquire begins a call. Its span is a child of the span in ctx, and is made by the same provider. Without a span
// in ctx there is none: a lock by itself begins no trace.
func StartAcquire(ctx context.Context, m *LockMetrics) (context.Context, Acquire) {
	parent, a := trace.SpanFromContext(ctx), Acquire{caller: ctx, ctx: ctx, asking: m.Ask()}
	traced := parent.IsRecording()
	if !traced && a.asking.metrics == nil {
		return ctx, Acquire{}
	}
	a.asks, _ = ctx.Value(asksKey{}).(*Asks)
	if before := a.asks.again(); before != nil {
		a.span, a.start, a.asking = before.span, before.start, before.asking
		if a.span != nil {
			a.ctx = trace.ContextWithSpan(ctx, a.span)
		}
		return a.ctx, a
	}
	if a.start = time.Now(); traced {
		a.ctx, a.span = tracerOf(parent.TracerProvider()).Start(ctx, nameAcquire,
			trace.WithSpanKind(trace.SpanKindInternal), trace.WithAttributes(semconv.MessagingSystemKey.String(system)))
	}
	return a.ctx, a
}

// End ends the call. token is 0 if no lock was granted. An error is recorded only if the lock service failed, and only
// with its type. A held lock is not an error.
func (a Acquire) End(outcome string, token int64, err error) {
	if a.caller == nil {
		return
	}
	r := ended{Acquire: a, outcome: outcome}
	if outcome == LockFailed {
		r.failure = lockError{"the lock service failed", err}
		if over := a.caller.Err(); over != nil && errors.Is(err, over) {
			r.failure.text = "the context ended before the lock service answered"
		}
	}
	if outcome != LockAcquired && a.asks != nil && a.asks.keep(r) {
		return
	}
	r.end(token)
}

// An ended call has an outcome.
type ended struct {
	Acquire
	outcome string
	failure lockError
}

func (r *ended) end(token int64) {
	r.asking.End(r.ctx, r.outcome)
	if r.span == nil {
		return
	}
	r.span.SetAttributes(LockOutcome.String(r.outcome), lockWait.Int64(time.Since(r.start).Milliseconds()))
	if token != 0 {
		r.span.SetAttributes(lockToken.Int64(token))
	}
	if r.outcome == LockFailed {
		Fail(r.span, r.failure, "")
	}
	r.span.End()
}

// A lockError replaces the error on a failed span, since the error's message names the key.
type lockError struct {
	text string
	err  error
}

func (e lockError) Error() string { return e.text }

func (e lockError) ErrorType() string {
	if leaf, _ := telling(e.err); leaf == io.EOF { // from a Redis client whose connection was cut
		return errorConnection
	}
	return ErrorType(e.err)
}

// Asks are several calls for one lock, one after the other, that make one span and one measurement. If a call finds the
// lock held, the next call continues its span.
type Asks struct {
	mu   sync.Mutex
	last *ended // the next call may continue it
	over bool
}

type asksKey struct{}

// JoinAsks returns a context for calls that ask for the same lock, and their Asks. The caller must call its End.
func JoinAsks(ctx context.Context) (context.Context, *Asks) {
	s := &Asks{}
	return context.WithValue(ctx, asksKey{}, s), s
}

// End is called after the last call. held means that the outcome is "held", whatever the last call returned.
func (s *Asks) End(held bool) {
	s.mu.Lock()
	last := s.last
	s.last, s.over = nil, true
	s.mu.Unlock()
	if last == nil {
		return
	}
	if held {
		last.outcome = LockHeld
	}
	last.end(0)
}

// keep stores r, and reports whether the next call may continue it.
func (s *Asks) keep(r ended) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.last != nil {
		return false
	}
	s.last = &r
	return true
}

// again returns the call that the next one continues, or nil.
func (s *Asks) again() *ended {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	last := s.last
	s.last = nil
	s.mu.Unlock()
	if last != nil && last.outcome != LockHeld { // after a failure the next call begins a new span
		last.end(0)
		return nil
	}
	return last
}
