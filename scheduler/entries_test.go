package scheduler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// set sets an entry in queue q, and returns whether that changed anything.
func (p *process) set(t *testing.T, name, spec string, args signalbox.Args, opts ...CronOption) bool {
	t.Helper()
	changed, err := p.SetCron(name, spec, args, append(opts, Queue("q"))...)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// names returns the names of the entries.
func (p *process) names() string {
	var names []string
	for _, e := range p.CronEntries() {
		names = append(names, e.Name)
	}
	return strings.Join(names, " ")
}

// TestSetAndRemove: entries come, change and go while Run runs.
func TestSetAndRemove(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f, other := newFakeServer(), newFakeServer()
		p := startFake(t, ctx, map[string]*fakeServer{"q": f, "other": other})
		p.add(t, "stays", "@every 10s")
		if !p.set(t, "e", "@every 10s", note{1}) || p.set(t, "e", "@every 10s", note{1}) {
			t.Error("SetCron says wrongly whether the entry has changed")
		}
		time.Sleep(15 * time.Second)
		if !p.set(t, "e", "@every 10s", note{2}) { // other args: the ticks go on
			t.Error("other args are no change")
		}
		time.Sleep(10 * time.Second)
		if !p.set(t, "e", "@every 5s", note{2}) { // another version
			t.Error("another spec is no change")
		}
		time.Sleep(6 * time.Second)
		if !p.RemoveCron("e") || p.RemoveCron("e") || p.RemoveCron("nobody") {
			t.Error("RemoveCron says wrongly whether there was an entry")
		}
		time.Sleep(20 * time.Second)
		if got, want := f.clockTimes("e"), []string{"1 00:00:10", "1 00:00:20", "1 00:00:30"}; !slices.Equal(got, want) {
			t.Errorf("ticks %v, want %v", got, want)
		}
		f.set(func() {
			if got := strings.Join(f.payloads, " "); !strings.Contains(got, `{"N":1} `) || strings.Count(got, `{"N":2}`) != 2 {
				t.Errorf("payloads %s", got)
			}
		})
		if n := len(f.of("stays")); n != 5 {
			t.Errorf("%d ticks of an entry that stays, want 5", n)
		}
		// An entry moves to another queue, and one is set again after it was removed.
		if _, err := p.SetCron("stays", "@every 10s", note{}, Queue("other")); err != nil {
			t.Fatal(err)
		}
		p.set(t, "e", "@every 5s", note{3})
		time.Sleep(20 * time.Second)
		if n, m := len(f.of("stays")), len(other.of("stays")); n != 5 || m != 2 {
			t.Errorf("%d ticks in the old queue, want 5; %d in the new one, want 2", n, m)
		}
		if n := len(f.of("e")); n != 8 { // with that of 0:50, which is less than Grace ago
			t.Errorf("%d ticks after the entry is back, want 8: %v", n, f.clockTimes("e"))
		}
		if got := p.names(); got != "e stays" {
			t.Errorf("entries %s", got)
		}
		if report := p.Health(); !report.Ready() {
			t.Errorf("health: %+v", report.Problems)
		}
		// Reminders are of the entries that are there.
		f.heard()
		time.Sleep(61 * time.Second)
		if got := f.heard(); !slices.Equal(got, []string{"remind e"}) {
			t.Errorf("tools were told %q", got)
		}
	})
}

// TestSetBack: processes set an entry, and set it back before the other plan is forgotten. The one that they had is in force at once, also if each
// does it a moment after the other. Args that change later, or an entry that is removed meanwhile, make no difference.
func TestSetBack(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		var all []*process
		for range 3 {
			p := startFake(t, ctx, map[string]*fakeServer{"q": f})
			p.set(t, "e", "@every 10s", note{1})
			all = append(all, p)
			time.Sleep(time.Second)
		}
		each := func(f func(p *process)) {
			for _, p := range all {
				f(p)
				time.Sleep(300 * time.Millisecond)
			}
		}
		ticks := func(rest int64) {
			t.Helper()
			time.Sleep(time.Second)
			from := len(f.of("e"))
			time.Sleep(time.Minute)
			got := f.of("e")[from:]
			if len(got) != 6 {
				t.Errorf("%d ticks in a minute, want 6", len(got))
			}
			for _, at := range got {
				if at.Unix()%10 != rest {
					t.Errorf("a tick at %v", at)
				}
			}
		}
		ticks(0)
		each(func(p *process) { p.set(t, "e", "@every 10s offset 3s", note{1}) })
		ticks(3)
		each(func(p *process) { p.set(t, "e", "@every 10s", note{1}) })
		ticks(0)
		each(func(p *process) {
			p.set(t, "e", "@every 10s offset 3s", note{1})
			time.Sleep(700 * time.Millisecond)
			p.set(t, "e", "@every 10s", note{1})
			p.set(t, "e", "@every 10s", note{2})
		})
		ticks(0)
		each(func(p *process) { p.set(t, "e", "@every 10s offset 3s", note{1}) })
		each(func(p *process) { p.RemoveCron("e") })
		each(func(p *process) { p.set(t, "e", "@every 10s", note{1}) })
		ticks(0)
	})
}

// TestSetBeforeRun: an entry that is set before Redis knows it is one that the program begins with. So an old version that starts doesn't take over.
func TestSetBeforeRun(t *testing.T) {
	t.Parallel()
	s := offline(t)
	var clock reckoning
	registration := func(spec string) (*entry, store.Registration) {
		t.Helper()
		if _, err := s.SetCron("e", spec, note{}); err != nil {
			t.Fatal(err)
		}
		e := s.cron.names["e"]
		return e, (&ticking{entry: e}).registration(&clock)
	}
	for _, spec := range []string{"@daily", "@hourly"} {
		e, r := registration(spec)
		if r.Set || !r.Born.IsZero() {
			t.Errorf("%s is registered as set at %v", spec, r.Born)
		}
		if spec == "@hourly" {
			e.newest.Store(1000)
		}
	}
	clock.trust.t = time.UnixMicro(0) // behind
	clock.trust.got = time.Now().Add(time.Hour)
	if _, r := registration("@weekly"); !r.Set || r.Born.UnixMicro() != 1001 {
		t.Errorf("one that is set later is registered as %+v", r)
	}
}

// TestRemoveUnderWay: an entry is removed while its tick, or its registration, is in flight.
func TestRemoveUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		p := startFake(t, ctx, map[string]*fakeServer{"q": f})
		p.add(t, "e", "@every 10s")
		time.Sleep(9 * time.Second)
		f.set(func() { f.delay = time.Second })
		time.Sleep(1500 * time.Millisecond)
		p.RemoveCron("e")
		p.add(t, "late", "@every 10s")
		time.Sleep(500 * time.Millisecond)
		p.RemoveCron("late")
		time.Sleep(time.Minute)
		if got := f.clockTimes("e"); !slices.Equal(got, []string{"1 00:00:10"}) {
			t.Errorf("ticks %v; the one that was under way comes", got)
		}
		if got := f.of("late"); len(got) > 0 {
			t.Errorf("ticks %v of an entry that was removed before it was known", got)
		}
	})
}

// TestWrongSet: a wrong entry changes nothing.
func TestWrongSet(t *testing.T) {
	t.Parallel()
	s := offline(t)
	if _, err := s.SetCron("e", "@daily", note{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SetCron("e", "@dayly", note{}); !errors.Is(err, signalbox.ErrInvalid) {
		t.Errorf("a wrong spec: %v", err)
	}
	if err := s.Cron("e", "@daily", note{}); !errors.Is(err, signalbox.ErrInvalid) {
		t.Errorf("Cron of a name that is set: %v", err)
	}
	if got := s.CronEntries(); len(got) != 1 || got[0] != (EntryInfo{Name: "e", Queue: "default", Kind: "note", Spec: "@daily"}) {
		t.Errorf("entries %+v", got)
	}
	for _, every := range []time.Duration{0, time.Millisecond, 25 * time.Hour} {
		if err := s.CronFrom(t.Context(), CronFile("x"), every); !errors.Is(err, signalbox.ErrInvalid) {
			t.Errorf("watched every %v: %v", every, err)
		}
	}
	if err := s.CronFrom(t.Context(), nil, time.Minute); !errors.Is(err, signalbox.ErrInvalid) {
		t.Errorf("no source: %v", err)
	}
}

// TestSource: a table is watched. Its changes are taken over at once or not at all.
func TestSource(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		var table atomic.Pointer[[]CronEntry]
		var loads atomic.Int64
		put := func(entries ...CronEntry) { table.Store(&entries) }
		row := func(name, spec string) CronEntry {
			return CronEntry{name, spec, note{}, []CronOption{Queue("q"), ArgsAt(func(tick time.Time) signalbox.Args { return note{tick.Second()} })}}
		}
		source := func(context.Context) ([]CronEntry, error) {
			loads.Add(1)
			entries := table.Load()
			if entries == nil {
				return nil, errors.New("the table can't be read")
			}
			return *entries, nil
		}
		p := startFake(t, ctx, map[string]*fakeServer{"q": f})
		p.add(t, "own", "@every 10s")
		if err := p.CronFrom(ctx, source, 5*time.Second); err == nil || !strings.Contains(err.Error(), "can't be read") {
			t.Errorf("a source that fails: %v", err)
		}
		put(row("a", "@every 10s"), row("own", "@every 10s"))
		if err := p.CronFrom(ctx, source, 5*time.Second); !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), `"own" is an entry of another source`) {
			t.Errorf("an entry of Cron: %v", err)
		}
		if got := p.names(); got != "own" {
			t.Errorf("entries after that: %s", got)
		}
		put(row("a", "@every 10s"), row("b", "@every 10s"))
		if err := p.CronFrom(ctx, source, 5*time.Second); err != nil {
			t.Fatal(err)
		}
		if p.RemoveCron("a") {
			t.Error("an entry of a source was removed")
		}
		if _, err := p.SetCron("a", "@daily", note{}); !errors.Is(err, signalbox.ErrInvalid) {
			t.Errorf("an entry of a source was set: %v", err)
		}
		before := p.Scheduler.cron.names["a"]
		time.Sleep(21 * time.Second)
		if p.Scheduler.cron.names["a"] != before {
			t.Error("an entry that is the same was replaced")
		}
		for i, wrong := range [][]CronEntry{
			{row("a", "@every 10s"), row("c", "nonsense")},
			{row("c", "@every 10s"), row("c", "@every 5s")},
			{row("c", "@every 10s"), {"own", "@every 1s", note{}, nil}},
			{{"c", "@every 10s", nil, nil}},
		} {
			put(wrong...)
			time.Sleep(11 * time.Second)
			if got := p.names(); got != "a b own" {
				t.Errorf("after wrong list %d: %s", i, got)
			}
			want(t, p, "could not be taken over", i+1) // not once more for the same error
		}
		table.Store(nil)
		time.Sleep(6 * time.Second)
		n := len(f.of("b"))
		put(row("a", "@every 10s"), row("c", "@every 10s"))
		time.Sleep(30 * time.Second)
		if got := p.names(); got != "a c own" {
			t.Errorf("after a change: %s", got)
		}
		want(t, p, "can be taken over again", 1)
		if m := len(f.of("b")); m != n {
			t.Errorf("%d ticks of an entry that the source has no more", m-n)
		}
		if n := len(f.of("c")); n < 2 {
			t.Errorf("%d ticks of a new entry", n)
		}
		gapless10(t, f.of("a"))
		put()
		time.Sleep(6 * time.Second)
		if got := p.names(); got != "own" {
			t.Errorf("after the source is empty: %s", got)
		}
		if n := loads.Load(); n < 20 || n > 40 {
			t.Errorf("the source was called %d times", n)
		}
	})
}

// gapless10 fails unless ticks come every ten seconds.
func gapless10(t *testing.T, ticks []time.Time) {
	t.Helper()
	for i := 1; i < len(ticks); i++ {
		if d := ticks[i].Sub(ticks[i-1]); d != 10*time.Second {
			t.Errorf("tick %v came after %v", ticks[i], ticks[i-1])
		}
	}
}

func TestCronFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cron.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	s := offline(t)
	if err := s.CronFrom(t.Context(), CronFile(path), time.Second); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	write(`[
		{"name": "plain", "spec": "@daily", "kind": "note"},
		{"name": "serial", "spec": "@daily", "kind": "note", "serial": "s"},
		{"name": "full", "spec": "0 9 * * *", "kind": "note", "args": {"N": 7}, "queue": "mail", "zone": "Europe/Berlin", "priority": "high",
		 "max_attempts": 3, "timeout": "90s", "group": "g", "retain": "48h", "expire_after": "10m", "missed": "all 10", "lateness": "6h", "overlap": "skip", "jitter": "5m",
		 "starting": "2026-07-01T00:00:00Z", "ending": "2036-07-01T00:00:00+02:00"}
	]`)
	if err := s.CronFrom(t.Context(), CronFile(path), time.Second); err != nil {
		t.Fatal(err)
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for name, e := range map[string]CronEntry{
		"plain":  {"plain", "@daily", fileArgs{"note", []byte("{}")}, nil},
		"serial": {"serial", "@daily", fileArgs{"note", []byte("{}")}, []CronOption{Serial("s")}},
		"full": {"full", "0 9 * * *", note{7}, []CronOption{
			Queue("mail"), In(berlin), Priority(signalbox.PriorityHigh), MaxAttempts(3), Timeout(90 * time.Second), Group("g"), Retain(48 * time.Hour), ExpireAfter(10 * time.Minute), Missed(RunAll(10)), Lateness(6 * time.Hour),
			Overlap(SkipIfRunning), Jitter(5 * time.Minute), Starting(time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)), Ending(time.Date(2036, 6, 30, 22, 0, 0, 0, time.UTC)),
		}},
	} {
		want, err := s.newEntry(e.Name, e.Spec, e.Args, e.Options)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.cron.names[name]; got == nil || !got.same(want) || got.notice.Digest() != want.notice.Digest() {
			t.Errorf("%s is %+v, want %+v", name, got, want)
		}
	}
	for part, text := range map[string]string{
		"no JSON list":             ``,
		"it holds no JSON":         `null`,
		"holds no JSON list":       `{"name": "x"}`,
		`unknown field "nmae"`:     `[{"nmae": "x"}]`,
		"kind: it is missing":      `[{"name": "x", "spec": "@daily"}]`,
		`zone: "Mars"`:             `[{"name": "x", "spec": "@daily", "kind": "k", "zone": "Mars"}]`,
		`priority: "urgent"`:       `[{"name": "x", "spec": "@daily", "kind": "k", "priority": "urgent"}]`,
		`missed: "all x"`:          `[{"name": "x", "spec": "@daily", "kind": "k", "missed": "all x"}]`,
		`overlap: "never"`:         `[{"name": "x", "spec": "@daily", "kind": "k", "overlap": "never"}]`,
		`jitter: "5"`:              `[{"name": "x", "spec": "@daily", "kind": "k", "jitter": "5"}]`,
		`retain: "long"`:           `[{"name": "x", "spec": "@daily", "kind": "k", "retain": "long"}]`,
		`starting: "tomorrow"`:     `[{"name": "x", "spec": "@daily", "kind": "k", "starting": "tomorrow"}]`,
		`entry 2, "y"`:             `[{"name": "x", "spec": "@daily", "kind": "k"}, {"name": "y", "spec": "@daily"}]`,
		"cron entry \"x\"":         `[{"name": "x", "spec": "@dayly", "kind": "k"}]`,
		"two entries of this name": `[{"name": "x", "spec": "@daily", "kind": "k"}, {"name": "x", "spec": "@daily", "kind": "k"}]`,
	} {
		write(text)
		other := offline(t)
		if err := other.CronFrom(t.Context(), CronFile(path), time.Second); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v, want %q", text, err, part)
		}
		if n := len(other.CronEntries()); n != 0 {
			t.Errorf("%s: %d entries", text, n)
		}
	}
	write(fmt.Sprintf(`[{"name": "x", "spec": "@daily", "kind": "k", "args": %q}]`, strings.Repeat("x", maxCronFile)))
	if err := s.CronFrom(t.Context(), CronFile(path), time.Second); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("a large file: %.200v", err)
	}
}
