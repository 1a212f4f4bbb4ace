package telemetry

import (
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// TraceConfig is what the options of middleware.Trace set. A worker also sets Who, for which users have no option.
type TraceConfig struct {
	Provider   trace.TracerProvider          // nil: the global one
	Propagator propagation.TextMapPropagator // nil: the global one
	Mode       string                        // of signalbox.TraceMode
	ParentFor  time.Duration                 // 0 or less: a delivery is never part of the enqueuer's trace
	Who        Who
}

// MetricsConfig is what the options of middleware.Metrics set. A worker also sets the server of Who.
type MetricsConfig struct {
	Provider metric.MeterProvider // nil: the global one
	Who      Who                  // without a ClientID: metrics don't name workers
	Others   bool                 // of jobs whose kinds have no handler of their own: all have the kind KindOther
}
