package worker

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// look has the keeper read what becomes of jobs that have ended. It doesn't block.
func (q *queue) look() {
	select {
	case q.settingsNews <- struct{}{}:
	default: // it is about to
	}
}

// readEnding notes which completed jobs the queue keeps, and whether its dead jobs are copied, as its settings say. If they can't be
// read, what is known stays: a sweep tries again within a minute. Only the keeper calls it.
func (q *queue) readEnding(ctx context.Context) {
	ending, err := q.own.Ending(ctx)
	if err != nil {
		return
	}
	q.copyAll(ending.Copies != "")
	q.sayCopies(ending.Copies)
	now := ending.Completed
	q.keeps.Store(now != signalbox.Retention{})
	want := q.w.cfg.Queues[q.store.Name()].CompletedRetention
	if want == (signalbox.Retention{}) || now == q.keptCompleted {
		return
	}
	q.keptCompleted = now
	if store.Filled(want) != now {
		q.log.Info("signalbox: the queue's settings say another retention of completed jobs than this worker's Config, and count; inspect.SetCompletedRetention changes them",
			"jobs", now.Jobs, "bytes", now.Bytes, "age", now.Age.String())
	}
}

// seedEnding gives the queue the retention of completed jobs of this worker's Config, and the queue that gets copies of dead jobs, if nobody
// has set them. It returns false if a sweep might drop more than Config says.
func (q *queue) seedEnding(ctx context.Context) bool {
	want := q.w.cfg.Queues[q.store.Name()].CompletedRetention
	seeded := want == (signalbox.Retention{}) || q.own.SeedCompleted(ctx, want) == nil
	q.seedCopies(ctx)
	q.readEnding(ctx)
	return seeded
}

// seedCopies gives the queue the other queue of this worker's Config that gets copies of dead jobs, if nobody has set one. If it fails, a
// sweep tries again.
func (q *queue) seedCopies(ctx context.Context) {
	if to := q.w.cfg.Queues[q.store.Name()].CopyDead; to != "" {
		_ = q.own.SeedCopies(ctx, to)
	}
}

// seedLimits gives the queue the limits and the maximum length of this worker's Config, if nobody has set any. It reports whether it has.
func (q *queue) seedLimits(ctx context.Context) bool {
	cfg, began := q.w.cfg.Queues[q.store.Name()], time.Now()
	err := q.own.SeedLimits(ctx, cfg.Limits, cfg.GroupLimits, cfg.LimitsOf)
	if err == nil {
		err = q.own.SeedMaxLength(ctx, cfg.MaxLength)
	}
	if err != nil {
		if ctx.Err() == nil {
			q.failed("open", began, err)
		}
		return false
	}
	if !q.limitsSaid {
		q.limitsSaid = q.sayLimits(ctx, &cfg)
	}
	return true
}

// sayLimits logs each limit that the queue has and that this worker's Config says otherwise. It returns false if the queue's limits can't be read.
func (q *queue) sayLimits(ctx context.Context, cfg *Queue) bool {
	if cfg.MaxLength == 0 && cfg.Limits == (signalbox.Limits{}) && cfg.GroupLimits == (signalbox.Limits{}) && len(cfg.LimitsOf) == 0 {
		return true
	}
	now, err := q.own.Settings(ctx)
	if err != nil {
		return false
	}
	say := func(field, config, queue string) {
		q.log.Warn("signalbox: the queue has another limit than this worker's Config, and it counts; signalbox queue limit or package inspect changes it",
			"field", field, "config", config, "queue_has", queue)
	}
	compare := func(field string, config, queue signalbox.Limits, single bool) {
		if !store.SameLimits(config, queue, single) {
			say(field, store.LimitsWords(config), store.LimitsWords(queue))
		}
	}
	if cfg.Limits != (signalbox.Limits{}) {
		compare("Limits", cfg.Limits, now.Limits, false)
	}
	if cfg.GroupLimits != (signalbox.Limits{}) {
		compare("GroupLimits", cfg.GroupLimits, now.GroupLimits, false)
	}
	if n := cfg.MaxLength; n > 0 && n != now.MaxLength {
		say("MaxLength", strconv.Itoa(n), strconv.Itoa(now.MaxLength))
	}
	if len(cfg.LimitsOf) == 0 {
		return true
	}
	of, err := q.own.GroupLimits(ctx)
	if err != nil {
		return false
	}
	for _, group := range slices.Sorted(maps.Keys(cfg.LimitsOf)) {
		if cfg.LimitsOf[group] != (signalbox.Limits{}) {
			compare("LimitsOf["+strconv.Quote(group)+"]", cfg.LimitsOf[group], of[group], true)
		}
	}
	return true
}

// sayCopies logs that dead jobs are copied elsewhere than this worker's Config says: once for each queue that gets them. Only the keeper
// calls it.
func (q *queue) sayCopies(to string) {
	want := q.w.cfg.Queues[q.store.Name()].CopyDead
	if want == "" || q.copiesTo == to {
		return
	}
	q.copiesTo = to
	if to != want {
		q.log.Info("signalbox: the queue's settings say another queue for copies of dead jobs than this worker's Config, and count; inspect.SetCopyDead changes it", "to", to)
	}
}

// keepCompleted asks Redis to keep the job with the attempt that has completed it.
func (q *queue) keepCompleted(r *store.Settlement, d *delivery, job *signalbox.Job) {
	r.Keep = store.Kept(q.attempt(d, job, nil))
}
