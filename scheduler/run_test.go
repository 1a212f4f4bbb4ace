package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/server"
)

// A fakeServer stands for a Redis with the cron entries of one queue. It uses the time of a synctest bubble.
type fakeServer struct {
	mu            sync.Mutex
	skew          time.Duration // of its clock
	err           error         // of every call, which then isn't run
	refuse        error         // of calls for ticks, which then aren't run
	noLast        error         // of calls for the last ticks
	lose          int           // number of replies to calls for ticks that are lost
	early         int           // number of ticks that are called early at any time
	delay         time.Duration // of every call
	hold          time.Duration // how late calls for ticks come to it
	last          map[string]time.Time
	since         map[store.Plan]time.Time   // since when it counts
	inForce       map[string]string          // the plan of each entry
	newest        map[string]time.Time       // when the plan of each entry was new
	born          map[store.Plan][]time.Time // when callers said that it was new
	paused        map[string]bool            // entries
	indescribable string                     // an entry that can't be announced
	noted         error                      // of calls about entries
	told          []string                   // what such calls said of entries
	lacks         map[string]bool            // entries that must be announced
	fired         []time.Time
	names         []string        // of the entries of those ticks
	live          map[string]bool // entries of which a job is live
	cleared       []string        // entries whose jobs were to be cancelled
	payloads      []string        // of the jobs that were put in
	calls         int             // for ticks
	most          int             // the most ticks in one call
	lanes         map[*store.Lane]fakeCall
	overtake      bool        // another client makes a later call of the lane that makes the next call
	overtaken     *store.Lane // whose calls it refuses since
}

// A fakeCall is what the server has stored about a lane's last call.
type fakeCall struct {
	number int64
	fates  []store.Fate
}

func newFakeServer() *fakeServer {
	return &fakeServer{
		last: make(map[string]time.Time), paused: make(map[string]bool), lacks: make(map[string]bool), lanes: make(map[*store.Lane]fakeCall),
		newest: make(map[string]time.Time), since: make(map[store.Plan]time.Time), inForce: make(map[string]string), born: make(map[store.Plan][]time.Time),
	}
}

func (f *fakeServer) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeServer) wait(ctx context.Context) error {
	f.mu.Lock()
	delay := f.delay
	f.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return ctx.Err()
		}
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

// RegisterPlans does the same as the script, but for what the script knows of older plans: it forgets a plan that another
// one has replaced.
func (f *fakeServer) RegisterPlans(ctx context.Context, plans []store.Registration) ([]store.Planned, error) {
	if err := f.wait(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.noLast != nil {
		return nil, f.noLast
	}
	planned := make([]store.Planned, len(plans))
	for i, r := range plans {
		p := r.Plan
		f.born[p] = append(f.born[p], r.Born)
		now := time.Now().Add(f.skew)
		if _, ok := f.since[p]; !ok && !r.Set {
			f.since[p], f.inForce[p.Entry], f.newest[p.Entry] = now, p.Digest, now
		}
		if r.Set && r.Born.After(f.newest[p.Entry]) {
			if f.newest[p.Entry] = r.Born; f.inForce[p.Entry] != p.Digest {
				f.since[p], f.inForce[p.Entry] = now, p.Digest
			}
		}
		planned[i] = store.Planned{Last: f.last[p.Entry], Since: f.since[p], InForce: f.inForce[p.Entry] == p.Digest, Born: f.since[p]}
	}
	return planned, nil
}

func (f *fakeServer) NewLane() *store.Lane { return store.New(nil, "", "fake").NewLane() }

// EnqueueTicks does the same as the script.
func (f *fakeServer) EnqueueTicks(ctx context.Context, lane *store.Lane, items []store.Item, r store.Reckoning) (store.Fates, error) {
	if err := f.wait(ctx); err != nil {
		return store.Fates{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	f.most = max(f.most, len(items))
	if f.refuse != nil {
		return store.Fates{}, f.refuse
	}
	if f.overtake {
		f.overtake, f.overtaken = false, lane
	}
	if lane == f.overtaken {
		return store.Fates{}, store.ErrStale
	}
	now := time.Now().Add(f.skew)
	call := f.lanes[lane]
	if call.number != lane.Number() {
		call = fakeCall{number: lane.Number()}
		for i := range items {
			tick, entry := items[i].Tick()
			plan, late := items[i].Terms()
			fate := f.tick(store.Plan{Entry: entry, Digest: plan}, tick, now.Add(r.Skew+f.hold), r.Known, late, items[i].Overlap())
			if call.fates = append(call.fates, fate); fate.In() {
				f.payloads = append(f.payloads, items[i].Payload())
			}
		}
		f.lanes[lane] = call
	}
	if f.lose > 0 {
		f.lose--
		return store.Fates{}, errors.New("connection reset")
	}
	return store.NewFates(now, call.fates...), nil
}

func (f *fakeServer) tick(plan store.Plan, tick, now time.Time, known bool, late time.Duration, overlap store.Overlap) store.Fate {
	entry := plan.Entry
	last := f.last[entry]
	ahead := known && last.Sub(now) > store.TickAhead
	if f.early > 0 {
		f.early--
		return store.Early
	}
	switch {
	case tick.After(now):
		return store.Early
	case f.inForce[entry] != plan.Digest && f.inForce[entry] != "":
		return store.Superseded
	case !tick.After(last) && !ahead:
		return store.Taken
	case now.Sub(tick) > store.TickGrace && (now.Sub(tick) > late || !tick.After(f.since[plan])):
		return store.Late
	}
	f.last[entry] = tick
	if f.paused[entry] {
		return store.Passed
	}
	if overlap == store.OverlapSkip && f.live[entry] {
		return store.Overlapped
	}
	f.fired = append(f.fired, tick)
	f.names = append(f.names, entry)
	if ahead {
		return store.PutInAnew
	}
	return store.PutIn
}

// CancelOverlapped notes the call.
func (f *fakeServer) CancelOverlapped(ctx context.Context, entry string) (int, error) {
	if err := f.wait(ctx); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.noted != nil {
		return 0, f.noted
	}
	f.cleared = append(f.cleared, entry)
	return 1, nil
}

func (f *fakeServer) Announce(ctx context.Context, notices []store.Notice) error {
	_, err := f.tell(ctx, "announce", notices)
	return err
}

func (f *fakeServer) Remind(ctx context.Context, notices []store.Notice) ([]string, error) {
	return f.tell(ctx, "remind", notices)
}

func (f *fakeServer) tell(ctx context.Context, verb string, notices []store.Notice) (lacking []string, err error) {
	if err := f.wait(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.noted != nil {
		return nil, f.noted
	}
	text := verb
	for i := range notices {
		name := notices[i].Name()
		if verb == "announce" && name == f.indescribable {
			return nil, replyError("ERR no")
		}
		text += " " + name
		if verb == "remind" && f.lacks[name] {
			lacking = append(lacking, name)
		}
		f.lacks[name] = false
	}
	f.told = append(f.told, text)
	return lacking, nil
}

// heard returns what was said of entries since the last call.
func (f *fakeServer) heard() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	told := f.told
	f.told = nil
	return told
}

// ticks returns the ticks that were fired, by the bubble's clock.
func (f *fakeServer) ticks() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.fired)
}

// A process is a scheduler that runs against fake servers.
type process struct {
	*Scheduler
	log lockedBuffer
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

// startFakeWith is startFakeAt with a Config. If that has a logger, p.log has debug records as well.
func startFakeWith(t *testing.T, ctx context.Context, servers map[string]*fakeServer, now func() time.Time, config Config) *process {
	t.Helper()
	p := &process{}
	level := slog.LevelInfo
	if config.Logger != nil {
		level = slog.LevelDebug
	}
	config.Logger = slog.New(slog.NewTextHandler(&p.log, &slog.HandlerOptions{Level: level}))
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
	t.Cleanup(func() { rdb.Close() })
	s, err := New(rdb, config)
	if err != nil {
		t.Fatal(err)
	}
	s.now = now
	p.Scheduler = s
	s.cron.start()
	r := newRunner(s, func(queue string) tickServer { return servers[queue] })
	r.found.Store(&server.Findings{})
	s.cron.serves(r)
	go r.run(ctx)
	return p
}

func (p *process) cron(t *testing.T, name, spec, queue string, opts ...CronOption) {
	t.Helper()
	if err := p.Cron(name, spec, note{}, append(opts, Queue(queue))...); err != nil {
		t.Fatal(err)
	}
}

// gapless fails unless the ticks are n successive seconds.
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

// bubble runs f in a synctest bubble. Its processes end when f returns.
func bubble(t *testing.T, f func(t *testing.T, ctx context.Context)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		f(t, ctx)
		cancel()
		time.Sleep(2 * tickTimeout) // so that calls in flight end
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

// TestWrongClocks: a process acts by its own clock, but the server's clock decides.
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

// TestLostTickReplies: after each lost reply the same call is made again.
func TestLostTickReplies(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		config, _ := traced(t)
		reader := measured(t, &config)
		f := newFakeServer()
		f.lose = 5
		startFakeWith(t, ctx, map[string]*fakeServer{"q": f}, time.Now, config).cron(t, "e", "@every 1s", "q")
		time.Sleep(20*time.Second + time.Second/2)
		gapless(t, f.ticks(), 20)
		got := reader.counts(t, "signalbox.schedule.ticks", "signalbox.schedule.outcome")
		if want := map[string]int64{"fired": 20}; !maps.Equal(got, want) {
			t.Errorf("counted %v, want %v", got, want)
		}
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

// An outage begins with the first queue that gets no answer. It is over when every queue has an answer.
func TestOutageOfSeveralQueues(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		one, two := newFakeServer(), newFakeServer()
		p := startFake(t, ctx, map[string]*fakeServer{"one": one, "two": two})
		p.cron(t, "e1", "@every 1s", "one")
		p.cron(t, "e2", "@every 1s", "two")
		time.Sleep(5*time.Second + time.Second/2)
		fail := func(f *fakeServer, err error) {
			f.set(func() { f.err = err })
			time.Sleep(3 * time.Second)
		}
		for n := 1; n <= 2; n++ { // the second outage is independent
			fail(one, errors.New("connection refused"))
			fail(two, errors.New("connection refused"))
			fail(one, nil)
			if log := p.log.String(); strings.Count(log, "waiting for Redis") != n || strings.Count(log, "Redis is back") != n-1 {
				t.Errorf("outage %d: one queue is served again, and the other is not: %s", n, log)
			}
			fail(two, nil)
			if log := p.log.String(); strings.Count(log, "Redis is back") != n {
				t.Errorf("outage %d: want one line that says that it is over: %s", n, log)
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
		time.Sleep(5*time.Second + time.Second/2) // between two ticks
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
		if !strings.Contains(p.log.String(), "count=1000 more=true") {
			t.Errorf("log: %s", &p.log)
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

// Each lane stays in Redis for an hour. So a call for ticks uses the lane of a call that is over.
func TestLanesOfTicksAreUsedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		p := startFake(t, ctx, map[string]*fakeServer{"q": f})
		p.cron(t, "e", "@every 1s", "q")
		time.Sleep(time.Minute + time.Second/2)
		f.set(func() {
			if len(f.fired) != 60 || len(f.lanes) != 1 {
				t.Errorf("%d ticks were enqueued by %d lanes, want 60 by one", len(f.fired), len(f.lanes))
			}
		})
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
