package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

const (
	envEndpoint     = "OTEL_EXPORTER_OTLP_ENDPOINT"
	defaultEndpoint = "http://localhost:4318"

	// exportTimeout is how long a process waits at its end for a collector that doesn't answer.
	exportTimeout = 2 * time.Second
)

// tracer makes the shop's own spans. It belongs to the global provider, which main sets later.
var tracer = otel.Tracer("shop")

// startTracing sets the global provider and propagator. Signalbox needs no more. The returned
// function sends the remaining spans. Its error says that spans were lost.
func startTracing(ctx context.Context, service, instance string) (stop func() error, err error) {
	var opts []otlptracehttp.Option
	if os.Getenv(envEndpoint) == "" {
		opts = append(opts, otlptracehttp.WithEndpointURL(defaultEndpoint+"/v1/traces"))
	}
	exporter, err := otlptracehttp.New(ctx, opts...)
	if err != nil {
		return nil, err
	}
	res, err := resource.Merge(resource.Environment(), resource.NewWithAttributes(semconv.SchemaURL,
		semconv.ServiceName(service), semconv.ServiceInstanceID(instance)))
	if err != nil {
		return nil, err
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res))
	var lost losses
	otel.SetErrorHandler(&lost)
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}))
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), exportTimeout)
		defer cancel()
		return errors.Join(lost.first(), provider.Shutdown(ctx))
	}, nil
}

// losses keeps the errors of OpenTelemetry. If the collector is away, no job fails, and the error is
// reported once.
type losses struct {
	mu  sync.Mutex
	err error
}

// Handle is called by OpenTelemetry.
func (l *losses) Handle(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
}

func (l *losses) first() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// findCollector returns an error unless a collector listens at the address for spans.
func findCollector(ctx context.Context) error {
	endpoint := os.Getenv(envEndpoint)
	if endpoint == "" {
		endpoint = defaultEndpoint
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" {
		return fmt.Errorf("%s can't be read; want %s", envEndpoint, defaultEndpoint)
	}
	host := u.Host
	if u.Port() == "" {
		port := "80"
		if u.Scheme == "https" {
			port = "443"
		}
		host = net.JoinHostPort(u.Hostname(), port)
	}
	dialer := net.Dialer{Timeout: exportTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", host)
	if err != nil {
		return fmt.Errorf("no collector answers: %w", err)
	}
	return conn.Close()
}

// traceOf returns the ID of the trace of ctx, or "".
func traceOf(ctx context.Context) string {
	if c := trace.SpanContextFromContext(ctx); c.IsValid() {
		return c.TraceID().String()
	}
	return ""
}
