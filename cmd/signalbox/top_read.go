package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
)

// A topView is one of the views of top.
type topView int

const (
	topQueues topView = iota
	topWorkers
	topRunning
	topDead
	topViews
)

var topNames = [topViews]string{"queues", "workers", "running", "dead"}

const (
	rateOver  = 10 * time.Second // rates are means of so long
	trendLen  = 30               // points of a trend
	deadShown = 50               // of each queue, those that died last
)

// topData is what a look has found.
type topData struct {
	at      time.Time // by the clock of Redis, where the view needs it
	queues  []inspect.Queue
	rates   map[string]rate
	workers []inspect.Worker
	dead    []inspect.Job
}

// A rate is what happens in a queue, a second.
type rate struct {
	known            bool
	in, done, failed float64
	trend            []float64 // of done, from look to look; the last is the latest
}

// A topReader looks at queues. It is used by one goroutine at a time.
type topReader struct {
	ins      *inspect.Inspector
	queues   []string // those that are looked at; none: all
	clock    func(ctx context.Context) time.Time
	patience time.Duration // bound of a look

	samples map[string][]inspect.Totals // of the last rateOver, and one before
	trends  map[string][]float64
}

// read returns what a view shows. An error may come with what could be read all the same.
func (r *topReader) read(ctx context.Context, view topView) (*topData, error) {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	d := &topData{}
	var err error
	switch view {
	case topWorkers, topRunning:
		d.workers, err = r.ins.Workers(ctx)
		d.keep(r.queues)
	default:
		d.queues, err = r.look(ctx)
	}
	if err != nil && len(d.queues)+len(d.workers) == 0 {
		return nil, err
	}
	errs := []error{err}
	switch view {
	case topQueues:
		errs = append(errs, r.measure(ctx, d))
	case topDead:
		for _, q := range d.queues {
			if q.Dead == 0 {
				continue
			}
			jobs, err := r.ins.Latest(ctx, q.Name, signalbox.StateDead, deadShown)
			d.dead, errs = append(d.dead, jobs...), append(errs, err)
		}
		d.at = r.clock(ctx)
	case topWorkers, topRunning:
		d.at = r.clock(ctx)
	}
	return d, errors.Join(errs...)
}

// look reads the state of the queues.
func (r *topReader) look(ctx context.Context) ([]inspect.Queue, error) {
	if len(r.queues) == 0 {
		return r.ins.Queues(ctx)
	}
	queues := make([]inspect.Queue, 0, len(r.queues))
	for _, name := range r.queues {
		q, err := r.ins.Queue(ctx, name)
		if err != nil {
			return queues, err
		}
		queues = append(queues, q)
	}
	return queues, nil
}

// keep leaves the workers of these queues, and what they run of them. Without names it leaves all.
func (d *topData) keep(queues []string) {
	if len(queues) == 0 {
		return
	}
	for i := range d.workers {
		w := &d.workers[i]
		w.Sessions = slices.DeleteFunc(w.Sessions, func(s inspect.Session) bool { return !slices.Contains(queues, s.Queue) })
		w.Running = slices.DeleteFunc(w.Running, func(j inspect.RunningJob) bool { return !slices.Contains(queues, j.Queue) })
	}
	d.workers = slices.DeleteFunc(d.workers, func(w inspect.Worker) bool { return len(w.Sessions) == 0 })
}

// measure counts what happens in the queues.
func (r *topReader) measure(ctx context.Context, d *topData) error {
	if r.samples == nil {
		r.samples, r.trends = make(map[string][]inspect.Totals), make(map[string][]float64)
	}
	d.rates = make(map[string]rate)
	var errs []error
	for _, q := range d.queues {
		now, err := r.ins.Totals(ctx, q.Name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		d.rates[q.Name] = r.rate(q.Name, now)
	}
	for name := range r.samples { // a queue that is gone
		if _, there := d.rates[name]; !there && len(errs) == 0 {
			delete(r.samples, name)
			delete(r.trends, name)
		}
	}
	return errors.Join(errs...)
}

// rate adds a sample of a queue, and returns what happened in the last rateOver.
func (r *topReader) rate(name string, now inspect.Totals) rate {
	before := r.samples[name]
	if n := len(before); n > 0 {
		last := before[n-1]
		if !now.At.After(last.At) || fell(last.Counts, now.Counts) { // the clock was set back, or somebody deleted the counters
			before, r.trends[name] = nil, nil
		} else {
			trend := append(r.trends[name], float64(now.Completed-last.Completed)/now.At.Sub(last.At).Seconds())
			r.trends[name] = trend[max(0, len(trend)-trendLen):]
		}
	}
	for len(before) > 1 && now.At.Sub(before[1].At) >= rateOver {
		before = before[1:]
	}
	r.samples[name] = append(slices.Clone(before), now)
	if len(before) == 0 {
		return rate{}
	}
	first := before[0]
	a := now.At.Sub(first.At).Seconds()
	failed := func(c *inspect.Counts) int64 { return c.Retried + c.Dead + c.Crashed }
	return rate{
		known: true, in: float64(now.Enqueued-first.Enqueued) / a, done: float64(now.Completed-first.Completed) / a,
		failed: float64(failed(&now.Counts)-failed(&first.Counts)) / a, trend: slices.Clone(r.trends[name]),
	}
}

// fell reports whether a counter that a rate needs is lower than before.
func fell(before, now inspect.Counts) bool {
	return now.Enqueued < before.Enqueued || now.Completed < before.Completed || now.Retried < before.Retried || now.Dead < before.Dead ||
		now.Crashed < before.Crashed
}

// topColumns are the columns of each view.
var topColumns = [topViews][]column{
	{
		{name: "QUEUE", cut: 10},
		{name: "STATE", drop: 8},
		{name: "READY", right: true},
		{name: "SCHEDULED", right: true, drop: 5},
		{name: "RUNNING", right: true},
		{name: "DEAD", right: true},
		{name: "CANCELLED", right: true, drop: 3},
		{name: "OLDEST", right: true, drop: 9},
		{name: "IN/S", right: true, drop: 7},
		{name: "DONE/S", right: true},
		{name: "FAIL/S", right: true, drop: 6},
		{name: "WORKERS", right: true, drop: 4},
		{name: "SLOTS", right: true, drop: 2},
		{name: "DONE/S, TREND", drop: 1},
	},
	{
		{name: "WORKER", cut: 12},
		{name: "STATE"},
		{name: "RUNNING", right: true},
		{name: "STUCK", right: true, drop: 1},
		{name: "LONGEST", right: true, drop: 2},
		{name: "LEASE", right: true, drop: 3},
		{name: "QUEUES", cut: 10, drop: 4},
	},
	{
		{name: "QUEUE", cut: 8, drop: 3},
		{name: "ID", cut: 12},
		{name: "KIND", cut: 8, drop: 2},
		{name: "STATE"},
		{name: "FOR", right: true},
		{name: "PROGRESS", cut: 12, drop: 4},
		{name: "WORKER", cut: 10, drop: 1},
	},
	{
		{name: "QUEUE", cut: 8, drop: 3},
		{name: "ID", cut: 12},
		{name: "KIND", cut: 8, drop: 1},
		{name: "DIED", right: true},
		{name: "FAILED", right: true, drop: 2},
		{name: "ERROR", cut: 16},
	},
}

// A topRow is a row of a view.
type topRow struct {
	cells []string
	alarm level
}

// A level is how much a row matters.
type level int

const (
	calm level = iota
	notable
	alarming
)

// summary says in a line what a view has.
func (d *topData) summary(view topView) string {
	switch view {
	case topWorkers, topRunning:
		quiet, stopping, runs, stuck := 0, 0, 0, 0
		for _, w := range d.workers {
			switch {
			case w.Stopping:
				stopping++
			case w.Quiet:
				quiet++
			}
			runs += len(w.Running)
			stuck += stuckIn(&w)
		}
		return some(fmt.Sprintf("%s, %s running", plural(len(d.workers), "worker"), count(int64(runs))),
			part{quiet, "quiet"}, part{stopping, "stopping"}, part{stuck, "stuck"})
	case topDead:
		n := int64(0)
		for _, q := range d.queues {
			n += q.Dead
		}
		return fmt.Sprintf("%s dead; the latest %d", count(n), len(d.dead))
	}
	var ready, blocked, running, scheduled, dead, paused, held int64
	states, oldest := make(map[string]int), time.Duration(0)
	for _, q := range d.queues {
		ready, blocked, running, scheduled, dead = ready+q.Ready-q.Blocked, blocked+q.Blocked, running+q.Running, scheduled+q.Scheduled, dead+q.Dead
		oldest = max(oldest, q.Oldest)
		states[q.State()]++
		paused, held = paused+q.PausedGroups, held+q.HeldGroups
	}
	s := some(plural(len(d.queues), "queue"), part{states["paused"], "paused"}, part{states["held"], "held back"}, part{states["limited"], "limited"})
	if groups := stoppedGroups(paused, held); groups != "" {
		s += ", " + groups
	}
	s += fmt.Sprintf(": %d ready", ready)
	if oldest > 0 {
		s += ", the oldest for " + span(oldest)
	}
	if blocked > 0 {
		s += fmt.Sprintf(", %d blocked", blocked)
	}
	return s + fmt.Sprintf(", %d running, %d dead, %d scheduled", running, dead, scheduled)
}

type part struct {
	n    int
	what string
}

// some adds to a line the parts that there are.
func some(line string, parts ...part) string {
	for _, p := range parts {
		if p.n > 0 {
			line += fmt.Sprintf(", %d %s", p.n, p.what)
		}
	}
	return line
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func stuckIn(w *inspect.Worker) (n int) {
	for _, j := range w.Running {
		if j.Stuck != nil {
			n++
		}
	}
	return n
}

// rows returns the rows of a view, in an order.
func (d *topData) rows(view topView, o order) []topRow {
	switch view {
	case topWorkers:
		return d.workerRows(o)
	case topRunning:
		return d.runningRows(o)
	case topDead:
		return d.deadRows(o)
	}
	return d.queueRows(o)
}

// A sorting is a way to sort: the largest number first, or the names as in a dictionary.
type sorting[T any] struct {
	name    string
	compare func(a, b *T) int
}

// down sorts by a number, the largest first.
func down[T any, N cmp.Ordered](name string, of func(t *T) N) sorting[T] {
	return sorting[T]{name, func(a, b *T) int { return cmp.Compare(of(b), of(a)) }}
}

// up sorts by a name.
func up[T any](name string, of func(t *T) string) sorting[T] {
	return sorting[T]{name, func(a, b *T) int { return strings.Compare(of(a), of(b)) }}
}

// sorted returns a list in an order. Equal elements keep theirs.
func sorted[T any](list []T, by []sorting[T], o order) []T {
	list = slices.Clone(list)
	s := by[o.column%len(by)]
	slices.SortStableFunc(list, func(a, b T) int {
		if o.turned {
			return s.compare(&b, &a)
		}
		return s.compare(&a, &b)
	})
	return list
}

// A queueRow is a queue and its rates.
type queueRow struct {
	inspect.Queue
	rate
}

// A heldJob is a job and the worker that has it.
type heldJob struct {
	worker string
	inspect.RunningJob
}

var (
	queueSortings = []sorting[queueRow]{
		up("name", func(q *queueRow) string { return q.Name }),
		down("ready", func(q *queueRow) int64 { return q.Ready }),
		down("running", func(q *queueRow) int64 { return q.Running }),
		down("dead", func(q *queueRow) int64 { return q.Dead }),
		down("oldest", func(q *queueRow) time.Duration { return q.Oldest }),
		down("in/s", func(q *queueRow) float64 { return q.in }),
		down("done/s", func(q *queueRow) float64 { return q.done }),
		down("fail/s", func(q *queueRow) float64 { return q.failed }),
	}
	workerSortings = []sorting[inspect.Worker]{
		up("name", func(w *inspect.Worker) string { return w.ID }),
		down("running", func(w *inspect.Worker) int { return len(w.Running) }),
		down("stuck", stuckIn),
		{"longest", func(a, b *inspect.Worker) int { return longest(a).Compare(longest(b)) }},
	}
	runningSortings = []sorting[heldJob]{
		{"longest", func(a, b *heldJob) int { return a.Since.Compare(b.Since) }},
		up("queue", func(j *heldJob) string { return j.Queue }),
		up("id", func(j *heldJob) string { return j.ID }),
		up("kind", func(j *heldJob) string { return j.Kind }),
		up("worker", func(j *heldJob) string { return j.worker }),
	}
	deadSortings = []sorting[inspect.Job]{
		{"latest", func(a, b *inspect.Job) int { return b.EndedAt.Compare(a.EndedAt) }},
		up("queue", func(j *inspect.Job) string { return j.Queue }),
		up("kind", func(j *inspect.Job) string { return j.Kind }),
		up("error", func(j *inspect.Job) string { return j.LastError }),
	}
)

// longest returns since when a worker has its oldest job. It is far away if the worker has none.
func longest(w *inspect.Worker) time.Time {
	if len(w.Running) == 0 {
		return time.Unix(1<<40, 0)
	}
	return w.Running[0].Since
}

// sortNames are the names of each view's ways to sort.
var sortNames = [topViews][]string{namesOf(queueSortings), namesOf(workerSortings), namesOf(runningSortings), namesOf(deadSortings)}

func namesOf[T any](by []sorting[T]) (names []string) {
	for _, s := range by {
		names = append(names, s.name)
	}
	return names
}

func (d *topData) queueRows(o order) (rows []topRow) {
	list := make([]queueRow, len(d.queues))
	for i, q := range d.queues {
		list[i] = queueRow{q, d.rates[q.Name]}
	}
	for _, q := range sorted(list, queueSortings, o) {
		row := topRow{alarm: calm}
		oldest, slots, in, done, failed := "", "", "", "", ""
		if q.Oldest > 0 {
			oldest = span(q.Oldest)
		}
		if q.Slots > 0 {
			slots = number(int64(q.Slots))
		}
		if q.known {
			in, done, failed = perSecond(q.in), perSecond(q.done), perSecond(q.failed)
		}
		if q.State() != "active" || q.PausedGroups+q.HeldGroups > 0 {
			row.alarm = notable
		}
		if q.failed > 0 || q.Ready > 0 && len(q.Workers) == 0 && !q.Paused {
			row.alarm = alarming
		}
		row.cells = []string{
			q.Name, queueState(&q.Queue), number(q.Ready - q.Blocked), number(q.Scheduled), number(q.Running), number(q.Dead), number(q.Cancelled), oldest, in, done, failed,
			number(int64(len(q.Workers))), slots, draw(q.trend),
		}
		rows = append(rows, row)
	}
	return rows
}

// perSecond returns a rate for people.
func perSecond(r float64) string {
	if r > 0 && r < 10 {
		return fmt.Sprintf("%.1f", max(r, 0.1))
	}
	return fmt.Sprintf("%.0f", r)
}

func (d *topData) workerRows(o order) (rows []topRow) {
	for _, w := range sorted(d.workers, workerSortings, o) {
		row := topRow{alarm: calm}
		state, lasts := "active", ""
		switch {
		case w.Stopping:
			state, row.alarm = "stopping", notable
		case w.Quiet:
			state, row.alarm = "quiet", notable
		}
		if len(w.Running) > 0 {
			lasts = span(max(0, d.at.Sub(w.Running[0].Since)))
		}
		var queues []string
		left := time.Duration(0)
		for i, s := range w.Sessions {
			queues = append(queues, s.Queue)
			if i == 0 || s.Left < left {
				left = s.Left
			}
		}
		lease := span(left)
		if left < 0 {
			lease = "-" + lease
		}
		stuck := stuckIn(&w)
		if stuck > 0 || left < 0 {
			row.alarm = alarming
		}
		row.cells = []string{w.ID, state, number(int64(len(w.Running))), number(int64(stuck)), lasts, lease, strings.Join(queues, ",")}
		rows = append(rows, row)
	}
	return rows
}

func (d *topData) runningRows(o order) (rows []topRow) {
	var jobs []heldJob
	for _, w := range d.workers {
		for _, j := range w.Running {
			jobs = append(jobs, heldJob{w.ID, j})
		}
	}
	for _, j := range sorted(jobs, runningSortings, o) {
		row := topRow{alarm: calm}
		state := "running"
		if j.Cancelling {
			state, row.alarm = "cancelling", notable
		}
		if j.Stuck != nil {
			state, row.alarm = "stuck", alarming
		}
		row.cells = []string{j.Queue, j.ID, j.Kind, state, span(max(0, d.at.Sub(j.Since))), howFar(j.Progress), j.worker}
		rows = append(rows, row)
	}
	return rows
}

func (d *topData) deadRows(o order) (rows []topRow) {
	for _, j := range sorted(d.dead, deadSortings, o) {
		said := j.LastError
		if j.Err != nil {
			said = j.Err.Error()
		}
		rows = append(rows, topRow{[]string{
			j.Queue, j.ID, j.Kind, span(max(0, d.at.Sub(j.EndedAt))) + " ago", fmt.Sprintf("%d/%d", j.Failed, j.MaxAttempts), said,
		}, calm})
	}
	return rows
}
