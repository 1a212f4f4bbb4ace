package scheduler

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// maxLinks bounds the links from the span of sending to those of creating. By default the SDK keeps this
// many links of a span.
const maxLinks = 128

// sending has the span and the metrics of sending chunks to one queue.
type sending struct {
	ctx    context.Context // nil before begin
	span   trace.Span      // nil without tracing
	watch  stopwatch
	told   int          // number of jobs when the span started
	links  []trace.Link // to the creations of the first jobs
	linked int          // links that the span has already
}

// create encodes a job, in a span if there is tracing.
func (b *bulk) create(job *signalbox.Job, args signalbox.Args, o *options) (store.Item, trace.SpanContext, error) {
	mode := signalbox.TraceLink
	if o.mode == signalbox.TraceNone {
		mode = signalbox.TraceNone
	}
	if !b.traced {
		if job.Headers = b.headers; o.headers != nil || mode != signalbox.TraceLink {
			job.Headers = b.s.trace.inject(b.ctx, o.headers, mode)
		}
		item, err := b.s.item(job, args, o)
		return item, trace.SpanContext{}, err
	}
	ctx, span := b.s.trace.spans.StartCreate(b.ctx, about(job))
	job.Headers = b.s.trace.inject(ctx, o.headers, mode)
	item, err := b.s.item(job, args, o)
	end(span, err)
	return item, span.SpanContext(), err
}

// begin starts the span and the clock of the queue's sending, with the first chunk, of n jobs. For later
// chunks it adds links to the span while there is room.
func (b *bulk) begin(q *bulkQueue, n int) {
	switch {
	case q.ctx == nil:
		q.ctx, q.watch = b.ctx, b.s.watch()
		if b.traced {
			q.told = n
			q.ctx, q.span = b.s.trace.spans.StartSend(b.ctx, q.name, n, q.links)
		}
	case q.span != nil:
		for _, l := range q.links[q.linked:] {
			q.span.AddLink(l)
		}
	}
	q.linked = len(q.links)
}

// end ends the span and the clock.
func (q *bulkQueue) end() {
	if q.ctx == nil {
		return
	}
	q.watch.took(q.ctx, q.name, q.err)
	if q.span != nil && q.count != q.told {
		telemetry.SetSent(q.span, q.count)
	}
	end(q.span, q.err)
}

// measure counts the chunk's jobs.
func (c *chunk) measure(err error) {
	for _, k := range c.kinds {
		c.queue.watch.sent(c.queue.ctx, c.queue.name, k.kind, k.n, err)
	}
}
