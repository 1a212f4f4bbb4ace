package worker

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// Redis gets the spans of deliveries that take a while, if the spans are sampled.
func TestMark(t *testing.T) {
	t.Parallel()
	kept := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled})
	for name, tc := range map[string]struct {
		span       trace.SpanContext
		age        time.Duration
		traced     bool // with or without a span
		over       bool
		now, later bool
	}{
		"a span that has run for a while": {span: kept, age: noteFrom, now: true},
		"one that has just begun":         {span: kept, age: noteFrom - 1, later: true},
		"one that is about to begin":      {age: noteBy, later: true},
		"one that nobody keeps":           {span: kept.WithTraceFlags(0), age: noteBy},
		"one that is none":                {traced: true, age: noteBy},
		"one whose delivery is over":      {span: kept, age: noteBy, over: true},
	} {
		begin := time.Now()
		d := &delivery{started: begin, returned: tc.over, watch: &watch{}}
		if tc.traced || tc.span.IsValid() {
			d.watch.Trace(tc.span, untold{})
		}
		if now, later := d.note(begin.Add(tc.age)); now != tc.now || later != tc.later {
			t.Errorf("%s: now %v, later %v; want %v, %v", name, now, later, tc.now, tc.later)
		}
	}
}

// untold is a Tracing whose methods are never called.
type untold struct{ telemetry.Tracing }

// A call takes as many notes as it may, and leaves the rest for the next call.
func TestNotesOfACall(t *testing.T) {
	t.Parallel()
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled})
	s := &session{}
	add := func(id string, started time.Time) *delivery {
		d := &delivery{id: id, started: started, watch: &watch{}}
		d.watch.Trace(span, untold{})
		s.unnoted = append(s.unnoted, d)
		return d
	}
	old := time.Now().Add(-time.Hour)
	add("over", old).returned = true
	add("young", time.Now().Add(time.Hour))
	add("old", old)
	if notes := s.notes(); len(notes) != 1 || notes[0].ID != "old" || notes[0].Span != telemetry.FormatSpan(span) {
		t.Errorf("notes are %v, want that of the old one", notes)
	}
	if len(s.unnoted) != 1 || s.unnoted[0].id != "young" {
		t.Errorf("%d are left, want the young one", len(s.unnoted))
	}
	s.unnoted[0].started = old
	if notes := s.notes(); len(notes) != 1 || notes[0].ID != "young" {
		t.Errorf("notes are %v, want that of the one that has grown old", notes)
	}
	if notes := s.notes(); notes != nil {
		t.Errorf("notes are %v, want none twice", notes)
	}
}

// A note that no other call takes is sent with its own call. That holds for the notes of one delivery, and of the next one.
func TestNotesGoWithoutAnotherCall(t *testing.T) {
	t.Parallel()
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled})
	synctest.Test(t, func(t *testing.T) {
		w := &Worker{log: slog.New(slog.DiscardHandler)}
		q := newQueue(w, store.New(nil, "", "queue"), nil, 1, nil)
		q.keeper.claimUnder(&session{})
		q.sessions = []*session{q.session}
		for n := range 3 {
			d := &delivery{id: "job", started: time.Now(), watch: &watch{}}
			d.watch.Trace(span, untold{})
			q.mu.Lock()
			q.session.unnoted = append(q.session.unnoted, d)
			q.claimer.noteSoon()
			q.mu.Unlock()
			time.Sleep(noteBy) // of the bubble's clock
			synctest.Wait()
			q.mu.Lock()
			if !q.dispatch.probe || !q.dispatch.summoned || len(q.session.notes()) != 1 {
				t.Errorf("delivery %d: no call is made for its note", n+1)
			}
			q.dispatch.probe, q.dispatch.summoned = false, false // the state after that call
			q.mu.Unlock()
		}
	})
}

// Notes that don't fit into one call are sent with the next.
func TestNotesOfManyDeliveries(t *testing.T) {
	t.Parallel()
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled})
	s := &session{}
	for range store.MaxNotes + 1 {
		d := &delivery{started: time.Now().Add(-time.Hour), watch: &watch{}}
		d.watch.Trace(span, untold{})
		s.unnoted = append(s.unnoted, d)
	}
	for i, want := range []int{store.MaxNotes, 1, 0} {
		if notes := s.notes(); len(notes) != want {
			t.Errorf("call %d has %d notes, want %d", i+1, len(notes), want)
		}
	}
}
