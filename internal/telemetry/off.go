package telemetry

import (
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

// The global providers before the program has set others. They are nil if the program did that before this
// package was initialised. Then it is not known what an unset one looks like, and none counts as unset.
var (
	unsetTracers = unset(otel.GetTracerProvider(), "*global.tracerProvider")
	unsetMeters  = unset(otel.GetMeterProvider(), "*global.meterProvider")
)

// unset returns p if its type is the one of OpenTelemetry for an unset provider.
func unset[P any](p P, unsetType string) (none P) {
	if fmt.Sprintf("%T", p) != unsetType {
		return none
	}
	return p
}

// Silent reports whether no span of tp, or of the global provider if tp is nil, is recorded: no provider was
// set, or the no-op one of OpenTelemetry. Then a hot path need not make spans. Such spans would have the
// context of the span around them. So what is injected is the same without them.
func Silent(tp trace.TracerProvider) bool {
	if tp == nil {
		if tp = otel.GetTracerProvider(); tp == unsetTracers {
			return true
		}
	}
	_, silent := tp.(tracenoop.TracerProvider)
	return silent
}

// MetricsSilent is Silent for metrics. If it is true, no clock needs to be read for them.
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

// MetricsOff reports whether there is no provider of metrics at all: mp is nil and no global one was set.
func MetricsOff(mp metric.MeterProvider) bool {
	return mp == nil && unsetMeters != nil && otel.GetMeterProvider() == unsetMeters
}

// Silent reports whether nothing is measured. Then no clock needs to be read.
func (p *ProducerMetrics) Silent() bool { return MetricsSilent(p.made.provider) }
