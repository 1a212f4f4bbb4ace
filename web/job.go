package web

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
)

const (
	mostText    = 64 << 10 // characters of the arguments, and of the result, that are shown
	mostHeader  = 2000     // characters of a header
	mostHeaders = 100
	mostError   = 4000 // characters of an error
)

// A jobPage is the page of one job.
type jobPage struct {
	inspect.Job
	Now        time.Time
	To         string // its queue
	List       string // the jobs of its state
	Arm        string
	Register   register
	Deliveries []delivered
	Shown      bool
	Payload    string
	HasResult  bool
	Result     string
	Size       int
	Headers    []header
	Facts      []fact
	Waits      []string
	Command    string
	Broken     string
	Levers     []lever
}

// A delivered is a row of the table of deliveries.
type delivered struct {
	delivery
	Got       template.HTML
	Ran       string
	Tag       string // class of its tag
	Text      string // the error in a row
	Whole     string // with the stack
	Number    string
	TraceLink string // "": there is none
}

// A header is one of a job's headers.
type header struct{ Name, Value string }

// A fact is a row of a list of facts. Value is text, or markup made by this package.
type fact struct {
	Name   string
	Value  any
	Class  string
	To     string
	Levers []lever
}

func (v *visit) job() (answer, error) {
	queue, id := v.URL.Query().Get("queue"), v.URL.Query().Get("id")
	if !v.scope.sees(queue) {
		return answer{}, inspect.ErrNoQueue
	}
	j, err := v.readJob(v.Context(), queue, id)
	if err != nil {
		return answer{}, err
	}
	p := &jobPage{
		Job: j, Now: v.now(), Shown: v.show, Size: len(j.Payload), HasResult: j.Result != nil, To: link("queue", "name", queue), List: link("jobs", "queue", queue, "state", string(j.State)),
		Command: shellWords("signalbox", "job", "show", queue, id),
	}
	switch j.State {
	case signalbox.StateDead:
		p.Arm = "stop"
	case signalbox.StateRunning, signalbox.StateCompleted:
		p.Arm = "clear"
	case signalbox.StateCancelled:
		p.Arm = "idle"
	default:
		p.Arm = "caution"
	}
	if j.Err != nil {
		p.Broken = "Its record can't be read. What follows is what is known of it."
		if v.scope.All {
			p.Broken += " " + clean(j.Err.Error(), 500)
		}
	}
	p.Levers = v.jobLevers(&j)
	list := deliveries(&j)
	p.Register = drawRegister(&j, list, p.Now)
	deliveries := func() *sheet {
		l := &sheet{name: "deliveries", columns: []string{"queue", "id", "number", "got_at", "ended_at", "worker", "outcome", "token", "error"}}
		for _, d := range list {
			row := []any{j.Queue, j.ID, nil, d.At, d.End, d.Worker, d.How, nil, d.Error}
			if d.Number > 0 {
				row[2] = d.Number
			}
			if d.Token > 0 {
				row[7] = strconv.FormatInt(d.Token, 10) // above 2^53 a number isn't exact everywhere
			}
			l.add(row...)
		}
		return l
	}
	for _, d := range slices.Backward(list) {
		row := deliveredOf(d, p.Now)
		row.TraceLink = v.traceLink(d.Trace)
		p.Deliveries = append(p.Deliveries, row)
	}
	if v.show {
		p.Payload, p.Result = encoded(j.Payload, j.Encoding), encoded(j.Result, j.Encoding)
		for _, k := range slices.Sorted(maps.Keys(j.Headers)) {
			if len(p.Headers) == mostHeaders {
				p.Headers = append(p.Headers, header{"…", fmt.Sprintf("%d more", len(j.Headers)-mostHeaders)})
				break
			}
			p.Headers = append(p.Headers, header{clean(k, 200), block(j.Headers[k], mostHeader)})
		}
	}
	if j.Waits != "" {
		p.Waits = append(p.Waits, "It waits: "+clean(j.Waits, 1000)+".")
	}
	if j.Nowhere {
		p.Waits = append(p.Waits, "It has a record and no place in the queue, so it never runs. signalbox doctor --repair mends that.")
	}
	if j.Cancelling {
		p.Waits = append(p.Waits, "It was asked to end. It ends when its handler returns.")
	}
	p.Facts = facts(&j)
	if j.TraceID != "" {
		p.Facts = append(p.Facts, fact{Name: "Trace", Value: name(j.TraceID), Class: "mono", To: v.traceLink(j.TraceID)})
	}
	return answer{name: "job", title: clean(id, 100) + " of " + clean(queue, 100), cur: "Jobs", queue: queue, body: p, sheet: deliveries}, nil
}

// readJob returns a job, as it was a moment ago.
func (v *visit) readJob(ctx context.Context, queue, id string) (inspect.Job, error) {
	return read(ctx, v.looks, "job\x00"+queue+"\x00"+id, lookTTL, func(ctx context.Context) (inspect.Job, error) { return v.ins.Job(ctx, queue, id) })
}

// now is the time by the clock of Redis at the last look.
func (v *visit) now() time.Time {
	if v.state.at.IsZero() {
		return time.Now()
	}
	return v.state.at
}

// deliveredOf returns a delivery as a row.
func deliveredOf(d delivery, now time.Time) delivered {
	r := delivered{delivery: d, Got: moment(d.At), Number: strconv.Itoa(d.Number)}
	if d.Number == 0 {
		r.Number = "now"
	}
	switch d.How {
	case "failed":
		r.Tag = "danger"
	case "completed":
		r.Tag = "clear"
	default:
		r.Tag = "run"
	}
	if d.End.IsZero() {
		r.Ran = span(max(0, now.Sub(d.At)))
	} else {
		r.Ran = span(d.End.Sub(d.At))
	}
	first, _, _ := strings.Cut(d.Error, "\n")
	r.Text = clean(first, 300)
	if d.Stack != "" || len(d.Error) > len(first) || utf8.RuneCountInString(first) > 300 {
		r.Whole = block(d.Error, mostError)
		if d.Stack != "" {
			r.Whole += "\n\n" + block(d.Stack, 4*mostError)
		}
	}
	return r
}

// encoded writes arguments or a result, with line breaks if they are JSON.
func encoded(text []byte, encoding string) string {
	if encoding != "" && !utf8.Valid(text) {
		return fmt.Sprintf("%d bytes of %s, which is no text", len(text), clean(encoding, 100))
	}
	var b bytes.Buffer
	if len(text) <= mostText && json.Indent(&b, text, "", "  ") == nil {
		text = b.Bytes()
	}
	return block(string(text[:min(len(text), 4*mostText)]), mostText)
}

// facts returns what a job's record says.
func facts(j *inspect.Job) []fact {
	or := func(s, none string) string { return cmp.Or(clean(s, 300), none) }
	list := []fact{
		{Name: "Queue", Value: name(j.Queue), To: link("queue", "name", j.Queue)},
		{Name: "Kind", Value: name(cmp.Or(j.Kind, "not known"))},
		{Name: "Priority", Value: fmt.Sprint(j.Priority)},
		{Name: "Failed", Value: fmt.Sprintf("%d of %s", j.Failed, counted(int64(j.MaxAttempts), "attempt"))},
		{Name: "Crashes", Value: strconv.Itoa(j.Crashes)},
		{Name: "Timeout", Value: "none"},
		{Name: "Enqueued", Value: day(j.EnqueuedAt)},
		{Name: "Due", Value: day(j.DueAt)},
	}
	if j.State == signalbox.StateAwaiting {
		list[7].Value = "when its batch lets it run"
	}
	if j.Crashes > 0 {
		list[4].Class = "warn"
	}
	if j.Timeout > 0 {
		list[5].Value = span(j.Timeout) + " each attempt"
	}
	add := func(name string, value any) { list = append(list, fact{Name: name, Value: value}) }
	if !j.ExpiresAt.IsZero() {
		add("Expires", day(j.ExpiresAt))
	}
	if !j.Deadline.IsZero() {
		add("Deadline", day(j.Deadline))
	}
	if !j.EndedAt.IsZero() {
		add("Ended", day(j.EndedAt))
	}
	if j.State == signalbox.StateRunning {
		add("Worker", name(or(j.Worker, "not known")))
		list = append(list, fact{Name: "Token", Value: tokenText(j.Token), Class: "mono"})
	}
	if p := j.Progress; p != nil {
		text := commas(p.Done)
		if p.Total > 0 {
			text += " of " + commas(p.Total)
		}
		add("Progress", text+" "+clean(p.Note, 300))
	}
	if j.Group != "" {
		text := j.Group
		if j.Serial {
			text += ", one at a time"
		}
		list = append(list, fact{Name: "Group", Value: name(text), To: link("jobs", "queue", j.Queue, "state", "ready", "group", j.Group)})
	}
	if j.Batch != "" {
		list = append(list, fact{Name: "Batch", Value: name(j.Batch), To: flowLink(j.Queue, j.Batch)})
	}
	if j.UniqueKey != "" {
		add("Unique key", name(j.UniqueKey+", until "+j.UniqueUntil))
	}
	if j.EffectKey != "" {
		list = append(list, fact{Name: "Effect key", Value: name(j.EffectKey), Class: "mono"})
	}
	switch {
	case j.Retain == signalbox.RetainNone:
		add("Kept after its end", "no")
	case j.Retain > 0:
		add("Kept after its end", span(j.Retain))
	default:
		add("Kept after its end", "as the queue says")
	}
	return list
}
