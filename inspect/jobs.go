package inspect

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/looks"
)

// A Filter says which jobs [Inspector.Jobs] yields: those that all of its fields fit. A field at its zero value fits all jobs, but for State.
type Filter struct {
	State    signalbox.State // required
	Kind     string
	IDPrefix string
	Error    string // part of LastError, in this spelling
	Group    string // the key of the job's group, serial or not
	// OlderThan and NewerThan bound the age of the job in its state, both inclusive, by the clock of Redis when the listing begins. The
	// age is the time since the job ended (dead, cancelled, completed), since it was due (ready), or since a worker got it (running). For a scheduled
	// job it is the time that is left until it is due.
	OlderThan, NewerThan time.Duration
	// After is the Cursor of a job of an earlier listing of the same queue and state: the listing goes on behind it, also when the job is
	// gone. The other fields may have changed.
	After string
	// Limit is the most jobs that are yielded. 0: all.
	Limit int
}

// validate returns an error that wraps [signalbox.ErrInvalid] and names each wrong field. After and State are looked at where they are used.
func (f *Filter) validate() error {
	var errs []error
	for _, field := range []struct {
		name  string
		value int64
	}{{"OlderThan", int64(f.OlderThan)}, {"NewerThan", int64(f.NewerThan)}, {"Limit", int64(f.Limit)}} {
		if field.value < 0 {
			errs = append(errs, fmt.Errorf("%w Filter.%s: it is negative; 0 means no bound", signalbox.ErrInvalid, field.name))
		}
	}
	if f.NewerThan > 0 && f.OlderThan > f.NewerThan {
		errs = append(errs, fmt.Errorf("%w Filter.OlderThan: %v is more than NewerThan, %v: no job is both", signalbox.ErrInvalid, f.OlderThan, f.NewerThan))
	}
	return errors.Join(errs...)
}

// Jobs yields the jobs of a queue that a filter names. Scheduled ones come in the order of their times, dead, cancelled and completed ones in the order in which
// they ended; but those with a Retain come first, in the order in which they are dropped. Ready ones come priority by priority, and within one in the order
// in which workers take them. Running ones come session by session, and within one in the order in which the worker got them.
//
// It may run while the queue is in use: it makes short calls, and needs little memory however many jobs there are. A job that stays in its state
// is yielded. One that changes its state meanwhile may be missing, or be there twice. Each job is as it was at the moment of its call.
//
// An error is yielded last, with a zero Job. It wraps [ErrNoQueue] if nobody has used the queue, and [signalbox.ErrInvalid] if the filter is
// wrong. A job whose record can't be read is no error: it is yielded with its Err, unless the filter asks for what only a record says.
func (i *Inspector) Jobs(ctx context.Context, queue string, f Filter) iter.Seq2[Job, error] {
	return i.list(ctx, queue, f, false)
}

// list does what Jobs does. If ended is set, it leaves out the jobs that end after it began.
func (i *Inspector) list(ctx context.Context, queue string, f Filter, ended bool) iter.Seq2[Job, error] {
	return func(yield func(Job, error) bool) {
		if err := i.jobs(ctx, queue, f, ended, func(job Job) bool { return yield(job, nil) }); err != nil {
			yield(Job{}, err)
		}
	}
}

// jobs calls yield for each job until that returns false.
func (i *Inspector) jobs(ctx context.Context, queue string, f Filter, ended bool, yield func(Job) bool) error {
	if err := f.validate(); err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	if err := i.known(ctx, queue); err != nil {
		return err
	}
	s, err := i.store(queue).Looks().Situation(ctx)
	if err != nil {
		return fmt.Errorf("inspect: queue %s: %w", queue, err)
	}
	left := f.Limit
	l := f.listing(s.At)
	if ended && !f.State.Live() && (l.To.IsZero() || l.To.After(s.At)) {
		l.To = s.At
	}
	for view, err := range i.store(queue).Looks().Jobs(ctx, l) {
		if err != nil {
			return fmt.Errorf("inspect: the %s jobs of queue %s: %w", f.State, queue, err)
		}
		job := jobOf(&view, &s)
		if job.Group != "" && strings.Contains(job.Waits, freeSlot) {
			job.Waits = "" // its group may let none start: see Job
		}
		if !f.fits(&job, s.At) {
			continue
		}
		if !yield(job) {
			return nil
		}
		if left--; left == 0 {
			return nil
		}
	}
	return nil
}

// listing returns what the store is asked for. now is the time by the server's clock.
func (f *Filter) listing(now time.Time) looks.Listing {
	l := looks.Listing{State: f.State, Prefix: f.IDPrefix, After: f.After}
	switch f.State {
	case signalbox.StateScheduled: // time that is left
		l.From, l.To = bound(now, f.OlderThan), bound(now, f.NewerThan)
	case signalbox.StateDead, signalbox.StateCancelled, signalbox.StateCompleted:
		l.From, l.To = bound(now, -f.NewerThan), bound(now, -f.OlderThan)
	case signalbox.StateReady, signalbox.StateRunning:
	}
	return l
}

// bound returns the time that is d away from now, or zero if d is.
func bound(now time.Time, d time.Duration) time.Time {
	if d == 0 {
		return time.Time{}
	}
	return now.Add(d)
}

// fits reports whether the filter names the job, as far as the store has not looked at that.
func (f *Filter) fits(job *Job, now time.Time) bool {
	if f.Kind != "" && job.Kind != f.Kind || f.Group != "" && job.Group != f.Group || !strings.Contains(job.LastError, f.Error) {
		return false
	}
	var since time.Time
	switch job.State {
	case signalbox.StateReady, signalbox.StateAwaiting:
		since = job.DueAt
	case signalbox.StateRunning:
		since = job.Since
	case signalbox.StateScheduled, signalbox.StateCompleted, signalbox.StateDead, signalbox.StateCancelled:
		return true // the store has
	}
	age := now.Sub(since)
	return (f.OlderThan == 0 || age >= f.OlderThan) && (f.NewerThan == 0 || age <= f.NewerThan)
}
