package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/settings"
)

// Who has set each setting, and when, is read as the scripts write it, and the changes are listed, the newest first, at most fifty.
func TestRemembered(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	setting := func(name string) settings.Told {
		t.Helper()
		all, err := r.Settings().Remembered(bg)
		r.must(err)
		for _, s := range all {
			if s.Setting == name {
				return s
			}
		}
		t.Fatalf("no setting %s in %+v", name, all)
		return settings.Told{}
	}
	is := func(value, counts, by string) {
		t.Helper()
		s := setting("Limits")
		same(t, "setting", fmt.Sprint(s.Value, ", ", s.Counts, ", ", s.By), fmt.Sprint(value, ", ", counts, ", ", by))
		same(t, "its time is known", s.At.IsZero(), by == "")
	}
	running := func(n int) signalbox.Limits { return signalbox.Limits{Running: n} }
	is("none", "none", "")
	r.tells(settings.Wanted{Limits: running(5)})
	is("5 running", "5 running", "worker w")
	_, err := r.By("ann").Settings().SetLimits(bg, running(7))
	r.must(err)
	is("7 running", "5 running", "operator ann")
	told, err := r.By("bob").Settings().Reset(bg, "Limits")
	r.must(err)
	same(t, "changed", told.Changed, true)
	is("5 running", "5 running", "operator bob")
	_, err = r.By("ann").Settings().Pause(bg)
	r.must(err)
	var words []string
	changes, err := r.Settings().Changes(bg)
	r.must(err)
	for _, c := range changes {
		if c.At.IsZero() {
			t.Errorf("%+v has no time", c)
		}
		if c.Field == "paused" {
			c.After = "since"
		}
		words = append(words, strings.Join([]string{c.By, c.Field, c.Before, c.After}, ","))
	}
	equal(t, "changes", words, []string{"operator ann,paused,,since", "operator bob,limits,7 0 0 0,5 0 0 0", "operator ann,limits,5 0 0 0,7 0 0 0", "worker w,limits,,5 0 0 0"})
	for n := range 60 {
		_, err := r.Settings().SetSlots(bg, n+1)
		r.must(err)
	}
	changes, err = r.Settings().Changes(bg)
	r.must(err)
	same(t, "changes that are kept", fmt.Sprint(len(changes), " ", changes[0].Before, " ", changes[0].After), "50 59 60")
	if _, err := r.Settings().Reset(bg, "Slots"); !errors.Is(err, signalbox.ErrInvalid) {
		t.Errorf("reset of slots: %v", err)
	}
}

// What Configs said goes along with what an operator has set: so a worker with the same Config changes nothing at the other place, and one with a new one does. Where
// workers tell a Config already, it counts for nothing.
func TestCarry(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	running := func(n int) signalbox.Limits { return signalbox.Limits{Running: n} }
	wanted := func(n int) settings.Wanted {
		return settings.Wanted{
			Limits: running(n), GroupLimits: running(n), LimitsOf: map[string]signalbox.Limits{"a": running(n)}, MaxLength: n, CopyDead: fmt.Sprint("q", n),
			Retention: signalbox.Retention{Jobs: int64(n)}, Completed: signalbox.Retention{Jobs: int64(n)},
		}
	}
	r.tells(wanted(5))
	applied, err := r.Settings().Applied(bg)
	r.must(err)
	same(t, "applied", fmt.Sprint(len(applied.Settings), applied.Groups), "7 map[a:5 - 0 0]")
	r.must(applied.Validate())
	for _, wrong := range []settings.Applied{{Settings: map[string]string{"paused": "1"}}, {Settings: map[string]string{"limits": "1\n2"}}, {Groups: map[string]string{"a": "x"}}, {Groups: map[string]string{"": "5 - 0 0"}}} {
		if err := wrong.Validate(); !errors.Is(err, signalbox.ErrInvalid) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
	changes := func(q *Queue, w settings.Wanted) (n int) {
		t.Helper()
		all, err := q.Settings().Tell(bg, "w", w)
		r.must(err)
		for _, one := range all {
			if one.Changed && one.Setting != "LimitsOf" {
				n++
			}
		}
		return n
	}
	to := r.other()
	r.must(to.Settings().Carry(bg, applied))
	all, err := to.Settings().Remembered(bg)
	r.must(err)
	same(t, "who has set what was only carried", fmt.Sprint(all[0].By, all[0].At.IsZero(), all[0].Counts), "true5 running")
	_, err = to.Settings().SetLimits(bg, running(9))
	r.must(err)
	same(t, "changes by the same Config", changes(to.Queue, wanted(5)), 0)
	same(t, "changes by a new Config", changes(to.Queue, wanted(6)), 7)
	third := r.other()
	same(t, "changes by a Config", changes(third.Queue, wanted(6)), 7)
	r.must(third.Settings().Carry(bg, applied))
	same(t, "changes by the same one", changes(third.Queue, wanted(6)), 0)
}
