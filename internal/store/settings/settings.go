// Package settings has what a queue's operator and its workers' Configs say of it: limits, what is kept, how long the queue may be, pauses, slots, and who takes no jobs. It says how each
// setting is written, and which of two that were said counts: docs/decisions/0044-settings.md.
package settings

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// Settings is a queue whose settings are read and made.
type Settings struct {
	*facts.Site
	Operator string // who makes settings, as scripts want it: see OperatorName
}

// MaxSlots is the most slots that a worker can have for a queue.
const MaxSlots = 100_000

// ValidateSlots returns an error that wraps signalbox.ErrInvalid if workers can't have n slots. 0 leaves it to them.
func ValidateSlots(n int) error {
	if n < 0 || n > MaxSlots {
		return fmt.Errorf("%w slots: %d; a worker can have 1 to %d, and 0 leaves it to each worker's configuration", signalbox.ErrInvalid, n, MaxSlots)
	}
	return nil
}

// Values are the settings of a queue that people change.
type Values struct {
	Paused      bool
	PausedSince time.Time           // by the server's clock; zero if it isn't known, or the queue isn't paused
	Slots       int                 // that each worker is to have; 0: as its Config says
	Quiet       []string            // IDs of workers that take no jobs
	Stopping    []string            // IDs of those of them that are to end
	Retention   signalbox.Retention // of dead and cancelled jobs
	Completed   signalbox.Retention // of completed jobs; zero if none are kept
	Limits      signalbox.Limits    // of the queue
	GroupLimits signalbox.Limits    // of its groups without limits of their own
	MaxLength   int                 // jobs that it may have that haven't ended; 0: any number
	Copies      string              // the queue that gets copies of dead jobs; "" if there is none
}

// Read reads the queue's settings. It returns a *layout.Error if the queue's layout is older than layout.Number.
func (q *Settings) Read(ctx context.Context) (Values, error) {
	fields, err := q.Client.HGetAll(ctx, q.Keys.Settings).Result()
	if err != nil {
		return Values{}, err
	}
	if text, noted := fields["layout"]; noted {
		err = layout.Check(text)
	} else {
		err = q.CheckLayout(ctx)
	}
	if err != nil {
		return Values{}, err
	}
	return Of(fields), nil
}

// Of reads the fields of the settings.
func Of(fields map[string]string) Values {
	s := Values{
		Retention: keptOf(fields[keepField]),
		Completed: keptOf(fields[completedField]), Copies: fields[CopyField],
		Limits: LimitsOf(fields[limitsField]), GroupLimits: LimitsOf(fields[groupLimitsField]), MaxLength: lengthOf(fields[lengthField]),
	}
	if n, err := strconv.Atoi(fields[slotsField]); err == nil && ValidateSlots(n) == nil {
		s.Slots = n
	}
	if since, paused := fields[pausedField]; paused {
		us, err := strconv.ParseInt(since, 10, 64)
		if err != nil { // another program wrote it; the queue is paused all the same
			us = 0
		}
		s.Paused, s.PausedSince = true, time.UnixMicro(us)
	}
	for field, value := range fields {
		if worker, ok := strings.CutPrefix(field, quietField); ok {
			s.Quiet = append(s.Quiet, worker)
			if strings.HasPrefix(value, stopValue) {
				s.Stopping = append(s.Stopping, worker)
			}
		}
	}
	slices.Sort(s.Quiet)
	slices.Sort(s.Stopping)
	return s
}

// quietField is before a worker's ID in the name of the field that says since when it is to be quiet, or to end.
const quietField = "quiet:"

// stopValue is what the value of that field begins with for a worker that is to end. A space and the time follow.
const stopValue = "stop"

// ErrStopping says that a worker was asked to end, so it can't be made to take jobs again.
var ErrStopping = errors.New("store: the worker was asked to stop")

// Pause makes the queue give out no jobs: once it has returned, none is claimed until Resume. It reports whether that is new.
func (q *Settings) Pause(ctx context.Context) (changed bool, err error) {
	return q.set(ctx, pausedField, "now")
}

// Resume ends a pause, and has all workers look for jobs. It reports whether the queue was paused.
func (q *Settings) Resume(ctx context.Context) (changed bool, err error) {
	return q.set(ctx, pausedField, "")
}

// SetSlots gives each worker of the queue that many slots, or as many as its Config says if n is 0. It reports whether that is new.
func (q *Settings) SetSlots(ctx context.Context, n int) (changed bool, err error) {
	if n == 0 {
		return q.set(ctx, slotsField, "")
	}
	return q.set(ctx, slotsField, strconv.Itoa(n))
}

// Quiet makes a worker take no more jobs of the queue, or take some again. It reports whether that is new. here is false, and nothing
// has changed, if the worker has no session with the queue. A worker that was asked to stop takes no jobs again: the error is ErrStopping.
func (q *Settings) Quiet(ctx context.Context, worker string, on bool) (changed, here bool, err error) {
	value := "loud"
	if on {
		value = "now"
	}
	return q.setQuiet(ctx, worker, value)
}

// Stop makes a worker end, as at the end of its Run's context. It returns the same as Quiet.
func (q *Settings) Stop(ctx context.Context, worker string) (changed, here bool, err error) {
	changed, here, err = q.setQuiet(ctx, worker, stopValue)
	if err != nil || !here {
		return changed, here, err
	}
	// It may have ended since, as another of its queues has told it to. Then nobody else removes the field.
	workers, err := q.Workers(ctx)
	if err == nil && !slices.Contains(workers, worker) {
		_, err = q.set(ctx, quietField+worker, "")
	}
	return changed, true, err
}

// setQuiet changes a worker's field: value is that of set.lua.
func (q *Settings) setQuiet(ctx context.Context, worker, value string) (changed, here bool, err error) {
	workers, err := q.Workers(ctx)
	if err != nil || !slices.Contains(workers, worker) {
		return false, false, err
	}
	if value != "loud" {
		if err := q.forgetQuiet(ctx, workers); err != nil {
			return false, true, err
		}
	}
	changed, err = q.set(ctx, quietField+worker, value)
	return changed, true, err
}

// quietFor is how long a worker that has no session is still to be quiet: it may be about to open another.
const quietFor = 24 * time.Hour

// forgetQuiet forgets workers that were to be quiet, or to end, and died.
func (q *Settings) forgetQuiet(ctx context.Context, workers []string) error {
	fields, err := q.Client.HGetAll(ctx, q.Keys.Settings).Result()
	if err != nil {
		return err
	}
	now, err := q.Now(ctx)
	if err != nil {
		return err
	}
	for field, value := range fields {
		worker, ok := strings.CutPrefix(field, quietField)
		since, err := strconv.ParseInt(strings.TrimPrefix(value, stopValue+" "), 10, 64)
		if ok && !slices.Contains(workers, worker) && (err != nil || now.Sub(time.UnixMicro(since)) > quietFor) {
			if _, err := q.set(ctx, field, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// OperatorName returns who changes a setting, as scripts want it: "operator", a space and a name without spaces.
func OperatorName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '_'
		}
		return r
	}, CutText(name, 100))
	return "operator " + cmp.Or(name, "-")
}

// set changes a field of the queue's settings of which nothing is remembered, and has all its workers look at them.
func (q *Settings) set(ctx context.Context, field, value string) (changed bool, err error) {
	r, err := q.change(ctx, field, value, "", q.Operator, false)
	if err != nil {
		return false, err
	}
	n := r.Int(0)
	if n == 2 && r.Err == nil {
		return false, ErrStopping
	}
	return n == 1, r.Err
}

// change changes a setting, and has all workers look at it: see set.lua.
func (q *Settings) change(ctx context.Context, field, value, verb, by string, bounds bool) (*scripts.Reply, error) {
	r, err := scripts.Set.Run(ctx, q.Client, scripts.Set.Keys(&q.Keys), scripts.Set.Args(0, scripts.Arg("protocol", layout.Protocol), scripts.Arg("field", field), scripts.Arg("value", value),
		scripts.Arg("verb", verb), scripts.Arg("by", by), scripts.Arg("bounds", scripts.Flag(bounds)), scripts.Arg("channel", q.Keys.Control())))
	if err != nil {
		return nil, err
	}
	return r, r.Err
}
