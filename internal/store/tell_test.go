package store

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
)

// Which value counts, call by call. Times are in seconds. A step is a value that a worker tells, "=x" if an operator sets x, "reset", "carry x", or a time
// that passes. Behind it is the setting's value then, if it changes.
func TestChapterDecide(t *testing.T) {
	t.Parallel()
	c := newChapterTest(t)
	long := "1 30 1 30 1 30 1 30 1 30 1 30 1 30"
	for name, steps := range map[string]string{
		"the first":                            "1>1 1",
		"a new one":                            "1>1 60 2>2",
		"none fights in a rolling deploy":      "1>1 30 2>2 30 1 30 2 30 1 30 2 1 2 1 1 2",
		"a restart of the older one":           "1>1 2>2 60 1 60 1 2",
		"a restart of the newer one":           "1>1 2>2 60 1 59 1 59 2",
		"the newer one is away too long":       "1>1 2>2 60 1 60 1 60 1>1 60 2>2",
		"a rollback":                           "1>1 60 2>2 " + long[:len(long)-5] + " 1>1",
		"an outage ages by a minute":           "1>1 2>2 6000 1 60 1 2",
		"a night without workers":              "1>1 60 2>2 100000 2 1",
		"the clock is set back":                "1>1 2>2 -6000 1 1 2 1 60 2 3>3",
		"what an operator set stays":           "1>1 60 =5>5 60 1 1 6000 1",
		"until the value changes":              "1>1 60 =5>5 60 2>2",
		"a new one that is the operator's":     "1>1 60 =2>2 60 2 60 2",
		"an operator before any Config":        "=5>5 60 1>1",
		"an operator removes it":               "1>1 60 => 60 1 6000 1 60 2>2",
		"an operator, a rolling deploy":        "1>1 2>2 =5>5 60 1 60 2 60 1 2",
		"an operator, and a rollback":          "1>1 2>2 =5>5 60 1 60 1 60 1>1",
		"reset":                                "1>1 =5>5 60 reset>1 60 1",
		"reset of what was removed":            "1>1 => 60 reset>1",
		"reset where nobody tells":             "1>1 =5>5 181 reset> 1>1",
		"reset of what nobody has told":        "=5>5 reset>",
		"reset to none, and a Config":          "=5>5 reset> 60 1>1",
		"carried":                              "carry:1 =5>5 60 1 60 2>2",
		"carried where workers tell":           "2>2 carry:1 60 1>1",
		"eight are remembered":                 "1>1 2>2 3>3 4>4 5>5 6>6 7>7 8>8 9>9 2 3 1>1",
		"the applied one is among them":        "1>1 =x>x 2>2 =1>1 2 3>3 =x>x 3 3",
		"a third build with the first's value": "1>1 60 2>2 60 1 2 60 1 60 1 60 1>1",
	} {
		var code, want strings.Builder
		code.WriteString("local text, value = nil, ''\nlocal function step(verb, v, by, now)\nlocal m = memory_of(text)\nlocal after, writes = decide(m, verb, v, by, now)\n" +
			"if writes then text = memory_text(m) end\nif after then value = after end\nshow(value)\nend\n")
		now, value := int64(1_750_000_000), ""
		for _, step := range strings.Fields(steps) {
			did, after, changes := strings.Cut(step, ">")
			seconds, err := strconv.ParseInt(did, 10, 64)
			if err == nil && (seconds < 0 || seconds > 20) {
				now += seconds
				continue
			}
			if changes {
				value = after
			}
			verb, by := "tell", "worker w"
			if set, is := strings.CutPrefix(did, "="); is {
				verb, by, did = "set", "operator o", set
			} else if did == "reset" {
				verb, by, did = "reset", "operator o", ""
			} else if carried, is := strings.CutPrefix(did, "carry:"); is {
				verb, by, did = "carry", "operator o", carried
			}
			fmt.Fprintf(&code, "step(%s, %s, %s, %d)\n", luaString(verb), luaString(did), luaString(by), now*1_000_000)
			want.WriteString("; " + shown(value))
			now++
		}
		if got := strings.Join(c.run(code.String()), "; "); got != strings.TrimPrefix(want.String(), "; ") {
			t.Errorf("%s: %s\n got  %s\n want %s", name, steps, got, strings.TrimPrefix(want.String(), "; "))
		}
	}
	for text, want := range map[string]string{
		"nil": `"0 nobody - 0\n"`, "''": `"0 nobody - 0\n"`, "'x'": `"0 nobody - 0\n"`, `'1 operator a b 2\n'`: `"0 nobody - 0\n"`,
		`'1 worker w 2\n1 2 * 3 4 5\n'`: `"1 worker w 2\n1 2 * 3 4 5\n"`, `'1 worker w 2\nx\n7 8 - a\n'`: `"1 worker w 2\n7 8 - a\n"`,
	} {
		c.shows("show(memory_text(memory_of("+text+")))", strings.ReplaceAll(want, `\n`, `\010`))
	}
}

// Every setting of a Config is applied, stays as an operator sets it, also none, and is as Config says again after a reset.
func TestTell(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	five, two := signalbox.Limits{Running: 5}, signalbox.Limits{Running: 2}
	first := Wanted{
		Limits: five, GroupLimits: two, LimitsOf: map[string]signalbox.Limits{"a": five, "b": unlimited, "c": {}}, MaxLength: 100, CopyDead: "other",
		Retention: signalbox.Retention{Jobs: 1}, Completed: signalbox.Retention{Jobs: 2},
	}
	second := Wanted{
		Limits: two, GroupLimits: five, LimitsOf: map[string]signalbox.Limits{"a": two, "b": unlimited, "d": two}, MaxLength: 200, CopyDead: "another",
		Retention: signalbox.Retention{Jobs: 3}, Completed: signalbox.Retention{Jobs: 4},
	}
	has := func(what string, w Wanted) {
		t.Helper()
		s, err := r.Settings(bg)
		r.must(err)
		of, err := r.GroupLimits(bg)
		r.must(err)
		kept := func(r signalbox.Retention) signalbox.Retention {
			if r == (signalbox.Retention{}) {
				return r
			}
			return Filled(r)
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
	set := func(w Wanted) {
		t.Helper()
		_, err := r.SetLimits(bg, w.Limits)
		r.must(err)
		_, err = r.SetGroupLimits(bg, w.GroupLimits)
		r.must(err)
		for group := range first.LimitsOf {
			_, err = r.SetLimitsOf(bg, group, w.LimitsOf[group])
			r.must(err)
		}
		_, err = r.SetMaxLength(bg, w.MaxLength)
		r.must(err)
		r.must(r.SetCopies(bg, w.CopyDead))
		r.must(r.SetRetention(bg, w.Retention))
		r.must(r.SetCompleted(bg, w.Completed))
	}
	told := func(w Wanted, changed, ours, isSet, replaced bool) {
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
	has("a new Config", Wanted{
		Limits: two, GroupLimits: five, LimitsOf: map[string]signalbox.Limits{"a": two, "b": unlimited, "d": two}, MaxLength: 200, CopyDead: "another",
		Retention: signalbox.Retention{Jobs: 3}, Completed: signalbox.Retention{Jobs: 4},
	})
	told(first, false, false, false, false)
	has("the older Config", second)
	ops := Wanted{
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
	none := Wanted{Retention: signalbox.Retention{}, LimitsOf: map[string]signalbox.Limits{}}
	set(none)
	r.tells(third)
	s, err := r.Settings(bg)
	r.must(err)
	same(t, "removed", fmt.Sprint(s.Limits, s.GroupLimits, s.MaxLength, s.Copies, s.Completed), fmt.Sprint(signalbox.Limits{}, signalbox.Limits{}, 0, "", signalbox.Retention{}))
	for _, name := range []string{"Limits", "GroupLimits", "MaxLength", "CopyDead", "Retention", "CompletedRetention"} {
		_, err := r.Reset(bg, name)
		r.must(err)
	}
	changed, err := r.ResetGroup(bg, "a")
	r.must(err)
	same(t, "the group is another", changed, true)
	has("reset", third)
	r.noFindings()
}

// A late call for a group does nothing if another Config counts by now.
func TestLateLimitsOfAGroup(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	of := func(n int) Wanted { return Wanted{LimitsOf: map[string]signalbox.Limits{"a": {Running: n}}} }
	old := of(1)
	r.tells(old)
	r.tells(of(2))
	reply, err := r.limitGroup(bg, "a", "1 - 0 0", "tell", "worker w", old.limitsOfText())
	r.must(err)
	same(t, "changed", reply.int(1), 0)
	limits, err := r.GroupLimits(bg)
	r.must(err)
	same(t, "running", limits["a"].Running, 2)
}

// The name of an operator, whatever it is, stands in what is remembered, and says who has set what, and when.
func TestWhoSetIt(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	before := r.rdb.Time(bg).Val()
	for name, want := range map[string]string{"": "-", "ann": "ann", "ann b\n2\t": "ann_b_2_", "anné": "ann_", strings.Repeat("x", 200): strings.Repeat("x", 100)} {
		_, err := r.By(name).SetLimits(bg, signalbox.Limits{Running: 1 + len(name)})
		r.must(err)
		got := r.tells(Wanted{Limits: signalbox.Limits{Running: 1000 + len(name)}})["Limits"]
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
	r.must(r.SetCopies(bg, r.other().Name()))
	r.bury(Dead, "a")
	same(t, "notes", len(r.noted()), 1)
	told, err := r.Reset(bg, "CopyDead")
	r.must(err)
	same(t, "changed", told.Changed, true)
	same(t, "notes after it", len(r.noted()), 0)
	r.bury(Dead, "b")
	same(t, "notes of later deaths", len(r.noted()), 0)
}
