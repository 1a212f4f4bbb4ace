package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// A Job has the data of a job that spans show.
type Job struct {
	ID, Kind, Queue string
	Attempt         int // 0 before the first delivery
	MaxAttempts     int
}

// Who is the sender or receiver: the attributes that are the same on all of its messaging spans.
type Who struct {
	Address  string // of the Redis server, or the path of its socket; "": unknown
	Port     int    // 0: none
	ClientID string // of a worker; "" otherwise
}

// Messaging makes the spans of messaging operations.
type Messaging struct {
	tracer trace.Tracer
	common []attribute.KeyValue
}

// NewMessaging returns a maker of spans for who, with the provider tp, or the global one if tp is nil.
func NewMessaging(tp trace.TracerProvider, who Who) *Messaging {
	m := &Messaging{tracer: tracerOf(tp), common: []attribute.KeyValue{semconv.MessagingSystemKey.String(system)}}
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

// operation returns the attributes of an operation on a queue, with room for n more.
func (m *Messaging) operation(op string, opType attribute.KeyValue, queue string, n int) []attribute.KeyValue {
	kv := make([]attribute.KeyValue, 0, len(m.common)+3+n)
	kv = append(kv, m.common...)
	return append(kv, semconv.MessagingOperationName(op), opType, semconv.MessagingDestinationName(queue))
}

func (m *Messaging) start(ctx context.Context, op string, opType attribute.KeyValue, kind trace.SpanKind, j *Job) (context.Context, trace.Span) {
	return m.tracer.Start(ctx, op+" "+j.Queue, trace.WithSpanKind(kind), trace.WithAttributes(m.about(op, opType, j, 0)...))
}

func (m *Messaging) about(op string, opType attribute.KeyValue, j *Job, n int) []attribute.KeyValue {
	return appendJob(m.operation(op, opType, j.Queue, n+4), j)
}

// appendJob appends the attributes of a job, four at most.
func appendJob(kv []attribute.KeyValue, j *Job) []attribute.KeyValue {
	kv = append(kv, semconv.MessagingMessageID(clean(j.ID)))
	if j.Kind != "" { // "": the job's record can't be read
		kv = append(kv, jobKind.String(clean(j.Kind)), jobMaxAttempts.Int(j.MaxAttempts))
	}
	if j.Attempt > 0 {
		kv = append(kv, jobAttempt.Int(j.Attempt))
	}
	return kv
}

// StartEnqueue starts the producer's span of one job. [Inject] puts the span's context into the job's headers.
func (m *Messaging) StartEnqueue(ctx context.Context, j Job) (context.Context, trace.Span) {
	return m.start(ctx, opEnqueue, semconv.MessagingOperationTypeSend, trace.SpanKindProducer, &j)
}

// StartCreate starts the producer's span of one job of a bulk. The span's context goes into the job's headers.
func (m *Messaging) StartCreate(ctx context.Context, j Job) (context.Context, trace.Span) {
	return m.start(ctx, opCreate, semconv.MessagingOperationTypeCreate, trace.SpanKindProducer, &j)
}

// StartSend starts the span of sending n jobs of a bulk to a queue. It has links to the spans of StartCreate.
func (m *Messaging) StartSend(ctx context.Context, queue string, n int, created []trace.Link) (context.Context, trace.Span) {
	kv := append(m.operation(opEnqueue, semconv.MessagingOperationTypeSend, queue, 1), semconv.MessagingBatchMessageCount(n))
	return m.tracer.Start(ctx, opEnqueue+" "+queue,
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(kv...), trace.WithLinks(created...))
}

// A DeliverySpans makes the spans of one delivery, one after the other.
type DeliverySpans struct {
	m   *Messaging
	job *Job
	// The attributes of all spans in one slice, so that those of each span are adjacent: wait and token of the process
	// span, its operation, those of the job, then those of the settlement. A part that was passed to a tracer is not
	// changed any more.
	kv  []attribute.KeyValue
	end int // end of the job's attributes
}

// Indices in DeliverySpans.kv.
const (
	kvOperation = 2
	kvJob       = 4
	kvSettle    = 4 // operation, its type, outcome, next run
)

// Delivery returns the spans of a delivery of the job.
func (m *Messaging) Delivery(j *Job, token int64, wait time.Duration) DeliverySpans {
	kv := make([]attribute.KeyValue, kvJob, kvJob+len(m.common)+5+kvSettle)
	kv[0], kv[1] = jobWaitTime.Int64(wait.Milliseconds()), lockToken.Int64(token)
	kv[kvOperation], kv[kvOperation+1] = semconv.MessagingOperationName(opProcess), semconv.MessagingOperationTypeProcess
	kv = append(kv, m.common...)
	kv = appendJob(append(kv, semconv.MessagingDestinationName(j.Queue)), j)
	return DeliverySpans{m: m, job: j, kv: kv, end: len(kv)}
}

// StartProcess starts the consumer's span. Without a parent in ctx it is a root.
func (d *DeliverySpans) StartProcess(ctx context.Context, links []trace.Link) (context.Context, trace.Span) {
	if len(links) > 0 {
		return d.m.tracer.Start(ctx, opProcess+" "+d.job.Queue, consumer, attributes(d.kv[:d.end]), trace.WithLinks(links...))
	}
	return d.m.tracer.Start(ctx, opProcess+" "+d.job.Queue, consumer, attributes(d.kv[:d.end]))
}

// StartHandle starts the span of the handler, a child of the process span.
func (d *DeliverySpans) StartHandle(ctx context.Context) (context.Context, trace.Span) {
	return d.m.tracer.Start(ctx, nameHandle+" "+d.job.Kind, internal, attributes(d.kv[kvOperation:d.end]))
}

// StartMany starts the span of a call that handles n jobs of one kind. It is a root, linked with the handlers' spans of its deliveries.
func (m *Messaging) StartMany(ctx context.Context, queue, kind string, n int, links []trace.Link) (context.Context, trace.Span) {
	kv := append(m.operation(opProcess, semconv.MessagingOperationTypeProcess, queue, 1), semconv.MessagingBatchMessageCount(n), jobKind.String(clean(kind)))
	return m.tracer.Start(ctx, nameHandleMany+" "+kind, internal, attributes(kv), trace.WithLinks(links...), trace.WithNewRoot())
}

// StartSettle starts the span of the settlement, with began as its start time. It is a child of the process span. asked
// is the signalbox.Outcome that Redis is asked for. next is when the job runs again. It is zero if the job doesn't, or
// runs again at once.
func (d *DeliverySpans) StartSettle(ctx context.Context, asked string, began, next time.Time) trace.Span {
	op := settleOperation(asked)
	kv := append(d.kv[:d.end], semconv.MessagingOperationName(op), semconv.MessagingOperationTypeSettle, jobOutcome.String(asked))
	if !next.IsZero() {
		kv = append(kv, jobNextRun.String(next.UTC().Format(time.RFC3339Nano)))
	}
	_, span := d.m.tracer.Start(ctx, op+" "+d.job.Queue, client, attributes(kv[kvJob:]), trace.WithTimestamp(began))
	return span
}

// The kinds of spans as options of a tracer.
var (
	consumer = trace.WithSpanKind(trace.SpanKindConsumer)
	internal = trace.WithSpanKind(trace.SpanKindInternal)
	client   = trace.WithSpanKind(trace.SpanKindClient)
)

// attributes returns an option for a tracer. Don't append to kv afterwards.
func attributes(kv []attribute.KeyValue) trace.SpanStartOption {
	return trace.WithAttributes(kv[:len(kv):len(kv)]...)
}

// StartReclaim starts the span of taking a job back from a worker that died or lost its lease, with began as its start
// time. outcome is a signalbox.Outcome: returned, or dead after too many crashes.
func (m *Messaging) StartReclaim(ctx context.Context, j Job, outcome string, links []trace.Link, began time.Time) trace.Span {
	kv := append(m.about(opReclaim, semconv.MessagingOperationTypeSettle, &j, 1), jobOutcome.String(outcome))
	_, span := m.tracer.Start(ctx, opReclaim+" "+j.Queue, client, attributes(kv), trace.WithLinks(links...), trace.WithTimestamp(began))
	return span
}

// How a delivery ended: the values of signalbox.Outcome. This package can't import the root package, because package
// lock imports this one. A test compares the values.
const (
	settleRetried    = "retried"
	settleSnoozed    = "snoozed"
	settleReturned   = "returned"
	settleDead       = "dead"
	settleCancelled  = "cancelled"
	settleSuperseded = "superseded"
	settleUnknown    = "unknown"
)

// settleExpired is what became of a job that had not started in time. It is the end of no delivery.
const settleExpired = "expired"

// settleOperation is the name of the messaging operation that asks for an outcome.
func settleOperation(outcome string) string {
	switch outcome {
	case settleRetried:
		return "retry"
	case settleSnoozed, settleReturned:
		return "snooze"
	case settleDead, settleCancelled:
		return "dead_letter"
	}
	return "ack"
}

// Fail marks a span as failed. errorType must have few values. If it is "", [ErrorType] of err is used.
func Fail(span trace.Span, err error, errorType string) {
	kind := ErrorType(err)
	if errorType == "" {
		errorType = kind
	}
	text := errorText(err)
	span.SetAttributes(semconv.ErrorTypeKey.String(errorType))
	span.AddEvent(semconv.ExceptionEventName, trace.WithAttributes(semconv.ExceptionType(kind), semconv.ExceptionMessage(text)))
	span.SetStatus(codes.Error, text)
}
