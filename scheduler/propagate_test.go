package scheduler

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

func TestModes(t *testing.T) {
	t.Parallel()
	for mode, want := range map[signalbox.TraceMode]struct{ single, bulk string }{
		signalbox.TraceAuto:   {"", "link"},
		signalbox.TraceParent: {"parent", "link"},
		signalbox.TraceLink:   {"link", "link"},
		signalbox.TraceNone:   {"none", "none"},
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			ctx, s, q, _ := tracedSetup(t, nil)
			opts := []BulkOption{Queue(q.Name()), TraceMode(mode)}
			_, err1 := s.Enqueue(ctx, note{}, singly(opts)...)
			_, err2 := s.EnqueueMany(ctx, many(1), opts...)
			_, err3 := s.EnqueueMany(ctx, []Item{{Args: note{}, Options: []EnqueueOption{TraceMode(mode)}}}, Queue(q.Name()), TraceMode(signalbox.TraceNone))
			if err := errors.Join(err1, err2, err3); err != nil {
				t.Fatal(err)
			}
			for i, j := range claimAll(t, q) {
				expect := want.bulk
				if i == 0 {
					expect = want.single
				}
				got, there := j.Headers[modeHeader]
				if got != expect || there != (expect != "") || j.Headers["traceparent"] == "" {
					t.Errorf("job %d: headers %v, want mode %q", i, j.Headers, expect)
				}
			}
		})
	}
}

// A trace mode is stored only with a trace context.
func TestNoModeWithoutATrace(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"no provider":   func(c *Config) { c.TracerProvider = nil },
		"no-op":         func(c *Config) { c.TracerProvider = noop.NewTracerProvider() },
		"no propagator": func(c *Config) { c.Propagator = nil },
		"baggage alone": func(c *Config) { c.Propagator = propagation.Baggage{} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, s, q, spans := tracedSetup(t, change)
			opts := []BulkOption{Queue(q.Name()), TraceMode(signalbox.TraceLink)}
			if _, err := s.Enqueue(ctx, note{}, singly(opts)...); err != nil {
				t.Fatal(err)
			}
			if _, err := s.EnqueueMany(ctx, many(3), opts...); err != nil {
				t.Fatal(err)
			}
			for _, j := range claimAll(t, q) {
				if len(j.Headers) != 0 {
					t.Errorf("headers %v", j.Headers)
				}
			}
			if name == "no provider" || name == "no-op" {
				same(t, "spans", len(spans.Started()), 0)
			}
		})
	}
}

func withBaggage(t *testing.T, ctx context.Context, members map[string]string) context.Context {
	t.Helper()
	var b baggage.Baggage
	for name, value := range members {
		m, err := baggage.NewMemberRaw(name, value)
		if err != nil {
			t.Fatal(err)
		}
		if b, err = b.SetMember(m); err != nil {
			t.Fatal(err)
		}
	}
	return baggage.ContextWithBaggage(ctx, b)
}

func TestBaggage(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		allowed []string
		want    string
	}{
		"none":      {nil, ""},
		"one":       {[]string{"tenant"}, "tenant=acme"},
		"one large": {[]string{"large", "tenant"}, "tenant=acme"},
		"not there": {[]string{"nobody"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, s, q, _ := tracedSetup(t, func(c *Config) { c.Baggage = tc.allowed })
			ctx = withBaggage(t, ctx, map[string]string{"tenant": "acme", "user": "ann", "large": strings.Repeat("x", 64<<10)})
			if _, err := s.Enqueue(ctx, note{}, Queue(q.Name())); err != nil {
				t.Fatal(err)
			}
			if _, err := s.EnqueueMany(ctx, many(2), Queue(q.Name())); err != nil {
				t.Fatal(err)
			}
			for _, j := range claimAll(t, q) {
				if got, there := j.Headers["baggage"]; got != tc.want || there != (tc.want != "") || j.Headers["traceparent"] == "" {
					t.Errorf("baggage %q, want %q", got, tc.want)
				}
			}
		})
	}
}

// Baggage travels with a job even without a trace.
func TestBaggageAlone(t *testing.T) {
	t.Parallel()
	_, s, q, _ := tracedSetup(t, func(c *Config) {
		c.TracerProvider, c.Baggage = noop.NewTracerProvider(), []string{"tenant"}
	})
	ctx := withBaggage(t, t.Context(), map[string]string{"tenant": "acme", "user": "ann"})
	if _, err := s.Enqueue(ctx, note{}, Queue(q.Name()), TraceMode(signalbox.TraceLink)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.EnqueueMany(ctx, many(2), Queue(q.Name())); err != nil {
		t.Fatal(err)
	}
	for _, j := range claimAll(t, q) {
		sameMap(t, "headers", j.Headers, map[string]string{"baggage": "tenant=acme"})
	}
}

// Ticks don't have the baggage of Run's context.
func TestBaggageOfRun(t *testing.T) {
	t.Parallel()
	_, s, q, _ := tracedSetup(t, func(c *Config) { c.Baggage = []string{"tenant"} })
	if err := s.Cron("e", "@every 1s", note{}, Queue(q.Name())); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(withBaggage(t, context.Background(), map[string]string{"tenant": "main"}))
	over := make(chan error)
	go func() { over <- s.Run(ctx) }()
	redistest.Eventually(t, func() bool { c, err := q.Looks().Counts(t.Context()); return err == nil && c.Ready > 0 }, "a tick fires")
	stop()
	if err := <-over; err != nil {
		t.Error(err)
	}
	for _, j := range claimAll(t, q) {
		if got := j.Headers["baggage"]; got != "" || j.Headers["traceparent"] == "" {
			t.Errorf("the headers of a tick's job are %v", j.Headers)
		}
	}
}

// A job that a handler enqueues has the time of the first job in the trace, if it is to be part of
// that trace.
func TestSince(t *testing.T) {
	t.Parallel()
	since := time.UnixMicro(1_700_000_000_000_001)
	for name, tc := range map[string]struct {
		mode  signalbox.TraceMode
		other bool // the handler is in another trace
		want  string
	}{
		"auto":          {want: "1700000000000001"},
		"parent":        {mode: signalbox.TraceParent, want: "1700000000000001"},
		"link":          {mode: signalbox.TraceLink},
		"none":          {mode: signalbox.TraceNone},
		"another trace": {other: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, s, q, _ := tracedSetup(t, func(*Config) {})
			in := telemetry.TraceSince{Trace: trace.SpanContextFromContext(ctx).TraceID(), At: since}
			if tc.other {
				in.Trace[0]++
			}
			if _, err := s.Enqueue(telemetry.ContextWithSince(ctx, &in), note{}, Queue(q.Name()), TraceMode(tc.mode)); err != nil {
				t.Fatal(err)
			}
			if got := claimAll(t, q)[0].Headers["signalbox-trace-since"]; got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func TestWrongBaggage(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	for _, name := range []string{"", "a b", "a=b", "\xff"} {
		if _, err := New(rdb, Config{Baggage: []string{"tenant", name}}); !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), "Baggage") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// upper is a propagator of the user's program.
type upper struct{ propagation.TraceContext }

func (upper) Inject(ctx context.Context, c propagation.TextMapCarrier) {
	c.Set("x-span", trace.SpanContextFromContext(ctx).SpanID().String())
	c.Set("x-baggage", strings.ToUpper(baggage.FromContext(ctx).String()))
}

func TestOwnPropagator(t *testing.T) {
	t.Parallel()
	ctx, s, q, spans := tracedSetup(t, func(c *Config) { c.Propagator, c.Baggage = upper{}, []string{"tenant"} })
	ctx = withBaggage(t, ctx, map[string]string{"tenant": "acme", "user": "ann"})
	if _, err := s.Enqueue(ctx, note{}, Queue(q.Name()), TraceMode(signalbox.TraceParent)); err != nil {
		t.Fatal(err)
	}
	sameMap(t, "headers", claimAll(t, q)[0].Headers, map[string]string{
		"x-span": spans.Ended()[0].SpanContext().SpanID().String(), "x-baggage": "TENANT=ACME", modeHeader: "parent",
	})
}
