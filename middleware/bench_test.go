package middleware_test

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/handlerctx"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/middleware"
)

// nowhere is an exporter that drops all spans.
type nowhere struct{}

func (nowhere) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (nowhere) Shutdown(context.Context) error                             { return nil }

// BenchmarkTraced measures what tracing and metrics of one delivery cost. "delivery" is our middleware,
// as a worker runs it. "SDK alone" makes as many spans, attributes and measurements without it. The
// difference is the cost of our code.
func BenchmarkTraced(b *testing.B) {
	b.Run("delivery", func(b *testing.B) {
		underSDK(b, func(tp trace.TracerProvider, mp metric.MeterProvider) func() {
			job := &signalbox.Job{
				ID: "01J0000000000000000000000", Kind: "bench", Queue: "default", Attempt: 1, MaxAttempts: 25, Token: 7,
				EnqueuedAt: time.Now(), ScheduledAt: time.Now(), ClaimedAt: time.Now(),
			}
			handler := signalbox.HandlerFunc(func(ctx context.Context, _ *signalbox.Job) error {
				_, end := telemetry.DeliveryFrom(ctx).Handle(ctx) // by the worker, around the handler
				end(nil)
				return nil
			})
			who := telemetry.Who{Address: "127.0.0.1", Port: 6379, ClientID: "bench:1:1"}
			chain := signalbox.Chain(
				middleware.Trace(middleware.WithTracerProvider(tp), func(c *telemetry.TraceConfig) { c.Who = who }),
				middleware.Metrics(middleware.WithMeterProvider(mp), func(c *telemetry.MetricsConfig) { c.Who = who }))(handler)
			return func() {
				var end handlerctx.End
				ctx := context.WithValue(context.WithValue(context.Background(), telemetry.DeliveryKey{}, &telemetry.Delivery{}), handlerctx.EndKey{}, &end)
				if err := chain.Handle(ctx, job); err != nil {
					b.Error(err)
				}
				now := time.Now()
				for w := end.Seal(); w != nil; w = w.Next {
					w.F.(func(signalbox.Settled))(signalbox.Settled{Asked: signalbox.OutcomeCompleted, Outcome: signalbox.OutcomeCompleted, Returned: now, Ended: now})
				}
			}
		})
	})
	b.Run("SDK alone", func(b *testing.B) {
		underSDK(b, func(tp trace.TracerProvider, mp metric.MeterProvider) func() {
			tracer, spans := tp.Tracer("bench"), attributesOf(11)
			count, measure := instruments(b, mp.Meter("bench"))
			return func() {
				ctx, process := tracer.Start(context.Background(), "process default", trace.WithAttributes(spans...))
				_, handle := tracer.Start(ctx, "handle bench", trace.WithAttributes(spans...))
				handle.End()
				_, ack := tracer.Start(ctx, "ack default", trace.WithAttributes(spans...))
				ack.End()
				process.End()
				for range 4 {
					count(ctx)
				}
				for range 3 {
					measure(ctx)
				}
			}
		})
	})
}

// underSDK runs the function that prepare returns on all processors, with providers of the SDK.
func underSDK(b *testing.B, prepare func(trace.TracerProvider, metric.MeterProvider) func()) {
	tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(nowhere{}, sdktrace.WithBlocking()))
	mp := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	once := prepare(tp, mp)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			once()
		}
	})
	b.StopTimer()
	if err := tp.Shutdown(context.Background()); err != nil {
		b.Error(err)
	}
}

// instruments are a counter and a histogram with seven attributes.
func instruments(b *testing.B, m metric.Meter) (count, measure func(context.Context)) {
	counter, err := m.Int64Counter("count")
	if err != nil {
		b.Fatal(err)
	}
	histogram, err := m.Float64Histogram("duration")
	if err != nil {
		b.Fatal(err)
	}
	set := metric.WithAttributeSet(attribute.NewSet(attributesOf(7)...))
	adds, records := []metric.AddOption{set}, []metric.RecordOption{set}
	return func(ctx context.Context) { counter.Add(ctx, 1, adds...) }, func(ctx context.Context) { histogram.Record(ctx, 0.001, records...) }
}

func attributesOf(n int) []attribute.KeyValue {
	all := make([]attribute.KeyValue, n)
	for i := range all {
		all[i] = attribute.String("messaging.attribute."+string(rune('a'+i)), "some value")
	}
	return all
}
