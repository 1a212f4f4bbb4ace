package telemetry

import (
	"context"
	"maps"
	"strconv"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// ModeHeader is the header that says how a job's deliveries are connected with the span that enqueued it: modeParent,
// modeLink or modeNone. Without the header, the worker decides. The header exists only beside a trace context.
const ModeHeader = "signalbox-trace-mode"

// SinceHeader is the header with the time when the first job in the trace was enqueued: µs since the Unix epoch, by the
// clock of Redis. It exists only if a handler enqueued the job. Otherwise the job itself is the first.
const SinceHeader = "signalbox-trace-since"

const baggageHeader = "baggage"

// maxBaggage is the most bytes of encoded baggage that a job carries.
const maxBaggage = 8 << 10

// Propagator returns p, or the global one if p is nil. The global one does nothing until the program sets it.
func Propagator(p propagation.TextMapPropagator) propagation.TextMapPropagator {
	if p == nil {
		return otel.GetTextMapPropagator()
	}
	return p
}

// Inject returns headers with the trace context that the propagator makes from ctx. If there is a trace context, Inject
// also adds the mode, unless that is modeAuto, and the time of the first job in the trace, if ctx belongs to a handler.
// The propagator gets only the named members of the baggage, as many as fit in 8 KiB. The caller's map is not changed:
// it is copied if something is added.
func Inject(ctx context.Context, p propagation.TextMapPropagator, headers map[string]string, mode string, members []string) map[string]string {
	added := make(propagation.MapCarrier, 2)
	p.Inject(withBaggage(ctx, members), added)
	if len(added[baggageHeader]) > maxBaggage { // a propagator may take it from elsewhere
		delete(added, baggageHeader)
	}
	if len(added) == 0 {
		return headers
	}
	_, alone := added[baggageHeader]
	if created := trace.SpanContextFromContext(ctx); created.IsValid() && (!alone || len(added) > 1) {
		since, ok := ctx.Value(sinceKey{}).(*TraceSince)
		if ok && since.Trace == created.TraceID() && mode != modeLink && mode != modeNone {
			added[SinceHeader] = strconv.FormatInt(since.At.UnixMicro(), 10)
		}
		if mode != modeAuto {
			added[ModeHeader] = mode
		}
	}
	if len(headers) == 0 {
		return added
	}
	out := make(map[string]string, len(headers)+len(added))
	maps.Copy(out, headers)
	maps.Copy(out, added)
	return out
}

// withBaggage returns ctx with only the named members of its baggage. They are taken in the order of the names. A
// member that would exceed the limit is left out.
func withBaggage(ctx context.Context, members []string) context.Context {
	all := baggage.FromContext(ctx)
	if all.Len() == 0 {
		return ctx
	}
	var kept baggage.Baggage
	size := 0
	for _, name := range members {
		m := all.Member(name)
		n := len(m.String()) + 1 // the comma
		if m.Key() == "" || size+n > maxBaggage {
			continue
		}
		if with, err := kept.SetMember(m); err == nil {
			kept, size = with, size+n
		}
	}
	return baggage.ContextWithBaggage(ctx, kept)
}

// Extract returns ctx with the trace context that is in the headers. If there is none or a malformed one, ctx has none:
// a span that was in ctx is not the job's creator.
func Extract(ctx context.Context, p propagation.TextMapPropagator, headers map[string]string) context.Context {
	if trace.SpanContextFromContext(ctx).IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	}
	if len(headers) == 0 {
		return ctx
	}
	return p.Extract(ctx, propagation.MapCarrier(headers))
}

// TraceSince is the time of the first job in a trace.
type TraceSince struct {
	Trace trace.TraceID
	At    time.Time
}

type sinceKey struct{}

// ContextWithSince returns a context for a handler. The jobs that the handler enqueues get since.
func ContextWithSince(ctx context.Context, since *TraceSince) context.Context {
	return context.WithValue(ctx, sinceKey{}, since)
}

// Since returns when the first job in the trace of a job's creator was enqueued. If the headers don't have that, it is
// enqueued: the job itself is the first.
func Since(headers map[string]string, enqueued time.Time) time.Time {
	if text := headers[SinceHeader]; text != "" {
		if us, err := strconv.ParseInt(text, 10, 64); err == nil && us > 0 && us < enqueued.UnixMicro() {
			return time.UnixMicro(us)
		}
	}
	return enqueued
}
