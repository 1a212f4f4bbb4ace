package scheduler

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// TestOverlapPolicies: a job of each entry is live for a while. Only where the policy says so, ticks pass without a job, or others are cancelled.
func TestOverlapPolicies(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		p := startFake(t, ctx, map[string]*fakeServer{"q": f})
		p.add(t, "none", "@every 10s")
		p.add(t, "allow", "@every 10s", Overlap(Allow))
		p.add(t, "skip", "@every 10s", Overlap(SkipIfRunning))
		p.add(t, "cancel", "@every 10s", Overlap(CancelOther))
		time.Sleep(11 * time.Second)
		f.set(func() { f.live = map[string]bool{"none": true, "allow": true, "skip": true, "cancel": true} })
		time.Sleep(30 * time.Second)
		f.set(func() { f.live = nil })
		time.Sleep(10 * time.Second)
		for name, want := range map[string][]string{
			"none":   {"1 00:00:10", "1 00:00:20", "1 00:00:30", "1 00:00:40", "1 00:00:50"},
			"allow":  {"1 00:00:10", "1 00:00:20", "1 00:00:30", "1 00:00:40", "1 00:00:50"},
			"skip":   {"1 00:00:10", "1 00:00:50"},
			"cancel": {"1 00:00:10", "1 00:00:20", "1 00:00:30", "1 00:00:40", "1 00:00:50"},
		} {
			if got := f.clockTimes(name); !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
		}
		want(t, p, "a job of the entry is live", 1)
		want(t, p, "missed", 0)
		f.set(func() {
			if len(f.cleared) != 6 || len(slices.Compact(f.cleared)) != 1 || f.cleared[0] != "cancel" { // at the beginning, and at five ticks
				t.Errorf("jobs were cancelled of %q", f.cleared)
			}
		})
	})
}

// TestCancelAgain: Redis can't cancel jobs for a while. Then it is done for each entry, also by a scheduler that enqueued none of the ticks.
func TestCancelAgain(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		f.noted = errors.New("ERR no")
		p := startFake(t, ctx, map[string]*fakeServer{"q": f})
		q := startFake(t, ctx, map[string]*fakeServer{"q": f})
		for _, s := range []*process{p, q} {
			s.add(t, "a", "@every 1m", Overlap(CancelOther))
			s.add(t, "b", "@every 1m", Overlap(CancelOther))
		}
		time.Sleep(61 * time.Second)
		f.set(func() { f.noted = nil })
		time.Sleep(20 * time.Second)
		f.set(func() {
			if slices.Sort(f.cleared); !slices.Equal(f.cleared, []string{"a", "a", "b", "b"}) {
				t.Errorf("jobs were cancelled of %q", f.cleared)
			}
		})
		time.Sleep(time.Minute) // one enqueues the next tick, both cancel
		f.set(func() {
			if len(f.cleared) != 8 {
				t.Errorf("after another tick jobs were cancelled of %q", f.cleared)
			}
		})
		want(t, p, "could not be cancelled", 1)
		want(t, p, "has cancelled the jobs of the entry before it", 4)
	})
}

// TestStartingEndingJitter: ticks come between the two times, and each at the same delayed time in all processes.
func TestStartingEndingJitter(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		begin := time.Now()
		for range 3 {
			p := startFake(t, ctx, map[string]*fakeServer{"q": f})
			p.add(t, "bounded", "@every 1m", Starting(begin.Add(2*time.Minute)), Ending(begin.Add(4*time.Minute+time.Second)))
			p.add(t, "jitter", "@every 1m", Jitter(30*time.Second))
			p.add(t, "over", "@every 1m", Ending(begin))
			p.add(t, "offset", "@every 4m offset 3m")
		}
		time.Sleep(10 * time.Minute)
		for name, want := range map[string][]string{
			"bounded": {"1 00:02:00", "1 00:03:00", "1 00:04:00"},
			"offset":  {"1 00:03:00", "1 00:07:00"},
			"over":    nil,
		} {
			if got := f.clockTimes(name); !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
		}
		ticks, late := f.of("jitter"), time.Duration(0)
		for i, at := range ticks {
			d := at.Sub(begin.Add(time.Duration(i) * time.Minute)) // the first one is that of the beginning, delayed
			if late += d; d < 0 || d >= 30*time.Second {
				t.Errorf("tick %d is %v late", i+1, d)
			}
		}
		if len(ticks) < 9 || len(ticks) > 10 || late < time.Minute {
			t.Errorf("%d ticks, %v late in all", len(ticks), late)
		}
	})
}

// TestJitterOfMissedTicks: a tick that is made up for has the time that it would have had.
func TestJitterOfMissedTicks(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f, g := newFakeServer(), newFakeServer()
		startFake(t, ctx, map[string]*fakeServer{"q": g}).add(t, "e", "@every 1m", Jitter(time.Minute), Missed(RunAll(100)))
		first, stop := context.WithCancel(ctx)
		startFake(t, first, map[string]*fakeServer{"q": f}).add(t, "e", "@every 1m", Jitter(time.Minute), Missed(RunAll(100)))
		time.Sleep(5*time.Minute + 30*time.Second)
		stop()
		time.Sleep(10 * time.Minute)
		startFake(t, ctx, map[string]*fakeServer{"q": f}).add(t, "e", "@every 1m", Jitter(time.Minute), Missed(RunAll(100)))
		time.Sleep(5 * time.Minute)
		if got, want := f.of("e"), g.of("e"); len(want) < 19 || !slices.Equal(got, want) {
			t.Errorf("ticks\n%v, want\n%v", got, want)
		}
	})
}

// day is a job whose args depend on its tick.
type day struct{ Day string }

func (day) Kind() string { return "day" }

func TestArgsAt(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		p := startFake(t, ctx, map[string]*fakeServer{"q": f})
		tokyo, err := time.LoadLocation("Asia/Tokyo")
		if err != nil {
			t.Fatal(err)
		}
		// 16:00 in UTC is 01:00 of the next day.
		err = p.Cron("e", "0 1,2,3 * * *", day{}, In(tokyo), Queue("q"), ArgsAt(func(tick time.Time) signalbox.Args {
			switch tick.Hour() {
			case 2:
				panic("secret")
			case 3:
				return note{}
			}
			return day{tick.Format(time.DateOnly)}
		}))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(48 * time.Hour)
		if got := f.clockTimes("e"); !slices.Equal(got, []string{"1 16:00:00", "2 16:00:00"}) {
			t.Errorf("ticks %v", got)
		}
		f.set(func() {
			if got := strings.Join(f.payloads, " "); got != `{"Day":"2000-01-02"} {"Day":"2000-01-03"}` {
				t.Errorf("payloads %s", got)
			}
		})
		want(t, p, "tick skipped", 4)
		if strings.Contains(p.log.String(), "secret") {
			t.Errorf("the log has a panic's value:\n%s", p.log.String())
		}
	})
}

func TestTimingOptions(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for part, opts := range map[string][]CronOption{
		"Overlap: 17":                           {Overlap(17)},
		"QueueOne is given together with Group": {Overlap(QueueOne), Group("g")},
		"Jitter: -1s":                           {Jitter(-time.Second)},
		"Jitter: 25h":                           {Jitter(25 * time.Hour)},
		"Jitter: 1.5ms":                         {Jitter(1500 * time.Microsecond)},
		"Starting":                              {Starting(time.Time{})},
		"Ending: the time is zero":              {Ending(time.Time{})},
		"is before Starting":                    {Starting(now), Ending(now.Add(-1))},
		"ArgsAt: the function is nil":           {ArgsAt(nil)},
		"args: nil":                             {ArgsAt(func(time.Time) signalbox.Args { return nil })},
		"of kind day, the entry's kind is note": {ArgsAt(func(time.Time) signalbox.Args { return day{} })},
		"ArgsAt panicked":                       {ArgsAt(func(time.Time) signalbox.Args { panic("secret") })},
	} {
		err := offline(t).Cron("e", "@daily", note{}, opts...)
		if !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", part, err)
		}
	}
}

// The plan of an entry changes with each option that its ticks depend on, and with no other. An entry without any of the newer ones has the plan that it
// had before them.
func TestPlanOfOptions(t *testing.T) {
	t.Parallel()
	s := offline(t)
	seen := map[store.Plan]int{}
	for i, opts := range [][]CronOption{
		nil,
		{Overlap(SkipIfRunning)},
		{Overlap(CancelOther)},
		{Jitter(time.Second)},
		{Starting(time.Unix(1, 0))},
		{Ending(time.Unix(1, 0))},
		{Ending(time.Unix(2, 0))},
	} {
		e, err := s.newEntry("e", "@daily", note{}, opts)
		if err != nil {
			t.Fatal(err)
		}
		if before, ok := seen[e.plan]; ok {
			t.Errorf("options %d and %d have the same plan", before, i)
		}
		seen[e.plan] = i
		again, err := s.newEntry("e", "@daily", note{2}, append(opts, MaxAttempts(7), Overlap(Allow))[:len(opts)+1])
		if err != nil || again.plan != e.plan {
			t.Errorf("options %d: another payload is another plan: %v", i, err)
		}
	}
	if seen[store.NewPlan("e", "@daily", "UTC", "-1", maxLateness.String())] != 0 || len(seen) != 7 {
		t.Error("an entry without options has another plan than before")
	}
	for _, same := range []time.Time{time.Unix(1, 0).UTC(), time.Unix(1, 0).In(time.FixedZone("x", 3600))} {
		e, err := s.newEntry("e", "@daily", note{}, []CronOption{Ending(same)})
		if err != nil || seen[e.plan] != 5 {
			t.Errorf("the same time in another zone is another plan: %v", err)
		}
	}
}

// The jobs of an entry that queues one are of a serial group: that of the option, or one of its own.
func TestQueueOneIsSerial(t *testing.T) {
	t.Parallel()
	s := offline(t)
	long := strings.Repeat("e", 200)
	for _, tc := range []struct {
		name, group string
		opts        []CronOption
	}{
		{"e", "cron/e", []CronOption{Overlap(QueueOne)}},
		{"e", "mine", []CronOption{Overlap(QueueOne), Serial("mine")}},
		{long, "", []CronOption{Overlap(QueueOne)}},
	} {
		e, err := s.newEntry(tc.name, "@daily", note{}, tc.opts)
		if err != nil {
			t.Fatal(err)
		}
		if g := e.job.Group; !e.job.Serial || tc.group != "" && g != tc.group || tc.group == "" && (len(g) > 200 || g == "") {
			t.Errorf("the jobs of %.10s are of group %q, serial %v", tc.name, g, e.job.Serial)
		}
	}
}
