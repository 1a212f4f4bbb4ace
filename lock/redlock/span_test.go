package redlock

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// The error names the key for the caller. The span of the asking has it nowhere.
func TestRedlockSpanHasNoKey(t *testing.T) {
	t.Parallel()
	nodes := make([]*redis.Options, 3)
	for i := range nodes {
		nodes[i] = &redis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", i+1)} // where nobody listens
	}
	locker, err := New(nodes, Config{TTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locker.Close(); err != nil {
			t.Error(err)
		}
	})
	key := redistest.Name(t)
	exporter := tracetest.NewInMemoryExporter()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	ctx, parent := tp.Tracer("test").Start(t.Context(), "parent")
	if _, err := locker.TryAcquire(ctx, key); err == nil || !strings.Contains(err.Error(), key) {
		t.Errorf("%v", err)
	}
	parent.End()
	span := exporter.GetSpans()[0]
	if text := fmt.Sprintf("%+v", span); strings.Contains(text, key) {
		t.Errorf("the key is in %s", text)
	}
	set := attribute.NewSet(span.Attributes...)
	if typ, _ := set.Value("error.type"); !strings.Contains(typ.AsString(), "lock.QuorumError") {
		t.Errorf("error.type %q", typ.AsString())
	}
	if span.Status.Code != codes.Error || span.Status.Description != "the lock service failed" || len(span.Events) != 1 || span.Events[0].Name != "exception" || span.Name != "lock acquire" {
		t.Errorf("%+v %+v", span.Status, span.Events)
	}
}
