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
	Wait            time.Duration // from due to claimed; of a delivery only
}

func (j Job) attributes(op string, opType attribute.KeyValue) trace.SpanStartEventOption {
	kv := make([]attribute.KeyValue, 0, 9)
	kv = append(kv,
		semconv.MessagingSystemKey.String(System),
		semconv.MessagingOperationName(op),
		opType,
		semconv.MessagingDestinationName(j.Queue),
		semconv.MessagingMessageID(j.ID),
		JobKind.String(j.Kind),
		JobMaxAttempts.Int(j.MaxAttempts),
	)
	if j.Attempt > 0 {
		kv = append(kv, JobAttempt.Int(j.Attempt), JobWait.Int64(j.Wait.Milliseconds()))
	}
	return trace.WithAttributes(kv...)
}

// StartEnqueue starts the producer's span of one job. Its context goes into the job's
// headers by [Inject].
func StartEnqueue(ctx context.Context, t trace.Tracer, j Job) (context.Context, trace.Span) {
	return t.Start(ctx, opEnqueue+" "+j.Queue,
		trace.WithSpanKind(trace.SpanKindProducer), j.attributes(opEnqueue, semconv.MessagingOperationTypeSend))
}

// StartProcess starts the consumer's span of one delivery. ctx comes from [Extract]; with
// no creator in it the span is a root.
func StartProcess(ctx context.Context, t trace.Tracer, j Job) (context.Context, trace.Span) {
	opts := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer), j.attributes(opProcess, semconv.MessagingOperationTypeProcess),
	}
	if !trace.SpanContextFromContext(ctx).IsValid() {
		opts = append(opts, trace.WithNewRoot())
	}
	return t.Start(ctx, opProcess+" "+j.Queue, opts...)
}

// StartHandle starts the span that a handler runs under, a child of the process span.
func StartHandle(ctx context.Context, t trace.Tracer, j Job) (context.Context, trace.Span) {
	return t.Start(ctx, nameHandle+" "+j.Kind,
		trace.WithSpanKind(trace.SpanKindInternal), j.attributes(opProcess, semconv.MessagingOperationTypeProcess))
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
