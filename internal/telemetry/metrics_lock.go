package telemetry

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// The ways in which a lock is lost.
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

// NewLockMetrics returns metrics for a provider, or for the global one if mp is nil. It is safe for
// concurrent use. Without a provider it costs next to nothing.
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

// An Asking measures how long it takes to ask for a lock. The zero value measures nothing.
type Asking struct {
	metrics *LockMetrics
	start   time.Time
}

// Ask begins the measurement.
func (l *LockMetrics) Ask() Asking {
	if MetricsOff(l.made.provider) {
		return Asking{}
	}
	return Asking{l, time.Now()}
}

// End records the time. outcome is LockAcquired, LockHeld or LockFailed.
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

// LeaseLost counts the loss of such a lease. how is LostExpired or LostTaken.
func (l *LockMetrics) LeaseLost(ctx context.Context, queue, how string) {
	if m := l.made.on(); m != nil {
		m.lost.Add(ctx, 1, l.points.of(point{queue: queue, outcome: how, about: LockOutcome}).add...)
	}
}

// A Holding measures a lock that is held. It is safe for concurrent use. The methods of a nil Holding
// do nothing.
type Holding struct {
	metrics    *LockMetrics
	made       *lockInstruments
	start      time.Time
	unwatch    func() bool
	over, lost atomic.Bool
}

// Hold begins the measurement of a lock whose context is valid. If that context ends first, lost gets
// its cause and returns how the lock was lost, or "" if it was not lost. Without metrics, Hold returns
// nil.
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

// Over records how long the lock was held. Only its first call has an effect.
func (h *Holding) Over() {
	if h == nil || h.over.Swap(true) {
		return
	}
	h.made.held.Record(context.Background(), time.Since(h.start).Seconds(), h.metrics.points.of(point{}).record...)
}

// Released is Over for a lock that is released. Call it before the lock's context ends.
func (h *Holding) Released() {
	if h != nil {
		h.unwatch()
		h.Over()
	}
}

// Lost is Over for a lost lock, and counts the loss once. With "" it does nothing.
func (h *Holding) Lost(how string) {
	if h == nil || how == "" {
		return
	}
	h.Over()
	if !h.lost.Swap(true) {
		h.made.lost.Add(context.Background(), 1, h.metrics.points.of(point{outcome: how, about: LockOutcome}).add...)
	}
}
