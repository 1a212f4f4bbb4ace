package worker

import (
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// Redis hears of spans that are kept, of deliveries that take a while.
func TestMark(t *testing.T) {
	t.Parallel()
	kept := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled})
	for name, tc := range map[string]struct {
		span       trace.SpanContext
		age        time.Duration
		traced     bool // also without a span
		over       bool
		now, later bool
	}{
		"a span that has run for a while": {span: kept, age: markFrom, now: true},
		"one that has just begun":         {span: kept, age: markFrom - 1, later: true},
		"one that is about to begin":      {age: markBy, later: true},
		"one that nobody keeps":           {span: kept.WithTraceFlags(0), age: markBy},
		"one that is none":                {traced: true, age: markBy},
		"one whose delivery is over":      {span: kept, age: markBy, over: true},
	} {
		begin := time.Now()
		v := &watch{since: begin, over: tc.over}
		if tc.traced || tc.span.IsValid() {
			v.Trace(tc.span, untold{})
		}
		if now, later := v.mark(begin.Add(tc.age)); now != tc.now || later != tc.later {
			t.Errorf("%s: now %v, later %v; want %v, %v", name, now, later, tc.now, tc.later)
		}
	}
}

// untold is a tracing that nobody calls.
type untold struct{ telemetry.Tracing }

// A call takes what is to be told with it, and leaves the rest for the next.
func TestMarksOfACall(t *testing.T) {
	t.Parallel()
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled})
	s := &session{}
	add := func(id string, since time.Time) *watch {
		v := &watch{id: id, since: since}
		v.Trace(span, untold{})
		s.unmarked = append(s.unmarked, v)
		return v
	}
	old := time.Now().Add(-time.Hour)
	add("over", old).over = true
	add("young", time.Now().Add(time.Hour))
	add("old", old)
	if marks := s.marks(); len(marks) != 1 || marks[0].ID != "old" || marks[0].Span != telemetry.FormatSpan(span) {
		t.Errorf("marks are %v, want that of the old one", marks)
	}
	if len(s.unmarked) != 1 || s.unmarked[0].id != "young" {
		t.Errorf("%d are left, want the young one", len(s.unmarked))
	}
	s.unmarked[0].since = old
	if marks := s.marks(); len(marks) != 1 || marks[0].ID != "young" {
		t.Errorf("marks are %v, want that of the one that has grown old", marks)
	}
	if marks := s.marks(); marks != nil {
		t.Errorf("marks are %v, want none twice", marks)
	}
}
