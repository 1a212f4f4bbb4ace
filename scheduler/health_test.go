package scheduler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/health"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/server"
)

// ails fails unless the report's only problem is the one given. OK: there is none.
func ails(t *testing.T, s *Scheduler, what string, code health.Code, severity health.Severity) {
	t.Helper()
	reports(t, s.Health(), what, code, severity)
}

// reports is ails for a report.
func reports(t *testing.T, r health.Report, what string, code health.Code, severity health.Severity) {
	t.Helper()
	switch {
	case severity == health.OK && len(r.Problems) > 0:
		t.Errorf("%s: %+v, want no problem", what, r.Problems)
	case severity == health.OK:
	case len(r.Problems) != 1 || r.Problems[0].Code != code || r.Problems[0].Severity != severity:
		t.Errorf("%s: %+v, want %s, %v", what, r.Problems, code, severity)
	case r.Problems[0].Part != "scheduler" || r.Problems[0].Since.IsZero() || r.Problems[0].Since.After(time.Now()) || r.Problems[0].Detail == "":
		t.Errorf("%s: %+v", what, r.Problems[0])
	}
}

func redisAway() error { return errors.New("dial 10.0.0.7: no answer") }

// While Redis is away, a scheduler with cron entries isn't ready, and its ticks are overdue after a while.
func TestHealthOfCron(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		p := startFake(t, ctx, map[string]*fakeServer{"q": f})
		p.cron(t, "e", "@every 1s", "q")
		time.Sleep(time.Minute)
		ails(t, p.Scheduler, "ticks are fired", "", health.OK)
		f.set(func() { f.err = redisAway() })
		time.Sleep(cronSilentAfter / 2)
		ails(t, p.Scheduler, "Redis is away", health.RedisAway, health.Unready)
		time.Sleep(cronSilentAfter)
		if r := p.Health(); len(r.Problems) != 2 || r.Problems[0].Code != health.CronSilent || r.Problems[1].Code != health.RedisAway || !r.Live() {
			t.Errorf("a tick is overdue: %+v", r)
		}
		f.set(func() { f.err = nil })
		time.Sleep(5 * time.Second)
		ails(t, p.Scheduler, "Redis is back", "", health.OK)
	})
}

// Redis answers, and no tick is fired: the calls for ticks are refused, or the last ticks can't be read.
func TestHealthOfSilentCron(t *testing.T) {
	for name, tc := range map[string]struct {
		wrong func(f *fakeServer, err error)
		later health.Severity // when the calls of the last tick were given up
	}{
		"calls for ticks":          {func(f *fakeServer, err error) { f.refuse = err }, health.OK},
		"calls for the last ticks": {func(f *fakeServer, err error) { f.noLast = err }, health.Unready},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				f := newFakeServer()
				tc.wrong(f, errors.New("NOPERM"))
				p := startFake(t, ctx, map[string]*fakeServer{"q": f})
				p.cron(t, "e", "@every 1h", "q")
				begin := time.Now()
				time.Sleep(time.Until(begin.Truncate(time.Hour).Add(time.Hour + cronSilentAfter + 5*time.Second)))
				ails(t, p.Scheduler, "no tick", health.CronSilent, health.Unready)
				time.Sleep(30 * time.Minute) // until the next tick
				ails(t, p.Scheduler, "no tick yet", health.CronSilent, tc.later)
				f.set(func() { tc.wrong(f, nil) })
				time.Sleep(time.Hour)
				ails(t, p.Scheduler, "it is fired", "", health.OK)
			})
		})
	}
}

// A Redis without memory refuses the calls for one tick, which isn't made up for. The report forgets it soon, not only with the next tick.
func TestHealthAfterALostTick(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		p := startFake(t, ctx, map[string]*fakeServer{"q": f})
		p.cron(t, "e", "@every 24h", "q", Missed(Skip))
		time.Sleep(time.Until(time.Now().Truncate(24 * time.Hour).Add(24*time.Hour - 5*time.Second)))
		f.set(func() { f.refuse = outOfMemory })
		time.Sleep(5*time.Second + cronSilentAfter + time.Second)
		ails(t, p.Scheduler, "a tick was refused", health.CronSilent, health.Unready)
		f.set(func() { f.refuse = nil })
		time.Sleep(failureCounts)
		ails(t, p.Scheduler, "and is past", "", health.OK)
	})
}

// The report comes while a log handler takes its time.
func TestHealthWhileTheLogIsSlow(t *testing.T) {
	t.Parallel()
	slow := slowLog{Handler: slog.DiscardHandler, hit: make(chan struct{}), goOn: make(chan struct{})}
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
	defer rdb.Close()
	s, err := New(rdb, Config{Logger: slog.New(slow)})
	if err != nil {
		t.Fatal(err)
	}
	s.cron.start()
	r := newRunner(s, nil)
	r.found.Store(&server.Findings{})
	s.cron.serves(r)
	for _, step := range []struct {
		what string
		do   func()
		want int
	}{
		{"an outage begins", func() { r.outage.begin("q", time.Now(), redisAway()) }, 1},
		{"it is over", func() { r.outage.end("q", time.Now()) }, 0},
	} {
		ended, report := make(chan struct{}), make(chan health.Report, 1)
		go func() { defer close(ended); step.do() }()
		<-slow.hit
		go func() { report <- s.Health() }()
		select {
		case got := <-report:
			if len(got.Problems) != step.want {
				t.Errorf("%s: %+v, want %d problems", step.what, got, step.want)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s: there is no report while the log is slow", step.what)
		}
		slow.goOn <- struct{}{}
		<-ended
	}
}

// A slowLog says in hit that a record has come, and waits for goOn.
type slowLog struct {
	slog.Handler
	hit, goOn chan struct{}
}

func (slowLog) Enabled(context.Context, slog.Level) bool { return true }

func (l slowLog) Handle(context.Context, slog.Record) error {
	l.hit <- struct{}{}
	<-l.goOn
	return nil
}

// An entry whose ticks other processes enqueue is not silent.
func TestHealthBesideAnother(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		servers := map[string]*fakeServer{"q": newFakeServer()}
		p, other := startFake(t, ctx, servers), startFake(t, ctx, servers)
		p.cron(t, "e", "@every 1m", "q")
		other.cron(t, "e", "@every 1m", "q")
		for range 100 {
			time.Sleep(17 * time.Second)
			ails(t, p.Scheduler, "one", "", health.OK)
			ails(t, other.Scheduler, "another", "", health.OK)
		}
	})
}

// Redis's clock jumps: ticks go by the old time for a while.
func TestHealthOfAClock(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		p := startFake(t, ctx, map[string]*fakeServer{"q": f})
		p.cron(t, "e", "@every 1s", "q")
		time.Sleep(time.Minute)
		f.set(func() { f.skew = time.Hour })
		time.Sleep(clockPatience / 2)
		ails(t, p.Scheduler, "it has jumped", health.ClockStepped, health.Degraded)
		time.Sleep(2 * clockPatience)
		ails(t, p.Scheduler, "it is followed", "", health.OK)
	})
}

// A loop that does nothing for a minute takes a restart.
func TestHealthOfAStuckLoop(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		p := startFake(t, ctx, map[string]*fakeServer{"q": f})
		p.cron(t, "e", "@every 1h", "q")
		time.Sleep(time.Second)
		synctest.Wait()
		l := p.Scheduler.cron.runner.loops["q"]
		block, outcome := make(chan struct{}), make(chan struct{})
		go func() { l.done <- func() { close(outcome); <-block } }()
		<-outcome
		time.Sleep(cronBrokenAfter - 10*time.Second)
		ails(t, p.Scheduler, "for a while", "", health.OK)
		time.Sleep(10 * time.Second)
		ails(t, p.Scheduler, "for a minute", health.CronSilent, health.Broken)
		close(block)
		time.Sleep(time.Second)
		ails(t, p.Scheduler, "it goes on", "", health.OK)
	})
}

// A scheduler with entries needs Run. One that only enqueues doesn't.
func TestHealthWithoutRun(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	ails(t, s, "it only enqueues", "", health.OK)
	if err := s.Cron("e", "@every 1h", note{}, Queue(q.Name())); err != nil {
		t.Fatal(err)
	}
	ails(t, s, "it has an entry", health.NotRunning, health.Unready)
	stop := run(t, s)
	redistest.Eventually(t, func() bool { return len(s.Health().Problems) == 0 }, "it runs")
	stop()
	ails(t, s, "Run has returned", health.NotRunning, health.Unready)
}

// An enqueue that failed counts until another one succeeds.
func TestHealthOfEnqueues(t *testing.T) {
	t.Parallel()
	s, q, p := proxied(t, noRetries)
	ctx := context.Background()
	enqueue := func(ctx context.Context) error {
		_, err := s.Enqueue(ctx, note{}, Queue(q.Name()))
		return err
	}
	ails(t, s, "an enqueue has succeeded", "", health.OK)
	for name, outage := range map[string]struct{ begin, end func() }{
		"refused": {func() { p.Reply(calls, "-OOM command not allowed", 1) }, func() {}},
		"away":    {func() { p.Refuse(true); p.Sever() }, func() { p.Refuse(false) }},
	} {
		outage.begin()
		short, cancel := context.WithTimeout(ctx, time.Second)
		if err := enqueue(short); err == nil {
			t.Fatalf("%s: it was enqueued", name)
		}
		cancel()
		var report health.Report // a later one may know that Redis takes writes
		redistest.Eventually(t, func() bool { report = s.Health(); return len(report.Problems) > 0 }, "the try has failed")
		reports(t, report, name, health.EnqueueFailing, health.Unready)
		outage.end()
		if err := enqueue(ctx); err != nil {
			t.Fatal(err)
		}
		ails(t, s, name+", and over", "", health.OK)
	}
	claimAll(t, q)
}

// A process that enqueues nothing since it isn't ready becomes ready when Redis is back, and not half a minute later: a fleet would be away together for as long. That Redis answers is not
// enough: it must take writes.
func TestHealthKnowsThatRedisIsBack(t *testing.T) {
	t.Parallel()
	for name, outage := range map[string]struct{ begin, end func(p *redistest.Proxy) }{
		"away": {func(p *redistest.Proxy) { p.Refuse(true); p.Sever() }, func(p *redistest.Proxy) { p.Refuse(false) }},
		"a replica": {
			func(p *redistest.Proxy) {
				p.Reply(redistest.Any, "-READONLY You can't write against a read only replica.", -1)
			},
			func(p *redistest.Proxy) { p.Reset() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, q, p := proxied(t, noRetries)
			outage.begin(p)
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := s.Enqueue(short, note{}, Queue(q.Name())); err == nil {
				t.Fatal("it was enqueued")
			}
			redistest.Eventually(t, func() bool { return len(s.Health().Problems) > 0 }, "the try has failed")
			asked := redistest.Command("SET")
			if name != "away" {
				redistest.Eventually(t, func() bool { return p.Count(asked) > 1 }, "it asks again while Redis refuses writes")
			}
			ails(t, s, name, health.EnqueueFailing, health.Unready)
			outage.end(p)
			redistest.Eventually(t, func() bool { return len(s.Health().Problems) == 0 }, "it knows that Redis is back") // 20 s; a failure is forgotten after 30
			s.mu.RLock()
			c := s.queues[destination{queue: q.Name()}]
			s.mu.RUnlock()
			redistest.Eventually(t, func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return !c.asking
			}, "it asks no more")
		})
	}
}

// Redis takes writes, and calls of the script get no answer: the queue isn't well each time that Redis says so. After an outage it is, also after two in a row.
func TestSlowScriptsAreNoOutage(t *testing.T) {
	t.Parallel()
	s, q, p := proxied(t, func(o *redis.UniversalOptions) { o.MaxRetries, o.ReadTimeout = -1, 300*time.Millisecond })
	fail := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond) // time enough to send it
		defer cancel()
		_, err := s.Enqueue(ctx, note{}, Queue(q.Name()))
		if err == nil {
			t.Fatal("it was enqueued")
		}
		s.mu.RLock()
		c := s.queues[destination{queue: q.Name()}]
		s.mu.RUnlock()
		redistest.Eventually(t, func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return !c.fails.since.IsZero() && len(c.lanes) == len(c.idle)
		}, "the try has failed")
	}
	asked := redistest.Command("SET")
	_, free := p.HoldRequests(calls)
	fail()
	redistest.Eventually(t, func() bool { return len(s.Health().Problems) == 0 }, "it was an outage, as it seems")
	fail()
	before := p.Count(asked)
	redistest.Eventually(t, func() bool { _ = s.Health(); return p.Count(asked) > before+2 }, "Redis says that it takes writes")
	ails(t, s, "the second try has failed, and nothing has succeeded since", health.EnqueueFailing, health.Unready)

	p.Reply(redistest.Any, "-READONLY You can't write against a read only replica.", -1)
	before = p.Count(asked)
	redistest.Eventually(t, func() bool { _ = s.Health(); return p.Count(asked) > before+1 }, "Redis says that it takes none")
	p.Reset()
	free()
	redistest.Eventually(t, func() bool { return len(s.Health().Problems) == 0 }, "it was an outage after all")
}

// An error that is about the queue, or about this program, isn't over because Redis takes writes. A failure that was forgotten has nothing to do with the next one.
func TestLapse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"READONLY You can't write against a read only replica.": true, "LOADING Redis is loading": true, "OOM command not allowed": true, "ERR max number of clients reached": true,
		"NOPERM no": false, "WRONGTYPE no": false, "ERR signalbox: no": false,
	} {
		if got := unwritable(reply(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	for err, want := range map[error]bool{io.EOF: true, context.DeadlineExceeded: true, signalbox.ErrInvalid: false, fmt.Errorf("x: %w", &layout.Error{Layout: layout.Protocol + 1}): false, &layout.Error{Layout: 1}: false} {
		if got := unwritable(err); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
	hour := time.Now().Add(-time.Hour)
	f := lapse{since: hour, last: hour}
	f.note(io.EOF, time.Now())
	if f.since == hour {
		t.Error("an outage begins with one that was over an hour ago")
	}
	f = lapse{since: hour, last: time.Now().Add(-time.Second)}
	if f.note(io.EOF, time.Now()); f.since != hour {
		t.Error("an outage that lasts begins anew")
	}
	now := time.Now()
	at := func(s int) time.Time { return now.Add(time.Duration(s) * time.Hour) }
	f = lapse{}
	f.note(io.EOF, now)
	f.answered(nil, at(-1)) // before it failed
	if f.since.IsZero() {
		t.Error("an old answer ends a new failure")
	}
	f.answered(nil, at(1))
	if f.note(io.EOF, at(-1)); f.again {
		t.Error("a call that was under way during the outage is another failure")
	}
	f.answered(nil, at(2))
	f.note(io.EOF, at(3))
	f.answered(nil, at(4))
	if f.since.IsZero() {
		t.Error("a call fails while Redis takes writes, and an answer ends that")
	}
	f.note(nil, at(5))
	f.note(io.EOF, at(6))
	f.answered(nil, at(7))
	if !f.since.IsZero() {
		t.Error("the first failure after a success isn't over with an answer")
	}
}

// A failure is forgotten after 30 s without a call, and a call that hangs is one.
func TestFailureCounts(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, tc := range map[string]struct {
		fails lapse
		busy  bool
		began time.Duration // ago
		want  health.Code
	}{
		"none":                     {},
		"just now":                 {fails: lapse{since: now, last: now}, want: health.EnqueueFailing},
		"long ago":                 {fails: lapse{since: now.Add(-time.Hour), last: now.Add(-failureCounts)}},
		"long ago, and it hangs":   {fails: lapse{since: now.Add(-time.Hour), last: now.Add(-failureCounts)}, busy: true, began: enqueueHangs, want: health.EnqueueFailing},
		"a call is under way":      {busy: true, began: enqueueHangs / 2},
		"it hangs":                 {busy: true, began: enqueueHangs, want: health.EnqueueFailing},
		"an idle lane hangs never": {began: time.Hour},
		"too old":                  {fails: lapse{since: now, last: now, outdated: true}, want: health.Outdated},
	} {
		c := &combiner{queue: store.New(nil, "", "q"), fails: tc.fails, began: now.Add(-tc.began), lanes: []*lane{{}}}
		if !tc.busy {
			c.idle = c.lanes
		}
		p, ok := c.problem(now)
		if ok != (tc.want != "") || ok && (p.Code != tc.want || p.Severity != health.Unready || p.Queue != "q") {
			t.Errorf("%s: %+v, %v, want %q", name, p, ok, tc.want)
		}
	}
}

// A report has no address that an error may have.
func TestReasonIsPublic(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]string{
		redisAway(): "no answer",
		fmt.Errorf("10.0.0.7: %w", context.DeadlineExceeded):         "timeout",
		fmt.Errorf("redis at 10.0.0.7: %w", context.Canceled):        "cancelled",
		fmt.Errorf("%w: a user of 10.0.0.7", errors.New("a secret")): "no answer",
	} {
		if got := publicReason(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

// A queue whose layout this release doesn't know is told as that, and not as a Redis that fails. No call is made again.
func TestHealthOfAnotherLayout(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	rdb := srv.Client()
	for name, tc := range map[string]struct {
		layout, detail string
	}{
		"newer":               {strconv.Itoa(layout.Protocol + 1), "update this program"},
		"of an older program": {strconv.Itoa(layout.Number - 1), "end its jobs with that program"},
		"none":                {"", "set the field layout"},
	} {
		s, err := New(rdb, Config{})
		if err != nil {
			t.Fatal(err)
		}
		queue := redistest.Name(t)
		settings := "signalbox:{default:" + queue + "}:settings"
		if tc.layout != "" {
			err = rdb.HSet(t.Context(), settings, "layout", tc.layout).Err()
		} else {
			err = rdb.HSet(t.Context(), settings, "slots", "3").Err()
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Enqueue(t.Context(), note{}, Queue(queue))
		var layout *layout.Error
		if !errors.As(err, &layout) || errors.Is(err, ErrUncertain) || !strings.Contains(err.Error(), tc.detail) {
			t.Errorf("%s: the error is %v", name, err)
		}
		all := s.Health().Problems
		if len(all) != 1 || all[0].Code != health.Outdated || all[0].Severity != health.Unready || all[0].Queue != queue || !strings.Contains(all[0].Detail, tc.detail) {
			t.Errorf("%s: %+v", name, all)
		}
	}
}
