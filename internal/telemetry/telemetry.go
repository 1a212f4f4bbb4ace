// Package telemetry makes the spans and metrics of Signalbox. It has their names, and those of attributes,
// instruments and the headers that carry a trace. The names follow the messaging semantic conventions,
// version 1.43.0. It uses only the API of OpenTelemetry. Providers come from the user.
//
// No name or attribute contains a payload, a lock key or an address with a password.
package telemetry

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Scope is the name of our instrumentation.
const Scope = "github.com/signalbox-go/signalbox"

// System is our value of messaging.system.
const system = "signalbox"

// Names of spans. The name of a messaging operation is followed by the queue, and the name of a handler by
// the job's kind. Both have few values.
const (
	opEnqueue      = "enqueue"
	opCreate       = "create"
	opProcess      = "process"
	opReclaim      = "reclaim"
	nameHandle     = "handle"
	nameHandleMany = "handle many"
	nameAcquire    = "lock acquire"
)

// Signalbox's own attributes.
const (
	jobKind        = attribute.Key("signalbox.job.kind")
	jobAttempt     = attribute.Key("signalbox.job.attempt")
	jobMaxAttempts = attribute.Key("signalbox.job.max_attempts")
	jobWaitTime    = attribute.Key("signalbox.job.wait_ms")  // int, from the due time to the claim
	jobOutcome     = attribute.Key("signalbox.job.outcome")  // how a delivery ended: a signalbox.Outcome
	jobNextRun     = attribute.Key("signalbox.job.next_run") // RFC 3339
	LockOutcome    = attribute.Key("signalbox.lock.outcome")
	lockWait       = attribute.Key("signalbox.lock.wait_ms") // int
	lockToken      = attribute.Key("signalbox.lock.fencing_token")
)

// Values of error.type that are not the type of a Go error.
const (
	ErrorTimeout    = "timeout"
	errorCancelled  = "cancelled"
	errorConnection = "connection"
	ErrorPanic      = "panic"
	ErrorLeaseLost  = "signalbox.lease_lost"
	ErrorLockHeld   = "signalbox.lock_held"
	ErrorUnsettled  = "signalbox.unsettled" // it is not known whether Redis recorded how the delivery ended
)

// Events on a process span.
const (
	EventLeaseLost   = "lease.lost"
	EventRenewFailed = "lease.renew_failed"
	EventRejected    = "fence.rejected"
	EventShutdown    = "shutdown.requested"
)

// tracerOf returns our tracer of a provider, or of the global one if tp is nil.
func tracerOf(tp trace.TracerProvider) trace.Tracer {
	if tp == nil {
		tp = otel.GetTracerProvider()
	}
	return tp.Tracer(Scope, trace.WithSchemaURL(semconv.SchemaURL))
}
