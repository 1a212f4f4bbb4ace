package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// A Stored is a job as it can be put into a queue again.
type Stored struct {
	ID      string
	State   signalbox.State // not running: one that runs is ready, or cancelled if it was asked to end
	Ran     bool            // it was running
	Ended   time.Time       // if it has; else zero
	Record  []byte
	Whole   Whole // what the record says
	Exact   bool  // it says no more than that
	Err     error // why the record can't be read
	Effects string
}

// Whole is all that a record says.
type Whole = wire.Whole

// read reads the record.
func (s *Stored) read(q *Queue) {
	job := signalbox.Job{ID: s.ID, Queue: q.name, Namespace: q.namespace}
	s.Whole, s.Exact, s.Err = wire.DecodeWhole(s.Record, &job)
	if s.Err == nil {
		s.Effects = job.EffectKey()
	}
}

// All yields all jobs of the queue but those that have completed and are kept, in no order. One that is there from the begin to the end is among them, however often its state changes
// meanwhile. Each is as it was at one moment. One may come twice. An error is the last that is yielded.
//
// A job that is held, since it is being moved, comes from the queue that it leaves, as what it was.
func (t *Transfer) All(ctx context.Context) iter.Seq2[Stored, error] {
	return func(yield func(Stored, error) bool) {
		if err := t.all(ctx, func(s Stored) bool { return yield(s, nil) }); err != nil {
			yield(Stored{}, err)
		}
	}
}

func (t *Transfer) all(ctx context.Context, yield func(Stored) bool) error {
	cursor, each := "0", 10e3
	var sessions []string
	for tries := 0; ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		if sessions == nil {
			if sessions, err = t.q.Site().SessionsOf(ctx, nil); err != nil {
				return err
			}
		}
		e, again, err := t.q.Site().Examine(ctx, sessions, facts.Origin{Name: "jobs", Cursor: cursor, Count: max(1, min(facts.MaxLook, int(facts.PageBytes/each)))})
		switch {
		case err != nil:
			return err
		case again: // a session was opened meanwhile
			if tries++; tries == facts.MaxTries {
				return facts.ErrMoving
			}
			sessions = nil
			continue
		}
		tries, cursor = 0, e.Next
		records, bytes := make(map[string]string, len(e.Records)/2), 0
		for i := 0; i+1 < len(e.Records); i += 2 {
			records[e.Records[i]] = e.Records[i+1]
			bytes += len(e.Records[i+1])
		}
		each = max(each*0.9, float64(bytes)/float64(max(1, len(records))), 100)
		for i := range e.Jobs {
			if s, ok := t.storedOf(&e.Jobs[i], records[e.Jobs[i].ID], e.Now); ok && !yield(s) {
				return nil
			}
		}
		for _, id := range e.Left {
			view, situation, found, err := t.q.Looks().Show(ctx, id)
			if err != nil {
				return err
			}
			if !found || view.Record == "" {
				continue
			}
			f := facts.Job{ID: id, There: true}
			switch view.State {
			case signalbox.StateRunning:
				f.Places = []facts.Place{{Kind: "running", Value: facts.Fields{Token: "1", Flags: view.Flags}.String()}}
			case signalbox.StateDead, signalbox.StateCancelled:
				f.Places = []facts.Place{{Kind: string(view.State), Micros: view.At.UnixMicro()}}
			case signalbox.StateScheduled:
				f.Places = []facts.Place{{Kind: "due"}}
			case signalbox.StateCompleted:
				f.Places = []facts.Place{{Kind: "completed"}}
			case signalbox.StateAwaiting:
				f.Places = []facts.Place{{Kind: "awaiting"}}
			case signalbox.StateReady:
			}
			if s, ok := t.storedOf(&f, view.Record, situation.At.UnixMicro()); ok && !yield(s) {
				return nil
			}
		}
		if cursor == "0" {
			return nil
		}
	}
}

// storedOf returns the job of these facts. ok is false for a job that isn't to be returned.
func (t *Transfer) storedOf(f *facts.Job, record string, now int64) (s Stored, ok bool) {
	if !f.There {
		return Stored{}, false
	}
	s = Stored{ID: f.ID, State: signalbox.StateReady, Record: wire.WithoutLinks([]byte(record))} // flows don't go along
	for _, p := range f.Places {
		switch p.Kind {
		case "due":
			s.State = signalbox.StateScheduled
		case "running":
			s.Ran = true
			if p.Fields().Flagged() {
				s.State, s.Ended = signalbox.StateCancelled, time.UnixMicro(now)
			}
		case "ready", "lined":
		case "completed", "awaiting":
			return Stored{}, false
		default:
			s.State, s.Ended = signalbox.State(p.Kind), looks.EndOf(float64(p.Micros), record)
		}
	}
	if h, held := wire.HeldOf(s.Record); held {
		if h.Copy {
			return Stored{}, false
		}
		s.State, s.Ended = signalbox.State(h.State), h.Ended
		s.Record, _ = wire.Unhold(s.Record, h) // it can be read
	}
	s.read(t.q)
	return s, true
}

// maxStored is the most bytes of a record that is put in: an envelope, what failed attempts add to it, and a last error.
const maxStored = wire.MaxRecord + wire.MaxAttemptBytes + 256<<10

// Prepare checks a job that is to be put in, and makes its Record of its Whole unless it has one. The error wraps signalbox.ErrInvalid, and has none of
// the record's contents.
func (t *Transfer) Prepare(s *Stored) error {
	if layout.ValidateID(s.ID) != nil {
		return errName("id")
	}
	switch s.State {
	case signalbox.StateScheduled, signalbox.StateReady, signalbox.StateDead, signalbox.StateCancelled:
	case signalbox.StateRunning, signalbox.StateCompleted:
		fallthrough
	default:
		return fmt.Errorf("%w state: jobs can be put in as scheduled, ready, dead or cancelled", signalbox.ErrInvalid)
	}
	effects := s.Effects
	if _, held := wire.HeldOf(s.Record); held { // it would seem to be held, where it is not
		return fmt.Errorf("%w record_base64: it is of a job that is being moved", signalbox.ErrInvalid)
	}
	s.Record = wire.WithoutLinks(s.Record)
	if err := validateTime("ended_at", s.Ended); err != nil {
		return err
	}
	if len(s.Record) == 0 {
		w := &s.Whole
		if layout.ValidateKind(w.Job.Kind) != nil {
			return errName("kind")
		}
		if len(w.Extras) > wire.MaxExtras || w.Flags == 0 && len(w.Extras) > 0 {
			return fmt.Errorf("%w extras: %d bytes; at most %d are allowed, and none without flags", signalbox.ErrInvalid, len(w.Extras), wire.MaxExtras)
		}
		if err := errors.Join(validateTime("enqueued_at", w.Job.EnqueuedAt), validateTime("due_at", w.Job.ScheduledAt)); err != nil {
			return err
		}
		s.Record = w.Record()
	}
	if len(s.Record) > maxStored {
		return fmt.Errorf("%w job: it takes %d bytes, at most %d are allowed", signalbox.ErrInvalid, len(s.Record), maxStored)
	}
	if err := validateGroupOf(s.Record); err != nil {
		return err
	}
	s.read(t.q)
	if !s.Whole.Job.ScheduledAt.Before(wire.HeldUntil) { // no worker would get it
		return fmt.Errorf("%w time: it is due after 2255", signalbox.ErrInvalid)
	}
	if s.Err != nil || effects == "" || effects == s.Effects {
		return nil // what can't be read is kept as it is
	}
	if len(effects) > maxEffect || strings.Trim(effects, printable) != "" {
		return fmt.Errorf("%w effect key: at most %d bytes of printable ASCII without spaces are allowed", signalbox.ErrInvalid, maxEffect)
	}
	var err error
	if s.Record, err = wire.WithEffect(s.Record, effects); err != nil {
		return err
	}
	s.read(t.q)
	return nil
}

// validateTime returns an error that names the field if a time can't be in a record. A zero one can.
func validateTime(field string, at time.Time) error {
	if at.IsZero() || at.Before(wire.HeldUntil) && at.UnixMicro() >= 0 {
		return nil
	}
	return fmt.Errorf("%w %s: it is before 1970 or after 2255", signalbox.ErrInvalid, field)
}

// errName says that a job's ID or kind is wrong, and not what it is.
func errName(what string) error {
	return fmt.Errorf("%w %s: want 1 to %d characters of printable ASCII, without spaces and braces", signalbox.ErrInvalid, what, layout.MaxName)
}

// maxEffect is the longest effect key that a job can have.
const maxEffect = 622

// printable are the characters of effect keys.
var printable = func() string {
	var all []byte
	for c := byte('!'); c <= '~'; c++ {
		all = append(all, c)
	}
	return string(all)
}()

// Put puts jobs in that Prepare has accepted: Done, or Occupied if the queue has a job of the ID. Ready ones are put in as due at the time when they were,
// so workers get them in the order of these times. With dry set nothing is changed. It may be called again.
func (t *Transfer) Put(ctx context.Context, jobs []Stored, dry bool) ([]Answer, error) {
	all := make([]placement, len(jobs))
	for i := range jobs {
		all[i] = jobs[i].placed()
	}
	return t.putRecords(ctx, all, dry)
}

// placed returns the placement of a job that Prepare has accepted.
func (s *Stored) placed() placement {
	p := placement{id: s.ID, state: s.State, record: s.Record, at: s.Whole.Job.ScheduledAt}
	switch {
	case !s.State.Live():
		p.at = s.Ended
	case s.Err != nil && s.Whole.Job.EnqueuedAt.IsZero(): // it has no header, and so no time
		p.state = signalbox.StateReady
	default:
		p.state = signalbox.StateScheduled
	}
	return p
}

// validateGroupOf returns an error that wraps signalbox.ErrInvalid if the record's flags say that the job is of a group, and it has no key that one can have.
// Scripts don't look at that again.
func validateGroupOf(record []byte) error {
	const flags = 3
	if len(record) <= flags || record[0] < 1 || record[0] > 31 {
		return nil
	}
	if record[flags]%2 == 0 {
		if record[flags]&wire.FlagExpires != 0 {
			return fmt.Errorf("%w extras: the job expires, and they name no group", signalbox.ErrInvalid)
		}
		return nil
	}
	key := facts.GroupOf(string(record))
	if len(key) < 2 || key[0] != 'g' && key[0] != 's' || len(key) != int(record[22]) {
		return fmt.Errorf("%w extras: they name no group", signalbox.ErrInvalid)
	}
	if key == "g"+wire.Unstarted && record[flags]&wire.FlagExpires != 0 {
		return nil
	}
	return layout.ValidateGroup(key[1:])
}
