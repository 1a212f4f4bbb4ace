package web

import (
	"cmp"
	"context"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
)

const (
	pageQueues = 100 // on a page of the overview
	hourQueues = 20  // in the chart of the last hour
	diedQueues = 20  // whose dead jobs are looked at
	diedJobs   = 50  // of each
	smallRows  = 6   // of a small table
)

// An overview is the first page.
type overview struct {
	Troubles  []trouble
	Summary   string
	Lines     []line
	Note      string
	ByTrouble bool
	More      string // the address of the queues behind these
	Hour      []hourRow
	Events    template.HTML
	Began     []event
	Axis      template.HTML
	Died      []death
	DiedOf    string
	Longest   []running
	Running   int
	Ticks     []tick
	Now       time.Time
	Empty     bool
	Limited   bool // the user sees some queues only
}

// A line is a queue in a table.
type line struct {
	Name, To, Arm, Word string
	Since               template.HTML
	Track               template.HTML
	Ready, Running      int64
	Slots               int // of all workers; 0: it is not known
	Oldest              time.Duration
	Rates               bool // the next ones are known
	In, Done, Fail      string
	Failing             bool
	Wait, Run           time.Duration
	Spark               template.HTML
	Dead                int64
	DeadTo              string
}

// A death is a group of jobs that died lately, of one kind and with one error.
type death struct {
	Count             int64
	Kind, Queue, Text string
	To                string
	Last              time.Time
	Ago               template.HTML
}

// A running is a job that runs.
type running struct {
	ID, Kind, Queue, To string
	For                 template.HTML
	Word                string
	Bad                 bool
	Worker              string
	Token               string
}

// A tick is the next one of a cron entry.
type tick struct {
	Name, Queue, To, Word string
	At, In                template.HTML
}

func (v *visit) overview() (answer, error) {
	s := v.state
	o := &overview{Now: s.at, Empty: len(s.queues) == 0, Limited: !v.scope.All, ByTrouble: v.URL.Query().Get("sort") == "trouble"}
	a := answer{name: "overview", title: "Overview", cur: "Overview", body: o}
	if o.Empty && v.away != nil {
		a.status = 503
		return a, nil
	}
	o.Troubles = s.troubles()
	o.Summary = summary(o.Troubles)
	worst := map[string]*trouble{}
	for i := range o.Troubles {
		if t := &o.Troubles[i]; worst[t.Queue] == nil {
			worst[t.Queue] = t
		}
	}
	queues := slices.Clone(s.queues)
	if o.ByTrouble {
		rank := func(q *inspect.Queue) int {
			switch t := worst[q.Name]; {
			case t == nil:
				return 2
			case t.Danger:
				return 0
			}
			return 1
		}
		slices.SortStableFunc(queues, func(a, b inspect.Queue) int { return cmp.Compare(rank(&a), rank(&b)) })
	}
	from, _ := strconv.Atoi(v.URL.Query().Get("from"))
	from = min(max(from, 0), len(queues))
	if shown := queues[from:]; len(shown) > pageQueues {
		queues = shown[:pageQueues]
		o.More = link("", "sort", v.URL.Query().Get("sort"), "from", strconv.Itoa(from+pageQueues))
	} else {
		queues = shown
	}
	for i := range queues {
		o.Lines = append(o.Lines, v.line(&queues[i], worst[queues[i].Name]))
	}
	o.Note = v.note()
	o.hour(s, queues)
	for _, j := range v.runs(func(inspect.RunningJob) bool { return true }) {
		o.Running++
		if len(o.Longest) < smallRows {
			o.Longest = append(o.Longest, j)
		}
	}
	o.Ticks = v.ticks(smallRows)
	if v.away == nil {
		o.Died, o.DiedOf = v.died(v.Context())
	}
	if o.Empty {
		return a, nil
	}
	a.sheet = func() *sheet {
		l := &sheet{name: "queues", columns: []string{"queue", "state", "ready", "scheduled", "awaiting", "running", "dead", "cancelled", "completed_kept", "oldest_seconds", "in_per_second", "done_per_second", "failed_per_second", "wait_p95_at_most_seconds", "run_p95_at_most_seconds"}}
		for i := range queues {
			q := &queues[i]
			row := []any{q.Name, o.Lines[i].Word, q.Ready, q.Scheduled, q.Awaiting, q.Running, q.Dead, q.Cancelled, q.Completed, q.Oldest, nil, nil, nil, nil, nil}
			if r := s.ratesOf(q.Name); r.known {
				row = append(row[:10], r.in, r.done, r.fail, r.wait, r.run)
			}
			l.add(row...)
		}
		return l
	}
	return a, nil
}

// summary counts troubles in words.
func summary(list []trouble) string {
	var dangers, cautions int64
	for i := range list {
		if list[i].Danger {
			dangers++
		} else {
			cautions++
		}
	}
	var parts []string
	if dangers > 0 {
		parts = append(parts, counted(dangers, "danger"))
	}
	if cautions > 0 {
		parts = append(parts, counted(cautions, "caution"))
	}
	return strings.Join(parts, ", ") + ". The worst comes first."
}

// note says what all queues do together.
func (v *visit) note() string {
	var running int64
	in, done, known := 0., 0., 0
	for i := range v.state.queues {
		q := &v.state.queues[i]
		running += q.Running
		if r := v.state.ratesOf(q.Name); r.known {
			in, done, known = in+r.in, done+r.done, known+1
		}
	}
	text := fmt.Sprintf("%s, %s; %s run", counted(int64(len(v.state.queues)), "queue"), counted(int64(len(v.state.workers)), "worker"), counted(running, "job"))
	if running == 1 {
		text += "s"
	}
	if known > 0 {
		text += fmt.Sprintf("; %s a second come in, %s complete", perSecond(in), perSecond(done))
	}
	if n := len(v.state.queues) - known; n > 0 && known > 0 {
		text += fmt.Sprintf("; of %s the statistics were not read", counted(int64(n), "queue"))
	}
	return text
}

// line returns a queue as a row. t is the worst of its troubles, or nil.
func (v *visit) line(q *inspect.Queue, t *trouble) line {
	s := v.state
	l := line{Name: q.Name, To: link("queue", "name", q.Name), Arm: "clear", Word: "clear", Ready: q.Ready, Running: q.Running, Slots: q.Slots * len(q.Workers), Oldest: q.Oldest, Dead: q.Dead, DeadTo: link("jobs", "queue", q.Name, "state", "dead")}
	if t != nil {
		l.Arm, l.Word = t.Arm(), t.Word
		if !t.Since.IsZero() {
			l.Since = lasting(s.at, t.Since)
		}
	} else if len(q.Workers) == 0 {
		l.Arm, l.Word = "idle", "no worker"
	}
	var stuck, gone int
	for i := range s.workers {
		for _, j := range s.workers[i].Running {
			if j.Queue == q.Name && j.Stuck != nil {
				stuck++
			}
		}
		for _, x := range s.workers[i].Sessions {
			if x.Queue == q.Name && x.Left < 0 {
				for _, j := range s.workers[i].Running {
					if j.Queue == q.Name {
						gone++
					}
				}
			}
		}
	}
	l.Track = track(q, stuck, gone)
	r := s.ratesOf(q.Name)
	if l.Rates = r.known; !r.known {
		return l
	}
	l.In, l.Done, l.Fail, l.Failing, l.Wait, l.Run = perSecond(r.in), perSecond(r.done), perSecond(r.fail), t != nil && t.Word == "failing", r.wait, r.run
	stats := s.stats[q.Name]
	var values []float64
	for _, c := range columns(&stats, 60, time.Minute) {
		if !c.known {
			c.done = math.NaN()
		}
		values = append(values, c.done)
	}
	l.Spark = spark(values, fmt.Sprintf("%s: completed a second in the last hour, now %s", clean(q.Name, 100), l.Done))
	return l
}

// hour makes the chart of the last hour.
func (o *overview) hour(s *state, queues []inspect.Queue) {
	for i := range queues {
		q := &queues[i]
		stats, ok := s.stats[q.Name]
		if !ok || len(o.Hour) == hourQueues {
			continue
		}
		shut := 60.
		if q.Paused {
			shut = max(0, 60-s.at.Sub(q.PausedSince).Minutes())
		}
		o.Hour = append(o.Hour, hourOf(q, &stats, shut))
	}
	for i := range o.Troubles {
		t := &o.Troubles[i]
		if t.Since.After(s.at.Add(-time.Hour)) && !t.Since.After(s.at) {
			e := event{At: t.Since, Text: t.Event, Class: "caution"}
			if t.Danger {
				e.Class = ""
			}
			if t.Queue != "" && t.Word != "handler stuck" {
				e.Text = clean(t.Queue, 40) + " " + t.Event
			}
			o.Began = append(o.Began, e)
		}
	}
	slices.SortStableFunc(o.Began, func(a, b event) int { return a.At.Compare(b.At) })
	o.Began = o.Began[:min(len(o.Began), 12)]
	o.Events, o.Axis = hourEvents(s.at, o.Began), hourAxis(s.at)
}

// runs returns the jobs that run and that of keeps, those that have run for longest first.
func (v *visit) runs(of func(inspect.RunningJob) bool) []running {
	type one struct {
		job    inspect.RunningJob
		worker *inspect.Worker
	}
	var all []one
	for i := range v.state.workers {
		for _, j := range v.state.workers[i].Running {
			if of(j) {
				all = append(all, one{j, &v.state.workers[i]})
			}
		}
	}
	slices.SortFunc(all, func(a, b one) int { return cmp.Or(a.job.Since.Compare(b.job.Since), cmp.Compare(a.job.ID, b.job.ID)) })
	list := make([]running, 0, len(all))
	for _, x := range all {
		r := running{ID: x.job.ID, Kind: cmp.Or(x.job.Kind, "kind not known"), Queue: x.job.Queue, To: link("job", "queue", x.job.Queue, "id", x.job.ID), For: lasting(v.state.at, x.job.Since), Worker: x.worker.ID, Token: tokenText(x.job.Token)}
		switch {
		case x.job.Stuck != nil:
			r.Word, r.Bad = "stuck", true
		case slices.ContainsFunc(x.worker.Sessions, func(s inspect.Session) bool { return s.Queue == x.job.Queue && s.Left < 0 }):
			r.Word = "worker gone"
		case x.job.Cancelling:
			r.Word = "asked to end"
		}
		list = append(list, r)
	}
	return list
}

// tokenText writes a fencing token in groups of four digits.
func tokenText(token int64) string {
	digits := strconv.FormatInt(token, 10)
	var b strings.Builder
	for i, c := range digits {
		if i > 0 && i%4 == 0 {
			b.WriteByte(' ')
		}
		b.WriteRune(c)
	}
	return b.String()
}

// ticks returns the cron entries whose next ticks come first.
func (v *visit) ticks(most int) []tick {
	entries := slices.DeleteFunc(slices.Clone(v.state.entries), func(e inspect.Entry) bool { return e.Next.IsZero() })
	slices.SortStableFunc(entries, func(a, b inspect.Entry) int { return a.Next.Compare(b.Next) })
	var list []tick
	for _, e := range entries[:min(most, len(entries))] {
		t := tick{Name: e.Name, Queue: e.Queue, To: link("queue", "name", e.Queue), At: stamped(e.Next, e.Next.UTC().Format("15:04")), In: stamped(e.Next, "in "+span(max(0, e.Next.Sub(v.state.at).Round(time.Second))))}
		switch q, ok := v.state.of(e.Queue); {
		case e.Gone:
			t.Word = "no scheduler has it"
		case e.Paused:
			t.Word = "paused"
		case ok && q.Paused:
			t.Word = "queue paused"
		}
		list = append(list, t)
	}
	return list
}

// died returns the jobs that died last, by kind and error, and says of which.
func (v *visit) died(ctx context.Context) (list []death, of string) {
	var queues []inspect.Queue
	for _, q := range v.state.queues {
		if q.Dead > 0 {
			queues = append(queues, q)
		}
	}
	slices.SortStableFunc(queues, func(a, b inspect.Queue) int { return cmp.Compare(b.Dead, a.Dead) })
	queues = queues[:min(len(queues), diedQueues)]
	var seen, unread int64
	for i := range queues {
		name := queues[i].Name
		jobs, err := read(ctx, v.looks, "died\x00"+name, 5*time.Second, func(ctx context.Context) ([]inspect.Job, error) {
			return v.ins.Latest(ctx, name, signalbox.StateDead, diedJobs)
		})
		if err != nil {
			unread++
			continue
		}
		seen += int64(len(jobs))
		groups := map[[2]string]int{}
		for _, j := range jobs {
			text, _, _ := strings.Cut(j.LastError, "\n")
			text = clean(text, 300)
			key := [2]string{j.Kind, text}
			at, ok := groups[key]
			if !ok {
				at = len(list)
				groups[key] = at
				list = append(list, death{Kind: cmp.Or(j.Kind, "kind not known"), Queue: name, Text: cmp.Or(text, "no error"), Last: j.EndedAt, To: link("jobs", "queue", name, "state", "dead", "kind", j.Kind)})
			}
			list[at].Count++
			if j.EndedAt.After(list[at].Last) {
				list[at].Last = j.EndedAt
			}
		}
	}
	slices.SortStableFunc(list, func(a, b death) int { return b.Last.Compare(a.Last) })
	list = list[:min(len(list), smallRows)]
	for i := range list {
		list[i].Ago = ago(v.state.at, list[i].Last)
	}
	of = counted(seen, "job") + ", by kind and error"
	if unread > 0 {
		of += fmt.Sprintf("; %s could not be read", counted(unread, "queue"))
	}
	return list, of
}
