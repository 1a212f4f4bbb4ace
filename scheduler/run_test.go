package scheduler

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/store"
)

// A fakeServer is a Redis with one cron entry per queue, in the time of a synctest bubble.
type fakeServer struct {
	mu     sync.Mutex
	skew   time.Duration // of its clock
	err    error         // of every call, which is not run
	refuse error         // of calls for ticks, which are not run
	lose   int           // replies of ticks to lose
	delay  time.Duration // of every call
	last   map[string]time.Time
	fired  []time.Time
	calls  int // for ticks
}

func newFakeServer() *fakeServer { return &fakeServer{last: make(map[string]time.Time)} }

func (f *fakeServer) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeServer) wait(ctx context.Context) error {
	f.mu.Lock()
	delay := f.delay
	f.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		return ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *fakeServer) Now(ctx context.Context) (time.Time, error) {
	if err := f.wait(ctx); err != nil {
		return time.Time{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Add(f.skew), nil
}

func (f *fakeServer) NewLane() *store.Lane { return store.New(nil, "fake").NewLane() }

func (f *fakeServer) EnqueueTick(ctx context.Context, _ *store.Lane, entry string, tick time.Time, item store.Item) (store.TickOutcome, time.Time, error) {
	if err := f.wait(ctx); err != nil {
		return "", time.Time{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.refuse != nil {
		return "", time.Time{}, f.refuse
	}
	now := time.Now().Add(f.skew)
	switch {
	case tick.After(now):
		return store.TickEarly, now, nil
	case !tick.After(f.last[entry]):
		return store.TickTaken, now, nil
	}
	f.last[entry] = tick
	f.fired = append(f.fired, tick)
	if f.lose > 0 {
		f.lose--
		return "", time.Time{}, errors.New("connection reset")
	}
	return store.TickFired, now, nil
}

// ticks returns what was fired, by the clock of the bubble.
func (f *fakeServer) ticks() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fired
}

// A process is a scheduler that runs against fake servers.
type process struct {
	*Scheduler
	log bytes.Buffer
}

func startFake(t *testing.T, ctx context.Context, servers map[string]*fakeServer) *process {
	t.Helper()
	return startFakeAt(t, ctx, servers, time.Now)
}

// startFakeAt is startFake with a clock for the process.
func startFakeAt(t *testing.T, ctx context.Context, servers map[string]*fakeServer, now func() time.Time) *process {
	t.Helper()
	return startFakeWith(t, ctx, servers, now, Config{})
}

// startFakeWith is startFakeAt with a configuration; with a logger, the log is told in full.
func startFakeWith(t *testing.T, ctx context.Context, servers map[string]*fakeServer, now func() time.Time, config Config) *process {
	t.Helper()
	p := &process{}
	level := slog.LevelInfo
	if config.Logger != nil {
		level = slog.LevelDebug
	}
	config.Logger = slog.New(slog.NewTextHandler(&p.log, &slog.HandlerOptions{Level: level}))
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { rdb.Close() })
	s, err := New(rdb, config)
	if err != nil {
		t.Fatal(err)
	}
	s.now = now
	p.Scheduler = s
	go newLoop(s, func(queue string) tickServer { return servers[queue] }).run(ctx)
	return p
}

func (p *process) cron(t *testing.T, name, spec, queue string) {
	t.Helper()
	if err := p.Cron(name, spec, note{}, Queue(queue)); err != nil {
		t.Fatal(err)
	}
}

// gapless fails unless the ticks are all seconds from the first to the last, n of them.
func gapless(t *testing.T, ticks []time.Time, n int) {
	t.Helper()
	if len(ticks) != n {
		t.Errorf("%d ticks, want %d", len(ticks), n)
	}
	for i := 1; i < len(ticks); i++ {
		if d := ticks[i].Sub(ticks[i-1]); d != time.Second {
			t.Errorf("tick %v came after %v", ticks[i], ticks[i-1])
		}
	}
}

// bubble runs f in a bubble whose processes end with it.
func bubble(t *testing.T, f func(t *testing.T, ctx context.Context)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		f(t, ctx)
		cancel()
		time.Sleep(2 * tickTimeout) // calls on their way end
	})
}

func TestTicks(t *testing.T) {
	for name, skew := range map[string]time.Duration{"right clock": 0, "server ahead": 17*time.Hour + 300*time.Millisecond, "server behind": -9 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				f := newFakeServer()
				f.skew = skew
				p := startFake(t, ctx, map[string]*fakeServer{"q": f})
				p.cron(t, "e", "@every 1s", "q")
				time.Sleep(10*time.Minute + time.Second/2)
				gapless(t, f.ticks(), 600)
				if f.calls != 600 {
					t.Errorf("%d calls for 600 ticks", f.calls)
				}
				if p.log.Len() > 0 {
					t.Errorf("log: %s", &p.log)
				}
			})
		})
	}
}

// TestWrongClocks: what drives a process is its own clock; what decides is the server's.
func TestWrongClocks(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		servers := map[string]*fakeServer{"q": f}
		base := time.Now()
		for _, rate := range []float64{1, 3, 0.4} {
			p := startFakeAt(t, ctx, servers, func() time.Time {
				return base.Add(time.Duration(rate * float64(time.Since(base)))).Add(time.Duration(rate) * time.Hour)
			})
			p.cron(t, "e", "@every 1s", "q")
		}
		for range 30 {
			time.Sleep(time.Second)
			now := time.Now()
			for _, tick := range f.ticks() {
				if tick.After(now) {
					t.Fatalf("tick %v was fired at %v", tick, now)
				}
			}
		}
		time.Sleep(time.Second / 2)
		gapless(t, f.ticks(), 30)
	})
}

func TestLostTickReplies(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		f.lose = 5
		startFake(t, ctx, map[string]*fakeServer{"q": f}).cron(t, "e", "@every 1s", "q")
		time.Sleep(20*time.Second + time.Second/2)
		gapless(t, f.ticks(), 20)
	})
}

func TestShortOutage(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		p := startFake(t, ctx, map[string]*fakeServer{"q": f})
		p.cron(t, "e", "@every 1s", "q")
		time.Sleep(5*time.Second + time.Second/2)
		f.set(func() { f.err = errors.New("connection refused") })
		time.Sleep(3 * time.Second)
		f.set(func() { f.err = nil })
		time.Sleep(10 * time.Second)
		gapless(t, f.ticks(), 18)
		for _, line := range []string{"waiting for Redis", "Redis is back"} {
			if strings.Count(p.log.String(), line) != 1 {
				t.Errorf("want %q once in the log: %s", line, &p.log)
			}
		}
	})
}

func TestLongOutage(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		f.err = errors.New("connection refused") // from the start
		p := startFake(t, ctx, map[string]*fakeServer{"q": f})
		p.cron(t, "e", "@every 1s", "q")
		time.Sleep(time.Minute)
		f.set(func() { f.err = nil })
		time.Sleep(5 * time.Second)
		before := len(f.ticks())
		f.set(func() { f.err = errors.New("connection refused") })
		time.Sleep(time.Hour)
		f.set(func() { f.err = nil })
		time.Sleep(10 * time.Second)
		ticks := f.ticks()
		gapless(t, ticks[:before], before)
		gapless(t, ticks[before:], len(ticks)-before)
		if gap := ticks[before].Sub(ticks[before-1]); gap < time.Hour-2*Grace || gap > time.Hour {
			t.Errorf("%v were skipped", gap)
		}
		if strings.Count(p.log.String(), "ticks skipped") != 1 || !strings.Contains(p.log.String(), "count=1000 more=true") {
			t.Errorf("log: %s", &p.log)
		}
	})
}

func TestServerClockSteps(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		startFake(t, ctx, map[string]*fakeServer{"q": f}).cron(t, "e", "@every 1s", "q")
		time.Sleep(10*time.Second + time.Second/2)
		f.set(func() { f.skew = -30 * time.Second })
		time.Sleep(40 * time.Second)
		gapless(t, f.ticks(), 20) // each tick once, though its time came twice
		f.set(func() { f.skew = time.Hour })
		time.Sleep(10 * time.Second)
		ticks := f.ticks()
		for i := 1; i < len(ticks); i++ {
			if !ticks[i].After(ticks[i-1]) {
				t.Errorf("tick %v came after %v", ticks[i], ticks[i-1])
			}
		}
		if last := ticks[len(ticks)-1]; time.Now().Add(time.Hour).Sub(last) > 2*time.Second {
			t.Errorf("the last tick is %v", last)
		}
	})
}

func TestSlowServerDelaysNoOther(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		slow, quick := newFakeServer(), newFakeServer()
		p := startFake(t, ctx, map[string]*fakeServer{"slow": slow, "quick": quick})
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			p.cron(t, name, "@every 1s", "slow")
		}
		p.cron(t, "q", "@every 1s", "quick")
		time.Sleep(2*time.Second + time.Second/2)
		slow.set(func() { slow.delay = time.Hour })
		time.Sleep(10 * time.Second)
		gapless(t, quick.ticks(), 12)
	})
}

func TestCronWhileRunning(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		p := startFake(t, ctx, map[string]*fakeServer{"q": f})
		time.Sleep(10*time.Second + time.Second/2)
		p.cron(t, "e", "@every 1s", "q")
		time.Sleep(10 * time.Second)
		gapless(t, f.ticks(), 10)
	})
}

func TestIdleRunIsQuiet(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		p := startFake(t, ctx, map[string]*fakeServer{"q": f})
		p.cron(t, "e", "@yearly", "q")
		time.Sleep(24 * time.Hour)
		if f.calls != 0 || p.log.Len() > 0 {
			t.Errorf("%d calls, log: %s", f.calls, &p.log)
		}
	})
}
