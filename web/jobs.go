package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
)

const pageJobs = 50 // on a page

// listBound is how long jobs are looked for, for a page. Replaced by tests only.
var listBound = 5 * time.Second

// A jobsPage is a list of jobs, or without a queue the numbers of jobs of each queue.
type jobsPage struct {
	Queue   string
	To      string
	Queues  []inspect.Queue // without a queue
	Names   []string        // of all queues, for the form
	Limited bool
	State   string
	Tabs    []tab
	Form    url.Values
	Chips   []chip
	Rows    []jobRow
	Order   string
	Says    string // what is special about the list
	Now     time.Time
	Oldest  string // the address of the whole list, from its begin
	First   string // the address of the first page
	Next    string // the address of the next page
	Command string
	Err     string
	Ended   bool // the jobs of the state have ended
	Running bool
	Heading string // of the column of times
}

// A tab is a state.
type tab struct {
	Name, To, Count string
	Here, Bad       bool
}

// A chip is a part of the filter, with the address of the list without it.
type chip struct{ Name, Value, Without string }

// A jobRow is a job in a list.
type jobRow struct {
	ID, Kind, To, Group string
	Failed              string
	Crashes             int
	When                template.HTML
	Text                string
	Broken              bool
	Worker              string
}

// filters are the fields of the form, and what they are called.
var filters = []struct{ key, name, flag string }{
	{"error", "error has", "--error"}, {"kind", "kind", "--kind"}, {"group", "group", "--group"}, {"id", "ID begins with", "--id-prefix"}, {"newer", "at most", "--newer-than"}, {"older", "at least", "--older-than"},
}

// A jobState is a state of jobs, and how many of them a queue has.
type jobState struct {
	state signalbox.State
	count func(*inspect.Queue) int64
}

// jobStates are in the order of their tabs. Most queues have no jobs that wait for a batch: those have a tab only where there are some.
var jobStates = []jobState{
	{signalbox.StateReady, func(q *inspect.Queue) int64 { return q.Ready }},
	{signalbox.StateScheduled, func(q *inspect.Queue) int64 { return q.Scheduled }},
	{signalbox.StateAwaiting, func(q *inspect.Queue) int64 { return q.Awaiting }},
	{signalbox.StateRunning, func(q *inspect.Queue) int64 { return q.Running }},
	{signalbox.StateDead, func(q *inspect.Queue) int64 { return q.Dead }},
	{signalbox.StateCancelled, func(q *inspect.Queue) int64 { return q.Cancelled }},
	{signalbox.StateCompleted, func(q *inspect.Queue) int64 { return q.Completed }},
}

func (v *visit) jobs() (answer, error) {
	form := v.URL.Query()
	p := &jobsPage{Queue: form.Get("queue"), Form: form, Now: v.now(), Limited: !v.scope.All}
	a := answer{name: "jobs", title: "Jobs", cur: "Jobs", queue: p.Queue, body: p}
	if p.Queue == "" {
		p.Queues = v.state.queues
		return a, nil
	}
	if !v.scope.sees(p.Queue) {
		return answer{}, inspect.ErrNoQueue
	}
	q, ok := v.state.of(p.Queue)
	if !ok {
		return answer{}, inspect.ErrNoQueue
	}
	for i := range v.state.queues {
		p.Names = append(p.Names, v.state.queues[i].Name)
	}
	f, err := filterOf(form)
	if err != nil {
		return answer{}, err
	}
	p.State, p.To = string(f.State), link("queue", "name", p.Queue)
	p.Running = f.State == signalbox.StateRunning
	p.Ended = !f.State.Live()
	p.tabs(&q)
	latest := (f.State == signalbox.StateDead || f.State == signalbox.StateCancelled) && form.Get("order") != "oldest" && f.After == "" && len(p.Chips) == 0
	a.title = strings.ToUpper(p.State[:1]) + p.State[1:] + " jobs of " + clean(p.Queue, 100)
	p.Heading, p.Order = headings(f.State)
	words := []string{"signalbox", "job", "ls", p.Queue, "--state", p.State}
	for _, x := range filters {
		if value := form.Get(x.key); value != "" {
			words = append(words, x.flag, value)
		}
	}
	p.Command = shellWords(words...)

	var jobs []inspect.Job
	if latest {
		jobs, err = v.list(v.Context(), "latest", func(ctx context.Context) ([]inspect.Job, error) {
			return v.ins.Latest(ctx, p.Queue, f.State, pageJobs)
		})
		p.Order = fmt.Sprintf("those that ended last, the last one first; at most %d", pageJobs)
		p.Oldest = link("jobs", "queue", p.Queue, "state", p.State, "order", "oldest")
	} else {
		f.Limit = pageJobs + 1
		jobs, err = v.list(v.Context(), "jobs", func(ctx context.Context) ([]inspect.Job, error) { return v.collect(ctx, p.Queue, f) })
		if f.After != "" {
			p.First = p.with("after", "")
		}
		if len(jobs) > pageJobs {
			jobs = jobs[:pageJobs]
			p.Next = p.with("after", jobs[pageJobs-1].Cursor)
		}
	}
	var cut *cutError
	switch {
	case errors.As(err, &cut):
		jobs = cut.jobs
		p.Err = fmt.Sprintf("After %s the search was stopped: there may be more jobs that fit. Narrow the filter, or use the command below.", span(listBound))
		if len(jobs) > 0 {
			p.Next = p.with("after", jobs[len(jobs)-1].Cursor)
		}
	case err != nil:
		return answer{}, err
	}
	if cut != nil && form.Has("as") {
		return answer{}, &refusal{http.StatusServiceUnavailable, "Not all was looked at", p.Err} // a file can't say so
	}
	for i := range jobs {
		p.Rows = append(p.Rows, rowOf(&jobs[i], p.Now))
	}
	a.sheet = func() *sheet {
		l := &sheet{name: "jobs", columns: []string{"queue", "id", "kind", "state", "priority", "group", "failed", "max_attempts", "crashes", "due_at", "enqueued_at", "since", "ended_at", "worker", "last_error"}}
		for i := range jobs {
			j := &jobs[i]
			l.add(j.Queue, j.ID, j.Kind, string(j.State), j.Priority.String(), j.Group, j.Failed, j.MaxAttempts, j.Crashes, j.DueAt, j.EnqueuedAt, j.Since, j.EndedAt, j.Worker, j.LastError)
		}
		return l
	}
	p.Says = counted(int64(len(p.Rows)), "job") + " on this page"
	return a, nil
}

// list returns jobs, as they were a moment ago.
func (v *visit) list(ctx context.Context, what string, f func(context.Context) ([]inspect.Job, error)) ([]inspect.Job, error) {
	return read(ctx, v.looks, what+"\x00"+v.URL.Query().Encode(), lookTTL, f)
}

// A cutError has what a search found until its time was over.
type cutError struct{ jobs []inspect.Job }

func (*cutError) Error() string { return "web: the time of the search is over" }

// collect returns the jobs of a filter. If that takes longer than listBound, the error has those that were found.
func (v *visit) collect(ctx context.Context, queue string, f inspect.Filter) ([]inspect.Job, error) {
	bound, cancel := context.WithTimeout(ctx, listBound)
	defer cancel()
	var jobs []inspect.Job
	for j, err := range v.ins.Jobs(bound, queue, f) {
		if err != nil && ctx.Err() == nil && bound.Err() != nil {
			return nil, &cutError{jobs}
		}
		if err != nil {
			return nil, err
		}
		j.Payload, j.Headers = nil, nil // no list shows them
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// filterOf returns the filter that a form says.
func filterOf(form url.Values) (inspect.Filter, error) {
	f := inspect.Filter{State: signalbox.State(cmp.Or(form.Get("state"), "ready")), Kind: form.Get("kind"), Error: form.Get("error"), Group: form.Get("group"), IDPrefix: form.Get("id"), After: form.Get("after")}
	if !slices.ContainsFunc(jobStates, func(s jobState) bool { return s.state == f.State }) {
		return f, mistake("There is no such state: want ready, scheduled, awaiting, running, dead, cancelled or completed.")
	}
	var err error
	if f.NewerThan, err = age(form.Get("newer")); err != nil {
		return f, err
	}
	f.OlderThan, err = age(form.Get("older"))
	return f, err
}

// age reads a duration such as 90s, 12h or 30d.
func age(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	unit := time.Duration(1)
	number := text
	if days, ok := strings.CutSuffix(text, "d"); ok {
		number, unit = days+"h", 24
	}
	d, err := time.ParseDuration(number)
	if err != nil || d <= 0 || d > 100*365*24*time.Hour/unit {
		return 0, mistake("An age in it can't be read: want a time such as 90s, 12h or 30d.")
	}
	return d * unit, nil
}

// with returns the address of this list with another value of one field.
func (p *jobsPage) with(key, value string) string {
	pairs := []string{"queue", p.Queue, "state", p.State, "order", p.Form.Get("order"), "after", p.Form.Get("after")}
	for _, x := range filters {
		pairs = append(pairs, x.key, p.Form.Get(x.key))
	}
	return link("jobs", append(pairs, key, value)...)
}

// tabs fills in the states, and what the list is narrowed by.
func (p *jobsPage) tabs(q *inspect.Queue) {
	for _, t := range jobStates {
		count := t.count(q)
		if t.state == signalbox.StateAwaiting && count == 0 && p.State != string(t.state) {
			continue
		}
		x := tab{Name: strings.ToUpper(string(t.state[:1])) + string(t.state[1:]), Count: commas(count), Here: string(t.state) == p.State, Bad: t.state == signalbox.StateDead && count > 0}
		if t.state == signalbox.StateCompleted && count == 0 && q.CompletedRetention == (signalbox.Retention{}) {
			x.Count = "not kept"
		}
		pairs := []string{"queue", p.Queue, "state", string(t.state)}
		for _, f := range filters {
			pairs = append(pairs, f.key, p.Form.Get(f.key))
		}
		x.To = link("jobs", pairs...)
		p.Tabs = append(p.Tabs, x)
	}
	for _, f := range filters {
		if value := p.Form.Get(f.key); value != "" {
			name := f.name
			if f.key == "newer" || f.key == "older" {
				name = "in this state for " + name
			}
			p.Chips = append(p.Chips, chip{name, value, p.without(f.key)})
		}
	}
}

// without returns the address of this list, from its begin, without a part of the filter.
func (p *jobsPage) without(key string) string {
	pairs := []string{"queue", p.Queue, "state", p.State, "order", p.Form.Get("order")}
	for _, x := range filters {
		if x.key != key {
			pairs = append(pairs, x.key, p.Form.Get(x.key))
		}
	}
	return link("jobs", pairs...)
}

// headings returns what the times of a list say, and in which order the list is.
func headings(s signalbox.State) (heading, order string) {
	switch s {
	case signalbox.StateScheduled:
		return "Due", "those that are due first come first"
	case signalbox.StateRunning:
		return "Runs for", "worker by worker"
	case signalbox.StateReady:
		return "Due", "in the order in which workers take them, priority by priority"
	case signalbox.StateAwaiting:
		return "Enqueued", "batch by batch"
	}
	return "Ended", "those that ended first come first"
}

// rowOf returns a job as a row.
func rowOf(j *inspect.Job, now time.Time) jobRow {
	first, _, _ := strings.Cut(j.LastError, "\n")
	r := jobRow{
		ID: j.ID, Kind: j.Kind, To: link("job", "queue", j.Queue, "id", j.ID), Group: j.Group, Failed: fmt.Sprintf("%d of %d", j.Failed, j.MaxAttempts), Crashes: j.Crashes,
		Text: clean(first, 200), Broken: j.Err != nil, Worker: j.Worker,
	}
	switch {
	case j.State == signalbox.StateRunning:
		r.When = lasting(now, j.Since)
	case !j.State.Live():
		r.When = ago(now, j.EndedAt)
	default:
		r.When = ago(now, j.DueAt)
	}
	if j.Err != nil {
		r.Text = "its record can't be read"
	}
	return r
}
