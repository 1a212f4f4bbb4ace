package telemetry

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// A typed error has its own ErrorType.
type typed struct {
	error
	what func() string
}

func (e typed) ErrorType() string { return e.what() }

// A broken error panics in its method Error.
type broken struct{}

func (*broken) Error() string { panic("broken") }

// Whatever an error says, a span with it can be exported.
func TestFail(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", maxErrorText)
	for name, c := range map[string]struct {
		err        error
		text, kind string
	}{
		"plain":           {errors.New("boom"), "boom", "*errors.errorString"},
		"wrapped":         {fmt.Errorf("it went %w", errors.New("boom")), "it went boom", "*errors.errorString"},
		"no UTF-8":        {errors.New("body \xff\xfe."), "body .", "*errors.errorString"},
		"long":            {errors.New(long), long[:maxErrorText-4] + "...", "*errors.errorString"}, // no half character
		"broken":          {&broken{}, brokenError, "*telemetry.broken"},
		"typed":           {typed{errors.New("boom"), func() string { return "quota" }}, "boom", "quota"},
		"of a long type":  {typed{errors.New("boom"), func() string { return long }}, "boom", long[:maxErrorType-4] + "..."},
		"of a broken one": {typed{errors.New("boom"), func() string { panic("broken") }}, "boom", brokenError},
	} {
		exporter := tracetest.NewInMemoryExporter()
		tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
		_, span := tp.Tracer("").Start(t.Context(), "")
		Fail(span, c.err, "")
		span.End()
		got := exporter.GetSpans()[0]
		if got.Status != (sdktrace.Status{Code: codes.Error, Description: c.text}) {
			t.Errorf("%s: status %v, want %q", name, got.Status, c.text)
		}
		said := map[string]string{}
		for _, kv := range append(got.Attributes, got.Events[0].Attributes...) {
			said[string(kv.Key)] = kv.Value.AsString()
			if !utf8.ValidString(kv.Value.AsString()) {
				t.Errorf("%s: %s is no UTF-8: %q", name, kv.Key, kv.Value.AsString())
			}
		}
		if got.Events[0].Name != "exception" || len(got.Events) != 1 || said["error.type"] != c.kind || said["exception.type"] != c.kind || said["exception.message"] != c.text {
			t.Errorf("%s: %v and %v, want %q of type %q", name, got.Attributes, got.Events, c.text, c.kind)
		}
		if ErrorType(c.err) != c.kind {
			t.Errorf("%s: metrics call it %q, want %q", name, ErrorType(c.err), c.kind)
		}
	}
}

// Events of a delivery are kept until Tell is called, in order and with their times. That includes events
// before the delivery was traced.
func TestEvents(t *testing.T) {
	t.Parallel()
	var d Delivery
	var times, told []time.Time
	tell := func(_ string, at time.Time) { told = append(told, at) }
	for n := range maxEvents + 1 { // Tell may never be called
		times = append(times, time.Now())
		d.Event(EventShutdown)
		if n == 5 {
			d.Trace(trace.SpanContext{}, nil)
		}
	}
	times = append(times, time.Now())
	d.Tell(tell)
	if len(told) != maxEvents {
		t.Fatalf("%d events, want %d", len(told), maxEvents)
	}
	for i, at := range told { // all except the first
		if at.Before(times[i+1]) || at.After(times[i+2]) {
			t.Errorf("number %d was at %v, between %v and %v", i, at, times[i+1], times[i+2])
		}
	}
	d.Event(EventRenewFailed)
	d.Tell(tell)
	d.Tell(tell)
	if len(told) != maxEvents+1 {
		t.Errorf("%d events, want one more, told once", len(told))
	}
	// Passing on an event may take long. An event that comes meanwhile doesn't wait.
	d.Event(EventRenewFailed)
	d.Tell(func(string, time.Time) {
		noted := make(chan struct{})
		go func() {
			d.Event(EventShutdown)
			close(noted)
		}()
		select {
		case <-noted:
		case <-time.After(10 * time.Second):
			t.Error("an event waits until others were told")
		}
	})
	d.Tell(tell)
	if len(told) != maxEvents+2 {
		t.Errorf("%d events, want the one that came while others were told", len(told))
	}
}

// Without a worker there is no delivery. Then the methods of the nil Delivery do nothing.
func TestNoDelivery(t *testing.T) {
	t.Parallel()
	d := DeliveryFrom(t.Context())
	d.Event(EventShutdown)
	d.Tell(func(string, time.Time) { t.Error("nothing happened") })
	if _, end := d.Handle(t.Context()); end != nil || d.Traced() || d.SpanContext().IsValid() {
		t.Error("nobody's delivery is traced")
	}
}

// A quorum has its own error type, whatever errors its nodes have.
type quorum struct{ nodes []error }

func (q *quorum) Error() string   { return "no quorum" }
func (q *quorum) Unwrap() []error { return q.nodes }

func TestLockErrorType(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Err: errors.New("refused")}
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"cut off":          {fmt.Errorf("script: %w", io.EOF), "connection"},
		"refused":          {refused, "connection"},
		"a quorum cut off": {&quorum{[]error{io.EOF, io.EOF}}, "telemetry.quorum"},
		"a quorum refused": {fmt.Errorf("acquire: %w", &quorum{[]error{refused, io.EOF}}), "telemetry.quorum"},
	} {
		if got := (lockError{"", c.err}).ErrorType(); !strings.HasSuffix(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
