package looks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// A Step is how long the periods of a queue's history are: a minute or an hour.
type Step struct {
	letter string
	length time.Duration
	fields int // of history, one for each period; sample.lua has the same number
}

// The steps of a history: the minutes of three hours, and the hours of thirty days.
var (
	Minutes = Step{"m", time.Minute, 180}
	Hours   = Step{"h", time.Hour, 720}
)

// Window returns how far back the periods of a step go.
func (s Step) Window() time.Duration { return time.Duration(s.fields) * s.length }

// A History is what happened to the jobs of a queue, as far back as there are periods.
type History struct {
	At      time.Time // by the server's clock
	Total   Totals    // since the queue began
	Periods []Period  // oldest first; each begins when the one before has ended
}

// A Period is what happened in a time. It is about as long as a step. It is longer if nobody looked in between, or if nothing happened.
type Period struct {
	Start, End time.Time
	Totals
	Wait, Run facts.Histogram
}

// History reads the queue's history. What can't be read is in the error, and the history is what the rest says.
func (q *Looks) History(ctx context.Context, step Step) (History, error) {
	r, err := scripts.History.Run(ctx, q.Client, scripts.History.Keys(&q.Keys), scripts.History.Args(0, scripts.Arg("letter", step.letter), scripts.Arg("fields", step.fields)))
	if err != nil {
		return History{}, q.badStats(err)
	}
	return parseHistory(r, step)
}

// Totals returns the counts since the queue began, and when that was, by the server's clock. It costs Redis less than History.
func (q *Looks) Totals(ctx context.Context) (at time.Time, t Totals, err error) {
	h, err := q.History(ctx, Step{letter: Minutes.letter, length: Minutes.length})
	if !h.At.IsZero() {
		err = nil // what can't be read is no total
	}
	return h.At, h.Total, err
}

// badStats adds the keys to an error of Redis.
func (q *Looks) badStats(err error) error {
	if strings.Contains(err.Error(), "WRONGTYPE") {
		return fmt.Errorf("one of the keys %s and %s is no hash; is another program writing to them? %w", q.Keys.Stats, q.Keys.History, err)
	}
	return err
}

func parseHistory(r *scripts.Reply, step Step) (History, error) {
	if err := r.Status("ok"); err != nil {
		return History{}, err
	}
	now, totals, fields := r.Int(1), r.Str(2), r.Array(3)
	if r.Err != nil {
		return History{}, r.Err
	}
	live, err := parseSample(strconv.FormatInt(now, 10) + " " + totals)
	if err != nil {
		r.Fail(2, "no list of counters")
		return History{}, r.Err
	}
	named := [...]string{"since:" + step.letter, "last", "before"}
	var samples []sample
	var errs []error
	for i, v := range fields {
		text, ok := v.(string)
		if !ok {
			continue // there is none
		}
		s, err := parseSample(text)
		if err != nil {
			field := step.letter + strconv.Itoa(i-len(named))
			if i < len(named) {
				field = named[i]
			}
			errs = append(errs, fmt.Errorf("store: field %s of the queue's history: %w; delete the field (HDEL), workers write it again", field, err))
			continue
		}
		s.resumed = i == 0
		samples = append(samples, s)
	}
	return History{At: time.UnixMicro(now), Total: live.totals, Periods: periods(samples, live, step)}, errors.Join(errs...)
}

// A sample is what the counters said at a time, and the times of deliveries that had come in that minute or hour until then.
type sample struct {
	us        int64 // when, by the server's clock
	totals    Totals
	wait, run facts.Histogram
	resumed   bool // nobody had looked for a long time before
}

// errNoSample: another program wrote it.
var errNoSample = errors.New("it is not what workers write")

// parseSample reads a sample: the time in us and the counters, with spaces between; then the two histograms, each behind a semicolon, if
// there are any. A later release may write more of each.
func parseSample(text string) (s sample, err error) {
	counters, histograms, times := strings.Cut(text, ";")
	numbers := strings.Split(counters, " ")
	all := append([]*int64{&s.us}, s.totals.all()...)
	if len(numbers) < 11 { // there is no count of expired jobs in an old one
		return sample{}, errNoSample
	}
	for i, n := range all[:min(len(all), len(numbers))] {
		if *n, err = strconv.ParseInt(numbers[i], 10, 64); err != nil || *n < 0 {
			return sample{}, errNoSample
		}
	}
	if !times {
		return s, nil
	}
	waits, runs, both := strings.Cut(histograms, ";")
	runs, _, _ = strings.Cut(runs, ";")
	if !both || !s.wait.Parse(waits) || !s.run.Parse(runs) {
		return sample{}, errNoSample
	}
	return s, nil
}

// periods returns what happened between samples, of which live is the one of this moment. The last sample of each minute or hour counts.
func periods(samples []sample, live sample, step Step) []Period {
	number := func(s sample) int64 { return s.us / step.length.Microseconds() }
	samples = append(slices.DeleteFunc(samples, func(s sample) bool {
		return s.us > live.us || // from before the clock was set back
			number(s) < number(live)-int64(step.fields)
	}), live)
	slices.SortStableFunc(samples, func(a, b sample) int { return int(min(max(a.us-b.us, -1), 1)) })

	var list []Period
	var wait, run facts.Histogram
	before := samples[0]
	for i, s := range samples[1:] {
		next := i + 2
		wait.Merge(&s.wait)
		run.Merge(&s.run)
		if s.us == before.us || !s.resumed && next < len(samples) && number(samples[next]) == number(s) {
			continue
		}
		p := Period{Start: time.UnixMicro(before.us), End: time.UnixMicro(s.us), Wait: wait, Run: run}
		if p.Totals = s.totals.minus(before.totals); !p.fell() {
			list = append(list, p)
		}
		before, wait, run = s, facts.Histogram{}, facts.Histogram{}
	}
	return list
}

// all returns the counters in the order of totals_of, of the chapter statistics.
func (t *Totals) all() []*int64 {
	return []*int64{
		&t.Enqueued, &t.Completed, &t.Retried, &t.Delayed, &t.Returned, &t.Dead, &t.Cancelled, &t.Crashed, &t.Deleted, &t.Revived,
		&t.Expired,
	}
}

// minus returns what was counted since the counters were o.
func (t Totals) minus(o Totals) Totals {
	theirs := o.all()
	for i, n := range t.all() {
		*n -= *theirs[i]
	}
	return t
}

// fell reports whether a counter is less than it was: somebody has deleted the counters, or Redis has lost them.
func (t Totals) fell() bool {
	return slices.ContainsFunc(t.all(), func(n *int64) bool { return *n < 0 })
}
