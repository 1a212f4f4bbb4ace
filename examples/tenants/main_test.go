package main

import (
	"context"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// lines is output without a terminal. It calls hit with each line.
type lines struct {
	strings.Builder
	hit func(line string)
}

func (l *lines) Write(p []byte) (int, error) {
	if l.hit != nil {
		l.hit(string(p))
	}
	return l.Builder.Write(p)
}

func short(out io.Writer, redisURL string) plan {
	p := standard(&screen{out: out}, redisURL)
	p.tenants, p.flood, p.lasts = 40, 200, 2*beat
	return p
}

// TestRun: a flood leaves the others their turns. No order is broken, no limit exceeded, and no key is left.
func TestRun(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	for name, url := range map[string]string{"embedded": "", "REDIS_URL": "redis://" + srv.Addr()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out lines
			r, err := short(&out, url).run(t.Context())
			if err != nil || r.problem() != nil {
				t.Fatalf("%s: %v, %v\n%s", r, err, r.problem(), &out)
			}
			if !regexp.MustCompile(`^tenants: tenants=40 flood_share=0\.\d\d fair_p99_ms=\d+ order_broken=0 over_limit=0$`).MatchString(r.String()) {
				t.Errorf("the last line is %q", r)
			}
			if r.floodShare > 0.5 || r.fairP99 <= 0 {
				t.Errorf("share %v, p99 %v", r.floodShare, r.fairP99)
			}
			if !strings.Contains(out.String(), " jobs ran; ") || strings.Contains(out.String(), "\x1b") {
				t.Errorf("want plain lines of progress:\n%q", out.String())
			}
			if url != "" {
				noKeys(t, srv)
			}
		})
	}
}

// TestFIFO: the ledger finds what goes wrong without groups.
func TestFIFO(t *testing.T) {
	t.Parallel()
	var out lines
	p := short(&out, "")
	p.fifo = true
	r, err := p.run(t.Context())
	if err != nil || r.orderBroken == 0 || r.overLimit == 0 || r.problem() == nil {
		t.Errorf("%s: %v, %v\n%s", r, err, r.problem(), &out)
	}
}

// A run ends soon after its context, and leaves no key but the registry of queues: the scheduler writes it beside its first call, and that may come to
// Redis after the run has ended.
func TestRunInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	interrupted := errors.New("interrupted by the test")
	out := lines{hit: func(line string) {
		if strings.Contains(line, "has enqueued") {
			cancel(interrupted)
		}
	}}
	srv := redistest.New(t)
	if _, err := short(&out, "redis://"+srv.Addr()).run(ctx); !errors.Is(err, interrupted) {
		t.Errorf("run = %v, want %v", err, interrupted)
	}
	noKeys(t, srv, ":queues")
}

func TestWrongFlags(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*plan){
		func(p *plan) { p.tenants = 19 }, func(p *plan) { p.flood = 0 }, func(p *plan) { p.lasts = beat },
	} {
		p := short(io.Discard, "")
		change(&p)
		if _, err := p.run(t.Context()); err == nil {
			t.Errorf("%+v is no error", p)
		}
	}
	if _, err := short(io.Discard, "ftp://user:secret@127.0.0.1").run(t.Context()); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a wrong URL: %v", err)
	}
}

func TestLedger(t *testing.T) {
	t.Parallel()
	l := newLedger(20)
	flood := make([]Task, limit+1)
	for i := range flood {
		flood[i].Number = i
	}
	l.enqueue(flood)
	l.begin(flood[0])
	l.end(flood[0], true) // nobody else has work
	l.enqueue([]Task{{1, 0}, {9, 0}, {9, 1}})
	for _, in := range flood[1:] {
		l.begin(in)
	}
	l.end(flood[1], true) // counts: others wait
	l.begin(Task{9, 0})
	l.begin(Task{1, 0})
	l.end(Task{1, 0}, true)  // the second job of tenant 9 waits for the first
	l.end(Task{9, 0}, false) // a retry follows
	l.end(flood[2], true)    // counts: tenant 9 might run a job
	l.begin(Task{9, 0})
	l.end(Task{9, 0}, true)
	l.begin(Task{9, 1})
	for _, in := range flood[3:] {
		l.end(in, true)
	}
	l.close()
	select {
	case <-l.done:
		t.Error("done before all jobs have ended")
	default:
	}
	l.end(Task{9, 1}, true)
	<-l.done
	r := l.result()
	if r.floodShare != 1 || l.sums.ends != 2 || len(l.sums.waits) != 3 || r.problem() != nil {
		t.Errorf("%+v, %+v", r, l.sums)
	}

	l.enqueue([]Task{{9, 2}, {9, 3}})
	l.begin(Task{9, 3})
	l.begin(Task{9, 2})
	if l.sums.orderBroken != 1 || l.sums.overLimit != 1 || l.result().problem() == nil {
		t.Errorf("%+v", l.sums)
	}
}

func TestP99(t *testing.T) {
	t.Parallel()
	waits := make([]time.Duration, 200)
	for i := range waits {
		waits[i] = time.Duration(200-i) * time.Millisecond
	}
	if got := p99(waits); got != 198*time.Millisecond {
		t.Errorf("p99 = %v, want 198ms", got)
	}
	if got := millis(1500 * time.Microsecond); got != 2 {
		t.Errorf("1.5 ms are %d ms", got)
	}
}

func TestPicture(t *testing.T) {
	t.Parallel()
	l := newLedger(40)
	l.enqueue([]Task{{0, 0}, {0, 1}, {1, 0}, {2, 0}, {2, 1}, {35, 0}})
	l.begin(Task{0, 0})
	l.begin(Task{1, 0})
	want := `  2.5s  0 of 6 jobs ran; of tenant 0 1 wait and 1 run, of the others 3 wait; p99 of their waits: N ms
  tenant 0  ##############################.............................. 1
  the others: how many jobs of each wait, or '*' if its jobs run, '.' if it has none
             * 2 . . . . . . . . . . . . . . . . . . . . . . . . . . . . . . .
             . 1 . . . .
`
	got := regexp.MustCompile(`\d+ ms`).ReplaceAllString(l.picture(2500*time.Millisecond), "N ms")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// A picture on a terminal stands where the one before it was.
	var out strings.Builder
	(&screen{out: &out, terminal: true}).show(l)()
	if !strings.HasPrefix(out.String(), "\r\x1b[K") || strings.Count(out.String(), "\n") != 5 {
		t.Errorf("%q", out.String())
	}
	if got := over(2, "a\nb\n"); got != "\x1b[2A\r\x1b[Ka\n\x1b[Kb\n\x1b[K" {
		t.Errorf("%q", got)
	}
}

// noKeys fails the test if a run left a key in a server, but for those whose names end in one of but.
func noKeys(t *testing.T, srv *redistest.Server, but ...string) {
	t.Helper()
	keys, err := srv.Client().Keys(context.Background(), "*").Result()
	keys = slices.DeleteFunc(keys, func(key string) bool {
		return slices.ContainsFunc(but, func(end string) bool { return strings.HasSuffix(key, end) })
	})
	if err != nil || len(keys) > 0 {
		t.Errorf("left in Redis: %q, %v", keys, err)
	}
}
