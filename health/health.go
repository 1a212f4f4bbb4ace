// Package health says how well a worker or a scheduler can do its work, to programs and to an orchestrator.
//
//	mux.Handle("/livez", health.Live(w, s))   // 503: a restart helps
//	mux.Handle("/readyz", health.Ready(w, s)) // 503: it can't do its work now
//
// w is a worker.Worker, and s is a scheduler.Scheduler. Each is a [Source]: it has a method Health, which returns a [Report]. A report
// is a list of [Problem] values. It is empty if there is nothing to say.
//
// A report waits for nobody. It says what the process knows from its calls to Redis, and costs some microseconds. How fresh that is stands
// beside each [Code].
package health

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A Source reports its health: a worker.Worker, a scheduler.Scheduler, or a part of your program.
type Source interface {
	Health() Report
}

// A Severity says what a problem does to the process that has it.
type Severity int

// The severities, each worse than the one before.
const (
	// OK is the severity of a report without a problem.
	OK Severity = iota
	// Degraded: it does its work, and somebody should look.
	Degraded
	// Unready: it can't do its work, or some of it. A restart doesn't help.
	Unready
	// Broken: it can't do its work, and a restart helps.
	Broken
)

var severities = [...]string{"ok", "degraded", "unready", "broken"}

// String returns "ok", "degraded", "unready" or "broken".
func (s Severity) String() string {
	if s < OK || s > Broken {
		return fmt.Sprintf("Severity(%d)", int(s))
	}
	return severities[s]
}

// MarshalText returns the same as String.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// A Code names a kind of problem. Codes are stable: programs may compare them.
type Code string

// The codes of workers and schedulers.
const (
	// NotRunning: Run was not called yet, or has returned. Of a scheduler only if it has cron entries. Known at once.
	NotRunning Code = "not-running"
	// Ended: a worker's Run has returned an error, and was not called again. Known at once.
	Ended Code = "ended"
	// Starting: a worker waits for its first lease on a queue. Known at once.
	Starting Code = "starting"
	// Draining: a worker ends, and claims no more jobs. Known at once.
	Draining Code = "draining"
	// RedisAway: Redis doesn't answer, can't be reached, or refuses all clients: it loads, is a replica, or can't write (OOM, MISCONF,
	// NOREPLICAS). A call that fails shows it at once, and one that hangs after 2 s, or after the worker's SessionTTL if that is shorter. A worker without jobs makes a call every third of its
	// SessionTTL, and a scheduler with cron entries every 10 s.
	RedisAway Code = "redis-away"
	// RedisUnfit: Redis would lose jobs, as its maxmemory-policy evicts them, or the user lacks rights. It is looked for at the start, every five
	// minutes and after an outage.
	RedisUnfit Code = "redis-unfit"
	// RedisDoubtful: Redis may not be set up well, as it evicts keys with a TTL. As fresh as RedisUnfit.
	RedisDoubtful Code = "redis-doubtful"
	// Refused: Redis answers a kind of call of a worker with an error that concerns only this caller, such as a missing right. Known at once. It is over when such a call succeeds.
	Refused Code = "refused"
	// NoLease: a worker's lease on a queue has ended, and it has no other one yet. Known within half a second.
	NoLease Code = "no-lease"
	// LeaseLate: a worker's lease was not renewed for more than half of its TTL. Known at once.
	LeaseLate Code = "lease-late"
	// NotClaiming: a worker has free slots and jobs wait, and it takes none. It is seen by renewals, each third of SessionTTL, and reported
	// when it has lasted for 10 s. After a minute it is Broken.
	NotClaiming Code = "not-claiming"
	// Outdated: the queue has a layout that this release doesn't know. Mostly it needs a newer release. The detail says what to do. Known with the next call.
	Outdated Code = "outdated"
	// HandlersStuck: handlers go on though their contexts have ended. Known within half a second after worker.Config.StuckAfter. It is Broken
	// when no slot of a queue is left for a minute.
	HandlersStuck Code = "handlers-stuck"
	// ClockStepped: the clock of Redis was set by more than a second, or its master has changed to one with another clock. It is seen by a worker's renewals, and reported for five minutes. A
	// scheduler reads the clock every 10 s, and reports it while its ticks don't go by the new time yet.
	ClockStepped Code = "clock-stepped"
	// CronSilent: a tick of a cron entry is overdue, and was neither enqueued nor skipped. Known 10 s after the tick. It is Broken if the scheduler has
	// done nothing for a minute.
	CronSilent Code = "cron-silent"
	// EnqueueFailing: the last call of a scheduler that enqueues jobs in a queue has failed. It is over with the next one that succeeds. A process that gets no
	// requests while it isn't ready must become ready again. So after an outage it is over as soon as Redis takes writes, for which Health asks in the background. Any other failure is forgotten
	// 30 s after the last call.
	EnqueueFailing Code = "enqueue-failing"
)

// A Problem is something that is wrong, or that keeps the process from its work.
type Problem struct {
	// Part is the part of the process that has it: "worker" or "scheduler".
	Part string
	// Code is the kind of problem.
	Code Code
	// Severity is what it does to the process.
	Severity Severity
	// Queue is the queue that it concerns. "": all of them.
	Queue string
	// Since is when it began, or was first seen, by the clock of this process.
	Since time.Time
	// Detail says more, to people. It has no payload, no password and no address, and may change with any release.
	Detail string
}

// A Report is the health of a Source at one moment.
type Report struct {
	// Problems are sorted: the worst first, then by queue and code.
	Problems []Problem
}

// Join returns the problems of all reports, sorted.
func Join(reports ...Report) Report {
	var all Report
	for _, r := range reports {
		all.Problems = append(all.Problems, r.Problems...)
	}
	slices.SortStableFunc(all.Problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Code, b.Code))
	})
	return all
}

// Severity returns that of the worst problem, or OK.
func (r Report) Severity() Severity {
	worst := OK
	for _, p := range r.Problems {
		worst = max(worst, p.Severity)
	}
	return worst
}

// Live reports whether nothing is Broken.
func (r Report) Live() bool { return r.Severity() < Broken }

// Ready reports whether nothing is Unready or Broken.
func (r Report) Ready() bool { return r.Severity() < Unready }
