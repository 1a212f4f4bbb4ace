package scheduler

import (
	"strconv"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/schedule"
	"github.com/signalbox-go/signalbox/internal/store"
)

// A CronOption changes an entry of [Scheduler.Cron], and the job of each of its ticks.
type CronOption interface{ entry(*entryOptions) }

// In sets the time zone of a cron entry's spec. The default is UTC.
func In(loc *time.Location) CronOption {
	return forEntry(func(e *entryOptions) {
		if loc == nil {
			e.wrong("In", "it is nil; want a *time.Location such as that of time.LoadLocation")
		}
		e.loc = loc
	})
}

// A MissedPolicy says what happens to the ticks of a cron entry that nobody enqueued within [Grace]: because no scheduler
// ran, or because none reached Redis. It is [Skip], [RunOnce] or the result of [RunAll].
type MissedPolicy int

const (
	// Skip leaves missed ticks out.
	Skip MissedPolicy = 0
	// RunOnce makes up for the latest of the missed ticks, and leaves out the others.
	RunOnce MissedPolicy = 1

	byDistance   MissedPolicy = -1 // the default: RunOnce if the tick after the latest missed one is far from it, else Skip
	maxRunAll                 = 1000
	farApart                  = time.Hour
	maxLateness               = maxDelay
	policyHelp                = "want Skip, RunOnce or RunAll(n)"
	latenessHelp              = "want 5s to 100 years"
)

// RunAll makes up for the latest n of the missed ticks, the earliest first, and leaves out those before. n is 1 to 1,000.
func RunAll(n int) MissedPolicy {
	if n < 1 {
		return byDistance - 1 // which is invalid
	}
	return MissedPolicy(n)
}

// Missed sets what happens to missed ticks of a cron entry. By default the latest missed tick is made up for if the next
// tick comes more than an hour after it. All others are left out.
//
// Ticks from before the entry was first seen by Redis, or before its spec, its time zone or one of these options was
// changed, are never made up for. Nor are those that passed while the entry was paused.
func Missed(p MissedPolicy) CronOption {
	return forEntry(func(e *entryOptions) {
		if p < Skip || p > maxRunAll {
			e.wrong("Missed", "%d; %s, n from 1 to %d", int(p), policyHelp, maxRunAll)
		}
		e.missed = p
	})
}

// Lateness sets how late a missed tick may be when it is made up for. A tick that is later is left out. d is 5 s
// ([Grace]) or more. The default is 100 years.
func Lateness(d time.Duration) CronOption {
	return forEntry(func(e *entryOptions) {
		if d < Grace || d > maxLateness {
			e.wrong("Lateness", "%v; %s", d, latenessHelp)
		}
		e.lateness = d
	})
}

// policy returns the policy for missed ticks in words, for tools.
func (e *entryOptions) policy() string {
	text := "skip"
	switch {
	case e.missed == byDistance:
		text = "default"
	case e.missed == RunOnce:
		text = "once"
	case e.missed > RunOnce:
		text = "all, up to " + strconv.Itoa(int(e.missed))
	}
	if e.lateness != maxLateness && e.missed != Skip {
		text += ", within " + e.lateness.String()
	}
	return text
}

// entryOptions is the result of the options of a cron entry.
type entryOptions struct {
	options
	loc      *time.Location // nil means UTC
	missed   MissedPolicy
	lateness time.Duration
	overlap  store.Overlap
	vary     schedule.Variation // without its seed
	argsAt   func(tick time.Time) signalbox.Args
}

// ofEntry returns the defaults of a kind, changed by the options of a cron entry. The error has every mistake in the
// list.
func ofEntry(k kindDefaults, reserved func() []string, opts []CronOption) (*entryOptions, error) {
	e := &entryOptions{options: defaults, missed: byDistance, lateness: maxLateness}
	if k != (kindDefaults{}) {
		e.take(k)
	}
	for i, opt := range opts {
		if opt == nil {
			e.missing(i)
			continue
		}
		opt.entry(e)
	}
	e.checkTimes()
	return e, e.mistakes(reserved)
}
