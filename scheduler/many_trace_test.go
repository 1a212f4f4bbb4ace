package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

func TestBulkSpans(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		items []Item
		links int
	}{
		"one":           {many(1), 1},
		"three":         {many(3), 3},
		"1,000":         {many(1000), maxLinks},
		"chunks":        {many(2500), maxLinks},
		"little chunks": {largeNotes(300), maxLinks}, // the first chunks have fewer jobs than a span has links
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, s, q, spans := tracedSetup(t, nil)
			results, err := s.EnqueueMany(ctx, tc.items, Queue(q.Name()))
			if err != nil {
				t.Fatal(err)
			}
			caller := trace.SpanContextFromContext(ctx)
			created := make(map[string]sdktrace.ReadOnlySpan)
			var first []trace.SpanID
			for i, span := range spansOf(spans, "create "+q.Name()) {
				id := results[i].ID
				created[id] = span
				if i < tc.links {
					first = append(first, span.SpanContext().SpanID())
				}
				same(t, "the kind", span.SpanKind(), trace.SpanKindProducer)
				same(t, "the parent", span.Parent().SpanID(), caller.SpanID())
				same(t, "links", len(span.Links()), 0)
				want := expectedJob(s, q.Name(), "create", "create", id)
				want["signalbox.job.kind"] = tc.items[i].Args.Kind()
				sameMap(t, "attributes", attributes(span), want)
			}
			same(t, "create spans", len(created), len(tc.items))

			sends := spansOf(spans, "enqueue "+q.Name())
			if len(sends) != 1 || len(spans.Ended()) != len(tc.items)+1 {
				t.Fatalf("%d spans, %d of sending", len(spans.Ended()), len(sends))
			}
			send := sends[0]
			same(t, "the kind", send.SpanKind(), trace.SpanKindClient)
			same(t, "the parent", send.Parent().SpanID(), caller.SpanID())
			same(t, "the status", send.Status().Code, codes.Unset)
			sameMap(t, "attributes", attributes(send),
				expected(s, q.Name(), "enqueue", "send", map[string]string{"messaging.batch.message_count": fmt.Sprint(len(tc.items))}))
			var links []trace.SpanID
			for _, l := range send.Links() {
				links = append(links, l.SpanContext.SpanID())
			}
			if !slices.Equal(links, first) || send.DroppedLinks() != 0 {
				t.Errorf("%d links and %d dropped, want %d, to the first jobs", len(links), send.DroppedLinks(), tc.links)
			}

			jobs := claimAll(t, q)
			same(t, "jobs", len(jobs), len(tc.items))
			for _, j := range jobs {
				sameMap(t, "headers", j.Headers, map[string]string{"traceparent": traceparent(created[j.ID].SpanContext()), modeHeader: "link"})
			}
		})
	}
}

type largeNote struct{ Data string }

func (largeNote) Kind() string { return "large" }

func largeNotes(n int) []Item {
	items := make([]Item, n)
	for i := range items {
		items[i].Args = largeNote{strings.Repeat("x", 20<<10)}
	}
	return items
}

func TestBulkOfTwoQueues(t *testing.T) {
	t.Parallel()
	ctx, s, q, spans := tracedSetup(t, nil)
	other := checked(t, redistest.Start(t).Client())
	items := many(30)
	for i := range items {
		if i%3 == 0 {
			items[i].Options = []EnqueueOption{Queue(other.Name()), Header("k", "v")}
		}
	}
	if _, err := s.EnqueueMany(ctx, items, Queue(q.Name())); err != nil {
		t.Fatal(err)
	}
	for queue, n := range map[*store.Queue]int{q: 20, other: 10} {
		sends, creates := spansOf(spans, "enqueue "+queue.Name()), spansOf(spans, "create "+queue.Name())
		if len(sends) != 1 || len(creates) != n {
			t.Fatalf("%d sends, %d creates, want 1 and %d", len(sends), len(creates), n)
		}
		same(t, "the count", attributes(sends[0])["messaging.batch.message_count"], fmt.Sprint(n))
		same(t, "the links", len(sends[0].Links()), n)
		for _, j := range claimAll(t, queue) {
			if j.Headers[modeHeader] != "link" || (queue == other) != (j.Headers["k"] == "v") {
				t.Errorf("headers %v", j.Headers)
			}
		}
	}
}

func TestBulkFailures(t *testing.T) {
	t.Parallel()
	ctx, s, q, spans := tracedSetup(t, nil)
	items := append(many(2), Item{Args: unencodableArgs{strings.Repeat("x", 1<<20)}}, Item{Args: nil})
	if _, err := s.EnqueueMany(ctx, items, Queue(q.Name())); !errors.Is(err, signalbox.ErrInvalid) {
		t.Fatal(err)
	}
	creates, sends := spansOf(spans, "create "+q.Name()), spansOf(spans, "enqueue "+q.Name())
	if len(creates) != 3 || len(sends) != 1 {
		t.Fatalf("%d creates, %d sends", len(creates), len(sends))
	}
	same(t, "the status of the large one", creates[2].Status().Code, codes.Error)
	same(t, "its error.type", attributes(creates[2])["error.type"], "invalid")
	same(t, "the status of the sending", sends[0].Status().Code, codes.Unset)
	same(t, "its count", attributes(sends[0])["messaging.batch.message_count"], "2")
	same(t, "its links", len(sends[0].Links()), 2)

	spans.Reset()
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.EnqueueMany(cancelled, many(3), Queue(q.Name())); err == nil {
		t.Fatal("no error")
	}
	send := spansOf(spans, "enqueue "+q.Name())[0]
	same(t, "the status", send.Status().Code, codes.Error)
	same(t, "error.type", attributes(send)["error.type"], "cancelled")
	same(t, "the count", attributes(send)["messaging.batch.message_count"], "0")

	spans.Reset()
	if _, err := s.EnqueueMany(ctx, nil); err != nil || len(spans.Ended()) != 0 {
		t.Errorf("an empty bulk: %v, %d spans", err, len(spans.Ended()))
	}
}
