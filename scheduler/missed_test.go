package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestMissedWhileNobodyRan: ticks pass while no process runs. The log of the next process names them, and the metric
// counts them with the next tick that is enqueued. A tick of the last seconds is enqueued late.
func TestMissedWhileNobodyRan(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		first, stop := context.WithCancel(ctx)
		p := startFake(t, first, map[string]*fakeServer{"q": f})
		p.cron(t, "e", "@every 1m", "q")
		p.cron(t, "quick", "@every 1s", "q")
		time.Sleep(2*time.Minute + time.Second/2)
		stop()
		time.Sleep(3*time.Minute + 2*time.Second) // three ticks of e pass, the last one 2 s ago
		config, _ := traced(t)
		reader := measured(t, &config)
		p = startFakeWith(t, ctx, map[string]*fakeServer{"q": f}, time.Now, config)
		p.cron(t, "e", "@every 1m", "q")
		p.cron(t, "quick", "@every 1s", "q")
		p.cron(t, "new", "@every 1m", "q")
		time.Sleep(time.Minute)
		synctest.Wait()
		want(t, p, "ticks missed: they passed while no scheduler", 2)
		want(t, p, "entry=e queue=q first=2000-01-01T00:03:00.000Z count=2 more=false", 1)
		want(t, p, "entry=quick queue=q first=2000-01-01T00:02:01.000Z count=177 more=false", 1)
		if ticks := f.of("e"); len(ticks) != 4 || ticks[2].Sub(ticks[1]) != 3*time.Minute {
			t.Errorf("ticks of e: %v", ticks)
		}
		got := reader.counts(t, "signalbox.schedule.ticks", "signalbox.schedule.outcome")
		if got["missed"] != 2+177 {
			t.Errorf("counted %v", got)
		}
	})
}

// TestMissedAreToldBriefly: if thousands of entries missed ticks, the log has a few lines, and one for all others.
func TestMissedAreToldBriefly(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		p := startFake(t, ctx, map[string]*fakeServer{"q": f})
		for i := range 500 {
			p.cron(t, fmt.Sprint("e", i), "@every 1m", "q")
		}
		time.Sleep(90 * time.Second)
		f.set(func() { f.err = errors.New("connection refused") })
		time.Sleep(10 * time.Minute)
		f.set(func() { f.err = nil })
		time.Sleep(time.Minute)
		if n := strings.Count(p.log.String(), "\n"); n > 60 {
			t.Errorf("%d lines", n)
		}
		want(t, p, "the same is so of other entries", 1)
	})
}

// TestLastTicksCannotBeRead: the log says so once. Ticks begin when the last ticks can be read.
func TestLastTicksCannotBeRead(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		f.noLast = replyError("WRONGTYPE Operation against a key holding the wrong kind of value") // set before the process asks
		p := startFake(t, ctx, map[string]*fakeServer{"q": f})
		p.cron(t, "e", "@every 1s", "q")
		time.Sleep(10*time.Second + time.Second/2)
		want(t, p, "the last ticks could not be read", 1)
		f.set(func() { f.noLast = nil })
		time.Sleep(10 * time.Second)
		if n := len(f.ticks()); n < 8 || n > 10 {
			t.Errorf("%d ticks", n)
		}
	})
}

// TestRunWasNotCalled: if Run is not called, the log warns once about the entries.
func TestRunWasNotCalled(t *testing.T) {
	for name, runs := range map[string]bool{"never": false, "in time": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				p := &process{}
				rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
				t.Cleanup(func() { rdb.Close() })
				s, err := New(rdb, Config{Logger: slog.New(slog.NewTextHandler(&p.log, nil))})
				if err != nil {
					t.Fatal(err)
				}
				p.Scheduler = s
				p.cron(t, "a", "@daily", "q")
				p.cron(t, "b", "@daily", "q")
				if runs {
					s.cron.start()
				}
				time.Sleep(time.Hour)
				n := 1
				if runs {
					n = 0
				}
				want(t, p, "Run was not called", n)
				want(t, p, "entries=2", n)
			})
		})
	}
}

// TestNobodyFiresTwice: replies are lost, calls refused, Redis and its clock fail at random moments. No tick is
// enqueued twice.
func TestNobodyFiresTwice(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		for range 3 {
			p := startFake(t, ctx, map[string]*fakeServer{"q": f})
			for i := range 20 {
				p.cron(t, fmt.Sprint("e", i), fmt.Sprintf("@every %dms", 1000+i), "q")
			}
		}
		time.Sleep(15 * time.Second)
		for i := range 40 {
			f.set(func() {
				f.lose, f.err, f.refuse, f.skew = 0, nil, nil, 0
				switch i % 5 {
				case 0:
					f.lose = 3
				case 1:
					f.err = errors.New("connection refused")
				case 2:
					f.refuse = outOfMemory
				case 3:
					f.skew = 24 * time.Hour
				case 4:
					f.skew = -24 * time.Hour
				}
			})
			time.Sleep(time.Duration(500+i*103) * time.Millisecond)
			f.set(func() { f.lose, f.err, f.refuse, f.skew = 0, nil, nil, 0 })
			time.Sleep(time.Duration(11+i) * time.Second)
		}
		seen := make(map[string]int)
		f.set(func() {
			for i, name := range f.names {
				seen[fmt.Sprint(name, f.fired[i])]++
			}
		})
		twice := maps.Collect(func(yield func(string, int) bool) {
			for k, n := range seen {
				if n > 1 && !yield(k, n) {
					return
				}
			}
		})
		if len(twice) > 0 || len(seen) < 10_000 {
			t.Errorf("%d ticks; twice: %v", len(seen), twice)
		}
	})
}

// TestLastTicksCannotBeReadAgain: the log says so each time that the failures begin.
func TestLastTicksCannotBeReadAgain(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		p := startFake(t, ctx, map[string]*fakeServer{"q": f})
		for n := range 3 {
			f.set(func() { f.noLast = outOfMemory })
			p.cron(t, fmt.Sprint("e", n), "@every 1s", "q")
			time.Sleep(5 * time.Second)
			want(t, p, "the last ticks could not be read", n+1)
			f.set(func() { f.noLast = nil })
			time.Sleep(5 * time.Second)
		}
	})
}

// TestMissedAreCountedAnew: the line for all other entries counts only the ticks of its own step.
func TestMissedAreCountedAnew(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		p := startFake(t, ctx, map[string]*fakeServer{"q": f})
		l := newLoop(p.Scheduler, "q", f, newOutage(p.Scheduler))
		for n := range 3 {
			l.missed.begin()
			for i := range maxLines + 5 {
				l.missed.add(&ticking{entry: &entry{name: fmt.Sprint("e", i)}}, time.Now(), 2, false, missedLate)
			}
			l.missed.flush()
			want(t, p, "entries=5 count=10 more=false", n+1)
		}
	})
}
