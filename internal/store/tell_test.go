package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/store/settings"
)

// Every setting of a Config is applied, stays as an operator sets it, also none, and is as Config says again after a reset.
func TestTell(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	five, two := signalbox.Limits{Running: 5}, signalbox.Limits{Running: 2}
	first := settings.Wanted{
		Limits: five, GroupLimits: two, LimitsOf: map[string]signalbox.Limits{"a": five, "b": unlimited, "c": {}}, MaxLength: 100, CopyDead: "other",
		Retention: signalbox.Retention{Jobs: 1}, Completed: signalbox.Retention{Jobs: 2},
	}
	second := settings.Wanted{
		Limits: two, GroupLimits: five, LimitsOf: map[string]signalbox.Limits{"a": two, "b": unlimited, "d": two}, MaxLength: 200, CopyDead: "another",
		Retention: signalbox.Retention{Jobs: 3}, Completed: signalbox.Retention{Jobs: 4},
	}
	has := func(what string, w settings.Wanted) {
		t.Helper()
		s, err := r.Settings().Read(bg)
		r.must(err)
		of, err := r.Settings().GroupLimits(bg)
		r.must(err)
		kept := func(r signalbox.Retention) signalbox.Retention {
			if r == (signalbox.Retention{}) {
				return r
			}
			return settings.Filled(r)
		}
		for group, l := range w.LimitsOf {
			if l == (signalbox.Limits{}) {
				l = of[group] // the zero value says nothing
			}
			same(t, what+": group "+group, of[group], l)
		}
		same(t, what+": limits", s.Limits, w.Limits)
		same(t, what+": group limits", s.GroupLimits, w.GroupLimits)
		same(t, what, fmt.Sprint(s.MaxLength, s.Copies, s.Retention, s.Completed), fmt.Sprint(w.MaxLength, w.CopyDead, kept(w.Retention), kept(w.Completed)))
	}
	set := func(w settings.Wanted) {
		t.Helper()
		_, err := r.Settings().SetLimits(bg, w.Limits)
		r.must(err)
		_, err = r.Settings().SetGroupLimits(bg, w.GroupLimits)
		r.must(err)
		for group := range first.LimitsOf {
			_, err = r.Settings().SetLimitsOf(bg, group, w.LimitsOf[group])
			r.must(err)
		}
		_, err = r.Settings().SetMaxLength(bg, w.MaxLength)
		r.must(err)
		r.must(r.Settings().SetCopies(bg, w.CopyDead))
		r.must(r.Settings().SetRetention(bg, w.Retention))
		r.must(r.Settings().SetCompleted(bg, w.Completed))
	}
	told := func(w settings.Wanted, changed, ours, isSet, replaced bool) {
		t.Helper()
		all := r.tells(w)
		if len(all) < 7 {
			t.Errorf("%d were told: %v", len(all), all)
		}
		for name, got := range all {
			if name == "LimitsOf" || strings.HasSuffix(name, `"b"]`) || strings.HasSuffix(name, `"d"]`) {
				continue // no operator sets the first; the others don't change in all steps
			}
			same(t, name+" is "+fmt.Sprintf("%+v", got), fmt.Sprint(got.Changed, got.Ours, got.Set, got.Replaced()), fmt.Sprint(changed, ours, isSet, replaced))
		}
	}
	told(first, true, true, true, false)
	has("the first Config", first)
	told(first, false, true, true, false)
	told(second, true, true, true, false)
	has("a new Config", settings.Wanted{
		Limits: two, GroupLimits: five, LimitsOf: map[string]signalbox.Limits{"a": two, "b": unlimited, "d": two}, MaxLength: 200, CopyDead: "another",
		Retention: signalbox.Retention{Jobs: 3}, Completed: signalbox.Retention{Jobs: 4},
	})
	told(first, false, false, false, false)
	has("the older Config", second)
	ops := settings.Wanted{
		Limits: signalbox.Limits{Running: 9}, GroupLimits: signalbox.Limits{Running: 8}, LimitsOf: map[string]signalbox.Limits{"a": {Running: 7}, "b": unlimited}, MaxLength: 300,
		CopyDead: "third", Retention: signalbox.Retention{Jobs: 5}, Completed: signalbox.Retention{Jobs: 6},
	}
	set(ops)
	told(second, false, true, false, false)
	has("an operator", ops)
	third := second
	third.Limits, third.GroupLimits, third.MaxLength, third.CopyDead = signalbox.Limits{Running: 3}, signalbox.Limits{Running: 3}, 3, "q3"
	third.LimitsOf = map[string]signalbox.Limits{"a": {Running: 3}}
	third.Retention, third.Completed = signalbox.Retention{Jobs: 7}, signalbox.Retention{Jobs: 8}
	told(third, true, true, true, true)
	has("a Config that is new since", third)
	none := settings.Wanted{Retention: signalbox.Retention{}, LimitsOf: map[string]signalbox.Limits{}}
	set(none)
	r.tells(third)
	s, err := r.Settings().Read(bg)
	r.must(err)
	same(t, "removed", fmt.Sprint(s.Limits, s.GroupLimits, s.MaxLength, s.Copies, s.Completed), fmt.Sprint(signalbox.Limits{}, signalbox.Limits{}, 0, "", signalbox.Retention{}))
	for _, name := range []string{"Limits", "GroupLimits", "MaxLength", "CopyDead", "Retention", "CompletedRetention"} {
		_, err := r.Settings().Reset(bg, name)
		r.must(err)
	}
	changed, err := r.Settings().ResetGroup(bg, "a")
	r.must(err)
	same(t, "the group is another", changed, true)
	has("reset", third)
	r.noFindings()
}

// A late call for a group does nothing if another Config counts by now.
func TestLateLimitsOfAGroup(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	of := func(n int) settings.Wanted {
		return settings.Wanted{LimitsOf: map[string]signalbox.Limits{"a": {Running: n}}}
	}
	r.tells(of(1))
	old := r.rdb.HGet(bg, r.keys.Settings, "limits_of").Val()
	r.tells(of(2))
	args := scripts.Limit.Args(2, scripts.Arg("protocol", layout.Protocol), scripts.Arg("inflight", r.keys.Inflight("")), scripts.Arg("channel", r.keys.Control()),
		scripts.Arg("field", "group"), scripts.Arg("value", "1 - 0 0"), scripts.Arg("verb", "tell"), scripts.Arg("by", "worker w"), scripts.Arg("of", old))
	reply, err := scripts.Limit.Run(bg, r.rdb, scripts.Limit.Keys(&r.keys), append(args, "ga", "sa"))
	r.must(err)
	r.must(reply.Status("ok"))
	same(t, "changed", reply.Int(1), 0)
	limits, err := r.Settings().GroupLimits(bg)
	r.must(err)
	same(t, "running", limits["a"].Running, 2)
}

// The name of an operator, whatever it is, stands in what is remembered, and says who has set what, and when.
func TestWhoSetIt(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	before := r.rdb.Time(bg).Val()
	for name, want := range map[string]string{"": "-", "ann": "ann", "ann b\n2\t": "ann_b_2_", "anné": "ann_", strings.Repeat("x", 200): strings.Repeat("x", 100)} {
		_, err := r.By(name).Settings().SetLimits(bg, signalbox.Limits{Running: 1 + len(name)})
		r.must(err)
		got := r.tells(settings.Wanted{Limits: signalbox.Limits{Running: 1000 + len(name)}})["Limits"]
		same(t, "set by", got.HadBy, "operator "+want)
		same(t, "replaced", got.Replaced(), true)
		if got.HadAt.Before(before.Truncate(time.Microsecond)) || got.At.Before(got.HadAt) {
			t.Errorf("set at %v, and then at %v, after %v", got.HadAt, got.At, before)
		}
	}
}

// A reset to no copies has those that died before not copied any more, as SetCopies has.
func TestResetOfCopies(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.must(r.Settings().SetCopies(bg, r.other().Name()))
	r.bury(Dead, "a")
	same(t, "notes", len(r.noted()), 1)
	told, err := r.Settings().Reset(bg, "CopyDead")
	r.must(err)
	same(t, "changed", told.Changed, true)
	same(t, "notes after it", len(r.noted()), 0)
	r.bury(Dead, "b")
	same(t, "notes of later deaths", len(r.noted()), 0)
}
