package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox/internal/redistest"
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
		{[]any{int64(0), int64(1), int64(-1), int64(0), int64(0), int64(0)}, nil, telemetry.LockHeld, codes.Unset},
		{nil, errMine, telemetry.LockFailed, codes.Error},
	} {
		exporter := tracetest.NewInMemoryExporter()
		tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
		locker := newRedis(fakeRedis{run: func(*redis.Script, []any) (any, error) { return c.reply, c.err }})

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
		token, _ := set.Value("signalbox.lock.fencing_token")
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
			l.(*redisLock).Validity.End(nil)
		}
		_ = tp.Shutdown(context.Background())
	}
}

// The errors name the key for the caller. The span of the asking has it nowhere.
func TestAcquireSpanHasNoKey(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	secret := redistest.Name(t)
	const down = "the lock service failed"
	for name, c := range map[string]struct {
		ctx    context.Context
		locker Locker
		spoil  func(key string)
		status string
		typ    string // is part of error.type
	}{
		"another type": {t.Context(), newRedis(rdb), func(key string) { rdb.HSet(t.Context(), key, "field", "value") }, down, "proto.RedisError"},
		"no record":    {t.Context(), newRedis(rdb), func(key string) { rdb.Set(t.Context(), fence(t, key), "nothing", time.Minute) }, down, "proto.RedisError"},
		"its own words": {t.Context(), newRedis(fakeRedis{run: func(*redis.Script, []any) (any, error) {
			return nil, errors.New("ERR of " + secret)
		}}), nil, down, "errors.errorString"},
		"it is over": {over, newRedis(rdb), nil, "the context ended before the lock service answered", "cancelled"},
	} {
		key := secret + "-" + strings.ReplaceAll(name, " ", "-")
		if c.spoil != nil {
			c.spoil(key)
		}
		exporter := tracetest.NewInMemoryExporter()
		tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
		ctx, parent := tp.Tracer("test").Start(c.ctx, "parent")
		if _, err := c.locker.TryAcquire(ctx, key); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", name, err)
		}
		parent.End()
		span := exporter.GetSpans()[0]
		if text := fmt.Sprintf("%+v", span); strings.Contains(text, secret) {
			t.Errorf("%s: the key is in %s", name, text)
		}
		set := attribute.NewSet(span.Attributes...)
		if typ, _ := set.Value("error.type"); !strings.Contains(typ.AsString(), c.typ) {
			t.Errorf("%s: error.type %q", name, typ.AsString())
		}
		if span.Status.Code != codes.Error || span.Status.Description != c.status || len(span.Events) != 1 || span.Events[0].Name != "exception" || span.Name != "lock acquire" {
			t.Errorf("%s: %+v %+v", name, span.Status, span.Events)
		}
	}
}

// What the span says of a lock service that can't be asked.
func TestAcquireSpanErrorTypes(t *testing.T) {
	t.Parallel()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	nothing := func(*redistest.Proxy) {}
	for name, c := range map[string]struct {
		ctx   context.Context
		spoil func(*redistest.Proxy)
		want  string
	}{
		"it hangs":                {t.Context(), (*redistest.Proxy).Pause, "timeout"},
		"nobody listens":          {t.Context(), func(p *redistest.Proxy) { p.Refuse(true); p.Sever() }, "connection"},
		"it hangs up":             {t.Context(), func(p *redistest.Proxy) { p.CutReply(redistest.Command("EVALSHA"), 1) }, "connection"},
		"the caller went":         {stopped, nothing, "cancelled"},
		"the caller's time is up": {late, nothing, "timeout"},
	} {
		for _, heeds := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", name, heeds), func(t *testing.T) {
				t.Parallel()
				proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
				rdb := proxy.ClientWith(func(o *redis.UniversalOptions) { o.ContextTimeoutEnabled, o.MaxRetries = heeds, -1 })
				locker, key := newRedis(rdb, Config{TTL: 2 * time.Second}), redistest.Name(t)
				l, err := locker.TryAcquire(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				if err := l.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				c.spoil(proxy)
				exporter := tracetest.NewInMemoryExporter()
				ctx, parent := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)).Tracer("test").Start(c.ctx, "parent")
				defer parent.End()
				_, err = locker.TryAcquire(ctx, key)
				proxy.Reset()
				proxy.Refuse(false)
				proxy.Resume()
				set := attribute.NewSet(exporter.GetSpans()[0].Attributes...)
				if got, _ := set.Value("error.type"); err == nil || got.AsString() != c.want {
					t.Errorf("%v is called %q, want %q", err, got.AsString(), c.want)
				}
			})
		}
	}
}
