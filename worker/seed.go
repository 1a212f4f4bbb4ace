package worker

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// Settings are what a queue's settings in Redis say, compared with this worker's Config. Only the keeper uses them.
type settings struct {
	q *queue

	seeded        time.Time           // when they last had all that Config says; zero: never
	missing       []string            // fields of Config that were seeded, and no log says so yet
	limitsSaid    bool                // the log has said where the limits aren't those of Config
	kept          signalbox.Retention // of dead and cancelled jobs, as they said last
	keptCompleted signalbox.Retention // the same of completed jobs; for the log
	copiesTo      string              // the queue that gets copies of dead jobs; for the log
}

// seed gives the queue all that this worker's Config says of it, where nobody has set anything: before each session opens, so that no job of this worker runs
// without it, also after Redis has lost it, and each minute. What the queue's settings say counts more, and the log says so. what is the call that waits for it. It
// returns false if it could not seed everything. Only the keeper calls it.
func (s *settings) seed(ctx context.Context, what string) bool {
	began := time.Now()
	cfg := s.q.w.cfg.Queues[s.q.store.Name()]
	if err := s.seedFields(ctx, &cfg); err != nil {
		if ctx.Err() == nil {
			s.q.contact.failed(what, began, err)
		}
		return false
	}
	if len(s.missing) > 0 && !s.seeded.IsZero() { // else there was no worker yet
		s.q.log.Warn("signalbox: the queue's settings were missing in Redis, and are again those of this worker's Config. What was set otherwise since is gone: pauses, slots, holds, limits. "+
			`Jobs that another worker ended meanwhile went without them: see "When Redis loses memory" in docs/operations.md`,
			"fields", strings.Join(s.missing, ", "), "last_seen", s.seeded.UTC())
	}
	s.missing, s.seeded = nil, began
	s.readEnding(ctx)
	if !s.limitsSaid {
		s.limitsSaid = s.sayLimits(ctx, &cfg)
	}
	return true
}

// seedFields seeds each field. It notes those that were missing.
func (s *settings) seedFields(ctx context.Context, cfg *Queue) error {
	for _, field := range []struct {
		name string
		told bool // Config says something
		seed func() (changed bool, err error)
	}{
		{"Limits", cfg.Limits != signalbox.Limits{}, func() (bool, error) { return s.q.own.SeedLimits(ctx, cfg.Limits) }},
		{"GroupLimits", cfg.GroupLimits != signalbox.Limits{}, func() (bool, error) { return s.q.own.SeedGroupLimits(ctx, cfg.GroupLimits) }},
		{"LimitsOf", len(cfg.LimitsOf) > 0, func() (bool, error) { return s.q.own.SeedLimitsOf(ctx, cfg.LimitsOf) }},
		{"MaxLength", cfg.MaxLength > 0, func() (bool, error) { return s.q.own.SeedMaxLength(ctx, cfg.MaxLength) }},
		{"CopyDead", cfg.CopyDead != "", func() (bool, error) { return s.q.own.SeedCopies(ctx, cfg.CopyDead) }},
		{"Retention", cfg.Retention != signalbox.Retention{}, func() (bool, error) { return s.q.own.SeedRetention(ctx, cfg.Retention) }},
		{"CompletedRetention", cfg.CompletedRetention != signalbox.Retention{}, func() (bool, error) { return s.q.own.SeedCompleted(ctx, cfg.CompletedRetention) }},
	} {
		if !field.told {
			continue
		}
		changed, err := field.seed()
		if err != nil {
			return err
		}
		if changed {
			s.missing = append(s.missing, field.name)
		}
	}
	return nil
}

// sayLimits logs each limit that the queue has and that this worker's Config says otherwise. It returns false if the queue's limits can't be read.
func (s *settings) sayLimits(ctx context.Context, cfg *Queue) bool {
	if cfg.MaxLength == 0 && cfg.Limits == (signalbox.Limits{}) && cfg.GroupLimits == (signalbox.Limits{}) && len(cfg.LimitsOf) == 0 {
		return true
	}
	now, err := s.q.own.Settings(ctx)
	if err != nil {
		return false
	}
	say := func(field, config, queue string) {
		s.q.log.Warn("signalbox: the queue has another limit than this worker's Config, and it counts; signalbox queue limit or package inspect changes it",
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
	of, err := s.q.own.GroupLimits(ctx)
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
