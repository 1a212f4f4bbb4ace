package telemetry

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// How a lock was lost.
const (
	LostExpired = "expired"
	LostTaken   = "taken"
)

// LockMetrics measure locks.
type LockMetrics struct {
	points points
	made   instruments[lockInstruments]
}

type lockInstruments struct {
	acquire  metric.Float64Histogram
	held     metric.Float64Histogram
	renewals metric.Int64Counter
	lost     metric.Int64Counter
}

// NewLockMetrics returns what measures for a provider, or the global one if it is nil. It is
// safe for concurrent use, and costs next to nothing while there is none.
func NewLockMetrics(mp metric.MeterProvider) *LockMetrics {
	l := &LockMetrics{}
	l.made.provider = mp
	l.made.build = func(m metric.Meter) *lockInstruments {
		return &lockInstruments{
			acquire:  histogram(m, lockAcquire),
			held:     histogram(m, lockHeld),
			renewals: counter(m, lockRenewals),
			lost:     counter(m, lockLost),
		}
	}
	return l
}

// An Asking is the time that asking for a lock takes. The zero value measures nothing.
type Asking struct {
	metrics *LockMetrics
	start   time.Time
}

// Ask begins it.
func (l *LockMetrics) Ask() Asking {
	if MetricsOff(l.made.provider) {
		return Asking{}
	}
	return Asking{l, time.Now()}
}

// End records it. outcome is LockAcquired, LockHeld or LockFailed.
func (a Asking) End(ctx context.Context, outcome string) {
	if a.metrics == nil {
		return
	}
	if m := a.metrics.made.on(); m != nil {
		m.acquire.Record(ctx, time.Since(a.start).Seconds(), a.metrics.points.of(point{outcome: outcome, about: LockOutcome}).record...)
	}
}

// LeaseRenewed counts a renewal of the lease that a worker has on the jobs of a queue.
func (l *LockMetrics) LeaseRenewed(ctx context.Context, queue string) {
	if m := l.made.on(); m != nil {
		m.renewals.Add(ctx, 1, l.points.of(point{queue: queue}).add...)
	}
}

// LeaseLost counts such a lease as lost. how is LostExpired or LostTaken.
func (l *LockMetrics) LeaseLost(ctx context.Context, queue, how string) {
	if m := l.made.on(); m != nil {
		m.lost.Add(ctx, 1, l.points.of(point{queue: queue, outcome: how, about: LockOutcome}).add...)
	}
}

// A Holding is a lock that is held. It is safe for concurrent use. The methods of a nil one do nothing.
type Holding struct {
	metrics    *LockMetrics
	made       *lockInstruments
	start      time.Time
	unwatch    func() bool
	over, lost atomic.Bool
}

// Hold begins it, for a lock whose context is valid. When that ends first, lost tells from its
// cause how the lock was lost; "": it was not. It returns nil if nobody measures.
func (l *LockMetrics) Hold(valid context.Context, lost func(cause error) string) *Holding {
	m := l.made.on()
	if m == nil {
		return nil
	}
	h := &Holding{metrics: l, made: m, start: time.Now()}
	h.unwatch = context.AfterFunc(valid, func() {
		h.Lost(lost(context.Cause(valid)))
	})
	return h
}

// Renewed counts a renewal.
func (h *Holding) Renewed() {
	if h != nil {
		h.made.renewals.Add(context.Background(), 1, h.metrics.points.of(point{}).add...)
	}
}

// Over records for how long the lock was held, once.
func (h *Holding) Over() {
	if h == nil || h.over.Swap(true) {
		return
	}
	h.made.held.Record(context.Background(), time.Since(h.start).Seconds(), h.metrics.points.of(point{}).record...)
}

// Released is Over, before the lock's context ends.
func (h *Holding) Released() {
	if h != nil {
		h.unwatch()
		h.Over()
	}
}

// Lost is Over, and counts the lock as lost, once. With "" it does nothing.
func (h *Holding) Lost(how string) {
	if h == nil || how == "" {
		return
	}
	h.Over()
	if !h.lost.Swap(true) {
		h.made.lost.Add(context.Background(), 1, h.metrics.points.of(point{outcome: how, about: LockOutcome}).add...)
	}
}
