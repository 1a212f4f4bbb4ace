package scheduler

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/schedule"
	"github.com/signalbox-go/signalbox/internal/store"
)

// TestClockExcursion: the clock of Redis is wrong for five seconds. Two processes that have known it before go on by
// the old time. The log says so, and no tick is lost, late or doubled.
func TestClockExcursion(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, 24 * time.Hour, -time.Hour, -24 * time.Hour, 30 * time.Second, -30 * time.Second} {
		t.Run(by.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				f := newFakeServer()
				var ps []*process
				for range 2 {
					p := startFake(t, ctx, map[string]*fakeServer{"q": f})
					p.cron(t, "e", "@every 1s", "q")
					p.cron(t, "rare", "@every 30s", "q")
					ps = append(ps, p)
				}
				time.Sleep(27*time.Second + time.Second/2)
				f.set(func() { f.skew = by })
				time.Sleep(5 * time.Second)
				f.set(func() { f.skew = 0 })
				time.Sleep(28 * time.Second)
				gapless(t, f.of("e"), 60)
				if rare := f.of("rare"); len(rare) != 2 || rare[1].Sub(rare[0]) != 30*time.Second {
					t.Errorf("the rare entry: %v", rare)
				}
				for _, p := range ps {
					want(t, p, "the clock of Redis jumped", 1)
					want(t, p, "the clock of Redis is back", 1)
					want(t, p, "by="+by.String(), 2)
					want(t, p, "level=WARN", 2)
				}
			})
		})
	}
}

// want fails unless the log has the text n times.
func want(t *testing.T, p *process, text string, n int) {
	t.Helper()
	if got := strings.Count(p.log.String(), text); got != n {
		t.Errorf("%q is %d times in the log, want %d: %s", text, got, n, &p.log)
	}
}

// of returns the ticks of an entry that were fired.
func (f *fakeServer) of(entry string) []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ticks []time.Time
	for i, name := range f.names {
		if name == entry {
			ticks = append(ticks, f.fired[i])
		}
	}
	return ticks
}

// TestClockJumpIsFollowed: a jump that lasts is followed after ten seconds. After a jump ahead, the ticks in between
// are missed and logged. After a jump back, some ticks come again.
func TestClockJumpIsFollowed(t *testing.T) {
	for by, again := range map[time.Duration]int{time.Minute: 0, -time.Minute: 30} {
		t.Run(by.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				f := newFakeServer()
				p := startFake(t, ctx, map[string]*fakeServer{"q": f})
				p.cron(t, "e", "@every 1s", "q")
				time.Sleep(20*time.Second + time.Second/2)
				f.set(func() { f.skew = by })
				time.Sleep(100 * time.Second)
				ticks := f.ticks()
				jumps, seen, repeated := 0, make(map[time.Time]bool), 0
				for i, tick := range ticks {
					if i > 0 && tick.Sub(ticks[i-1]) != time.Second {
						jumps++
						if i < 30 || i > 32 {
							t.Errorf("the new time is followed at tick %d", i)
						}
					}
					if seen[tick] {
						repeated++
					}
					seen[tick] = true
				}
				if jumps != 1 || repeated < again-2 || repeated > again+2 {
					t.Errorf("%d jumps, %d ticks came again", jumps, repeated)
				}
				if last := time.Now().Add(by).Sub(ticks[len(ticks)-1]); last < 0 || last > time.Second {
					t.Errorf("the last tick was %v ago", last)
				}
				want(t, p, "the clock of Redis jumped", 1)
				want(t, p, "the new time of Redis from now on", 1)
				if by > 0 {
					want(t, p, "ticks skipped", 1)
				} else {
					want(t, p, "was in the future; it was ignored", 1)
				}
			})
		})
	}
}

// TestSmallStepBackRepeatsNothing: a clock that is set back by less than ten seconds repeats no tick.
func TestSmallStepBackRepeatsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		for range 2 {
			startFake(t, ctx, map[string]*fakeServer{"q": f}).cron(t, "e", "@every 1s", "q")
		}
		time.Sleep(20*time.Second + time.Second/2)
		f.set(func() { f.skew = -8 * time.Second })
		time.Sleep(40 * time.Second)
		gapless(t, f.ticks(), 52)
	})
}

// TestStartedDuringAnExcursion: a process that starts while the clock is wrong knows only the wrong time. That must not
// stop the entry, neither for other processes nor, when the clock is right again, for this one.
func TestStartedDuringAnExcursion(t *testing.T) {
	for _, by := range []time.Duration{24 * time.Hour, -24 * time.Hour} {
		for _, alone := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, alone %v", by, alone), func(t *testing.T) {
				bubble(t, func(t *testing.T, ctx context.Context) {
					f := newFakeServer()
					start := func(ctx context.Context) *process {
						p := startFake(t, ctx, map[string]*fakeServer{"q": f})
						p.cron(t, "e", "@every 1s", "q")
						return p
					}
					first, stop := context.WithCancel(ctx)
					start(first)
					time.Sleep(20*time.Second + time.Second/2)
					if alone {
						stop()
					}
					defer stop()
					f.set(func() { f.skew = by })
					time.Sleep(2 * time.Second)
					start(ctx)
					time.Sleep(3 * time.Second)
					f.set(func() { f.skew = 0 })
					time.Sleep(30 * time.Second)

					right := make(map[int64]int)
					begin := time.Now().Truncate(time.Second).Add(-55 * time.Second)
					for _, tick := range f.ticks() {
						if !tick.Before(begin) && tick.Before(begin.Add(time.Hour)) {
							right[tick.Unix()]++
						}
					}
					for s := range 55 {
						tick := begin.Add(time.Duration(s+1) * time.Second)
						want, least := 1, 1
						if alone && s >= 20 {
							least = 0
							if s >= 25+12 { // it has known the clock for ten seconds
								least = 1
							}
						}
						if n := right[tick.Unix()]; n < least || n > want {
							t.Errorf("tick %d was enqueued %d times", s+1, n)
						}
					}
				})
			})
		}
	}
}

// TestLastTickInTheFuture: a clock that was ahead leaves a last tick in the future. It stops an entry for at most ten
// seconds, and the log says so.
func TestLastTickInTheFuture(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		f.last["e"] = time.Now().Add(24 * time.Hour)
		p := startFake(t, ctx, map[string]*fakeServer{"q": f})
		p.cron(t, "e", "@every 1s", "q")
		time.Sleep(60*time.Second + time.Second/2)
		gapless(t, f.ticks(), 51)
		want(t, p, "is in the future; it is ignored when", 1)
		want(t, p, "was in the future; it was ignored, and replaced", 1)
	})
}

// TestSuspendIsNoJump: while the machine sleeps, the process's clock goes on. So the server's clock hasn't jumped.
func TestSuspendIsNoJump(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		asleep := func() time.Duration { // the bubble's time is Go's clock, which stops
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.skew
		}
		p := startFakeAt(t, ctx, map[string]*fakeServer{"q": f}, func() time.Time { return time.Now().Add(asleep()) })
		p.cron(t, "e", "@every 1s", "q")
		time.Sleep(20*time.Second + time.Second/2)
		f.set(func() { f.skew = time.Hour })
		time.Sleep(10 * time.Second)
		ticks := f.ticks()
		gapless(t, ticks[:20], 20)
		if first := ticks[20].Sub(ticks[19]); first < time.Hour-Grace || first > time.Hour+longestSleep {
			t.Errorf("the next tick came %v later", first)
		}
		want(t, p, "jumped", 0)
		want(t, p, "ticks skipped", 1)
	})
}

func TestReckoning(t *testing.T) {
	t.Parallel()
	base := time.Unix(1_800_000_000, 0)
	local := func(s float64) time.Time { return base.Add(time.Duration(s * float64(time.Second))) }
	type step struct {
		at, took float64 // s: when the reply came, and how long the call was
		shows    float64 // s: how far the server's clock is ahead of ours, when the reply came
		want     clockEvent
	}
	for name, steps := range map[string][]step{
		"steady":                       {{0, 0, 100, clockSteady}, {10, 0, 100, clockSteady}, {20, 0, 100.4, clockSteady}},
		"slow calls are no jumps":      {{0, 2, 98, clockSteady}, {20, 0, 100, clockSteady}, {40, 2, 98, clockSteady}, {60, 0, 100, clockSteady}},
		"drift is no jump":             {{0, 0, 0, clockSteady}, {20, 0, 0, clockSteady}, {3620, 0, 4, clockSteady}},
		"young: followed at once":      {{0, 0, 0, clockSteady}, {5, 0, 60, clockReplaced}, {6, 0, 60, clockSteady}},
		"ahead, followed":              {{0, 0, 0, clockSteady}, {10, 0, 60, clockJumped}, {19.9, 0, 60, clockSteady}, {20, 0, 60, clockFollowed}, {21, 0, 60, clockSteady}, {22, 0, 0, clockJumped}},
		"back, followed":               {{0, 0, 0, clockSteady}, {10, 0, -60, clockJumped}, {20, 0, -60, clockFollowed}},
		"and back":                     {{0, 0, 0, clockSteady}, {10, 0, 60, clockJumped}, {15, 0, 0, clockBack}, {16, 0, 0, clockSteady}},
		"from one place to another":    {{0, 0, 0, clockSteady}, {10, 0, 60, clockJumped}, {19, 0, 90, clockJumped}, {20, 0, 90, clockSteady}, {29, 0, 90, clockFollowed}},
		"a reply from before the jump": {{0, 0, 0, clockSteady}, {10, 0, 60, clockJumped}, {10.5, 1, 0, clockSteady}, {20, 0, 60, clockFollowed}},
	} {
		t.Run(name, func(t *testing.T) {
			var c reckoning
			for i, s := range steps {
				shown := local(s.at + s.shows)
				got, _ := c.take(reading{t: shown, sent: local(s.at - s.took), got: local(s.at)})
				if got != s.want {
					t.Errorf("step %d: %v, want %v", i, got, s.want)
				}
				if sum := c.now(local(s.at)).Add(-c.skew(local(s.at))); c.jumped && s.took == 0 && sum.Sub(shown).Abs() > clockStep {
					t.Errorf("step %d: the reckoning less the skew is %v off the server's clock", i, sum.Sub(shown))
				}
			}
		})
	}
}

// TestAgendaIsFair: the entry that is due first comes first. Among equals, the one that has waited longest does.
func TestAgendaIsFair(t *testing.T) {
	t.Parallel()
	base := time.Unix(1_800_000_000, 0)
	var a agenda
	add := func(name string, next, notBefore time.Duration, served int64) {
		e := &ticking{entry: &entry{name: name}, next: base.Add(next), served: served}
		if notBefore > 0 {
			e.notBefore = base.Add(notBefore)
		}
		a.push(e)
	}
	add("late registered, long waiting", 2*time.Second, 0, 1)
	add("served just now", 2*time.Second, 0, 9)
	add("due first", time.Second, 0, 10)
	add("put off", time.Second, 3*time.Second, 0)
	add("due last", 4*time.Second, 0, 0)
	for _, want := range []string{"due first", "late registered, long waiting", "served just now", "put off", "due last"} {
		if e := a.pop(); e.name != want {
			t.Errorf("%q, want %q", e.name, want)
		}
	}
	if a.first() != nil {
		t.Error("the agenda is not empty")
	}
}

var _ tickServer = (*store.Cron)(nil)

// TestLateCallAfterTheClockWentBack: a call is given up, and the clock of its ticks went back since. Its entries then
// tick by the new time.
func TestLateCallAfterTheClockWentBack(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
	defer rdb.Close()
	s := newScheduler(t, rdb)
	f := newFakeServer()
	l := newLoop(s, "q", f, newOutage(s))
	now := s.now()
	l.hear(reading{now, now, now})
	sched, err := schedule.Parse("@every 1h", time.UTC, now)
	if err != nil {
		t.Fatal(err)
	}
	e := &ticking{entry: &entry{name: "e", schedule: sched}, next: now.Add(24 * time.Hour)}
	l.calls = 1
	l.era++ // the clock had been a day ahead
	l.dissolve(&tickCall{lane: f.NewLane(), entries: []*ticking{e}})
	if at := l.agenda.first().at(); at.Sub(now) > 2*time.Hour {
		t.Errorf("the entry's next tick is in %v", at.Sub(now))
	}
}
