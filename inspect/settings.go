package inspect

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// A Setter is who set a setting of a queue, and when.
type Setter struct {
	// Worker says that it was a worker's Config, and not an operator.
	Worker bool
	// Name is the worker's ID or the operator's name: see Config.Operator.
	Name string
	// At is when it was set, by the clock of Redis. Zero if nobody has set it, or if it isn't known.
	At time.Time
}

// A Setting is one of a queue's settings that a worker's Config can say.
type Setting struct {
	// Name is that of the field of worker.Queue: "Limits", "GroupLimits", "MaxLength", "CopyDead", "Retention" or "CompletedRetention".
	Name string
	// Value is in words, "none" if there is none.
	Value string
	// Config is in words what the Config says that counts, of those that workers told last. "none" if no worker has told one since the setting was reset.
	Config string
	// Setter is who set Value.
	Setter
}

// Settings returns the queue's settings that a worker's Config can say, with who set each, and when. The error wraps [ErrNoQueue] if nobody has used the queue.
func (i *Inspector) Settings(ctx context.Context, queue string) ([]Setting, error) {
	if err := i.known(ctx, queue); err != nil {
		return nil, err
	}
	all, err := i.store(queue).Settings().Remembered(ctx)
	if err != nil {
		return nil, fmt.Errorf("inspect: settings of queue %s: %w", queue, err)
	}
	settings := make([]Setting, len(all))
	for j, s := range all {
		settings[j] = Setting{s.Setting, s.Value, s.Counts, setter(s.By, s.At)}
	}
	return settings, nil
}

// A Change is one of a queue's settings, a pause, or the slots of its workers.
type Change struct {
	// Field is that of the queue's settings in Redis, such as "limits" or "paused": docs/wire.md has them. Of limits of one group it is "limits of" and the group's key.
	Field string
	// Before and After are what it was and is, as Redis has it. "" is none.
	Before, After string
	// Setter is who made it.
	Setter
}

// Changes returns the last changes of a queue's settings, at most fifty, the newest first. What a worker's Config says of single groups is one change, of
// "limits_of". The error wraps [ErrNoQueue] if nobody has used the queue.
func (i *Inspector) Changes(ctx context.Context, queue string) ([]Change, error) {
	if err := i.known(ctx, queue); err != nil {
		return nil, err
	}
	all, err := i.store(queue).Settings().Changes(ctx)
	if err != nil {
		return nil, fmt.Errorf("inspect: changes of queue %s: %w", queue, err)
	}
	changes := make([]Change, len(all))
	for j, c := range all {
		changes[j] = Change{c.Field, c.Before, c.After, setter(c.By, c.At)}
	}
	return changes, nil
}

// Reset gives a setting of a queue the value of the workers' Config again, in place of what an operator has set. If no worker has told one for three minutes, the
// setting is removed. name is as in [Setting]. changed is false if it had that value. The error wraps [signalbox.ErrInvalid] if there is no such setting, and
// [ErrNoQueue] if nobody has used the queue.
func (i *Inspector) Reset(ctx context.Context, queue, name string) (changed bool, err error) {
	if err := i.listed(ctx, queue); err != nil {
		return false, err
	}
	told, err := i.store(queue).Settings().Reset(ctx, name)
	if err != nil {
		return false, fmt.Errorf("inspect: reset of queue %s: %w", queue, err)
	}
	return told.Changed, nil
}

// ResetLimitsOf gives one group of a queue the limits that a worker's Config last said of it, in place of what an operator has set. If none did, the group has no
// limits of its own then. The error is as that of [Inspector.SetLimitsOf].
func (i *Inspector) ResetLimitsOf(ctx context.Context, queue, group string) (changed bool, err error) {
	if err := layout.ValidateGroup(group); err != nil {
		return false, fmt.Errorf("inspect: %w", err)
	}
	if err := i.listed(ctx, queue); err != nil {
		return false, err
	}
	if changed, err = i.store(queue).Settings().ResetGroup(ctx, group); err != nil {
		return false, fmt.Errorf("inspect: limits of a group of queue %s: %w", queue, err)
	}
	return changed, nil
}

// setter returns who and when, as the store has it.
func setter(by string, at time.Time) Setter {
	kind, name, _ := strings.Cut(by, " ")
	return Setter{kind == "worker", name, at}
}
