package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
)

// add registers an entry with options in queue q.
func (p *process) add(t *testing.T, name, spec string, opts ...CronOption) {
	t.Helper()
	if err := p.Cron(name, spec, note{}, append(opts, Queue("q"))...); err != nil {
		t.Fatal(err)
	}
}

// clockTimes returns the ticks of an entry as day and time of day.
func (f *fakeServer) clockTimes(entry string) []string {
	var list []string
	for _, at := range f.of(entry) {
		list = append(list, at.UTC().Format("2 15:04:05"))
	}
	return list
}

// TestMissedPolicies: all schedulers are down from 0:10 to 12:05. Then three start at once. Each policy does just what it says, once.
func TestMissedPolicies(t *testing.T) {
	entries := []struct {
		name, spec string
		opts       []CronOption
		want       []string // ticks after the start, until 13:00
	}{
		{"skip", "0 */3 * * *", []CronOption{Missed(Skip)}, nil},
		{"once", "0 */3 * * *", []CronOption{Missed(RunOnce)}, []string{"1 12:00:00"}},
		{"one", "0 */3 * * *", []CronOption{Missed(RunAll(1))}, []string{"1 12:00:00"}},
		{"all", "0 */3 * * *", []CronOption{Missed(RunAll(10))}, []string{"1 03:00:00", "1 06:00:00", "1 09:00:00", "1 12:00:00"}},
		{"two", "0 */3 * * *", []CronOption{Missed(RunAll(2))}, []string{"1 09:00:00", "1 12:00:00"}},
		{"default, far apart", "0 */3 * * *", nil, []string{"1 12:00:00"}},
		{"default, an hour apart", "0 * * * *", nil, []string{"1 13:00:00"}},
		{"default, the last of a day", "0,20,40 0-6 * * *", nil, []string{"1 06:40:00"}},
		{"once, an hour apart", "0 * * * *", []CronOption{Missed(RunOnce)}, []string{"1 12:00:00", "1 13:00:00"}},
		{"not late", "0 */5 * * *", []CronOption{Missed(RunAll(9)), Lateness(3 * time.Hour)}, []string{"1 10:00:00"}},
		{"too late", "0 */5 * * *", []CronOption{Missed(RunAll(9)), Lateness(2 * time.Hour)}, nil},
		{"none missed", "50 23 * * *", []CronOption{Missed(RunAll(9))}, nil},
	}
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		start := func(ctx context.Context) (ps []*process) {
			for range 3 {
				p := startFake(t, ctx, map[string]*fakeServer{"q": f})
				for i, e := range entries {
					p.add(t, fmt.Sprint("e", i), e.spec, e.opts...)
				}
				ps = append(ps, p)
			}
			return ps
		}
		first, stop := context.WithCancel(ctx)
		start(first)
		time.Sleep(10 * time.Minute)
		stop()
		time.Sleep(11*time.Hour + 55*time.Minute)
		before := len(f.ticks())
		ps := start(ctx)
		ps[0].add(t, "new", "0 */3 * * *", Missed(RunAll(9)))
		time.Sleep(time.Hour)
		for i, e := range entries {
			var got []string
			f.set(func() {
				for k, name := range f.names {
					if k >= before && name == fmt.Sprint("e", i) {
						got = append(got, f.fired[k].UTC().Format("2 15:04:05"))
					}
				}
			})
			if !slices.Equal(got, e.want) {
				t.Errorf("%s: ticks %v, want %v", e.name, got, e.want)
			}
		}
		if got := f.clockTimes("new"); len(got) > 0 {
			t.Errorf("a new entry made up for %v", got)
		}
		if report := ps[0].Health(); !report.Ready() {
			t.Errorf("health: %+v", report.Problems)
		}
	})
}

// TestMissedInAnOutage: Redis is away while schedulers run. The policies hold as well.
func TestMissedInAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		for range 2 {
			p := startFake(t, ctx, map[string]*fakeServer{"q": f})
			p.add(t, "all", "@every 1m", Missed(RunAll(100)))
			p.add(t, "skip", "@every 1m")
			p.add(t, "daily", "0 1 * * *")
		}
		time.Sleep(58*time.Minute + time.Second)
		f.set(func() { f.err = errors.New("connection refused") })
		time.Sleep(10*time.Minute + 10*time.Second)
		f.set(func() { f.err, f.lose = nil, 2 })
		time.Sleep(10 * time.Minute)
		all := f.of("all")
		if len(all) != 78 {
			t.Errorf("%d ticks of 78", len(all))
		}
		for i := 1; i < len(all); i++ {
			if all[i].Sub(all[i-1]) != time.Minute {
				t.Errorf("%v after %v", all[i], all[i-1])
			}
		}
		if n := len(f.of("skip")); n != 68 {
			t.Errorf("%d ticks where missed ones are skipped, want 68", n)
		}
		if got := f.clockTimes("daily"); !slices.Equal(got, []string{"1 01:00:00"}) {
			t.Errorf("daily: %v", got)
		}
	})
}

// TestMissedOnItsWay: a tick is sent in time, and is too late when it comes to Redis. Then it is a missed tick like others.
func TestMissedOnItsWay(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		p := startFake(t, ctx, map[string]*fakeServer{"q": f})
		p.add(t, "all", "@every 1m", Missed(RunAll(5)))
		p.add(t, "skip", "@every 1m")
		time.Sleep(59 * time.Second)
		f.set(func() { f.hold = 6 * time.Second })
		time.Sleep(3 * time.Second)
		f.set(func() { f.hold = 0 })
		time.Sleep(2 * time.Minute)
		if got, want := f.clockTimes("all"), []string{"1 00:01:00", "1 00:02:00", "1 00:03:00"}; !slices.Equal(got, want) {
			t.Errorf("ticks %v, want %v", got, want)
		}
		if got, want := f.clockTimes("skip"), []string{"1 00:02:00", "1 00:03:00"}; !slices.Equal(got, want) {
			t.Errorf("skipped, but for %v; want %v", got, want)
		}
		want(t, p, "ticks skipped: they could not be tried in time", 1)
	})
}

// TestManyMissedTicks: an entry of each second was away for a day. The latest ticks are made up for, and the others counted.
func TestManyMissedTicks(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		first, stop := context.WithCancel(ctx)
		startFake(t, first, map[string]*fakeServer{"q": f}).add(t, "e", "@every 1s", Missed(RunAll(50)))
		time.Sleep(10*time.Second + time.Second/2)
		stop()
		time.Sleep(24 * time.Hour)
		p := startFake(t, ctx, map[string]*fakeServer{"q": f})
		p.add(t, "e", "@every 1s", Missed(RunAll(50)))
		time.Sleep(10 * time.Second)
		ticks := f.ticks()
		gapless(t, ticks[10:], 5+50+10)
		want(t, p, "ticks missed: they passed while no scheduler", 1)
	})
}

// TestHealthWhileTicksAreMadeUpFor: ticks that are made up for are not overdue. Other entries tick meanwhile.
func TestHealthWhileTicksAreMadeUpFor(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		first, stop := context.WithCancel(ctx)
		startFake(t, first, map[string]*fakeServer{"q": f}).add(t, "e", "@every 1m", Missed(RunAll(100)))
		time.Sleep(90 * time.Second)
		stop()
		time.Sleep(2 * time.Hour)
		f.set(func() { f.delay = 100 * time.Millisecond })
		p := startFake(t, ctx, map[string]*fakeServer{"q": f})
		p.add(t, "e", "@every 1m", Missed(RunAll(100)))
		p.add(t, "other", "@every 1s")
		time.Sleep(time.Second)
		for range 50 {
			time.Sleep(100 * time.Millisecond)
			if report := p.Health(); !report.Ready() {
				t.Fatalf("%+v", report.Problems)
			}
		}
		if n := len(f.of("e")); n < 30 || n > 90 {
			t.Errorf("%d ticks; is the test too slow or too quick?", n)
		}
		if n := len(f.of("other")); n < 5 {
			t.Errorf("%d ticks of another entry in 6 s", n)
		}
		time.Sleep(20 * time.Second)
		if n := len(f.of("e")); n != 101 {
			t.Errorf("%d ticks, want 101", n)
		}
	})
}

// TestMissedTicksDelayNoOthers: more entries than go into the calls in flight have missed many ticks, and Redis is far away. Ticks that are due come in time
// meanwhile.
func TestMissedTicksDelayNoOthers(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		start := func(ctx context.Context) *process {
			p := startFake(t, ctx, map[string]*fakeServer{"q": f})
			for i := range 1500 {
				p.add(t, fmt.Sprint("e", i), "@every 1m", Missed(RunAll(20)))
			}
			return p
		}
		first, stop := context.WithCancel(ctx)
		start(first)
		time.Sleep(90 * time.Second)
		stop()
		time.Sleep(2 * time.Hour)
		f.set(func() { f.delay = time.Second })
		start(ctx).add(t, "other", "@every 1s")
		time.Sleep(2 * time.Minute)
		ticks := f.of("other")
		gapless(t, ticks, len(ticks))
		if n := len(ticks); n < 110 {
			t.Errorf("%d ticks of another entry in 120 s", n)
		}
		if n := len(f.of("e1499")); n != 1+20+2 {
			t.Errorf("%d ticks of an entry, want 23: %v", n, f.clockTimes("e1499"))
		}
	})
}

// TestChangedEntryHasNoPast: the spec of an entry changes while no scheduler runs. Its ticks from before aren't made up for.
func TestChangedEntryHasNoPast(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		first, stop := context.WithCancel(ctx)
		startFake(t, first, map[string]*fakeServer{"q": f}).add(t, "e", "0 */2 * * *", Missed(RunAll(9)))
		time.Sleep(2*time.Hour + time.Minute)
		stop()
		time.Sleep(6 * time.Hour)
		startFake(t, ctx, map[string]*fakeServer{"q": f}).add(t, "e", "30 * * * *", Missed(RunAll(9)))
		time.Sleep(time.Hour)
		if got := f.clockTimes("e"); !slices.Equal(got, []string{"1 02:00:00", "1 08:30:00"}) {
			t.Errorf("ticks %v", got)
		}
	})
}

// TestTwoVersions: two versions of a program have different specs for one entry, and run side by side. Only the ticks of the newer
// one fire, also when an older process starts again.
func TestTwoVersions(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		older := startFake(t, ctx, map[string]*fakeServer{"q": f})
		older.add(t, "e", "@every 10s")
		time.Sleep(25 * time.Second)
		newer := startFake(t, ctx, map[string]*fakeServer{"q": f})
		newer.add(t, "e", "@every 7s")
		time.Sleep(time.Minute)
		again := startFake(t, ctx, map[string]*fakeServer{"q": f})
		again.add(t, "e", "@every 10s")
		time.Sleep(2*time.Minute - time.Second) // just before the newer one is registered again
		ticks := f.of("e")
		for i, at := range ticks {
			since := at.Sub(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))
			if i >= 2 && at.Unix()%7 != 0 || i < 2 && at.Unix()%10 != 0 {
				t.Errorf("tick %d came at %v", i, since)
			}
		}
		if len(ticks) < 25 {
			t.Errorf("%d ticks", len(ticks))
		}
		want(t, older, "a newer version of the entry is in force", 1)
		want(t, again, "a newer version of the entry is in force", 1)
		want(t, newer, "level=", 0)
		f.set(func() {
			plan := newer.cron0().plan
			if got, since := f.born[plan], f.since[plan]; !slices.Equal(got, []time.Time{{}, since, since}) {
				t.Errorf("the newer version was registered as new at %v, want the zero time, and %v twice", got, since)
			}
		})

		f.set(func() { f.inForce["e"] = older.cron0().plan.Digest }) // the newer ones have gone
		at := time.Now()
		time.Sleep(3 * time.Minute)
		for _, tick := range f.of("e")[len(ticks):] {
			if tick.Sub(at) > time.Minute && tick.Unix()%10 != 0 {
				t.Errorf("after the end of the newer version there is a tick at %v", tick)
			}
		}
		if n := len(f.of("e")) - len(ticks); n < 12 {
			t.Errorf("%d ticks after the end of the newer version", n)
		}
		want(t, older, "no scheduler has the newer version", 1)
	})
}

// cron0 returns the first entry.
func (p *process) cron0() *entry { return p.Scheduler.cron.entries[0] }

func TestMissedOptions(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]CronOption{
		"Missed: -3; want": {Missed(-3)}, "Missed: -2; want": {Missed(RunAll(0))}, "Missed: 1001; want": {Missed(RunAll(1001))},
		"Lateness: 4s; want": {Lateness(4 * time.Second)}, "Lateness: 876001h0m0s; want": {Lateness(maxDelay + time.Hour)},
	} {
		_, err := ofEntry(kindDefaults{}, reservedHeaders, opts)
		if !errors.Is(err, signalbox.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		} else if got := err.Error(); got[:min(len(got), len("signalbox: invalid ")+len(name))] != "signalbox: invalid "+name {
			t.Errorf("error %q, want %q", got, name)
		}
	}
}
