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

// LockLogKey is the key under which the context of a delivery has its LockLog.
type LockLogKey struct{}

// A LockLog writes the log of a delivery.
type LockLog interface {
	// LockDown logs that the lock service is down and what becomes of the job: called says that its handler is called, without the
	// lock. Else the job is dropped.
	LockDown(called bool, err error)
}

// An Acquire is a call that asks for a lock: its span and its measurement. The zero value records nothing.
type Acquire struct {
	caller context.Context
	ctx    context.Context // with the span
	span   trace.Span      // nil: it isn't traced
	start  time.Time
	asking Asking
	asks   *Asks // it is one of; nil: it is by itself
}

// StartAcquire begins a call. Its span is a child of the one in ctx, with that one's provider.
// Without one there is nothing to tell it to: a lock by itself makes no trace.
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

// End ends the call. token is 0 if none was granted. An error is recorded only if
// the lock service failed: a held lock is none. Of the error there is the type alone.
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

// An ended call is one whose outcome is known.
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

// A lockError is what a failed span says instead of the error, whose message names the key.
type lockError struct {
	text string
	err  error
}

func (e lockError) Error() string { return e.text }

func (e lockError) ErrorType() string {
	if leaf, _ := telling(e.err); leaf == io.EOF { // it is of a client of Redis, whose connection was cut
		return errorConnection
	}
	return ErrorType(e.err)
}

// Asks are the calls that it takes to ask for one lock, one after the other. They make one span and one
// measurement: a call goes on where the one before it found the lock held.
type Asks struct {
	mu   sync.Mutex
	last *ended // which another call may go on from
	over bool
}

type asksKey struct{}

// JoinAsks returns a context for the calls that ask for a lock. The caller must end it.
func JoinAsks(ctx context.Context) (context.Context, *Asks) {
	s := &Asks{}
	return context.WithValue(ctx, asksKey{}, s), s
}

// End is called after the last call. held says that they all came to a held lock, whatever the last one said.
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

// keep reports whether another call may go on from this one.
func (s *Asks) keep(r ended) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.last != nil {
		return false
	}
	s.last = &r
	return true
}

// again returns what a call goes on from, or nil.
func (s *Asks) again() *ended {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	last := s.last
	s.last = nil
	s.mu.Unlock()
	if last != nil && last.outcome != LockHeld { // whoever goes on after a failure begins anew
		last.end(0)
		return nil
	}
	return last
}
