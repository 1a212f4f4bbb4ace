package scheduler

import (
	"time"

	"github.com/signalbox-go/signalbox/internal/schedule"
)

const (
	maxCounted  = 1000   // an entry's missed ticks are counted up to this number in each step
	countBudget = 50_000 // the same for all entries together
	maxLines    = 10     // entries that the log names in one step
)

// triesOfOwed is how often a call is made that has only ticks which are made up for. Each of them then goes into a new call.
const triesOfOwed = 5

// owes reports whether the entry's next tick is made up for.
func (e *ticking) owes() bool { return !e.next.IsZero() && !e.next.After(e.owed) }

// skip moves on to the first tick that is not too late, or that is made up for. first is the first tick that is too late.
func (l *loop) skip(e *ticking, first, server time.Time, why missedReason) {
	oldest := server.Add(-Grace)
	owed := e.owing(first, oldest, server)
	if len(owed) == 0 {
		l.turn(e, l.missed.count(e, first, oldest, why))
		return
	}
	next := l.missed.count(e, first, owed[0], why)
	e.owed = owed[len(owed)-1]
	l.turn(e, next)
	e.notBefore = server // behind the ticks that are due
}

// owing returns those ticks from first on, and before oldest, that are made up for.
func (e *ticking) owing(first, oldest, server time.Time) []time.Time {
	n := int(e.policy)
	if e.policy == byDistance {
		n = 1
	}
	if n == 0 {
		return nil
	}
	if bound := server.Add(-e.lateness); first.Before(bound) {
		first = bound
	}
	last := schedule.Last(e.schedule, first.Add(-1), oldest, n)
	if e.policy == byDistance && len(last) > 0 {
		if next := e.schedule.Next(last[0]); !next.IsZero() && next.Sub(last[0]) <= farApart {
			return nil
		}
	}
	return last
}

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

// count counts the entry's ticks from first on that come before a time. It returns the first tick that doesn't.
func (r *missedReport) count(e *ticking, first, oldest time.Time, why missedReason) time.Time {
	limit := max(min(maxCounted, r.budget), 1)
	next, n, more := first, 0, false
	for ; !next.IsZero() && next.Before(oldest); n++ {
		if n == limit {
			next, more = e.schedule.Next(oldest.Add(-1)), true
			break
		}
		next = e.schedule.Next(next)
	}
	r.budget -= n
	if n == 0 {
		return next
	}
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
