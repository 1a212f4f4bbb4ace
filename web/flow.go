package web

import (
	"cmp"
	"context"
	"fmt"
	"html/template"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
)

const (
	mostFlows   = 100              // batches in a list
	flowJobsTTL = 10 * time.Second // how long the jobs of a batch count: some 10,000 records are read for them
)

// A flowsPage is the list of a queue's batches.
type flowsPage struct {
	Queue   string
	To      string
	Rows    []flowRow
	Says    string
	Command string
}

// A flowRow is a batch in a list.
type flowRow struct {
	inspect.Flow
	To    string
	State string
	Began template.HTML
}

// A flowPage is the page of one batch.
type flowPage struct {
	inspect.Flow
	To, List string // its queue, and the batches of it
	Arm      string
	State    string
	Sub      string
	Why      []string // what is special about it
	Bar      template.HTML
	Parts    []flowPart
	Facts    []fact
	Waiters  []callbackRow
	Errors   []failedRow
	NoJobs   string // why the jobs are not known
	JobsSay  string
	Command  string
	Levers   []lever
}

// A flowPart is a part of the members.
type flowPart struct {
	Name, Class string
	Count       int64
}

// A callbackRow is a job that waits for the batch.
type callbackRow struct {
	ID, Kind, To string
	Awaits       string
	Released     bool
	State, Tag   string
	Says         string
}

// A failedRow is a group of members that have failed.
type failedRow struct {
	Text, Kind, To string
	State          string
	Count          int64
	Last           template.HTML
	Example        string
	ExampleTo      string
}

// flowLink returns the address of the page of a batch.
func flowLink(queue, id string) string { return link("flow", "queue", queue, "id", id) }

// flows is the list of a queue's batches.
func (v *visit) flows() (answer, error) {
	queue := v.URL.Query().Get("queue")
	if !v.scope.sees(queue) {
		return answer{}, inspect.ErrNoQueue
	}
	type list struct {
		flows []inspect.Flow
		more  bool
	}
	found, err := read(v.Context(), v.looks, "flows\x00"+queue, lookTTL, func(ctx context.Context) (l list, err error) {
		l.flows, l.more, err = v.ins.Flows(ctx, queue, mostFlows)
		return l, err
	})
	if err != nil {
		return answer{}, err
	}
	p := &flowsPage{Queue: queue, To: link("queue", "name", queue), Command: shellWords("signalbox", "flow", "ls", queue), Says: "the newest first"}
	if found.more {
		p.Says = fmt.Sprintf("the newest %d; there are more", mostFlows)
	}
	for i := range found.flows {
		f := &found.flows[i]
		p.Rows = append(p.Rows, flowRow{Flow: *f, To: flowLink(queue, f.ID), State: f.State(), Began: ago(v.now(), f.CreatedAt)})
	}
	sheet := func() *sheet {
		l := &sheet{name: "batches", columns: []string{"queue", "id", "state", "cancelled", "failed", "total", "open", "completed", "dead", "gone", "callbacks", "created_at", "ended_at"}}
		for i := range found.flows {
			f := &found.flows[i]
			l.add(f.Queue, f.ID, f.State(), f.Cancelled, f.Failed, f.Total, f.Open, f.Completed, f.Dead, f.Gone, f.Callbacks, f.CreatedAt, f.EndedAt)
		}
		return l
	}
	return answer{name: "flows", title: "Batches of " + clean(queue, 100), queue: queue, body: p, sheet: sheet}, nil
}

// flow is the page of one batch.
func (v *visit) flow() (answer, error) {
	queue, id := v.URL.Query().Get("queue"), v.URL.Query().Get("id")
	if !v.scope.sees(queue) {
		return answer{}, inspect.ErrNoQueue
	}
	f, err := read(v.Context(), v.looks, "flow\x00"+queue+"\x00"+id, lookTTL, func(ctx context.Context) (inspect.Flow, error) { return v.ins.Flow(ctx, queue, id) })
	if err != nil {
		return answer{}, err
	}
	p := &flowPage{Flow: f, To: link("queue", "name", queue), List: link("flows", "queue", queue), State: f.State(), Command: shellWords("signalbox", "flow", "show", queue, id)}
	if !f.Over && !f.Cancelled {
		p.Levers = v.levers(Action{Queue: queue, Batch: id}, Cancel)
	}
	p.say()
	p.bar()
	p.facts()
	jobs, err := v.flowJobs(queue, id)
	if err != nil {
		p.NoJobs = "They could not be read. " + v.reason(err)
	}
	p.list(&jobs, v.now())
	sheet := func() *sheet {
		l := &sheet{name: "callbacks", columns: []string{"queue", "batch", "id", "kind", "awaits", "released", "state", "last_error"}}
		for i := range jobs.Callbacks {
			c := &jobs.Callbacks[i]
			l.add(queue, id, c.ID, c.Kind, c.Awaits, c.Released, string(c.State), c.LastError)
		}
		return l
	}
	a := answer{name: "flow", title: "Batch " + clean(id, 100) + " of " + clean(queue, 100), queue: queue, body: p}
	if err == nil {
		a.sheet = sheet
	}
	return a, nil
}

// flowJobs returns the jobs of a batch, as they were some seconds ago.
func (v *visit) flowJobs(queue, id string) (inspect.FlowJobs, error) {
	return read(v.Context(), v.looks, "flowjobs\x00"+queue+"\x00"+id, flowJobsTTL, func(ctx context.Context) (inspect.FlowJobs, error) { return v.ins.FlowJobs(ctx, queue, id) })
}

// say says how the batch is, in words.
func (p *flowPage) say() {
	p.Sub = fmt.Sprintf("%s of %s have ended.", commas(p.Total-p.Open), counted(p.Total, "job"))
	switch {
	case p.Failed:
		p.Arm = "stop"
	case p.Cancelled:
		p.Arm = "idle"
	case p.Over:
		p.Arm = "clear"
	default:
		p.Arm = "caution"
	}
	if p.Cancelled {
		why := "It was cancelled. Redis doesn't keep why: "
		if p.FailFast && p.Failed {
			why += "its first member that failed may have done it, since it is made with FailFast, or its time was over, or somebody did it."
		} else {
			why += "somebody did it, or its time was over. A worker that did it has logged why."
		}
		p.Why = append(p.Why, why)
	}
	if p.Cancelled && p.Over {
		p.Why = append(p.Why, "It was over with that: none of its members is left.")
	} else if p.Cancelled {
		p.Why = append(p.Why, counted(p.Open, "member")+" still to end: workers go through the queue until none is left.")
	}
	if p.Unsealed {
		p.Why = append(p.Why, "Its producer may still add to it, so it can't be over.")
	}
}

// bar draws the members by their states.
func (p *flowPage) bar() {
	p.Parts = []flowPart{{"completed", "f-done", p.Completed}, {"dead", "f-dead", p.Dead}, {"cancelled or deleted", "f-gone", p.Gone}, {"open", "f-open", p.Open}}
	says := "Of " + counted(p.Total, "member")
	var d, bars drawing
	at := 0.
	for _, x := range p.Parts {
		says += fmt.Sprintf(", %s %s", commas(x.Count), x.Name)
		if x.Count == 0 {
			continue
		}
		part := 100 * float64(x.Count) / float64(max(p.Total, 1))
		bars.add(`<rect class="%v" x="%v%%" width="%v%%" height="26"/>`, x.Class, at, max(.4, part-.25))
		at += part
	}
	d.add(`<svg class="share" role="img" aria-label="%v">`, says)
	d.WriteString(bars.String())
	d.add(`</svg>`)
	p.Bar = d.html()
}

// facts fills in what is known of the batch.
func (p *flowPage) facts() {
	p.Facts = []fact{
		{Name: "Queue", Value: name(p.Queue), To: p.To},
		{Name: "Began", Value: day(p.CreatedAt)},
		{Name: "Sealed", Value: "yes; when is not known"},
		{Name: "Times out", Value: "never"},
		{Name: "Over", Value: "no"},
		{Name: "Cancelled", Value: "no"},
		{Name: "When a member fails", Value: "the others go on"},
		{Name: "Callbacks that haven't ended", Value: commas(p.Callbacks)},
	}
	switch {
	case p.Unsealed:
		p.Facts[2].Value = template.HTML("no; cancelled if it isn't by ") + day(p.SealBy)
	case p.Cancelled:
		p.Facts[2].Value = "yes, or cancelled before"
	}
	switch {
	case !p.EndBy.IsZero():
		p.Facts[3].Value = day(p.EndBy)
	case p.Over:
		p.Facts[3].Value = "not known any more"
	case p.Cancelled:
		p.Facts[3].Value = "it is cancelled"
	}
	if p.Over {
		p.Facts[4].Value = day(p.EndedAt)
	}
	if p.Cancelled {
		p.Facts[5] = fact{Name: "Cancelled", Value: "yes", Class: "warn"}
	}
	if p.FailFast {
		p.Facts[6].Value = "it is cancelled"
	}
	if !p.CalledAt.IsZero() {
		p.Facts = append(p.Facts, fact{Name: "Last got jobs of its producer", Value: day(p.CalledAt)})
	}
}

// list fills in the jobs of the batch.
func (p *flowPage) list(jobs *inspect.FlowJobs, now time.Time) {
	for i := range jobs.Callbacks {
		c := &jobs.Callbacks[i]
		r := callbackRow{ID: c.ID, Kind: c.Kind, To: link("job", "queue", p.Queue, "id", c.ID), Awaits: c.Awaits, Released: c.Released, State: string(c.State), Says: clean(cmp.Or(c.Waits, c.LastError), 200)}
		switch c.State {
		case signalbox.StateDead:
			r.Tag = "danger"
		case signalbox.StateRunning:
			r.Tag = "run"
		case signalbox.StateCompleted:
			r.Tag = "clear"
		case signalbox.StateAwaiting, signalbox.StateReady, signalbox.StateScheduled, signalbox.StateCancelled:
		}
		p.Waiters = append(p.Waiters, r)
	}
	for _, g := range jobs.Failed[:min(len(jobs.Failed), 2*smallRows)] {
		p.Errors = append(p.Errors, failedRow{
			Text: cmp.Or(clean(g.Error, 250), "no error"), Kind: g.Kind, State: string(g.Filter.State), Count: g.Count, Last: ago(now, g.Last), Example: g.Example,
			To:        link("jobs", "queue", p.Queue, "state", string(g.Filter.State), "kind", g.Filter.Kind, "error", g.Filter.Error),
			ExampleTo: link("job", "queue", p.Queue, "id", g.Example),
		})
	}
	if more := len(jobs.Failed) - len(p.Errors); more > 0 {
		p.JobsSay = fmt.Sprintf("%d smaller groups are left out", more)
	}
	if jobs.Partial {
		p.JobsSay = "the queue has too many jobs to look at all: some may be missing"
	}
}
