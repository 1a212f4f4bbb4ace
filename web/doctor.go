package web

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/signalbox-go/signalbox/inspect"
)

// mostFindings is how many findings of the doctor the page shows.
const mostFindings = 100

// doctorTTL is how long a report counts: the doctor reads every job.
const doctorTTL = 10 * time.Second

// A doctorPage has the report of the doctor about one queue, if somebody asked for it.
type doctorPage struct {
	Queue, To string
	Names     []string // of all queues, for the form
	Asked     bool
	Arm       string
	Title     string // what was proved
	Says      string
	Findings  []findingRow
	Left      int64 // findings that are left out
	Unproved  []string
	Err       string
	Outboxes  []outboxRow
	Levers    []lever
	Command   string
}

// A findingRow is something that was wrong in a queue at one moment.
type findingRow struct{ Fault, Job, To, Text, Repair string }

// An outboxRow is an outbox as its relays said.
type outboxRow struct {
	Queue, To, ID string
	Rows, Dead    int64
	More          bool
	Lag           time.Duration
}

// What one look of the doctor has found.
type doctorLook struct {
	inspect.Report
	at   time.Time
	took time.Duration
	cut  bool // the time was over
}

// doctor is the page of the doctor. It reads every job of the queue, so it is asked only when somebody wants it.
func (v *visit) doctor() (answer, error) {
	if !v.scope.All {
		return answer{}, errNoPage
	}
	form := v.URL.Query()
	p := &doctorPage{Queue: form.Get("queue"), Asked: form.Get("look") == "yes", Arm: "idle", Command: shellWords("signalbox", "doctor")}
	a := answer{name: "doctor", title: "Doctor", cur: "Doctor", queue: p.Queue, body: p, still: true}
	for i := range v.state.queues {
		p.Names = append(p.Names, v.state.queues[i].Name)
	}
	for _, o := range v.state.outboxes {
		p.Outboxes = append(p.Outboxes, outboxRow{Queue: o.Queue, To: link("queue", "name", o.Queue), ID: o.ID, Rows: o.Backlog, Dead: o.Dead, More: o.More, Lag: o.Lag})
	}
	if p.Queue == "" {
		return a, nil
	}
	if _, ok := v.state.of(p.Queue); !ok {
		return answer{}, inspect.ErrNoQueue
	}
	p.To, p.Command = link("queue", "name", p.Queue), shellWords("signalbox", "doctor", p.Queue)
	if !p.Asked {
		return a, nil
	}
	look, err := read(v.Context(), v.looks, "doctor\x00"+p.Queue, doctorTTL, func(ctx context.Context) (*doctorLook, error) {
		l := &doctorLook{at: time.Now()}
		bound, cancel := context.WithTimeout(ctx, listBound)
		defer cancel()
		var err error
		l.Report, err = v.ins.Doctor(bound, p.Queue, inspect.Checkup{})
		if l.took = time.Since(l.at); err != nil && bound.Err() != nil && ctx.Err() == nil {
			l.cut, err = true, nil
		}
		return l, err
	})
	if err != nil {
		p.Err = v.reason(err)
		return a, nil
	}
	p.report(look)
	for _, f := range p.Findings {
		if f.Repair != "" {
			p.Levers = v.levers(Action{Queue: p.Queue}, Repair)
		}
	}
	if look.cut && form.Has("as") {
		return answer{}, &refusal{http.StatusServiceUnavailable, "Not all was looked at", p.Says} // a file can't say so
	}
	a.sheet = func() *sheet {
		l := &sheet{name: "doctor", columns: []string{"queue", "fault", "job", "text", "repair"}}
		for _, f := range look.Findings[:len(p.Findings)] {
			l.add(f.Queue, string(f.Fault), f.Job, f.Text, f.Repair)
		}
		return l
	}
	return a, nil
}

// repair has the doctor repair a queue, and says what became of it.
func (v *visit) repair(ctx context.Context, queue string) (done string, err error) {
	bound, cancel := context.WithTimeout(ctx, listBound)
	defer cancel()
	r, err := v.ins.Doctor(bound, queue, inspect.Checkup{Repair: true})
	done = fmt.Sprintf("has %s, and %s repaired", counted(r.Found, "finding"), commas(r.Repaired))
	if err != nil && bound.Err() != nil && ctx.Err() == nil {
		return done + ". Then the time was over: use the command line", nil
	}
	return done, err
}

// report fills in what the doctor found.
func (p *doctorPage) report(l *doctorLook) {
	p.Unproved = l.Unproved
	jobs := counted(l.Jobs, "job")
	switch {
	case l.Found > 0:
		p.Arm, p.Title = "caution", counted(l.Found, "finding")
	case l.cut || len(l.Unproved) > 0:
		p.Arm, p.Title = "idle", "Nothing was found, and not all was looked at"
	case l.Jobs == 1:
		p.Arm, p.Title = "clear", "1 job, in exactly one state"
	default:
		p.Arm, p.Title = "clear", jobs+", each in exactly one state"
	}
	p.Says = "Looked at " + jobs + " at " + l.at.UTC().Format("15:04:05") + " UTC, in " + span(l.took.Round(time.Millisecond)) + "."
	if l.cut {
		p.Says += " Then the time was over: the command below looks at all of them."
	}
	for _, f := range l.Findings[:min(len(l.Findings), mostFindings)] {
		r := findingRow{Fault: string(f.Fault), Job: f.Job, Text: clean(f.Text, 1000), Repair: f.Repair}
		if f.Job != "" {
			r.To = link("job", "queue", p.Queue, "id", f.Job)
		}
		p.Findings = append(p.Findings, r)
	}
	p.Left = l.Found - int64(len(p.Findings))
}
