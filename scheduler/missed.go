package scheduler

import "time"

const (
	maxCounted  = 1000   // an entry's missed ticks are counted up to this number in each step
	countBudget = 50_000 // the same for all entries together
	maxLines    = 10     // entries that the log names in one step
)

// A missedReason says in the log why ticks were not enqueued.
type missedReason string

const (
	missedLate missedReason = "scheduler: cron: ticks skipped: they could not be tried in time"
	missedIdle missedReason = "scheduler: cron: ticks missed: they passed while no scheduler enqueued them"
)

// A missedReport counts missed ticks and logs them. Each of the first entries has a line, and all others share
// one.
type missedReport struct {
	loop    *loop
	budget  int // ticks that may still be counted in this step
	lines   int
	entries int // entries without a line
	ticks   int // ticks of those entries
	more    bool
}

// begin begins a step of the loop.
func (r *missedReport) begin() { r.budget = countBudget }

// count counts the entry's ticks from first on that are too late. It returns the first tick that is not.
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

// add records that n ticks of an entry were missed. more means that there are more than n.
func (r *missedReport) add(e *ticking, first time.Time, n int, more bool, why missedReason) {
	e.missed += n
	if !r.line() {
		r.ticks += n
		r.more = r.more || more
		return
	}
	r.loop.s.log.Warn(string(why), "entry", e.name, "queue", r.loop.queue, "first", first, "count", n, "more", more)
}

// line reports whether one more entry may have its own line in the log.
func (r *missedReport) line() bool {
	if r.lines == maxLines {
		r.entries++
		return false
	}
	r.lines++
	return true
}

// flush ends a step of the loop.
func (r *missedReport) flush() {
	if r.entries > 0 {
		r.loop.s.log.Warn("scheduler: cron: the same is so of other entries; count is the number of their ticks that were skipped or missed",
			"queue", r.loop.queue, "entries", r.entries, "count", r.ticks, "more", r.more)
	}
	r.lines, r.entries, r.ticks, r.more = 0, 0, 0, false
}
