package scheduler

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/schedule"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// An OverlapPolicy says what a tick of a cron entry does while a job of the entry is live: it is scheduled, ready or running. A job that waits for a
// retry is scheduled. It is one of [Allow], [SkipIfRunning], [QueueOne] and [CancelOther].
type OverlapPolicy int

const (
	// Allow enqueues the tick's job beside the other. This is the default.
	Allow OverlapPolicy = iota
	// SkipIfRunning leaves the tick out. So at most one job of the entry is live.
	SkipIfRunning
	// QueueOne enqueues the tick's job unless another one of the entry has not begun. The job waits until the one before it has ended. So at most
	// one job of the entry runs, and one waits. The jobs are put into a serial group: that of the option [Serial], or one of the entry's own. An
	// entry can't have both QueueOne and Group.
	QueueOne
	// CancelOther enqueues the tick's job and cancels all others of the entry, as inspect.Cancel does: one that runs is cancelled through its
	// context, and ends when its handler returns. The new job doesn't wait for that.
	CancelOther
)

var overlaps = map[OverlapPolicy]store.Overlap{Allow: store.OverlapAllow, SkipIfRunning: store.OverlapSkip, QueueOne: store.OverlapQueue, CancelOther: store.OverlapCancel}

// Overlap sets what a tick of a cron entry does while a job of the entry is live. The script that takes the tick decides, so the answer is the same with
// any number of schedulers. Jobs of inspect.RunEntry count, and follow the policy too. Not counted are jobs that were enqueued with
// [Allow], that were moved to another queue, or that an operator has had run again after a later tick.
func Overlap(p OverlapPolicy) CronOption {
	return forEntry(func(e *entryOptions) {
		if _, ok := overlaps[p]; !ok {
			e.wrong("Overlap", "%d; want Allow, SkipIfRunning, QueueOne or CancelOther", int(p))
		}
		e.overlap = overlaps[p]
	})
}

const maxJitter = 24 * time.Hour

// Jitter delays each tick by a time from 0 to less than d, and less than the time to the next tick. So entries with the same spec don't all tick at
// once. The delay follows from the queue, the name of the entry and the tick: all processes agree on it, and it is the same when a
// tick is made up for. [signalbox.Job.ScheduledAt] is the later time. d is whole milliseconds, at most 24 hours. The default is 0.
func Jitter(d time.Duration) CronOption {
	return forEntry(func(e *entryOptions) {
		if d < 0 || d > maxJitter || d%time.Millisecond != 0 {
			e.wrong("Jitter", "%v; want 0 to %v, in whole milliseconds", d, maxJitter)
		}
		e.vary.Jitter = d
	})
}

// Starting leaves out all ticks of a cron entry before t.
func Starting(t time.Time) CronOption {
	return forEntry(func(e *entryOptions) {
		if t.IsZero() || t.After(latest) {
			e.wrong("Starting", "%v; want a time before %d", t, latest.Year())
		}
		e.vary.Start = t.Round(0)
	})
}

// Ending leaves out all ticks of a cron entry after t. It bounds the ticks of the spec: with [Jitter] the last one may come after t, by less than the
// jitter. An entry that has ended stays without ticks until the program is deployed without it.
func Ending(t time.Time) CronOption {
	return forEntry(func(e *entryOptions) {
		if t.IsZero() {
			e.wrong("Ending", "the time is zero")
		}
		e.vary.End = t.Round(0)
	})
}

// ArgsAt sets the args of each job from the time of its tick, in the entry's time zone. The args of [Scheduler.Cron] say the kind and the
// defaults then, and nothing else. f must depend on the time alone: several processes may call it for one tick, at the same time, and it is called
// again if the tick is tried again later. Its args must be of the same kind. If they can't be encoded, or f panics, the tick is
// left out, and logged as an error. Cron calls f once for the next tick, and returns the error.
//
// Redis doesn't have the args of such an entry, so inspect.RunEntry can't run it.
func ArgsAt(f func(tick time.Time) signalbox.Args) CronOption {
	return forEntry(func(e *entryOptions) {
		if f == nil {
			e.wrong("ArgsAt", "the function is nil")
		}
		e.argsAt = f
	})
}

// checkTimes checks the times of an entry's options against each other.
func (e *entryOptions) checkTimes() {
	if v := e.vary; !v.Start.IsZero() && !v.End.IsZero() && v.End.Before(v.Start) {
		e.wrong("Ending", "%v is before Starting, %v", v.End, v.Start)
	}
}

// queueUp puts the jobs of an entry with QueueOne into a serial group.
func (e *entryOptions) queueUp(entry string) error {
	switch {
	case e.overlap != store.OverlapQueue || e.serial:
		return nil
	case e.group != "":
		return fmt.Errorf("%w Overlap: QueueOne is given together with Group, in the call or by the kind's Defaults; want Serial, or none of them", signalbox.ErrInvalid)
	}
	e.group, e.serial = "cron/"+entry, true
	if len(e.group) > layout.MaxName {
		e.group = fmt.Sprintf("cron/%x", sha256.Sum256([]byte(entry)))
	}
	return nil
}

// says returns what the plan of an entry says beyond its spec, its zone and its policy for missed ticks. It is nil for an entry without any of it:
// such an entry has the plan that it had before there were these options.
func (e *entryOptions) says() []string {
	if e.overlap == store.OverlapAllow && e.vary == (schedule.Variation{}) {
		return nil
	}
	return []string{e.overlap.String(), e.vary.Jitter.String(), stamp(e.vary.Start), stamp(e.vary.End)}
}

// describe adds the options to a description for tools.
func (e *entryOptions) describe(d store.Description) store.Description {
	d.Overlap, d.Start, d.End = e.overlap.String(), stamp(e.vary.Start), stamp(e.vary.End)
	if e.vary.Jitter > 0 {
		d.Jitter = e.vary.Jitter.String()
	}
	return d
}

// stamp returns a time as descriptions have it, or "" for the zero time.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// argsOf returns the args of the job of a tick, and their payload if there is no codec.
func (e *entry) argsOf(tick time.Time, codec signalbox.Codec) (args signalbox.Args, payload []byte, err error) {
	if e.argsAt == nil {
		return e.args, e.job.Payload, nil
	}
	defer func() {
		if v := recover(); v != nil {
			err = &encodeError{"the function of ArgsAt panicked", panicked(v)}
		}
	}()
	args = e.argsAt(tick.In(cmp.Or(e.schedule.Zone(), time.UTC)))
	_, kind, payload, err := marshal(args, codec)
	if err == nil && kind != e.job.Kind {
		return nil, nil, fmt.Errorf("%w args: ArgsAt returned some of kind %s, the entry's kind is %s", signalbox.ErrInvalid, kind, e.job.Kind)
	}
	return args, payload, err
}
