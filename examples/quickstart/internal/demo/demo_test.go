package demo

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// idle is an application that waits for its end.
var idle = App{
	Work:     func(ctx context.Context, p Process) error { return wait(ctx, p) },
	Schedule: func(ctx context.Context, p Process) error { return wait(ctx, p) },
	LeaseTTL: time.Second,
}

// wait returns nil when it is asked twice to end. If the address of Redis is wrong, it returns an error.
func wait(ctx context.Context, p Process) error {
	<-ctx.Done()
	<-p.Hurry.Done()
	return nil
}

// TestMain is also the main function of the processes that the tests start.
func TestMain(m *testing.M) {
	if IsChild() {
		exitOn(runChild(idle))
		return
	}
	redistest.Main(m)
}

// buffer is a screen's output that can be read meanwhile.
type buffer struct {
	mu  sync.Mutex
	b   bytes.Buffer
	hit func(line string)
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hit != nil {
		b.hit(string(p))
	}
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestRunWithoutRedis(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"redis://user:secret word@127.0.0.1:1", "ftp://user:secret@127.0.0.1:1", "redis://user:secret@127.0.0.1:1/0?max_retries=-1"} {
		var out buffer
		_, err := run(t.Context(), t.Context(), idle, &screen{out: &out}, url, false)
		if err == nil || strings.Contains(err.Error()+out.String(), "secret") {
			t.Errorf("run on %q = %v, %q", url, err, &out)
		}
	}
}

// A process must not outlive its parent, even if the parent is killed.
func TestChildEndsWithItsParent(t *testing.T) {
	t.Parallel()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"worker", "scheduler"} {
		cmd := exec.CommandContext(t.Context(), path)
		cmd.Env = settings{redisURL: "redis://127.0.0.1:1", queue: "nobody-s", endpoint: "http://127.0.0.1:1"}.environ(role, role)
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := stdin.Close(); err != nil {
			t.Error(err)
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("%s: %v, want exit status 1", role, err)
		}
	}
}

// A process is asked to end, and then asked to end at once.
func TestHurry(t *testing.T) {
	t.Parallel()
	hurry, hurryUp := context.WithCancel(t.Context())
	c := newCrew(t.Context(), hurry, settings{redisURL: "redis://127.0.0.1:1"})
	p := c.start("worker", "worker-7")
	p.cancel()
	select {
	case <-p.done:
		t.Error("the process ended before it was asked twice")
	case <-time.After(50 * time.Millisecond): // a longer wait would be more certain
	}
	hurryUp()
	<-p.done
	if !p.cmd.ProcessState.Success() {
		t.Errorf("the process ended: %v", p.cmd.ProcessState)
	}
	c.stopAll()
}

// If a process ends by itself, the run ends.
func TestCrewFails(t *testing.T) {
	t.Parallel()
	c := newCrew(t.Context(), t.Context(), settings{redisURL: "nonsense"})
	defer c.stopAll()
	c.start("worker", "worker-9")
	<-c.ctx.Done()
	if err := context.Cause(c.ctx); !strings.Contains(err.Error(), "worker-9 ended: exit status 1") {
		t.Errorf("cause = %v", err)
	}
}

func TestLedger(t *testing.T) {
	t.Parallel()
	l := newLedger()
	receive := func(r request, effect bool) {
		l.begin(r)
		l.end(r, effect)
	}
	tick := time.Unix(1_790_000_000, 0).UTC()

	receive(request{id: "a", worker: "w1", attempt: 1}, false)
	if got, want := l.counts(), (counts{refused: 1}); got != want {
		t.Errorf("refused once: %+v, want %+v", got, want)
	}
	receive(request{id: "a", worker: "w1", attempt: 2}, true)
	receive(request{id: "b", worker: "w2", attempt: 1}, true)             // then the worker dies
	receive(request{id: "b", worker: "w1", attempt: 1, crashes: 1}, true) // recovered
	for _, r := range []request{
		{id: "t1", tick: tick},
		{id: "t2", tick: tick.Add(time.Second)},
		{id: "t2", tick: tick.Add(time.Second)}, // the same job again
		{id: "t3", tick: tick.Add(time.Second)}, // another job for the same tick
		{id: "t4", tick: tick.Add(3 * time.Second)},
	} {
		r.worker, r.attempt = "w1", 1
		receive(r, true)
	}

	want := counts{delivered: 2, heartbeats: 4, refused: 1, ticks: 3, doubled: 1, retried: 1, recovered: 1, duplicated: 2}
	if got := l.counts(); got != want {
		t.Errorf("counts = %+v, want %+v", got, want)
	}
	if n := l.missedTicks(); n != 1 {
		t.Errorf("%d ticks missed, want 1", n)
	}
	l.begin(request{id: "c", worker: "w2"})
	if n := l.inFlight("w2"); n != 1 {
		t.Errorf("%d in flight, want 1", n)
	}
	if n := l.missing([]string{"a", "b", "c", "d"}); n != 2 { // the first request for c has no end
		t.Errorf("%d missing, want 2", n)
	}
	if got := l.progress(4); !strings.HasPrefix(got, "delivered 2 of 4, refused 1, retried 1, recovered 1, ticks 3") {
		t.Errorf("progress: %s", got)
	}
}

func TestEndpoint(t *testing.T) {
	t.Parallel()
	e, err := startEndpoint()
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	post := func(id string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.url+"/orders", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", "effect-of-"+id)
		req.Header.Set("X-Job", id)
		req.Header.Set("X-Worker", "w")
		req.Header.Set("X-Attempt", "1")
		req.Header.Set("X-Crashes", "0")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}

	id := 0
	for dice(strconv.Itoa(id), 5) != 0 {
		id++
	}
	if first, second := post(strconv.Itoa(id)), post(strconv.Itoa(id)); first != 503 || second != 204 {
		t.Errorf("an unlucky job's answers are %d and %d, want 503 and 204", first, second)
	}
	if status := post(""); status != 400 {
		t.Errorf("without an ID: %d, want 400", status)
	}
	if got, want := e.ledger.counts(), (counts{delivered: 1, refused: 1}); got != want {
		t.Errorf("ledger: %+v, want %+v", got, want)
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	good := Summary{counts: counts{delivered: 1000, heartbeats: 9, retried: 3, recovered: 2, ticks: 9, duplicated: 1}, slow: 1}
	if err := good.Problem(); err != nil {
		t.Errorf("problem = %v", err)
	}
	want := "quickstart: ok jobs=1009 retried=3 recovered=2 ticks=9 lost=0 duplicated=1"
	if got := good.lastLine(true); got != want {
		t.Errorf("last line %q, want %q", got, want)
	}
	for what, spoil := range map[string]func(*Summary){
		"no job was retried":        func(s *Summary) { s.retried = 0 },
		"no job was recovered":      func(s *Summary) { s.recovered = 0 },
		"the cron entry never":      func(s *Summary) { s.ticks = 0 },
		"1 jobs are not in the":     func(s *Summary) { s.lost = 1 },
		"2 ticks were enqueued twi": func(s *Summary) { s.doubled = 2 },
		"its effect 2 times":        func(s *Summary) { s.slow = 2 },
	} {
		s := good
		spoil(&s)
		if err := s.Problem(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("problem = %v, want %q", err, what)
		}
	}
	if got := good.lastLine(false); !strings.HasPrefix(got, "quickstart: failed ") {
		t.Errorf("last line %q", got)
	}
}

func TestScreen(t *testing.T) {
	t.Parallel()
	var pipe, terminal buffer
	for out, s := range map[*buffer]*screen{&pipe: {out: &pipe}, &terminal: {out: &terminal, terminal: true}} {
		s.start = time.Now()
		s.show("half")
		s.show("more")
		s.say("100%%: %s", "done")
		s.progress(func() string { return "" })()
		if strings.Contains(out.String(), "!") {
			t.Errorf("%q", out)
		}
	}
	if want := "  0.0s  half\n  0.0s  more\n100%: done\n"; pipe.String() != want {
		t.Errorf("to a pipe: %q, want %q", &pipe, want)
	}
	if want := eraseLine + "  0.0s  half" + eraseLine + "  0.0s  more" + eraseLine + "100%: done\n"; terminal.String() != want {
		t.Errorf("to a terminal: %q, want %q", &terminal, want)
	}
}
