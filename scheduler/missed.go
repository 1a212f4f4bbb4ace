package scheduler

import "time"

const (
	maxCounted  = 1000   // missed ticks of an entry are counted so far, each time
	countBudget = 50_000 // and those of all entries together, in one step
	maxLines    = 10     // entries that the log names, in one step
)

// A missedReason says why ticks were not enqueued, for the log.
type missedReason string

const (
	missedLate missedReason = "scheduler: cron: ticks skipped: they could not be tried in time"
	missedIdle missedReason = "scheduler: cron: ticks missed: they passed while no scheduler enqueued them"
)

// A missedReport counts missed ticks and logs them: a line for each of the first entries, and one for the rest.
type missedReport struct {
	loop    *loop
	budget  int // ticks that may still be counted
	lines   int
	entries int // that got no line
	ticks   int // of those
	more    bool
}

// begin begins a step.
func (r *missedReport) begin() { r.budget = countBudget }

// count counts the ticks of an entry from first on that are too late, and returns the first one that is not.
func (r *missedReport) count(e *ticking, first, server time.Time, why missedReason) time.Time {
	limit := max(min(maxCounted, r.budget), 1)
	oldest := server.Add(-Grace)
	next, n, more := first, 0, false
	for ; !next.IsZero() && next.Before(oldest); n++ {
		if n == limit {
			next, more = e.schedule.Next(oldest.Add(-1)), true
			break
		}
		next = e.schedule.Next(next)
	}
	r.budget -= n
	r.add(e, first, n, more, why)
	return next
}

// add notes that n ticks of an entry were missed, or more than that.
func (r *missedReport) add(e *ticking, first time.Time, n int, more bool, why missedReason) {
	e.missed += n
	if !r.line() {
		r.ticks += n
		r.more = r.more || more
		return
	}
	r.loop.s.log.Warn(string(why), "entry", e.name, "queue", r.loop.queue, "first", first, "count", n, "more", more)
}

// line reports whether the log takes a line about one more entry.
func (r *missedReport) line() bool {
	if r.lines == maxLines {
		r.entries++
		return false
	}
	r.lines++
	return true
}

// flush ends a step.
func (r *missedReport) flush() {
	if r.entries > 0 {
		r.loop.s.log.Warn("scheduler: cron: the same is so of other entries; count is the number of their ticks that were skipped or missed",
			"queue", r.loop.queue, "entries", r.entries, "count", r.ticks, "more", r.more)
	}
	r.lines, r.entries, r.ticks, r.more = 0, 0, 0, false
}
