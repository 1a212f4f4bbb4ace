package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// flushTimeout is how long the process waits at its end for a collector that doesn't answer.
const flushTimeout = 2 * time.Second

// startTelemetry sets the global providers and the propagator. Signalbox, the API and the client of the other system need no more.
// metrics is the page for Prometheus. flush sends the last spans: call it when the jobs have ended.
func startTelemetry(ctx context.Context) (metrics http.Handler, flush func() error, err error) {
	res, err := resource.Merge(resource.NewWithAttributes(semconv.SchemaURL, semconv.ServiceName("embed")),
		resource.Environment()) // OTEL_SERVICE_NAME counts more
	if err != nil {
		return nil, nil, err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry))
	if err != nil {
		return nil, nil, err
	}
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter), sdkmetric.WithResource(res))
	otel.SetMeterProvider(meters)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	spans := sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithSampler(sdktrace.NeverSample()))
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "" {
		collector, err := otlptracehttp.New(ctx)
		if err != nil {
			return nil, nil, errors.Join(err, meters.Shutdown(ctx))
		}
		spans = sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithBatcher(collector))
		otel.SetTracerProvider(spans)
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
		defer cancel()
		return errors.Join(spans.Shutdown(ctx), meters.Shutdown(ctx))
	}, nil
}
