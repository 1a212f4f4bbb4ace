package web

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/signalbox-go/signalbox/inspect"
)

// From when on something is trouble.
const (
	failShare    = .2              // of the attempts of failWindow
	failBadly    = .5              // a danger
	failLeast    = 10              // attempts, so that one that fails is none
	failWindow   = 5 * time.Minute //
	waitsLong    = 5 * time.Minute
	goneLong     = time.Minute // after its lease: a danger
	nearlyFull   = .95         // of the maximum length
	entryForgets = 24 * time.Hour
	outboxLags   = time.Minute
)

// A trouble is something that is wrong right now.
type trouble struct {
	Danger bool      // else it is to be looked at
	Queue  string    // whose line it is; "" if it is of no queue
	Word   string    // for the queue's line
	Event  string    // for the chart of the last hour
	About  string    // the name that the sentence begins with
	To     string    // where it leads
	Says   string    // the rest of the sentence
	Why    string    // what is known of it
	Since  time.Time // zero: it is not known
	Acts   []act
}

// An act is a link to where one sees more.
type act struct{ Text, To string }

// Arm returns the arm of a signal for the trouble.
func (t *trouble) Arm() string {
	if t.Danger {
		return "stop"
	}
	return "caution"
}

// Class returns the class of its row.
func (t *trouble) Class() string {
	if t.Danger {
		return "danger"
	}
	return "caution"
}

// troubles returns what is wrong, the worst first, and then what has been so for longest.
func (s *state) troubles() []trouble {
	var list []trouble
	for i := range s.queues {
		list = append(list, s.troublesOf(&s.queues[i])...)
	}
	for i := range s.workers {
		list = append(list, s.workerTroubles(&s.workers[i])...)
	}
	for _, e := range s.entries {
		if e.Gone && s.at.Sub(e.Seen) < entryForgets && !e.Paused {
			t := trouble{
				Queue: e.Queue, Word: "cron entry gone", Event: "entry gone", About: e.Name, To: link("queue", "name", e.Queue), Says: ": no scheduler has this cron entry", Since: e.Seen,
				Why: fmt.Sprintf("None has said so since %s. Its jobs go to %s.", e.Seen.UTC().Format("15:04"), clean(e.Queue, 100)),
			}
			if !e.Next.IsZero() {
				t.Why += fmt.Sprintf(" Its next tick is at %s.", e.Next.UTC().Format("15:04"))
			}
			list = append(list, t)
		}
	}
	for _, o := range s.outboxes {
		if o.Lag > outboxLags || o.Dead > 0 {
			more := ""
			if o.More {
				more = " or more"
			}
			list = append(list, trouble{
				Queue: o.Queue, Word: "outbox lags", Event: "outbox lags", About: o.ID, To: link("queue", "name", o.Queue), Since: o.At.Add(-o.Lag),
				Says: ": an outbox has rows for " + clean(o.Queue, 100) + " that are not enqueued", Why: fmt.Sprintf("%s%s wait, the oldest for %s. %s can't be enqueued.", counted(o.Backlog, "row"), more, span(o.Lag), counted(o.Dead, "row")),
			})
		}
	}
	slices.SortStableFunc(list, func(a, b trouble) int {
		if a.Danger != b.Danger {
			if a.Danger {
				return -1
			}
			return 1
		}
		return a.Since.Compare(b.Since)
	})
	return list
}

// troublesOf returns what is wrong with a queue.
func (s *state) troublesOf(q *inspect.Queue) []trouble {
	var list []trouble
	add := func(t trouble) {
		t.Queue, t.About, t.To = q.Name, q.Name, link("queue", "name", q.Name)
		list = append(list, t)
	}
	stats, known := s.stats[q.Name]
	if known {
		if t, ok := failing(&stats); ok {
			t.Acts = []act{{"Dead jobs", link("jobs", "queue", q.Name, "state", "dead")}}
			add(t)
		}
	}
	able := q.Ready - q.Blocked // could start
	switch {
	case q.Paused:
		if q.Ready > 0 {
			add(trouble{Word: "paused", Event: "paused", Says: ": paused, and " + counted(q.Ready, "job") + " wait", Why: "No worker gets a job of it until somebody resumes it.", Since: q.PausedSince})
		}
	case q.Ready > 0 && len(q.Workers) == 0:
		t := trouble{Danger: true, Word: "no worker", Event: "no worker", Says: ": " + counted(q.Ready, "job") + " wait, and no worker has the queue", Why: "Jobs start as soon as a worker of the queue does."}
		if q.Oldest > 0 {
			t.Since = s.at.Add(-q.Oldest)
		}
		add(t)
	case !q.HeldUntil.IsZero() && q.Ready > 0:
		add(trouble{Word: "held back", Event: "held back", Says: ": held back, and " + counted(q.Ready, "job") + " wait", Why: "Jobs start again at " + q.HeldUntil.UTC().Format("15:04:05") + " UTC."})
	case q.Oldest > waitsLong:
		t := trouble{Word: "waits long", Event: "waits long", Says: fmt.Sprintf(": %s could start, the oldest has waited for %s", counted(max(able, 1), "job"), span(q.Oldest)), Since: s.at.Add(-q.Oldest), Acts: []act{{"Ready jobs", link("jobs", "queue", q.Name, "state", "ready")}}}
		if known {
			c, d := recent(&stats, failWindow)
			if c.Completed+c.Retried+c.Dead == 0 {
				t.Danger, t.Why = true, "No attempt has ended in the last five minutes."
			} else if d > 0 {
				t.Why = fmt.Sprintf("%s a second come in, %s a second complete.", perSecond(float64(c.Enqueued)/d.Seconds()), perSecond(float64(c.Completed)/d.Seconds()))
			}
		}
		if q.Limited {
			t.Why += " The limit of the queue lets no other start."
		}
		add(t)
	}
	if q.MaxLength > 0 && float64(q.Length()) >= nearlyFull*float64(q.MaxLength) {
		add(trouble{Word: "full", Event: "full", Says: fmt.Sprintf(": %s of at most %s", counted(q.Length(), "job"), commas(int64(q.MaxLength))), Why: "At the maximum length enqueues are refused, or wait for room."})
	}
	return list
}

// workerTroubles returns what is wrong with a worker: a handler that doesn't end, or a lease that has.
func (s *state) workerTroubles(w *inspect.Worker) []trouble {
	var list []trouble
	for _, j := range w.Running {
		if j.Stuck != nil {
			t := trouble{
				Danger: true, Queue: j.Queue, Word: "handler stuck", Event: clean(j.ID, 40) + " stuck", About: cmp.Or(j.Kind, "kind not known"), To: link("job", "queue", j.Queue, "id", j.ID), Since: j.Stuck.Since, Says: ": a handler is stuck",
				Why: fmt.Sprintf("Its context has ended, and it goes on: job %s of %s on %s.", clean(j.ID, 100), clean(j.Queue, 100), clean(w.ID, 100)),
			}
			if j.Stuck.SlotFreed {
				t.Why += " Another job has its slot."
			}
			list = append(list, t)
		}
	}
	for _, x := range w.Sessions {
		if x.Left < 0 {
			var has int64
			for _, j := range w.Running {
				if j.Queue == x.Queue {
					has++
				}
			}
			list = append(list, trouble{
				Danger: -x.Left > goneLong, Queue: x.Queue, Word: "worker gone", Event: "worker gone", About: w.ID, To: link("queue", "name", x.Queue), Since: x.Until, Says: ": the worker is gone from " + clean(x.Queue, 100),
				Why: fmt.Sprintf("Its lease has ended. Another worker of the queue takes back its jobs (%s) and counts a crash for each.", commas(has)),
			})
		}
	}
	return list
}

// recent adds up what was counted in the last d, and returns for how long that was.
func recent(s *inspect.Stats, d time.Duration) (c inspect.Counts, of time.Duration) {
	for _, b := range slices.Backward(s.Buckets) {
		if !b.Start.Add(b.Duration).After(s.At.Add(-d)) {
			break
		}
		c.Enqueued += b.Enqueued
		c.Completed += b.Completed
		c.Retried += b.Retried
		c.Dead += b.Dead - b.Expired
		c.Crashed += b.Crashed
		of += b.Duration
	}
	return c, of
}

// share returns which part of the attempts failed, and how many there were.
func share(c inspect.Counts) (part float64, attempts int64) {
	failed := c.Retried + c.Dead + c.Crashed
	if attempts = c.Completed + failed; attempts == 0 {
		return 0, 0
	}
	return float64(failed) / float64(attempts), attempts
}

// failing returns the trouble of a queue whose attempts fail.
func failing(s *inspect.Stats) (trouble, bool) {
	c, d := recent(s, failWindow)
	part, attempts := share(c)
	if part < failShare || attempts < failLeast {
		return trouble{}, false
	}
	since := s.At
	for _, b := range slices.Backward(s.Buckets) {
		counts := b.Counts
		counts.Dead -= counts.Expired
		if p, n := share(counts); n > 0 && p < failShare {
			break
		} else if n > 0 {
			since = b.Start
		}
	}
	failed := c.Retried + c.Dead + c.Crashed
	return trouble{
		Danger: part >= failBadly, Word: "failing", Event: "begins to fail", Since: since, Says: fmt.Sprintf(": %.0f %% of the attempts fail", 100*part),
		Why: fmt.Sprintf("In the last %s %s of %s failed: %s a second. %s died.", span(d.Round(time.Second)), commas(failed), counted(attempts, "attempt"), perSecond(float64(failed)/d.Seconds()), counted(c.Dead, "job")),
	}, true
}

// A rates is what happened lately in a queue, each second.
type rates struct {
	known          bool
	in, done, fail float64
	of             time.Duration // in which that was measured
	wait, run      time.Duration // the bound of the 95th percentile of the last five minutes; 0: nothing was measured
}

// ratesOf returns the rates of a queue.
func (s *state) ratesOf(queue string) rates {
	stats, ok := s.stats[queue]
	if !ok {
		return rates{}
	}
	c, d := recent(&stats, time.Minute)
	if d <= 0 {
		return rates{known: true}
	}
	r := rates{known: true, of: d, in: float64(c.Enqueued) / d.Seconds(), done: float64(c.Completed) / d.Seconds(), fail: float64(c.Retried+c.Dead+c.Crashed) / d.Seconds()}
	var wait, run inspect.Histogram
	for _, b := range slices.Backward(stats.Buckets) {
		if !b.Start.Add(b.Duration).After(stats.At.Add(-failWindow)) {
			break
		}
		wait, run = wait.Plus(b.Wait), run.Plus(b.Run)
	}
	r.wait, r.run = wait.Quantile(.95), run.Quantile(.95)
	return r
}

// A column is a part of a chart: what was counted while it lasted, as far as that is known.
type column struct {
	known          bool
	in, done       float64 // a second
	retried, dead  float64 // a second; retried has the crashes, too
	wait, run      inspect.Histogram
	failed, ending float64 // attempts a second that failed, and all of them
}

// columns returns n columns of a length, of which the last one ends when s was read. A bucket that is longer than a column is spread over its columns.
func columns(s *inspect.Stats, n int, length time.Duration) []column {
	list := make([]column, n)
	i := 0
	for k := range list {
		middle := s.At.Add(-time.Duration(n-k)*length + length/2)
		for i < len(s.Buckets) && !s.Buckets[i].Start.Add(s.Buckets[i].Duration).After(middle) {
			i++
		}
		if i == len(s.Buckets) || s.Buckets[i].Start.After(middle) || s.Buckets[i].Duration <= 0 {
			continue
		}
		b := &s.Buckets[i]
		sec := b.Duration.Seconds()
		c := column{known: true, in: float64(b.Enqueued) / sec, done: float64(b.Completed) / sec, retried: float64(b.Retried+b.Crashed) / sec, dead: float64(b.Dead) / sec, wait: b.Wait, run: b.Run}
		c.failed = c.retried + float64(b.Dead-b.Expired)/sec
		c.ending = c.failed + c.done
		list[k] = c
	}
	return list
}

// bin returns which power of two of milliseconds a duration of a histogram is: 0 is up to 1 ms, 22 what is longest.
func bin(d time.Duration) int {
	if d <= time.Millisecond {
		return 0
	}
	return min(topBin, int(math.Ceil(math.Log2(float64(d.Milliseconds())))))
}

// topBin is the row of the longest durations.
const topBin = 22
