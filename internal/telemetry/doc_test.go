package telemetry_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// TestDocs compares the tables of docs/tracing with a story in which everything happens. Whatever is
// emitted must be in the tables, and whatever is in the tables must be emitted.
func TestDocs(t *testing.T) {
	t.Parallel()
	var doc string
	for _, page := range []string{"tracing.md", "tracing/spans.md", "tracing/metrics.md"} {
		text, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		doc += string(text) + "\n"
	}
	story := play(t)
	if t.Failed() {
		return // the end of the story is missing
	}
	t.Run("spans", func(t *testing.T) { same(t, story.spanFacts(), documentedSpans(t, doc)) })
	t.Run("attributes", func(t *testing.T) { same(t, story.attributeFacts(), documentedAttributes(t, doc)) })
	t.Run("events", func(t *testing.T) { same(t, story.eventFacts(), documentedEvents(t, doc)) })
	t.Run("metrics", func(t *testing.T) { same(t, story.metricFacts(), documentedMetrics(t, doc)) })
	t.Run("values", func(t *testing.T) { story.checkValues(t, doc) })
	t.Run("errors", func(t *testing.T) { story.checkErrors(t, doc) })
	t.Run("boundaries", func(t *testing.T) { story.checkBoundaries(t, doc) })
	t.Run("nothing private", func(t *testing.T) { story.checkPrivate(t) })
}

// facts are lines that are true.
type facts map[string]bool

func (f facts) add(format string, args ...any) { f[fmt.Sprintf(format, args...)] = true }

func same(t *testing.T, emitted, documented facts) {
	t.Helper()
	if len(emitted) == 0 {
		t.Error("nothing is emitted")
	}
	for _, line := range slices.Sorted(maps.Keys(emitted)) {
		if !documented[line] {
			t.Errorf("emitted, and not in docs/tracing: %s", line)
		}
	}
	for _, line := range slices.Sorted(maps.Keys(documented)) {
		if !emitted[line] {
			t.Errorf("in docs/tracing, and never emitted: %s", line)
		}
	}
}

// table returns the rows of the table whose first column has this heading.
func table(t *testing.T, doc, heading string, columns int) [][]string {
	t.Helper()
	_, body, ok := strings.Cut(doc, "\n| "+heading+" |")
	if !ok {
		t.Fatalf("docs/tracing has no table of %ss", heading)
	}
	body, _, _ = strings.Cut(body, "\n\n")
	var rows [][]string
	for _, line := range strings.Split(body, "\n")[2:] {
		cells := strings.Split(strings.Trim(line, "| "), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if len(cells) != columns {
			t.Fatalf("docs/tracing: %d cells, want %d: %s", len(cells), columns, line)
		}
		rows = append(rows, cells)
	}
	return rows
}

// list returns the names in a cell, without the backticks.
func list(cell string) []string { return strings.Split(strings.ReplaceAll(cell, "`", ""), ", ") }

var code = regexp.MustCompile("`([^`]+)`")

// spanNames returns the names in the table of spans, in the short form that other tables use.
func spanNames(t *testing.T, doc string) []string {
	t.Helper()
	var names []string
	for _, row := range table(t, doc, "span", 5) {
		names = append(names, short(list(row[0])[0]))
	}
	return names
}

// inBraces matches the part of a span's name that has many values.
var inBraces = regexp.MustCompile(` \{\w+\}`)

func short(name string) string { return inBraces.ReplaceAllString(name, "") }

// on returns the spans that a cell names: some, all, or all except some.
func on(t *testing.T, doc, cell string) []string {
	t.Helper()
	all := spanNames(t, doc)
	if cell == "all" {
		return all
	}
	rest, allBut := strings.CutPrefix(cell, "all but ")
	named := list(rest)
	for _, name := range named {
		if !slices.Contains(all, name) {
			t.Errorf("docs/tracing: %q is no span of the table", name)
		}
	}
	if !allBut {
		return named
	}
	return slices.DeleteFunc(all, func(name string) bool { return slices.Contains(named, name) })
}

func documentedSpans(t *testing.T, doc string) facts {
	t.Helper()
	f := make(facts)
	for _, row := range table(t, doc, "span", 5) {
		name := list(row[0])[0]
		f.add("span %s is %s, %s", name, row[1], row[2])
		for _, parent := range list(row[3]) {
			f.add("span %s is a child of %s", name, parent)
		}
		for _, link := range list(row[4]) {
			if link != "-" {
				f.add("span %s links to %s", name, link)
			}
		}
	}
	return f
}

func (s *story) spanFacts() facts {
	f := make(facts)
	byID := make(map[trace.SpanID]string)
	for _, sp := range s.spans {
		byID[sp.SpanContext.SpanID()] = short(s.name(sp))
	}
	for _, sp := range s.ours() {
		name := s.name(sp)
		set := attribute.NewSet(sp.Attributes...)
		opType, ok := set.Value("messaging.operation.type")
		if !ok {
			opType = attribute.StringValue("-")
		}
		f.add("span %s is %s, %s", name, strings.ToUpper(sp.SpanKind.String()), opType.AsString())
		parent := "none"
		if sp.Parent.IsValid() {
			parent = byID[sp.Parent.SpanID()]
		}
		f.add("span %s is a child of %s", name, parent)
		for _, l := range sp.Links {
			f.add("span %s links to %s", name, byID[l.SpanContext.SpanID()])
		}
	}
	return f
}

func documentedAttributes(t *testing.T, doc string) facts {
	t.Helper()
	f := make(facts)
	for _, row := range table(t, doc, "attribute", 5) {
		key := list(row[0])[0]
		f.add("attribute %s is of type %s", key, row[1])
		for _, name := range on(t, doc, row[2]) {
			f.add("attribute %s is on %s, and known at its %s", key, name, row[3])
		}
	}
	return f
}

func (s *story) attributeFacts() facts {
	f := make(facts)
	for _, sp := range s.ours() {
		for _, kv := range sp.Attributes {
			f.add("attribute %s is of type %s", kv.Key, typeName(kv.Value))
			known := "end"
			if s.recorder.knew(sp, kv.Key) {
				known = "start"
			}
			f.add("attribute %s is on %s, and known at its %s", kv.Key, short(s.name(sp)), known)
		}
	}
	return f
}

// value returns the value of a span's attribute, or "".
func value(sp tracetest.SpanStub, key attribute.Key) string {
	set := attribute.NewSet(sp.Attributes...)
	v, _ := set.Value(key)
	return v.AsString()
}

func typeName(v attribute.Value) string {
	if v.Type() == attribute.INT64 {
		return "int"
	}
	return strings.ToLower(v.Type().String())
}

func documentedEvents(t *testing.T, doc string) facts {
	t.Helper()
	f := make(facts)
	for _, row := range table(t, doc, "event", 4) {
		name := list(row[0])[0]
		for _, span := range on(t, doc, row[1]) {
			f.add("event %s is on %s", name, span)
		}
		for _, key := range list(row[2]) {
			if key != "-" {
				f.add("event %s has %s", name, key)
			}
		}
	}
	return f
}

func (s *story) eventFacts() facts {
	f := make(facts)
	for _, sp := range s.ours() {
		for _, e := range sp.Events {
			f.add("event %s is on %s", e.Name, short(s.name(sp)))
			for _, kv := range e.Attributes {
				f.add("event %s has %s", e.Name, kv.Key)
			}
		}
	}
	return f
}

func documentedMetrics(t *testing.T, doc string) facts {
	t.Helper()
	f := make(facts)
	for _, row := range table(t, doc, "metric", 5) {
		name := list(row[0])[0]
		f.add("metric %s is a %s of %s", name, row[1], list(row[2])[0])
		f.add("metric %s has messaging.system", name) // all metrics have it
		for _, key := range list(row[3]) {
			if key != "-" {
				f.add("metric %s has %s", name, key)
			}
		}
	}
	return f
}

func (s *story) metricFacts() facts {
	f := make(facts)
	for _, m := range s.metrics {
		kind, points := dissect(m)
		f.add("metric %s is a %s of %s", m.Name, kind, m.Unit)
		for _, set := range points {
			for _, kv := range set.ToSlice() {
				f.add("metric %s has %s", m.Name, kv.Key)
			}
		}
	}
	return f
}

// dissect returns the kind of a metric's instrument, and the attributes of its points.
func dissect(m metricdata.Metrics) (kind string, points []attribute.Set) {
	switch d := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range d.DataPoints {
			points = append(points, p.Attributes)
		}
		if !d.IsMonotonic {
			return "UpDownCounter", points
		}
		return "Counter", points
	case metricdata.Gauge[int64]:
		for _, p := range d.DataPoints {
			points = append(points, p.Attributes)
		}
		return "ObservableGauge", points
	case metricdata.Gauge[float64]:
		for _, p := range d.DataPoints {
			points = append(points, p.Attributes)
		}
		return "ObservableGauge", points
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			points = append(points, p.Attributes)
		}
		return "Histogram", points
	}
	return fmt.Sprintf("%T", m.Data), nil
}

// unplayed are values that don't occur in the story because that would take too long. They are constants of
// the code.
var unplayed = map[string]string{
	"missed": telemetry.OutcomeMissed, // no process ran the entry for more than five seconds
	"paused": telemetry.OutcomePaused, // somebody paused the entry

	"overlapped": telemetry.OutcomeOverlapped, // the entry has a policy for jobs that overlap
}

// goType matches an error.type that is the Go type of an error, of the user or of a library.
var goType = regexp.MustCompile(`^\*?[\w/.-]+\.\w+$`)

// A place is where the tables list an attribute's values: one of the constants below, or the name of a
// metric.
type place struct{ on, key string }

// If the tables list no values for a metric or for events, the values for onMetrics apply, or else those for
// onSpans.
const (
	onSpans   = "spans"
	onEvents  = "an event"
	onMetrics = "metrics"
)

// documentedValues returns the values of the attributes whose values the tables list as "one of".
func documentedValues(t *testing.T, doc string) map[place]map[string]bool {
	t.Helper()
	documented := make(map[place]map[string]bool)
	note := func(on string, row []string) {
		rest, ok := strings.CutPrefix(row[4], "one of ")
		if !ok {
			return
		}
		values := make(map[string]bool)
		for _, m := range code.FindAllStringSubmatch(rest, -1) {
			values[m[1]] = true
		}
		documented[place{on, list(row[0])[0]}] = values
	}
	for _, row := range table(t, doc, "attribute", 5) {
		note(onSpans, row)
	}
	for _, row := range table(t, doc, "further attribute", 5) {
		for _, on := range list(row[2]) {
			note(on, row)
		}
	}
	return documented
}

// checkValues compares those values with the ones on spans, events and metrics.
func (s *story) checkValues(t *testing.T, doc string) {
	documented := documentedValues(t, doc)
	emitted := make(map[place]map[string]bool)
	otherKinds := false
	saw := func(kv attribute.KeyValue, on ...string) {
		key, value := string(kv.Key), kv.Value.String()
		otherKinds = otherKinds || kv == attribute.String("signalbox.job.kind", telemetry.KindOther)
		i := slices.IndexFunc(on, func(on string) bool { return documented[place{on, key}] != nil })
		if i < 0 {
			return
		}
		p := place{on[i], key}
		if !documented[p][value] {
			t.Errorf("emitted, and not in docs/tracing: on %s %s=%s", on[0], key, value)
		}
		if p.on == onSpans && on[0] != onSpans {
			return // a span must have it as well
		}
		if emitted[p] == nil {
			emitted[p] = make(map[string]bool)
		}
		emitted[p][value] = true
	}
	for _, sp := range s.ours() {
		for _, kv := range sp.Attributes {
			saw(kv, onSpans)
		}
		for _, e := range sp.Events {
			for _, kv := range e.Attributes {
				saw(kv, onEvents, onSpans)
			}
		}
	}
	for _, m := range s.metrics {
		_, points := dissect(m)
		for _, set := range points {
			for _, kv := range set.ToSlice() {
				saw(kv, m.Name, onMetrics, onSpans)
			}
		}
	}
	for p, values := range documented {
		for value := range values {
			if !emitted[p][value] && unplayed[value] != value {
				t.Errorf("in docs/tracing, and never emitted: on %s %s=%s", p.on, p.key, value)
			}
		}
	}
	if len(documented) < 5 {
		t.Errorf("%d attributes with values are in docs/tracing", len(documented))
	}
	if !otherKinds || !strings.Contains(doc, "`"+telemetry.KindOther+"`") {
		t.Errorf("%s: emitted %v", telemetry.KindOther, otherKinds)
	}
}

// checkBoundaries compares the boundaries of all histograms.
func (s *story) checkBoundaries(t *testing.T, doc string) {
	_, line, _ := strings.Cut(doc, "\n`0.0001 ")
	line, _, _ = strings.Cut("0.0001 "+line, "`")
	var want []float64
	for _, field := range strings.Fields(line) {
		bound, err := strconv.ParseFloat(field, 64)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, bound)
	}
	histograms := 0
	for _, m := range s.metrics {
		h, ok := m.Data.(metricdata.Histogram[float64])
		if !ok {
			continue
		}
		histograms++
		for _, p := range h.DataPoints {
			if !slices.Equal(p.Bounds, want) {
				t.Fatalf("%s has the boundaries %v, docs/tracing has %v", m.Name, p.Bounds, want)
			}
		}
	}
	if histograms == 0 {
		t.Error("there is no histogram")
	}
}

// checkPrivate looks for data that must never be emitted. The messages of errors are their authors' words, so
// it checks only the messages that Signalbox makes about jobs. If an attempt failed for lack of a lock, the
// message has the lock's key.
func (s *story) checkPrivate(t *testing.T) {
	look := func(where, text string, private ...string) {
		for _, p := range private {
			if strings.Contains(text, p) {
				t.Errorf("%q is in %s: %q", p, where, text)
			}
		}
	}
	ids := make(map[string]bool)
	named := 0
	for _, sp := range s.ours() {
		inMessages := []string{canary, s.lockKey}
		if kind := value(sp, "signalbox.job.kind"); strings.HasPrefix(sp.Name, "process ") && kind == "down" {
			inMessages = inMessages[:1]
			named += strings.Count(sp.Status.Description, s.lockKey)
		}
		look("a name", sp.Name, canary, s.lockKey)
		look("the status of "+sp.Name, sp.Status.Description, inMessages...)
		for _, kv := range sp.Attributes {
			look(sp.Name, kv.Value.String(), canary, s.lockKey)
			if kv.Key == "messaging.message.id" {
				ids[kv.Value.String()] = true
			}
		}
		for _, e := range sp.Events {
			for _, kv := range e.Attributes {
				look(e.Name+" of "+sp.Name, kv.Value.String(), inMessages...)
			}
		}
	}
	for _, m := range s.metrics {
		_, points := dissect(m)
		for _, set := range points {
			for _, kv := range set.ToSlice() {
				look(m.Name, kv.Value.String(), canary, s.lockKey)
				if ids[kv.Value.String()] {
					t.Errorf("%s has the job's ID: %v", m.Name, kv)
				}
			}
		}
	}
	if len(ids) == 0 || named == 0 {
		t.Errorf("%d jobs have spans, and %d failed for want of a lock", len(ids), named)
	}
}
