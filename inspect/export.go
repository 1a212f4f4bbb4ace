package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/settings"
)

// An Exported counts what Export has written, and what it has left.
type Exported struct {
	Jobs    int64 // in the file
	Running int64 // of these: they were running
	Past    int64 // lines of the file with what the queue knows of the past: see Export
	// Completed is how many completed jobs the queue keeps. They aren't in the file.
	Completed int64
}

// Export writes all jobs of a queue to w, and its settings: as lines of JSON, which docs/cli/files.md describes. [Inspector.Import] reads them. It needs little
// memory for any number of jobs. progress is called from time to time, unless it is nil.
//
// The file also has what the queue knows of the past, without which something would happen again: the last batches of outboxes; the last ticks, the plans and
// the pauses of cron entries; unique keys with a [scheduler.Window], and those of throttled jobs; which jobs are held back; which dead jobs are still to be
// copied. It is read before the jobs. Two things are read after them: the notes of deaths, and keys of throttled jobs that wait. So what an outbox sends meanwhile is sent again, and isn't lost. To find
// outboxes, Export goes through the names of all keys of the server. It needs the right SCAN for that.
//
// It may run beside workers and producers. A job that is in the queue from the begin to the end is in the file, however often its state changes
// meanwhile, as it was at one moment. So the file isn't the queue at one moment: jobs that come or go meanwhile may be in it or not. A job may be in it twice. For a file
// of one moment, pause the queue, wait until no job runs, and have the producers wait.
//
// A job that runs is in the file as ready: as it would be if it were given back. If it was asked to end, it is there as cancelled. If its worker goes on with it, it
// runs again once it is imported, with the same effect key. Jobs that are held by a [Move] are in the file of the queue that they leave, as what they were.
// Completed jobs aren't in the file, also if the queue keeps them. Statistics, how much of a rate is used up, the last fencing token, and which workers are
// quiet aren't either: docs/cli/files.md says what follows.
//
// The file has the arguments of all jobs, so keep it as you keep these. After an error it has no last line, and Import says that it was cut off.
func (i *Inspector) Export(ctx context.Context, queue string, w io.Writer, progress func(Exported)) (done Exported, err error) {
	if err := i.known(ctx, queue); err != nil {
		return done, err
	}
	failed := func(err error) (Exported, error) {
		return done, fmt.Errorf("inspect: export of queue %s: %w", queue, err)
	}
	q := i.store(queue)
	situation, err := q.Looks().Situation(ctx)
	if err != nil {
		return failed(err)
	}
	settings := situation.Settings
	counts, err := i.Queue(ctx, queue)
	if err != nil {
		return failed(err)
	}
	done.Completed = counts.Completed
	own, err := q.Settings().GroupLimits(ctx)
	if err != nil {
		return failed(err)
	}
	limitsOf := make(map[string]fileLimits, len(own))
	for group, l := range own {
		limitsOf[group] = limitsToFile(l)
	}
	applied, err := q.Settings().Applied(ctx)
	if err != nil {
		return failed(err)
	}
	paused, err := i.PausedGroups(ctx, queue)
	if err != nil {
		return failed(err)
	}
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	err = out.Encode(fileHead{
		Signalbox: "export", Format: fileFormat, Namespace: i.cfg.Namespace, Queue: queue, At: fileTime(situation.At),
		Settings: fileSettings{
			settings.Paused, settings.Slots, settings.Retention.Jobs, settings.Retention.Bytes, settings.Retention.Age.Microseconds(),
			settings.Completed.Jobs, settings.Completed.Bytes, settings.Completed.Age.Microseconds(),
			settings.Copies, limitsToFile(settings.Limits), limitsToFile(settings.GroupLimits), limitsOf, settings.MaxLength,
			slices.Sorted(maps.Keys(paused)), applied.Settings, applied.Groups,
		},
	})
	if err != nil {
		return failed(err)
	}
	past := func(line filePast) error {
		done.Past++
		return out.Encode(line)
	}
	for p, err := range q.Transfer().Pasts(ctx) {
		if err == nil {
			err = past(pastToFile(&p))
		}
		if err != nil {
			return failed(err)
		}
	}
	holds, err := q.Settings().Holds(ctx)
	if err != nil {
		return failed(err)
	}
	for _, h := range holds {
		if err := past(filePast{Past: pastHold, Name: h.Group, Value: h.By, Until: fileTime(h.Until)}); err != nil {
			return failed(err)
		}
	}
	for s, err := range q.Transfer().All(ctx) {
		if err != nil {
			return failed(err)
		}
		if err := out.Encode(lineOf(&s)); err != nil {
			return failed(err)
		}
		done.Jobs++
		if s.Ran {
			done.Running++
		}
		if progress != nil && done.Jobs%reportEvery == 0 {
			progress(done)
		}
	}
	for p, err := range q.Transfer().JobPasts(ctx) {
		if err == nil {
			err = past(pastToFile(&p))
		}
		if err != nil {
			return failed(err)
		}
	}
	if err := out.Encode(fileEnd{true, done.Jobs, done.Running}); err != nil {
		return failed(err)
	}
	if progress != nil {
		progress(done)
	}
	return done, nil
}

// retention returns what the settings of a file keep.
func (s *fileSettings) retention() signalbox.Retention {
	return settings.RetentionOf(s.KeepJobs, s.KeepBytes, s.KeepMicros)
}

// applied returns the values of Configs that were applied where the file comes from.
func (s *fileSettings) applied() settings.Applied {
	return settings.Applied{Settings: s.Applied, Groups: s.AppliedOf}
}

// completed returns what the settings of a file keep of completed jobs.
func (s *fileSettings) completed() signalbox.Retention {
	return settings.RetentionOf(s.KeepCompleted, s.KeepCompletedBytes, s.KeepCompletedMicros)
}
