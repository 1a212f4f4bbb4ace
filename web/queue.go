package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
)

// errorsTTL is how long the errors of a queue's dead jobs count: up to 10,000 records are read for them.
const errorsTTL = time.Minute

// A queuePage is the page of one queue.
type queuePage struct {
	inspect.Queue
	Now         time.Time
	Line        line
	Troubles    []trouble
	Summary     string
	Sub         string
	Links       map[string]string // to its jobs, by state
	Periods     []tab
	Unit        string
	Charts      bool
	Flow        template.HTML
	Wait, Run   template.HTML
	WaitSays    string
	RunSays     string
	Errors      []errorRow
	ErrorsSay   string
	NoErrors    string
	Workers     []workerRow
	Running     []running
	RunningAll  int
	Facts       []fact
	Entries     []tick
	Command     string
	ChartsWrong string
	Levers      []lever

	stats *inspect.Stats // that the charts are of; nil: they were not read
	per   period
}

// An errorRow is a group of dead jobs.
type errorRow struct {
	Text, Kind, To string
	Count          int64
	First, Last    template.HTML
}

// A workerRow is a worker of a queue.
type workerRow struct {
	ID      string
	Running int
	Left    template.HTML
	Gone    bool
	Quiet   bool
	Longest string
}

func (v *visit) queue() (answer, error) {
	own := v.URL.Query().Get("name")
	q, ok := v.state.of(own)
	if !ok {
		if v.away != nil {
			return answer{}, v.away
		}
		return answer{}, inspect.ErrNoQueue
	}
	s := v.state
	p := &queuePage{Queue: q, Now: v.now(), Links: map[string]string{}, Command: shellWords("signalbox", "queue", "stats", own)}
	for _, t := range s.troubles() {
		if t.Queue == own {
			p.Troubles = append(p.Troubles, t)
		}
	}
	var worst *trouble
	if len(p.Troubles) > 0 {
		worst, p.Summary = &p.Troubles[0], summary(p.Troubles)
	}
	p.Line = v.line(&q, worst)
	switch q.State() {
	case "paused":
		p.Sub = "Paused for " + span(max(0, s.at.Sub(q.PausedSince))) + ": no worker gets a job of it."
	case "held":
		p.Sub = "Held back until " + q.HeldUntil.UTC().Format("15:04:05") + " UTC."
	case "limited":
		p.Sub = "At its limit: jobs are ready, and as many run or start as may."
	default:
		p.Sub = "Workers get its jobs."
	}
	for _, t := range jobStates {
		p.Links[string(t.state)] = link("jobs", "queue", own, "state", string(t.state))
	}
	per := periods[0]
	for _, x := range periods {
		if x.Key == v.URL.Query().Get("over") {
			per = x
		}
	}
	for _, x := range periods {
		p.Periods = append(p.Periods, tab{Name: x.Text, To: link("queue", "name", own, "over", x.Key), Here: x.Key == per.Key})
	}
	p.Unit = per.unit
	p.Levers = v.holdLevers(Action{Queue: own}, q.Paused, q.HeldUntil)
	if unused(&q) {
		p.Levers = append(p.Levers, v.levers(Action{Queue: own}, Remove)...)
	}
	if v.away == nil {
		v.charts(p, per)
		v.errors(p)
	}
	for i := range s.workers {
		if row, ok := rowOfWorker(&s.workers[i], own, s.at); ok {
			p.Workers = append(p.Workers, row)
		}
	}
	for _, r := range v.runs(func(j inspect.RunningJob) bool { return j.Queue == own }) {
		p.RunningAll++
		if len(p.Running) < 2*smallRows {
			p.Running = append(p.Running, r)
		}
	}
	for _, t := range v.ticks(len(s.entries)) {
		if t.Queue == own {
			p.Entries = append(p.Entries, t)
		}
	}
	p.Facts = v.settings(p)
	if v.away == nil {
		p.Facts = append(p.Facts, v.memory(own))
	}
	a := answer{name: "queue", title: "Queue " + clean(own, 100), queue: own, body: p}
	if p.stats != nil {
		a.sheet = p.sheet
	}
	return a, nil
}

// charts draws what happened in the queue.
func (v *visit) charts(p *queuePage, per period) {
	stats, ok := v.state.stats[p.Name]
	if !ok || per.by != inspect.ByMinute {
		var err error
		stats, err = read(v.Context(), v.looks, fmt.Sprintf("stats\x00%d\x00%s", per.by, p.Name), lookTTL, func(ctx context.Context) (inspect.Stats, error) {
			return v.ins.Stats(ctx, p.Name, per.by)
		})
		if err != nil {
			p.ChartsWrong = "The statistics could not be read. " + v.reason(err)
			return
		}
	}
	list := columns(&stats, per.n, per.by.Duration())
	p.Charts = true
	p.Flow = flow(p.Name, list, per, stats.At)
	waits, runs := func(c *column) inspect.Histogram { return c.wait }, func(c *column) inspect.Histogram { return c.run }
	p.stats, p.per = &stats, per
	p.Wait = heat(list, waits, per, stats.At, 196, "How long jobs of "+clean(p.Name, 100)+" waited, by the "+per.unit)
	p.Run = heat(list, runs, per, stats.At, 112, "How long jobs of "+clean(p.Name, 100)+" ran, by the "+per.unit)
	if p.Line.Wait > 0 {
		p.WaitSays = "95 % of the last five minutes: at most " + span(p.Line.Wait)
	}
	if p.Line.Run > 0 {
		p.RunSays = "95 % of the last five minutes: at most " + span(p.Line.Run)
	}
}

// sheet returns what the charts show.
func (p *queuePage) sheet() *sheet {
	l := &sheet{name: "statistics", columns: []string{"queue", "start", "seconds", "enqueued", "completed", "retried", "dead", "cancelled", "crashed", "wait_p95_at_most_seconds", "run_p95_at_most_seconds"}}
	from := p.stats.At.Add(-time.Duration(p.per.n) * p.per.by.Duration())
	for _, b := range p.stats.Buckets {
		if b.Start.Before(from) {
			continue
		}
		row := []any{p.Name, b.Start, b.Duration, b.Counts.Enqueued, b.Counts.Completed, b.Counts.Retried, b.Counts.Dead, b.Counts.Cancelled, b.Counts.Crashed, nil, nil}
		if b.Wait.Count() > 0 {
			row[9] = b.Wait.Quantile(.95)
		}
		if b.Run.Count() > 0 {
			row[10] = b.Run.Quantile(.95)
		}
		l.add(row...)
	}
	return l
}

// errors says of what the dead jobs of the queue died.
func (v *visit) errors(p *queuePage) {
	if p.Dead == 0 {
		p.NoErrors = "It has no dead jobs."
		return
	}
	type summed struct {
		inspect.DeadSummary
		at time.Time
	}
	sum, err := read(v.Context(), v.looks, "errors\x00"+p.Name, errorsTTL, func(ctx context.Context) (summed, error) {
		s, err := v.ins.DeadByError(ctx, p.Name)
		return summed{s, time.Now()}, err
	})
	if err != nil {
		p.NoErrors = "The dead jobs could not be read. " + v.reason(err)
		if errors.Is(err, inspect.ErrNoQueue) {
			p.NoErrors = "The queue is gone."
		}
		return
	}
	p.ErrorsSay = fmt.Sprintf("of %s that are dead", counted(sum.Looked, "job"))
	if sum.Looked < sum.DeadSummary.Dead {
		p.ErrorsSay = fmt.Sprintf("of %s that died last, of %s", commas(sum.Looked), commas(sum.DeadSummary.Dead))
	}
	if sum.Unreadable > 0 {
		p.ErrorsSay += fmt.Sprintf("; %s can't be read", commas(sum.Unreadable))
	}
	if old := time.Since(sum.at).Round(time.Second); old > 2*time.Second {
		p.ErrorsSay += "; looked at " + span(old) + " ago"
	}
	for _, g := range sum.Groups[:min(len(sum.Groups), 2*smallRows)] {
		p.Errors = append(p.Errors, errorRow{
			Text: cmp.Or(clean(g.Error, 250), "no error"), Kind: g.Kind, Count: g.Count, First: ago(v.now(), g.First), Last: ago(v.now(), g.Last),
			To: link("jobs", "queue", p.Name, "state", "dead", "kind", g.Filter.Kind, "error", g.Filter.Error),
		})
	}
	if more := len(sum.Groups) - len(p.Errors); more > 0 {
		p.ErrorsSay += fmt.Sprintf("; %d smaller groups are left out", more)
	}
}

// rowOfWorker returns a worker as a row of a queue, if it has the queue.
func rowOfWorker(w *inspect.Worker, queue string, now time.Time) (workerRow, bool) {
	i := slices.IndexFunc(w.Sessions, func(s inspect.Session) bool { return s.Queue == queue })
	if i < 0 {
		return workerRow{}, false
	}
	x := w.Sessions[i]
	r := workerRow{ID: w.ID, Gone: x.Left < 0, Quiet: x.Quiet || w.Quiet}
	if r.Gone {
		r.Left = stamped(x.Until, "over for "+span(-x.Left))
	} else {
		r.Left = stamped(x.Until, span(x.Left.Round(time.Second)))
	}
	for _, j := range w.Running {
		if j.Queue != queue {
			continue
		}
		r.Running++
		if r.Longest == "" {
			r.Longest = span(max(0, now.Sub(j.Since)))
		}
	}
	return r, true
}

// settings returns the settings of the queue, and what was counted since it began.
func (v *visit) settings(p *queuePage) []fact {
	list := make([]fact, 0, len(settings)+5)
	for i := range settings {
		f := fact{Name: settings[i].text, Value: settings[i].is(&p.Queue), Levers: v.levers(Action{Queue: p.Name, Setting: settings[i].name}, Set)}
		switch settings[i].name {
		case "MaxLength":
			if p.MaxLength > 0 {
				f.Value = fmt.Sprintf("%s, and it has %s", f.Value, commas(p.Length()))
			}
		case "CopyDead":
			if _, ok := v.state.of(p.CopyDead); ok {
				f.To = link("queue", "name", p.CopyDead)
			}
			if p.CopyDead != "" {
				f.Value = name(p.CopyDead)
			}
		}
		list = append(list, f)
	}
	groups := fact{Name: "Groups", Value: "none is paused or held back"}
	if p.PausedGroups+p.HeldGroups > 0 {
		groups.Value, groups.Class = fmt.Sprintf("%s paused, %s held back", commas(p.PausedGroups), commas(p.HeldGroups)), "warn"
	}
	list = append(list, groups)
	list = append(list, fact{Name: "Batches", Value: "show them", To: link("flows", "queue", p.Name)})
	if p.Blocked > 0 {
		list = append(list, fact{Name: "Wait for their group", Value: commas(p.Blocked) + " of the ready jobs"})
	}
	if len(p.Quiet) > 0 {
		list = append(list, fact{Name: "Quiet workers", Value: name(strings.Join(p.Quiet, ", "))})
	}
	if stats, ok := v.state.stats[p.Name]; ok {
		t := stats.Total
		list = append(list, fact{Name: "Since it began", Value: fmt.Sprintf("%s enqueued, %s completed, %s died, %s cancelled, %s crashed, %s retried, %s deleted, %s made to run again",
			commas(t.Enqueued), commas(t.Completed), commas(t.Dead), commas(t.Cancelled), commas(t.Crashed), commas(t.Retried), commas(t.Deleted), commas(t.Revived))})
	}
	return list
}

// limitText writes limits in words.
func limitText(l signalbox.Limits) string {
	var parts []string
	if l.Running > 0 {
		parts = append(parts, counted(int64(l.Running), "job")+" at a time")
	}
	if l.Rate.Jobs > 0 {
		text := fmt.Sprintf("%s start in %s", counted(int64(l.Rate.Jobs), "job"), span(cmp.Or(l.Rate.Per, time.Second)))
		if l.Rate.Burst > 1 {
			text += fmt.Sprintf(", %s at once", commas(int64(l.Rate.Burst)))
		}
		parts = append(parts, text)
	}
	return cmp.Or(strings.Join(parts, "; "), "none")
}

// retentionText writes what is kept, in words.
func retentionText(r signalbox.Retention) string {
	parts := []string{"100,000 jobs (default)", "256 MiB (default)", "30 d (default)"}
	if r.Jobs > 0 {
		parts[0] = counted(r.Jobs, "job")
	}
	if r.Bytes > 0 {
		parts[1] = counted(r.Bytes, "byte")
	}
	if r.Age > 0 {
		parts[2] = span(r.Age)
	}
	return strings.Join(parts, ", ")
}
