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

// ModeHeader is the header that says how a job's deliveries are connected with the span that
// enqueued it: modeParent, modeLink or modeNone. Without it, that is the worker's choice. It is there
// only beside a trace context.
const ModeHeader = "signalbox-trace-mode"

// SinceHeader says when the first job in the trace was enqueued, if that is not this one since a
// handler enqueued this one: µs since the Unix epoch, by Redis's clock.
const SinceHeader = "signalbox-trace-since"

const baggageHeader = "baggage"

// maxBaggage is the most bytes of baggage that a job carries, as it is encoded.
const maxBaggage = 8 << 10

// Propagator is p, or the global one if p is nil. The global one does nothing until the
// user sets it.
func Propagator(p propagation.TextMapPropagator) propagation.TextMapPropagator {
	if p == nil {
		return otel.GetTextMapPropagator()
	}
	return p
}

// Inject returns headers with what the propagator makes of ctx. Beside a trace context there is the
// mode, unless that is modeAuto, and since when there are jobs in the trace, if ctx is a handler's.
// Of the baggage the propagator sees the named members only, as many as fit in 8 KiB. The
// caller's map is left alone: it is copied if there is something to add.
func Inject(ctx context.Context, p propagation.TextMapPropagator, headers map[string]string, mode string, members []string) map[string]string {
	added := make(propagation.MapCarrier, 2)
	p.Inject(withBaggage(ctx, members), added)
	if len(added[baggageHeader]) > maxBaggage { // by a propagator that takes it from elsewhere
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

// withBaggage returns ctx with the named members of its baggage alone. They are taken in the order of
// the names; one that goes beyond the limit is left out.
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

// Extract returns ctx with the trace context that the headers carry, and none if they
// carry none or a malformed one: whatever span ctx had is not the job's creator.
func Extract(ctx context.Context, p propagation.TextMapPropagator, headers map[string]string) context.Context {
	if trace.SpanContextFromContext(ctx).IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	}
	if len(headers) == 0 {
		return ctx
	}
	return p.Extract(ctx, propagation.MapCarrier(headers))
}

// TraceSince is since when there are jobs in a trace.
type TraceSince struct {
	Trace trace.TraceID
	At    time.Time
}

type sinceKey struct{}

// ContextWithSince returns a context for the handler of a job, for what it enqueues itself.
func ContextWithSince(ctx context.Context, since *TraceSince) context.Context {
	return context.WithValue(ctx, sinceKey{}, since)
}

// Since returns when the first job in the trace of a job's creator was enqueued. If the headers don't say it, that is the
// job itself, at enqueued.
func Since(headers map[string]string, enqueued time.Time) time.Time {
	if text := headers[SinceHeader]; text != "" {
		if us, err := strconv.ParseInt(text, 10, 64); err == nil && us > 0 && us < enqueued.UnixMicro() {
			return time.UnixMicro(us)
		}
	}
	return enqueued
}
