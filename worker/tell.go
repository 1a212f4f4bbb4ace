package worker

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox/internal/store/settings"
)

// A teller tells a queue what this worker's Config says of it, and the log what became of that. Only the keeper uses it.
type teller struct {
	q *queue

	told    time.Time                // when they last had all that Config says; zero: never
	missing []string                 // fields of Config that Redis had lost, and no log says so yet
	said    map[string]settings.Told // what the log has said of each field
}

// tell tells the queue all that this worker's Config says of it: before each session opens, so that no job of this worker runs without it, also after Redis has
// lost it, and each minute. docs/decisions/0044-settings.md says when a value is applied. what is the call that waits for it. It returns false if it could not
// tell everything. Only the keeper calls it.
func (s *teller) tell(ctx context.Context, what string) bool {
	began := time.Now()
	cfg := s.q.w.cfg.Queues[s.q.store.Name()]
	all, err := s.q.own.Settings().Tell(ctx, s.q.w.id, settings.Wanted{
		Limits: cfg.Limits, GroupLimits: cfg.GroupLimits, LimitsOf: cfg.LimitsOf, MaxLength: cfg.MaxLength, CopyDead: cfg.CopyDead,
		Retention: cfg.Retention, Completed: cfg.CompletedRetention,
	})
	for i := range all {
		s.say(&all[i])
	}
	if err != nil {
		if !ended(ctx) {
			s.q.contact.failed(what, began, err)
		}
		return false
	}
	if len(s.missing) > 0 {
		s.q.log.Warn("signalbox: the queue's settings were missing in Redis, and are again those of this worker's Config. What was set otherwise since is gone: pauses, slots, holds, limits. "+
			`Jobs that another worker ended meanwhile went without them: see "When Redis loses memory" in docs/operations.md`,
			"fields", strings.Join(s.missing, ", "), "last_seen", s.told.UTC())
	}
	s.missing, s.told = nil, began
	s.readEnding(ctx)
	return true
}

// say logs what has become of a field of Config, unless it has said so before. The first value of a new queue is no news.
func (s *teller) say(t *settings.Told) {
	before, known := s.said[t.Setting]
	if s.said == nil {
		s.said = make(map[string]settings.Told)
	}
	s.said[t.Setting] = *t
	mine := t.Ours && t.Set
	// If the reply to the call that applied the value was lost, the next one finds this worker's name there, and another name, time or value than is known.
	news := t.By != before.By || t.Value != before.Value || !t.At.Equal(before.At)
	applied := t.Changed || known && news && t.By == "worker "+s.q.w.id
	fields := []any{"field", t.Setting, "config", t.Want, "queue_has", t.Value}
	switch {
	case applied && t.Fresh && known:
		if name, _, _ := strings.Cut(t.Setting, "["); !slices.Contains(s.missing, name) {
			s.missing = append(s.missing, name)
		}
	case applied && (t.Fresh && t.Before == "none" || t.Setting == "LimitsOf"): // a new queue; each group says it for itself
	case t.Replaced():
		s.q.log.Warn("signalbox: a new value of Config has replaced what an operator had set", append(fields, "before", t.Before, "set_by", t.HadBy, "set_at", t.HadAt.UTC())...)
	case applied:
		s.q.log.Info("signalbox: the queue has a new setting of Config", append(fields, "before", t.Before)...)
	case !mine && !(known && before.Value == t.Value && before.Counts == t.Counts && before.At.Equal(t.At)):
		text := "signalbox: an operator has set another value than this worker's Config, and it counts"
		if !t.Ours {
			text = "signalbox: other workers of the queue have a newer Config, and it counts"
		}
		s.q.log.Info(text, append(fields, "set_by", t.By, "set_at", t.At.UTC())...)
	}
}
