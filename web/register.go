package web

import (
	"fmt"
	"html/template"
	"slices"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
)

// mostLanes is how many workers the register of a job shows: it has ten failed attempts at most, the one that completed, and the one that runs.
const mostLanes = 12

// A delivery is an attempt of a job that is known: one of the last ten that failed, the one that completed it, or the one that runs.
type delivery struct {
	Number     int // 0: it is not known
	At         time.Time
	End        time.Time // zero: it runs
	Worker     string
	How        string // "failed", "completed" or "runs"
	Error      string
	Stack      string
	Trace      string
	Token      int64 // 0: it is not known
	Cancelling bool
}

// deliveries returns what is known of the deliveries of a job, the earliest first.
func deliveries(j *inspect.Job) []delivery {
	var list []delivery
	add := func(a *inspect.Attempt, how string) {
		list = append(list, delivery{Number: a.Number, At: a.At, End: a.At.Add(a.Ran), Worker: a.Worker, How: how, Error: a.Error, Stack: a.Stack, Trace: a.TraceID})
	}
	for i := range j.Attempts {
		add(&j.Attempts[i], "failed")
	}
	if j.Success != nil {
		add(j.Success, "completed")
	}
	if j.State == signalbox.StateRunning {
		list = append(list, delivery{At: j.Since, Worker: j.Worker, How: "runs", Token: j.Token, Trace: j.RunTraceID, Cancelling: j.Cancelling})
	}
	return list
}

// A register is the deliveries of a job, drawn to scale.
type register struct {
	Chart template.HTML
	Says  string
}

// drawRegister draws what is known of a job's deliveries. Crashed deliveries and those that were given back are numbers only, so the time between two of them may have had others:
// it is drawn as known only if nothing of the kind is counted.
func drawRegister(j *inspect.Job, list []delivery, now time.Time) register {
	if len(list) == 0 || list[0].At.IsZero() {
		return register{}
	}
	first, last := list[0].At, now
	if !j.EndedAt.IsZero() {
		last = j.EndedAt
	}
	if end := list[len(list)-1].End; end.After(last) {
		last = end
	}
	begin, end := first, last
	active := max(last.Sub(first), time.Second)
	born := !j.EnqueuedAt.IsZero() && !j.EnqueuedAt.After(first) && first.Sub(j.EnqueuedAt) < 2*active
	if born {
		begin = j.EnqueuedAt
	}
	next := j.State == signalbox.StateScheduled && j.DueAt.After(now)
	near := next && j.DueAt.Sub(now) < 2*active
	if near {
		end = j.DueAt
	}
	margin := max(end.Sub(begin)/50, 50*time.Millisecond)
	begin, end = begin.Add(-margin), end.Add(2*margin)
	x := func(t time.Time) float64 { return min(100, max(0, 100*float64(t.Sub(begin))/float64(end.Sub(begin)))) }

	var lanes []string
	for _, d := range list {
		if !slices.Contains(lanes, d.Worker) && len(lanes) < mostLanes {
			lanes = append(lanes, d.Worker)
		}
	}
	y := func(worker string) int { return 82 + 44*max(0, slices.Index(lanes, worker)) }
	h := 82 + 44*len(lanes) + 12
	whole := j.Crashes == 0

	says := fmt.Sprintf("Known of its deliveries: %s, in %s, to scale.", commas(int64(len(list))), span(last.Sub(first).Round(time.Millisecond)))
	if j.Crashes > 0 {
		says += fmt.Sprintf(" Crashes: %d. When they were is not known.", j.Crashes)
	}
	if list[0].Number > 1 {
		says += fmt.Sprintf(" Attempts before number %d are not kept.", list[0].Number)
	}

	var d drawing
	d.add(`<svg class="wide" height="%d" role="img" aria-label="%v">`, h, says)
	lane := func(text string, at int, class string) {
		d.add(`<line class="r-lane" x1="0" x2="100%%" y1="%d" y2="%d"/><text class="%v" x="0" y="%d">%v</text>`, at+14, at+14, class, at-6, text)
	}
	lane("waits", 34, "f")
	for _, worker := range lanes {
		lane(clean(worker, 60), y(worker), "f mono")
	}
	wait := func(from, to time.Time) {
		if whole && to.After(from) {
			d.add(`<line class="r-delay" x1="%v%%" x2="%v%%" y1="41" y2="41"/>`, x(from), x(to))
		}
	}
	if born {
		wait(j.EnqueuedAt, first)
	}
	for i, e := range list {
		if i > 0 && (e.Number == 0 || e.Number == list[i-1].Number+1) {
			wait(list[i-1].End, e.At)
		}
		stop := e.End
		if stop.IsZero() {
			stop = now
		}
		at := y(e.Worker)
		d.add(`<line class="r-drop" x1="%v%%" x2="%v%%" y1="45" y2="%d"/><rect class="r-run" x="%v%%" width="%v%%" y="%d" height="14"/>`, x(e.At), x(e.At), at, x(e.At), max(.25, x(stop)-x(e.At)), at)
		if e.How == "failed" {
			d.add(`<svg x="%v%%" y="%d"><path class="r-x" d="M1 3l8 8M9 3l-8 8"/></svg>`, x(e.End), at)
		}
		if e.Number > 0 {
			d.add(`<text class="b" x="%v%%" y="%d">%d</text>`, x(e.At), at+27, e.Number)
		}
	}
	if near {
		wait(list[len(list)-1].End, j.DueAt)
		d.add(`<rect class="r-next" x="%v%%" width="1.6%%" y="37" height="8"/><text class="f m opt" x="%v%%" y="%d">%v</text>`, x(j.DueAt), x(j.DueAt), h-4, j.DueAt.UTC().Format("15:04:05"))
	}
	if j.EndedAt.IsZero() {
		d.add(`<line class="nowline" x1="%v%%" x2="%v%%" y1="18" y2="%d"/><text class="b m" x="%v%%" y="%d">now</text>`, x(now), x(now), h-16, x(now), h-4)
	}
	if born {
		d.add(`<text class="f" x="0" y="%d">%v enqueued</text>`, h-4, j.EnqueuedAt.UTC().Format("15:04:05"))
	}
	d.add(`</svg>`)
	return register{Chart: d.html(), Says: says}
}
