package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// A telemetry is who listens to a run, and how its jobs are enqueued.
type telemetry struct {
	tracers, produced trace.TracerProvider // the worker's, and those of who enqueued
	meters            metric.MeterProvider
	propagator        propagation.TextMapPropagator
	fill              func(ctx context.Context, s *scheduler.Scheduler, n int) error
	finish            func(ctx context.Context, n int) error // ends it, and reports whether it heard of n jobs
}

func (t *telemetry) scheduler() scheduler.Config {
	return scheduler.Config{TracerProvider: t.produced, MeterProvider: t.meters, Propagator: t.propagator}
}

func (t *telemetry) worker(c worker.Config) worker.Config {
	c.TracerProvider, c.MeterProvider, c.Propagator = t.tracers, t.meters, t.propagator
	return c
}

func nothing(context.Context, int) error { return nil }

// noProviders is what a program has that does nothing about tracing.
func noProviders() *telemetry { return &telemetry{fill: fill, finish: nothing} }

// noopProviders are OpenTelemetry's own that do nothing.
func noopProviders() *telemetry {
	tp := tracenoop.NewTracerProvider()
	return &telemetry{
		tracers: tp, produced: tp, meters: metricnoop.NewMeterProvider(), propagator: propagation.TraceContext{},
		fill: fill, finish: nothing,
	}
}

// enqueueAll enqueues n jobs, one at a time.
func enqueueAll(ctx context.Context, s *scheduler.Scheduler, n int) error {
	return produce(n, func() error {
		_, err := s.Enqueue(ctx, payload)
		return err
	})
}

// spansPerJob are process, handle and ack.
const spansPerJob = 3

// sdkProviders are OpenTelemetry's SDK with what a service sets: every trace is sampled, spans go
// to a batcher, metrics are collected by a reader. The jobs come from a service that is
// traced too, which enqueues one at a time: each has a traceparent of a sampled span, which
// the delivery is a child of. That service's own spans aren't kept.
//
// The batcher waits for room in its queue, by default it drops spans: those would cost
// nothing. finish fails if a span or a job is missing.
func sdkProviders() *telemetry {
	spans, reader := &heard{}, sdkmetric.NewManualReader()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithBatcher(spans, sdktrace.WithBlocking()))
	mp := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	return &telemetry{
		tracers: tp, produced: sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample())),
		meters: mp, propagator: propagation.TraceContext{}, fill: enqueueAll,
		finish: func(ctx context.Context, n int) error {
			settled, err := settledJobs(ctx, reader)
			err = errors.Join(err, tp.Shutdown(ctx), mp.Shutdown(ctx))
			switch {
			case err != nil:
			case spans.spans != n*spansPerJob:
				err = fmt.Errorf("%d jobs made %d spans, want %d each", n, spans.spans, spansPerJob)
			case spans.orphans > 0:
				err = fmt.Errorf("%d process spans are not in the trace that enqueued their job", spans.orphans)
			case settled != int64(n):
				err = fmt.Errorf("of %d jobs %d are in the metrics", n, settled)
			}
			return err
		},
	}
}

// heard is an exporter that looks at each span in memory, and keeps none: so do those that send
// them away.
type heard struct {
	mu             sync.Mutex
	spans, orphans int // orphans have no parent
}

func (h *heard) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range spans {
		h.spans++
		if !s.Parent().IsValid() {
			h.orphans++
		}
	}
	return nil
}

func (*heard) Shutdown(context.Context) error { return nil }

// settledJobs asks the metrics how many jobs were settled.
func settledJobs(ctx context.Context, reader sdkmetric.Reader) (int64, error) {
	var all metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &all); err != nil {
		return 0, err
	}
	var n int64
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "signalbox.jobs.settled" {
				for _, p := range sum.DataPoints {
					n += p.Value
				}
			}
		}
	}
	return n, nil
}

// heap is how much memory a service has in use, in bytes, beside what it does for a job.
const heap = 32 << 20

// inService measures with a service's heap. Go collects garbage whenever the heap has doubled: a
// process that holds next to nothing does so hundreds of times a second.
func inService(m measure) measure {
	return func(ctx context.Context, srv *server, n int) ([][]float64, error) {
		held := make([]byte, heap)
		defer runtime.KeepAlive(held)
		return m(ctx, srv, n)
	}
}

// tracedProcess is process-c100 with somebody who listens, or nobody.
func tracedProcess(listener func() *telemetry) measure {
	return func(ctx context.Context, srv *server, n int) ([][]float64, error) {
		t := listener()
		samples, err := process(ctx, srv, n, 100, t)
		if err != nil {
			return nil, err
		}
		return samples, t.finish(ctx, n)
	}
}
