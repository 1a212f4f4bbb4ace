package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

// A glass is a model of top whose looks are answered by the test.
type glass struct {
	*topModel
	t     *testing.T
	clock time.Time
	looks []topView // that were asked for
}

func newGlass(t *testing.T, width, height int) *glass {
	g := &glass{t: t, clock: time.Date(2026, 1, 31, 3, 0, 0, 0, time.UTC)}
	g.topModel = newTopModel(func(_ context.Context, v topView) (*topData, error) {
		g.looks = append(g.looks, v)
		return madeTop(g.clock), nil
	}, time.Second, "default at localhost:6379", func() time.Time { return g.clock })
	g.Update(tea.WindowSizeMsg{Width: width, Height: height})
	return g
}

// sees has a look begin, and end with what it found. The look takes so long.
func (g *glass) sees(took time.Duration, data *topData, err error) {
	g.t.Helper()
	view := g.view
	if g.look() == nil {
		g.t.Fatal("a look is under way")
	}
	g.clock = g.clock.Add(took)
	g.Update(topLook{view, data, err})
}

// press presses keys. Looks that they begin are made.
func (g *glass) press(keys ...string) {
	g.t.Helper()
	named := map[string]rune{
		"tab": tea.KeyTab, "up": tea.KeyUp, "down": tea.KeyDown, "pgup": tea.KeyPgUp, "pgdown": tea.KeyPgDown, "home": tea.KeyHome, "end": tea.KeyEnd,
		"space": tea.KeySpace,
	}
	for _, k := range keys {
		msg := tea.KeyPressMsg{Code: []rune(k)[0], Text: k}
		if code, ok := named[strings.TrimPrefix(k, "shift+")]; ok {
			msg = tea.KeyPressMsg{Code: code}
			if strings.HasPrefix(k, "shift+") {
				msg.Mod = tea.ModShift
			}
		}
		if _, cmd := g.Update(msg); cmd != nil {
			g.Update(cmd())
		}
	}
}

var escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

// text is what is on the screen.
func (g *glass) text() string { return escapes.ReplaceAllString(g.View().Content, "") }

// shows checks that the screen has all of these texts.
func (g *glass) shows(parts ...string) {
	g.t.Helper()
	for _, p := range parts {
		if text := g.text(); !strings.Contains(text, p) {
			g.t.Errorf("%q is not in\n%s", p, text)
		}
	}
}

// madeTop is a state of some queues, workers and jobs.
func madeTop(now time.Time) *topData {
	d := &topData{at: now, rates: map[string]rate{"mail": {known: true, in: 12.4, done: 3.25, failed: 0.01, trend: []float64{1, 2, 3}}}}
	d.queues = []inspect.Queue{
		{Name: "mail", Ready: 7, Running: 2, Dead: 3, Oldest: 3 * time.Minute, Workers: []string{"w1"}},
		{Name: "a-queue-with-a-rather-long-name", Ready: 1234567, Scheduled: 1234567, Dead: 1, Paused: true, Slots: 5},
	}
	held := []inspect.RunningJob{
		{Queue: "mail", ID: "order-17", Kind: "email.welcome", Since: now.Add(-time.Hour), Stuck: &inspect.Stuck{Since: now}, Progress: &inspect.Progress{Done: 412, Total: 1000, Note: "rows"}},
		{Queue: "mail", ID: "order-18", Kind: "email.digest", Since: now.Add(-time.Minute), Cancelling: true},
	}
	d.workers = []inspect.Worker{
		{ID: "w1", Sessions: []inspect.Session{{Queue: "mail", Left: 20 * time.Second}}, Running: held},
		{ID: "w2", Quiet: true, Sessions: []inspect.Session{{Queue: "mail", Left: -time.Second}}},
	}
	for i := range 60 {
		d.dead = append(d.dead, inspect.Job{
			Queue: "mail", ID: fmt.Sprintf("order-%02d", i), Kind: "email.welcome", EndedAt: now.Add(-time.Duration(i) * time.Minute), Failed: 1, MaxAttempts: 25,
			LastError: "smtp: 451 期限切れ\n\x1b[31mtry again later", Payload: []byte("a secret"),
		})
	}
	return d
}

// The screen is as high as the terminal, and never wider, in each view.
func TestTopFits(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{20, 6}, {40, 10}, {60, 20}, {80, 24}, {120, 30}, {200, 50}} {
		for v := range topViews {
			for _, with := range []string{"", "help", "error", "error in part"} {
				g := newGlass(t, size[0], size[1])
				g.view, g.help = v, with == "help"
				g.sees(0, madeTop(g.clock), nil)
				switch with {
				case "error":
					g.sees(0, nil, errors.New(strings.Repeat("away ", 100)))
				case "error in part":
					g.sees(0, madeTop(g.clock), errors.New(strings.Repeat("away ", 100)))
				}
				text := g.text()
				lines := strings.Split(text, "\n")
				if len(lines) != size[1] {
					t.Errorf("%v, %s %s: %d lines", size, topNames[v], with, len(lines))
				}
				for _, line := range lines {
					// The names of the views, and a table with nothing left to drop, may be cut by the terminal.
					if cells(line) > size[0] && size[0] >= 40 {
						t.Errorf("%v, %s %s: %d cells: %s", size, topNames[v], with, cells(line), line)
					}
				}
				if strings.Contains(text, "secret") || strings.Contains(text, "\x1b") {
					t.Errorf("%v, %s %s: %s", size, topNames[v], with, text)
				}
			}
		}
	}
}

// What each view shows, and the keys.
func TestTopViews(t *testing.T) {
	t.Parallel()
	g := newGlass(t, 160, 24)
	g.shows("looking ...")
	g.sees(0, madeTop(g.clock), nil)
	g.shows("2 queues, 1 paused: 1234574 ready, the oldest for 3m, 2 running, 4 dead, 1234567 scheduled", "DONE/S", "3.2", "0.1", "▄▆█", "03:00:00Z every 1s", "sorted by name", "[1] queues  [2] workers  [3] running  [4] dead")
	queues := func(first string) {
		t.Helper()
		if line := strings.Split(g.text(), "\n")[4]; !strings.HasPrefix(line, first) {
			t.Errorf("the first queue: %s, want %s", line, first)
		}
	}
	queues("a-queue")
	g.press("r")
	queues("mail")
	g.shows("sorted by name, turned")
	g.press("s")
	queues("a-queue")
	g.shows("sorted by ready")
	g.press("s", "s")
	queues("mail")
	g.shows("sorted by dead")
	g.press("S", "S", "S", "S")
	g.shows("sorted by fail/s")
	g.press("2")
	g.shows("2 workers, 2 jobs running, 1 quiet, 1 stuck", "w1      active        2      1       1h    20s  mail", "w2      quiet         0      0        -    -1s  mail")
	g.press("tab")
	g.shows("order-17  email.welcome  stuck        1h  412/1000 41% rows  w1", "order-18  email.digest   cancelling   1m  -                  w1")
	g.press("tab")
	g.shows("4 jobs dead; the latest 60", "order-00  email.welcome  0ms ago    1/25  smtp: 451", "sorted by latest; 1 to 19 of 60")
	g.press("down", "down", "pgdown")
	g.shows("22 to 40 of 60")
	g.press("end")
	g.shows("42 to 60 of 60", "order-59")
	g.press("up")
	g.shows("41 to 59 of 60")
	g.Update(tea.WindowSizeMsg{Width: 100, Height: 70})
	g.shows("order-00", "order-59")
	g.Update(tea.WindowSizeMsg{Width: 100, Height: 12})
	g.press("pgup", "home", "up")
	g.shows("1 to 7 of 60")
	g.press("?")
	g.shows("tab, shift+tab", "the next view, the one before")
	g.press("?")
	g.shows("order-00", "sorted by latest")
	g.press("?", "s") // another key does what it is for
	g.shows("order-00", "sorted by queue")
	g.press("shift+tab", "shift+tab", "shift+tab")
	g.shows("sorted by fail/s")
	want := []topView{topWorkers, topRunning, topDead, topRunning, topWorkers, topQueues}
	if !slices.Equal(g.looks, want) {
		t.Errorf("looks at %v, want %v", g.looks, want)
	}
	g.press("space")
	if len(g.looks) != len(want)+1 {
		t.Error("it doesn't look at once")
	}
	for _, key := range []tea.KeyPressMsg{{Code: 'q', Text: "q"}, {Code: 'c', Mod: tea.ModCtrl}} {
		_, cmd := g.Update(key)
		if cmd == nil {
			t.Fatalf("%s doesn't end it", key)
		}
		if _, ok := cmd().(tea.QuitMsg); !ok {
			t.Errorf("%s doesn't end it", key)
		}
	}
}

// A queue that is paused, held back or limited, or has groups that are paused, is marked, and the line above the table counts them.
func TestTopSaysWhatBlocks(t *testing.T) {
	t.Parallel()
	g := newGlass(t, 160, 24)
	data := madeTop(g.clock)
	data.queues = []inspect.Queue{
		{Name: "all", Paused: true, HeldUntil: g.clock.Add(time.Minute), Limited: true},
		{Name: "back", HeldUntil: g.clock.Add(time.Minute), Limited: true},
		{Name: "free"},
		{Name: "groups", PausedGroups: 2, HeldGroups: 3, Ready: 9, Blocked: 5, Workers: []string{"w"}},
		{Name: "most", Limited: true, PausedGroups: 1},
	}
	g.sees(0, data, nil)
	g.shows("5 queues, 1 paused, 1 held back, 1 limited, 3 groups paused, 3 held: 4 ready, 5 blocked")
	want := []struct {
		state string
		alarm level
	}{{"paused", notable}, {"held", notable}, {"active", calm}, {"active (2 groups paused, 3 held)", notable}, {"limited (1 group paused)", notable}}
	for i, row := range data.rows(topQueues, order{}) {
		if row.cells[1] != want[i].state || row.alarm != want[i].alarm {
			t.Errorf("queue %s is %q, level %d; want %q, level %d", row.cells[0], row.cells[1], row.alarm, want[i].state, want[i].alarm)
		}
		g.shows(want[i].state)
	}
	data.queues = data.queues[4:]
	if s := data.summary(topQueues); !strings.HasPrefix(s, "1 queue, 1 limited, 1 group paused: ") {
		t.Error(s)
	}
}

// Without Redis the last state stays, with its age, until Redis is back.
func TestTopWithoutRedis(t *testing.T) {
	t.Parallel()
	g := newGlass(t, 100, 20)
	g.why = (&app{}).topError
	g.sees(0, nil, &redistestError{})
	g.shows("Redis doesn't answer: it is away")
	g.sees(0, madeTop(g.clock), nil)
	g.shows("2 queues")
	g.clock = g.clock.Add(time.Minute)
	g.sees(time.Second, nil, &redistestError{})
	g.shows("Redis doesn't answer: it is away; this is 1m1s old", "mail ")
	g.sees(0, madeTop(g.clock), errors.New("inspect: queue b: WRONGTYPE"))
	g.shows("queue b: WRONGTYPE", "mail ")
	g.sees(0, madeTop(g.clock), nil)
	g.shows("2 queues, 1 paused")
	if g.look() == nil {
		t.Fatal("no look")
	}
	g.clock = g.clock.Add(topSilence)
	g.shows("Redis doesn't answer for 2s; this is 2s old", "mail ")
	if g.look() != nil {
		t.Error("it looks again while a look is under way")
	}
	// Another view waits for the look that is under way, and doesn't take what it found for its own.
	g.press("2")
	_, next := g.Update(topLook{topQueues, madeTop(g.clock), nil})
	if g.shows("looking ..."); next == nil {
		t.Fatal("it doesn't look at the view that was asked for")
	}
	g.Update(next())
	g.shows("2 workers")
}

// A redistestError looks like one of a network.
type redistestError struct{}

func (*redistestError) Error() string   { return "it is away" }
func (*redistestError) Timeout() bool   { return false }
func (*redistestError) Temporary() bool { return false }

// Looks that take long are far apart.
func TestTopIsCheap(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]time.Duration{
		0: time.Second, 100 * time.Millisecond: time.Second, time.Second: 5 * time.Second, 5 * time.Second: 25 * time.Second, 20 * time.Second: 30 * time.Second,
	} {
		g := newGlass(t, 80, 24)
		begin := g.clock
		g.sees(took, madeTop(g.clock), nil)
		if got := g.next.Sub(begin); got != want {
			t.Errorf("a look takes %v: the next one begins after %v, want %v", took, got, want)
		}
		g.clock = g.next.Add(-time.Millisecond)
		if g.Update(topTick{}); g.looking {
			t.Error("it looks too early")
		}
		g.clock = g.next
		if g.Update(topTick{}); !g.looking {
			t.Error("it doesn't look")
		}
	}
}

// Rates are means of the last ten seconds, by the clock of Redis.
func TestTopRates(t *testing.T) {
	t.Parallel()
	r := &topReader{samples: make(map[string][]inspect.Totals), trends: make(map[string][]float64)}
	at := time.Date(2026, 1, 31, 3, 0, 0, 0, time.UTC)
	sample := func(after time.Duration, in, done, retried, dead, crashed int64) rate {
		return r.rate("mail", inspect.Totals{At: at.Add(after), Counts: inspect.Counts{Enqueued: in, Completed: done, Retried: retried, Dead: dead, Crashed: crashed}})
	}
	if got := sample(0, 100, 50, 0, 0, 0); got.known {
		t.Errorf("after one look: %+v", got)
	}
	if got := sample(2*time.Second, 120, 60, 2, 2, 2); !got.known || got.in != 10 || got.done != 5 || got.failed != 3 || !slices.Equal(got.trend, []float64{5}) {
		t.Errorf("after two looks: %+v", got)
	}
	if got := sample(10*time.Second, 200, 70, 10, 5, 5); got.in != 10 || got.done != 2 || got.failed != 2 {
		t.Errorf("after ten seconds: %+v", got)
	}
	// The sample at 2 s is still needed: that at 10 s is only 3 s old.
	if got := sample(13*time.Second, 230, 82, 10, 5, 5); got.in != 10 || got.done != 2 || !slices.Equal(got.trend, []float64{5, 1.25, 4}) {
		t.Errorf("after thirteen seconds: %+v", got)
	}
	for what, got := range map[string]rate{
		"counters that fell": sample(14*time.Second, 1, 0, 0, 0, 0), "a clock that was set back": sample(12*time.Second, 2, 0, 0, 0, 0),
	} {
		if got.known || len(got.trend) > 0 {
			t.Errorf("after %s: %+v", what, got)
		}
	}
	for i := range 100 {
		sample(time.Duration(20+i)*time.Second, int64(10+i), 0, 0, 0, 0)
	}
	if n, trend := len(r.samples["mail"]), len(r.trends["mail"]); n > 12 || trend != trendLen {
		t.Errorf("it keeps %d samples and a trend of %d", n, trend)
	}
}

// A look at a real queue shows what is there, by few calls.
func TestTopLooks(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	for _, do := range []string{"die", "die", "hold"} {
		sh.ok("enqueue", "email.welcome", `{"do":"`+do+`"}`, "-q", "mail", "--id", do+fmt.Sprint(time.Now().UnixNano()), "--max-attempts", "1")
	}
	sh.ok("enqueue", "report", "{}", "-q", "reports", "--after", "1h")
	p := sh.works(srv)
	<-p.started
	sh.settled(2, 0)

	rdb := srv.Client()
	counts := &counting{}
	rdb.AddHook(counts)
	ins, err := inspect.New(rdb, inspect.Config{Namespace: sh.namespace})
	if err != nil {
		t.Fatal(err)
	}
	r := &topReader{ins: ins, clock: func(ctx context.Context) time.Time { now, _ := rdb.Time(ctx).Result(); return now }, patience: time.Minute}
	look := func(view topView) *topData {
		t.Helper()
		d, err := r.read(t.Context(), view)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for view, most := range map[topView]int64{
		topQueues:  1 + 2*6,         // docs/cli.md says so
		topWorkers: 1 + 2*4 + 4 + 1, // of the queues, the session, the clock
		topDead:    1 + 2*4 + 2 + 1,
	} {
		look(view) // Redis doesn't know the scripts before
		counts.n.Store(0)
		look(view)
		if n := counts.n.Load(); n > most {
			t.Errorf("a look at %s makes %d calls, want %d at most", topNames[view], n, most)
		}
	}
	d := look(topQueues)
	if len(d.queues) != 2 || d.queues[0].Dead != 2 || d.queues[0].Running != 1 || !d.rates["mail"].known || d.rates["mail"].in != 0 {
		t.Errorf("%+v", d)
	}
	if d = look(topRunning); len(d.rows(topRunning, order{})) != 1 {
		t.Errorf("%+v", d)
	}
	d = look(topDead)
	if len(d.dead) != 2 || d.dead[0].EndedAt.Before(d.dead[1].EndedAt) || !strings.Contains(d.dead[0].LastError, "451") {
		t.Errorf("%+v", d)
	}
	r.queues = []string{"reports"}
	if d = look(topQueues); len(d.queues) != 1 {
		t.Errorf("of one queue: %+v", d.queues)
	}
	if d = look(topWorkers); len(d.workers) != 0 {
		t.Errorf("of one queue: %+v", d.workers)
	}

	// In a terminal, and without one.
	sh.terminal, sh.width, sh.in = true, 80, "q"
	if out := sh.ok("top"); !strings.Contains(out, "signalbox top") {
		t.Errorf("%q", out)
	}
	sh.terminal, sh.width, sh.in = false, 0, ""
	for _, bad := range [][]string{{"top"}, {"top", "-o", "json"}, {"top", "--once", "--every", "1ms"}} {
		sh.fails(exitUsage, nil, bad...)
	}
	sh.fails(exitNotFound, []string{"no such queue"}, "top", "--once", "mial")
	out := sh.ok("top", "--once", "--every", "200ms")
	for _, part := range []string{"2 queues: 0 ready, 1 running, 2 dead, 1 scheduled", "1 worker, 1 job running", p.w.ID(), "2 jobs dead", "smtp: 451"} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is not in\n%s", part, out)
		}
	}
	if strings.Contains(out, `"do"`) || strings.Contains(out, "\x1b") {
		t.Errorf("it prints arguments, or what moves the cursor:\n%s", out)
	}
}

// counting counts the commands of a client.
type counting struct{ n atomic.Int64 }

func (c *counting) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c *counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

func (c *counting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmds)
	}
}
