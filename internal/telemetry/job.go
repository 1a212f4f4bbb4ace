package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// A Job is what a span tells about a job.
type Job struct {
	ID, Kind, Queue string
	Attempt         int // 0 before the first delivery
	MaxAttempts     int
}

// Who sends or receives: what is the same on all of its messaging spans.
type Who struct {
	Address  string // of the Redis server, or the path of its socket; empty: unknown
	Port     int    // 0: it has none
	ClientID string // of a worker; else empty
}

// Messaging makes the spans of messaging operations.
type Messaging struct {
	tracer trace.Tracer
	common []attribute.KeyValue
}

// NewMessaging returns the spans of who, made by a provider, or by the global one if it is nil.
func NewMessaging(tp trace.TracerProvider, who Who) *Messaging {
	m := &Messaging{tracer: Tracer(tp), common: []attribute.KeyValue{semconv.MessagingSystemKey.String(System)}}
	if who.Address != "" {
		m.common = append(m.common, semconv.ServerAddress(who.Address))
	}
	if who.Port != 0 {
		m.common = append(m.common, semconv.ServerPort(who.Port))
	}
	if who.ClientID != "" {
		m.common = append(m.common, semconv.MessagingClientID(who.ClientID))
	}
	m.common = m.common[:len(m.common):len(m.common)]
	return m
}

// operation are the attributes of an operation on a queue, with room for n more.
func (m *Messaging) operation(op string, opType attribute.KeyValue, queue string, n int) []attribute.KeyValue {
	kv := make([]attribute.KeyValue, 0, len(m.common)+3+n)
	kv = append(kv, m.common...)
	return append(kv, semconv.MessagingOperationName(op), opType, semconv.MessagingDestinationName(queue))
}

func (m *Messaging) start(ctx context.Context, op string, opType attribute.KeyValue, kind trace.SpanKind, j *Job,
	links []trace.Link, more ...attribute.KeyValue,
) (context.Context, trace.Span) {
	kv := append(m.about(op, opType, j, len(more)), more...)
	opts := make([]trace.SpanStartOption, 0, 4)
	opts = append(opts, trace.WithSpanKind(kind), trace.WithAttributes(kv...))
	if len(links) > 0 {
		opts = append(opts, trace.WithLinks(links...))
	}
	return m.tracer.Start(ctx, op+" "+j.Queue, opts...)
}

func (m *Messaging) about(op string, opType attribute.KeyValue, j *Job, n int) []attribute.KeyValue {
	kv := m.operation(op, opType, j.Queue, n+4)
	kv = append(kv, semconv.MessagingMessageID(j.ID))
	if j.Kind != "" { // else its record can't be read
		kv = append(kv, JobKind.String(j.Kind), JobMaxAttempts.Int(j.MaxAttempts))
	}
	if j.Attempt > 0 {
		kv = append(kv, JobAttempt.Int(j.Attempt))
	}
	return kv
}

// StartEnqueue starts the producer's span of one job. Its context goes into the job's
// headers by [Inject].
func (m *Messaging) StartEnqueue(ctx context.Context, j Job) (context.Context, trace.Span) {
	return m.start(ctx, opEnqueue, semconv.MessagingOperationTypeSend, trace.SpanKindProducer, &j, nil)
}

// StartCreate starts the producer's span of one job of a bulk. Its context goes into the
// job's headers.
func (m *Messaging) StartCreate(ctx context.Context, j Job) (context.Context, trace.Span) {
	return m.start(ctx, opCreate, semconv.MessagingOperationTypeCreate, trace.SpanKindProducer, &j, nil)
}

// StartSend starts the span of sending n jobs that were created to a queue, with links to their
// creations.
func (m *Messaging) StartSend(ctx context.Context, queue string, n int, created []trace.Link) (context.Context, trace.Span) {
	kv := append(m.operation(opEnqueue, semconv.MessagingOperationTypeSend, queue, 1), semconv.MessagingBatchMessageCount(n))
	return m.tracer.Start(ctx, opEnqueue+" "+queue,
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(kv...), trace.WithLinks(created...))
}

// StartProcess starts the consumer's span of one delivery. Without a parent in ctx it is a root.
func (m *Messaging) StartProcess(ctx context.Context, j Job, token int64, wait time.Duration, links []trace.Link) (context.Context, trace.Span) {
	return m.start(ctx, opProcess, semconv.MessagingOperationTypeProcess, trace.SpanKindConsumer, &j, links,
		JobWait.Int64(wait.Milliseconds()), LockToken.Int64(token))
}

// StartHandle starts the span that a handler runs under, a child of the process span.
func (m *Messaging) StartHandle(ctx context.Context, j Job) (context.Context, trace.Span) {
	return m.tracer.Start(ctx, nameHandle+" "+j.Kind, trace.WithSpanKind(trace.SpanKindInternal),
		trace.WithAttributes(m.about(opProcess, semconv.MessagingOperationTypeProcess, &j, 0)...))
}

// StartSettle starts the span of telling Redis how a delivery ended, a child of the process
// span. next is when the job runs again; the zero time: not, or at once.
func (m *Messaging) StartSettle(ctx context.Context, s Settle, j Job, next time.Time) trace.Span {
	more := []attribute.KeyValue{JobOutcome.String(string(s)), {}}[:1]
	if !next.IsZero() {
		more = append(more, JobNextRun.String(next.UTC().Format(time.RFC3339Nano)))
	}
	_, span := m.start(ctx, s.operation(), semconv.MessagingOperationTypeSettle, trace.SpanKindClient, &j, nil, more...)
	return span
}

// StartReclaim starts the span of taking a job back from a worker that died or lost its lease.
func (m *Messaging) StartReclaim(ctx context.Context, j Job, links []trace.Link) trace.Span {
	_, span := m.start(ctx, opReclaim, semconv.MessagingOperationTypeSettle, trace.SpanKindClient, &j, links)
	return span
}

// A Settle is how a delivery ends, as spans and metrics tell it.
type Settle string

// The ways.
const (
	SettleCompleted Settle = "completed"
	SettleRetried   Settle = "retried"
	SettleSnoozed   Settle = "snoozed"
	SettleReturned  Settle = "returned" // by a worker that stops, or has no handler for it
	SettleDead      Settle = "dead"
	SettleCancelled Settle = "cancelled"
)

// operation is the name of the messaging operation.
func (s Settle) operation() string {
	switch s {
	case SettleRetried:
		return "retry"
	case SettleSnoozed, SettleReturned:
		return "snooze"
	case SettleDead, SettleCancelled:
		return "dead_letter"
	}
	return "ack"
}

// Fail marks a span as failed. errorType has few values; if it is "", the type of the
// Go error stands for it.
func Fail(span trace.Span, err error, errorType string) {
	kind := semconv.ErrorTypeKey.String(errorType)
	if errorType == "" {
		kind = semconv.ErrorType(err)
	}
	span.SetAttributes(kind)
	span.RecordError(err)
	span.SetStatus(codes.Error, err.Error())
}
