package telemetry

import (
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

// The global providers while the user has set none. They are nil if one was set before this package
// was initialised: then there is no telling them apart any more, and none counts as unset.
var (
	unsetTracers = unset(otel.GetTracerProvider(), "*global.tracerProvider")
	unsetMeters  = unset(otel.GetMeterProvider(), "*global.meterProvider")
)

// unset is p if it is of OpenTelemetry's type for a provider that hasn't been set.
func unset[P any](p P, unsetType string) (none P) {
	if fmt.Sprintf("%T", p) != unsetType {
		return none
	}
	return p
}

// Silent tells that no span of tp, or of the global provider if it is nil, is recorded: none was
// set, or OpenTelemetry's own that does nothing. A hot path can then do without the cost of spans
// that go nowhere. They would have the context of the span around them, so what is injected is the same.
func Silent(tp trace.TracerProvider) bool {
	if tp == nil {
		if tp = otel.GetTracerProvider(); tp == unsetTracers {
			return true
		}
	}
	_, silent := tp.(tracenoop.TracerProvider)
	return silent
}

// MetricsSilent is Silent for metrics: no clock needs to be read for them.
func MetricsSilent(mp metric.MeterProvider) bool {
	if MetricsOff(mp) {
		return true
	}
	if mp == nil {
		mp = otel.GetMeterProvider()
	}
	_, silent := mp.(metricnoop.MeterProvider)
	return silent
}

// MetricsOff tells that there is no provider of metrics at all: mp is nil and no global one was set.
func MetricsOff(mp metric.MeterProvider) bool {
	return mp == nil && unsetMeters != nil && otel.GetMeterProvider() == unsetMeters
}
