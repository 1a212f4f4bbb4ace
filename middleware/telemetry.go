package middleware

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/lock"
)

// A TraceOption changes how [Trace] traces.
type TraceOption func(*telemetry.TraceConfig)

// DefaultParentFor is the default of [WithParentFor]: 15 minutes. In mode [signalbox.TraceAuto], a delivery that
// begins within this time after its job was enqueued is part of the trace of the enqueuer. If a handler enqueued the
// job, the time counts from the first job in that trace.
const DefaultParentFor = 15 * time.Minute

// WithTracerProvider sets the provider of the spans. The default is OpenTelemetry's global provider. The caller
// still has to flush it and to shut it down.
func WithTracerProvider(tp trace.TracerProvider) TraceOption {
	return func(c *telemetry.TraceConfig) { c.Provider = tp }
}

// WithPropagator sets how the trace context is read from a job's headers. The default is OpenTelemetry's global
// propagator, which reads nothing until the program sets it.
func WithPropagator(p propagation.TextMapPropagator) TraceOption {
	return func(c *telemetry.TraceConfig) { c.Propagator = p }
}

// WithTraceMode sets how deliveries are connected with the span that enqueued the job. A job's own mode overrides
// it. The default is [signalbox.TraceAuto].
func WithTraceMode(m signalbox.TraceMode) TraceOption {
	return func(c *telemetry.TraceConfig) { c.Mode = m.String() }
}

// WithParentFor replaces [DefaultParentFor]. With 0 or less a delivery is never part of the enqueuer's trace.
func WithParentFor(d time.Duration) TraceOption {
	return func(c *telemetry.TraceConfig) { c.ParentFor = d }
}

// Trace makes the spans of a delivery. A worker runs it around every handler by itself, with the global provider
// unless its Config has another. In a delivery that is traced already it does nothing.
//
// "process {queue}", a CONSUMER span, is the delivery from its claim until Redis has confirmed how it ended. It is a
// child of the span that enqueued the job, or linked to it, as [signalbox.TraceMode] says. It is also linked to the
// span of the attempt before it. Without a valid trace context in the job's headers it is the root of a new trace.
// It has two children: "handle {kind}", the parent of the handler's own spans, and a CLIENT span "ack", "retry",
// "snooze" or "dead_letter" for the settlement. Outside of a worker there is only "process", until the handler
// returns.
//
// A failed attempt is recorded as an error. A snooze, a cancel and the worker's shutdown are no errors. No payload,
// header or lock key is in a span, with one exception: the error's message is recorded as the handler returned it,
// and the error of a named lock that couldn't be had names the key.
func Trace(opts ...TraceOption) signalbox.Middleware {
	c := telemetry.TraceConfig{ParentFor: DefaultParentFor, Mode: signalbox.TraceAuto.String()}
	for _, opt := range opts {
		opt(&c)
	}
	return func(next signalbox.Handler) signalbox.Handler {
		t := &tracer{TraceConfig: c, spans: telemetry.NewMessaging(c.Provider, c.Who), next: next}
		return signalbox.HandlerFunc(t.handle)
	}
}

type tracer struct {
	telemetry.TraceConfig
	spans *telemetry.Messaging
	next  signalbox.Handler
}

func (t *tracer) handle(ctx context.Context, job *signalbox.Job) error {
	silent := telemetry.Silent(t.Provider)
	if silent && len(job.Headers) == 0 {
		return t.next.Handle(ctx, job)
	}
	delivery := telemetry.DeliveryFrom(ctx)
	if delivery.Traced() {
		return t.next.Handle(ctx, job)
	}
	since := telemetry.Since(job.Headers, job.EnqueuedAt)
	ctx, links := telemetry.Creator(ctx, telemetry.Propagator(t.Propagator), job.Headers,
		t.Mode, t.ParentFor > 0 && job.ClaimedAt.Sub(since) <= t.ParentFor)
	creator := trace.SpanContextFromContext(ctx)
	if silent { // the handler may still pass the trace context on
		if creator.IsValid() {
			ctx = telemetry.ContextWithSince(ctx, &telemetry.TraceSince{Trace: creator.TraceID(), At: since})
		}
		return t.next.Handle(ctx, job)
	}
	if delivery != nil && delivery.Previous.IsValid() {
		links = append(links, trace.Link{SpanContext: delivery.Previous})
	}
	d := &tracedDelivery{delivery: delivery, job: telemetry.Job{
		ID: job.ID, Kind: job.Kind, Queue: job.Queue, Attempt: job.Attempt, MaxAttempts: job.MaxAttempts,
	}}
	d.spans = t.spans.Delivery(&d.job, job.Token, job.ClaimedAt.Sub(job.ScheduledAt))
	d.ctx, d.process = d.spans.StartProcess(ctx, links)
	d.since = telemetry.TraceSince{Trace: d.process.SpanContext().TraceID(), At: since}
	if !creator.IsValid() {
		d.since.At = job.ClaimedAt
	}
	ctx = telemetry.ContextWithSince(d.ctx, &d.since)
	if delivery != nil {
		delivery.Trace(d.process.SpanContext(), d)
	}
	settled := signalbox.OnSettled(ctx, d.settled)
	how, err := panicked, errPanicked // if the handler doesn't return
	defer func() {
		fail(d.process, how, err)
		if !settled { // not called by a worker
			d.process.End()
		}
	}()
	err = t.next.Handle(ctx, job)
	how = outcomeOf(ctx, err)
	return err
}

// A tracedDelivery makes the spans below the process span of a delivery. It ends the process span when the delivery
// is settled.
type tracedDelivery struct {
	delivery *telemetry.Delivery // nil outside of a worker
	ctx      context.Context     // with the process span
	job      telemetry.Job
	since    telemetry.TraceSince
	spans    telemetry.DeliverySpans
	process  trace.Span
}

func (d *tracedDelivery) Handle(ctx context.Context) (context.Context, func(error)) {
	ctx, handle := d.spans.StartHandle(ctx)
	return ctx, func(err error) {
		how := panicked
		if err != telemetry.ErrPanicked {
			if how = outcomeOf(ctx, err); how == shutdown {
				how = outcomeOf(d.ctx, err) // a middleware may have ended ctx in the same way as the worker would
			}
		}
		fail(handle, how, err)
		handle.End()
	}
}

// settled makes the span of the settlement, and ends the span of the delivery.
func (d *tracedDelivery) settled(s signalbox.Settled) {
	d.delivery.Tell(func(event string, at time.Time) { d.process.AddEvent(event, trace.WithTimestamp(at)) })
	asked := s.Asked
	if s.Outcome == signalbox.OutcomeCancelled { // while it ran, whatever was asked
		asked = s.Outcome
	}
	settle := d.spans.StartSettle(d.ctx, string(asked), s.Returned, s.Next)
	switch s.Outcome {
	case signalbox.OutcomeSuperseded:
		d.process.AddEvent(telemetry.EventRejected)
		telemetry.Fail(settle, errSuperseded, telemetry.ErrorLeaseLost)
	case signalbox.OutcomeUnknown:
		telemetry.Fail(settle, errUnsettled, telemetry.ErrorUnsettled)
	}
	settle.End()
	d.process.End()
}

// Failures of a delivery that are not errors of its handler.
var (
	errPanicked   = telemetry.ErrPanicked
	errSuperseded = errors.New("the job has been taken over by another delivery")
	errUnsettled  = errors.New("nobody knows whether Redis was told how it ended; the job may run again")
)

// fail records the error of a failed attempt.
func fail(span trace.Span, how outcome, err error) {
	if !how.isFailure() {
		return
	}
	if how == panicked || is[*signalbox.PanicError](err) { // even if the lease was lost before
		err = errPanicked
	}
	telemetry.Fail(span, err, errorType(how, err))
}

// errorType returns the value of error.type for a failure.
func errorType(how outcome, err error) string {
	switch how {
	case panicked:
		return telemetry.ErrorPanic
	case timedOut:
		return telemetry.ErrorTimeout
	case lost:
		return telemetry.ErrorLeaseLost
	}
	if isHeld(err) {
		return telemetry.ErrorLockHeld
	}
	return telemetry.ErrorType(err)
}

// isHeld reports whether another client held the lock. If a method of the error panics, it returns false.
func isHeld(err error) bool {
	defer func() { _ = recover() }()
	return errors.Is(err, lock.ErrHeld)
}

// A MetricsOption changes how [Metrics] measures.
type MetricsOption func(*telemetry.MetricsConfig)

// WithMeterProvider sets the provider of the metrics. The default is OpenTelemetry's global
// provider. The caller still has to flush it and to shut it down.
func WithMeterProvider(mp metric.MeterProvider) MetricsOption {
	return func(c *telemetry.MetricsConfig) { c.Provider = mp }
}

// Metrics measures deliveries. A worker runs it around every handler by itself, with the global
// provider unless its Config has another. In a delivery that is measured already it does
// nothing.
//
// It counts
//
//   - deliveries: messaging.client.consumed.messages
//   - how they ended: signalbox.jobs.settled, signalbox.fence.rejected
//   - handlers that run: signalbox.worker.active
//
// It measures how long
//
//   - jobs waited since they were due: signalbox.job.wait.duration
//   - a delivery took until Redis had confirmed how it ended: messaging.process.duration
//   - that confirmation took from the handler's return: messaging.client.operation.duration
//
// Outside of a worker there is no settlement: a delivery ends with its handler.
//
// The attributes are the queue, the kind, the outcome, the server and error.type, as on the
// spans of [Trace]. No ID, payload, header or lock key is in a metric.
func Metrics(opts ...MetricsOption) signalbox.Middleware {
	var c telemetry.MetricsConfig
	for _, opt := range opts {
		opt(&c)
	}
	metrics := telemetry.NewConsumerMetrics(c.Provider, c.Who)
	return func(next signalbox.Handler) signalbox.Handler {
		return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
			if telemetry.MetricsSilent(c.Provider) {
				return next.Handle(ctx, job)
			}
			kind := job.Kind
			if c.Others {
				kind = telemetry.KindOther
			}
			return measure(ctx, metrics, kind, next, job)
		})
	}
}

// measuredKey is the context key that marks a delivery as measured.
type measuredKey struct{}

func measure(ctx context.Context, metrics *telemetry.ConsumerMetrics, kind string, next signalbox.Handler, job *signalbox.Job) error {
	if ctx.Value(measuredKey{}) != nil {
		return next.Handle(ctx, job)
	}
	p := metrics.Start(ctx, job.Queue, kind, job.ClaimedAt.Sub(job.ScheduledAt))
	how, err := panicked, errPanicked // if the handler doesn't return
	defer func() {
		p.Returned()
		failure := ""
		if how.isFailure() {
			failure = errorType(how, err)
		}
		settled := signalbox.OnSettled(ctx, func(s signalbox.Settled) {
			p.Settled(string(s.Asked), string(s.Outcome), s.Ended.Sub(s.Returned))
			p.Ended(failure)
		})
		if !settled { // not called by a worker
			p.Ended(failure)
		}
	}()
	err = next.Handle(context.WithValue(ctx, measuredKey{}, true), job)
	how = outcomeOf(ctx, err)
	return err
}
