package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// The queues. Each has slots of its own: a notice, which takes a moment, must not wait behind reports, which take minutes.
const (
	queueReports = "reports"
	queueNotices = "notices"
)

// A Report is the work of making a report of one month. The client chose the ID, which is also that of the job.
type Report struct {
	ID      string `json:"id"`
	Account string `json:"account"`
	Month   string `json:"month"` // such as 2026-02
}

// Kind names the work.
func (Report) Kind() string { return "report.build" }

// validName is what an ID or an account may be. Both become names of files, or parts of URLs.
var validName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_-]{0,63}$`)

// Validate is called before a Report is enqueued, and again before it is handled.
func (r Report) Validate() error {
	var errs []error
	if !validName.MatchString(r.ID) {
		errs = append(errs, errors.New("id must be 1 to 64 letters, digits, - and _"))
	}
	if !validName.MatchString(r.Account) {
		errs = append(errs, errors.New("account must be 1 to 64 letters, digits, - and _"))
	}
	if _, err := time.Parse("2006-01", r.Month); err != nil {
		errs = append(errs, errors.New("month must be like 2026-02"))
	}
	return errors.Join(errs...)
}

// Defaults say how a Report is enqueued.
func (Report) Defaults() signalbox.Defaults {
	return signalbox.Defaults{Queue: queueReports, MaxAttempts: 10, Timeout: 10 * time.Minute}
}

// days are the days of the month.
func (r Report) days() []string {
	var days []string
	first, _ := time.Parse("2006-01", r.Month) // Validate has tried
	for day := first; day.Month() == first.Month(); day = day.AddDate(0, 0, 1) {
		days = append(days, day.Format(time.DateOnly))
	}
	return days
}

// A Notice tells the client that a report is done.
type Notice struct {
	Report string `json:"report"`
}

// Kind names the work.
func (Notice) Kind() string { return "report.notice" }

// Defaults say how a Notice is enqueued.
func (Notice) Defaults() signalbox.Defaults {
	return signalbox.Defaults{Queue: queueNotices, Timeout: 10 * time.Second}
}

// A Sweep deletes old reports. A cron entry enqueues it every night.
type Sweep struct {
	Days int `json:"days"`
}

// Kind names the work.
func (Sweep) Kind() string { return "report.sweep" }

// Defaults say how a Sweep is enqueued.
func (Sweep) Defaults() signalbox.Defaults {
	return signalbox.Defaults{Queue: queueReports, Priority: signalbox.PriorityLow, Timeout: time.Minute}
}

// Validate keeps a mistake from deleting everything.
func (s Sweep) Validate() error {
	if s.Days < 1 {
		return errors.New("days must be above 0")
	}
	return nil
}

// A builder has what the handlers need.
type builder struct {
	files     *reports
	upstream  *upstream
	jobs      *scheduler.Scheduler
	namespace string
}

// register registers the handlers, and says how each kind fails.
func (b *builder) register(w *worker.Worker, locker lock.Locker) {
	patience := worker.Retry(worker.ExponentialJitter(time.Second, 10*time.Minute))
	final := worker.Terminal(isFinal) // another attempt would have the same answer
	worker.Handle(w, b.build, patience, final, worker.RetryFor(24*time.Hour),
		// One report of an account at a time: the other system allows no more. The slot is free for another account meanwhile. A lock has
		// no namespace of its own, so its name has it.
		worker.LockBy(locker, func(in Report) string { return b.namespace + ":account:" + in.Account }))
	worker.Handle(w, b.notify, patience, final, worker.RetryFor(3*24*time.Hour))
	worker.Handle(w, b.sweep)
}

// build makes a report. It may run twice, or beside a delivery that lost its lease: each day is one file, which is replaced as a
// whole, and has the same content whoever writes it.
func (b *builder) build(ctx context.Context, _ *signalbox.Job, in Report) error {
	for _, day := range in.days() {
		if b.files.hasDay(in.ID, day) { // an earlier delivery did it
			continue
		}
		select {
		case <-signalbox.Draining(ctx): // this process is about to end; another one goes on with the next day
			return signalbox.Snooze(0)
		default:
		}
		rows, err := b.upstream.sales(ctx, in.Account, day)
		if errors.Is(context.Cause(ctx), signalbox.ErrCancelled) {
			return errors.Join(err, b.files.dropDays(in)) // nobody needs them any more
		}
		if err != nil {
			return fmt.Errorf("sales of %s: %w", day, err)
		}
		if err := b.files.putDay(in.ID, day, rows); err != nil {
			return err
		}
	}
	if err := b.files.finish(in); err != nil {
		return err
	}
	// If the process dies before its job is settled, the report is enqueued twice. The key keeps the notice from being sent twice.
	_, err := b.jobs.Enqueue(ctx, Notice{Report: in.ID}, scheduler.ID(in.ID), scheduler.EffectKey("notice:"+in.ID))
	return err
}

// notify tells the client. The other system knows the key, and drops what it has had before.
func (b *builder) notify(ctx context.Context, job *signalbox.Job, in Notice) error {
	return b.upstream.notify(ctx, job.EffectKey(), in.Report)
}

// sweep goes by the time of the tick, and not by that of the attempt.
func (b *builder) sweep(_ context.Context, job *signalbox.Job, in Sweep) error {
	return b.files.dropOlder(job.ScheduledAt.AddDate(0, 0, -in.Days))
}
