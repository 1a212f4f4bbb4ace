package scheduler

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

type benchArgs struct {
	Data string `json:"d"`
}

func (benchArgs) Kind() string { return "bench" }

var hundredBytes = benchArgs{strings.Repeat("x", 92)}

func benchScheduler(b *testing.B) (*Scheduler, string) {
	b.Helper()
	s, err := New(redistest.New(b).Client(), Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	return s, redistest.Name(b)
}

func benchEnqueue(b *testing.B, producers int) {
	s, queue := benchScheduler(b)
	ctx := context.Background()
	opts := []EnqueueOption{Queue(queue)}
	b.ReportAllocs()
	b.ResetTimer()
	var producing sync.WaitGroup
	for p := range producers {
		producing.Go(func() {
			for range (b.N + p) / producers {
				if _, err := s.Enqueue(ctx, hundredBytes, opts...); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	producing.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

func BenchmarkEnqueue1(b *testing.B)  { benchEnqueue(b, 1) }
func BenchmarkEnqueue16(b *testing.B) { benchEnqueue(b, 16) }

func BenchmarkEnqueueMany(b *testing.B) {
	s, queue := benchScheduler(b)
	benchMany(b, s, queue)
}

// BenchmarkEnqueueManyTraced has a provider that drops all spans when they end.
func BenchmarkEnqueueManyTraced(b *testing.B) {
	s, err := New(redistest.New(b).Client(), Config{
		Logger: slog.New(slog.DiscardHandler), TracerProvider: sdktrace.NewTracerProvider(), Propagator: propagation.TraceContext{},
	})
	if err != nil {
		b.Fatal(err)
	}
	benchMany(b, s, redistest.Name(b))
}

func benchMany(b *testing.B, s *Scheduler, queue string) {
	b.Helper()
	ctx := context.Background()
	items := make([]Item, 10_000)
	for i := range items {
		items[i].Args = hundredBytes
	}
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; {
		n := min(len(items), b.N-done)
		if _, err := s.EnqueueMany(ctx, items[:n], Queue(queue)); err != nil {
			b.Fatal(err)
		}
		done += n
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}
