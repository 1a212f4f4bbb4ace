package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// The ways in which a delivery is connected with the span that enqueued the job.
const (
	modeAuto   = "auto" // depends on the job's age
	modeParent = "parent"
	modeLink   = "link"
	modeNone   = "none"
)

// Creator returns a context with the parent of a delivery, if it has one, and links to the span
// that created the job, if it has any. A span that was in ctx is removed: it is not the creator. A
// mode in the headers overrides the given one. young says that the job was enqueued not long ago.
func Creator(ctx context.Context, p propagation.TextMapPropagator, headers map[string]string, mode string, young bool) (context.Context, []trace.Link) {
	ctx = Extract(ctx, p, headers)
	created := trace.SpanContextFromContext(ctx)
	if !created.IsValid() {
		return ctx, nil
	}
	switch own := headers[ModeHeader]; own {
	case modeParent, modeLink, modeNone:
		mode = own
	}
	if mode == modeAuto && young {
		mode = modeParent
	}
	if mode == modeParent {
		return ctx, nil
	}
	ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	if mode == modeNone {
		return ctx, nil
	}
	return ctx, []trace.Link{{SpanContext: created}}
}
