package lock

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox/internal/telemetry"
)

func TestAcquireSpan(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reply   any
		err     error
		outcome string
		status  codes.Code
	}{
		{[]any{int64(1), "7"}, nil, telemetry.LockAcquired, codes.Unset},
		{[]any{int64(0), int64(1), int64(-1), int64(0), int64(0)}, nil, telemetry.LockHeld, codes.Unset},
		{nil, errMine, telemetry.LockFailed, codes.Error},
	} {
		exporter := tracetest.NewInMemoryExporter()
		tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
		locker := New(fakeRedis{run: func(*redis.Script, []any) (any, error) { return c.reply, c.err }})

		// By itself a lock makes no trace.
		_, _ = locker.TryAcquire(t.Context(), "secret")
		ctx, parent := tp.Tracer("test").Start(t.Context(), "parent")
		l, _ := locker.TryAcquire(ctx, "secret")
		parent.End()

		spans := exporter.GetSpans()
		if len(spans) != 2 {
			t.Fatalf("%s: %d spans", c.outcome, len(spans))
		}
		span := spans[0]
		set := attribute.NewSet(span.Attributes...)
		outcome, _ := set.Value(telemetry.LockOutcome)
		if span.Name != "lock acquire" || span.SpanKind != trace.SpanKindInternal || outcome.AsString() != c.outcome ||
			span.Parent.SpanID() != spans[1].SpanContext.SpanID() || span.Status.Code != c.status {
			t.Errorf("%s: %+v", c.outcome, span)
		}
		token, _ := set.Value(telemetry.LockToken)
		if (c.outcome == telemetry.LockAcquired) != (token.AsInt64() == 7) {
			t.Errorf("%s: token %v", c.outcome, token.AsInt64())
		}
		for _, kv := range span.Attributes {
			if strings.Contains(kv.Value.String(), "secret") {
				t.Errorf("%s: the key is in %v", c.outcome, kv)
			}
		}
		if l != nil && trace.SpanFromContext(l.Context()) != parent {
			t.Error("the lock's context is under the span of the asking, which has ended")
		}
		if l != nil {
			l.(*redisLock).validity.End(nil)
		}
		_ = tp.Shutdown(context.Background())
	}
}
