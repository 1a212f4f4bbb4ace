package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// envProgram is set if the test binary must act as the program.
const envProgram = "ITEMS_TEST_PROGRAM"

// TestMain is also the main function of the processes that the tests start.
func TestMain(m *testing.M) {
	if isChild() || os.Getenv(envProgram) != "" {
		main()
		return
	}
	redistest.Main(m)
}

// program returns the whole program as a process.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), envProgram+"=1", envRedis+"=")
	return cmd
}

// buffer is an output that can be watched.
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

// runOn runs the program on a Redis. It checks the output, and that nothing is left.
func runOn(t *testing.T, c choices, url string) summary {
	t.Helper()
	var out buffer
	sum, err := run(t.Context(), c, url, &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if err := sum.problem(); err != nil {
		t.Errorf("%v\n%s%s", err, &out, sum)
	}
	if n := strings.Count(out.String(), "\n  server "); n != servers {
		t.Errorf("%d answers are shown, want %d:\n%s", n, servers, &out)
	}
	nothingLeft(t, url, out.String())
	return sum
}

// nothingLeft fails the test if the run with this output left a process or a key.
func nothingLeft(t *testing.T, url, output string) {
	t.Helper()
	for _, addr := range regexp.MustCompile(`127\.0\.0\.1:\d+`).FindAllString(output, -1) {
		redistest.Eventually(t, func() bool { return refuses(addr) }, "nobody listens on %s", addr)
	}
	if url == "" {
		return
	}
	prefix := regexp.MustCompile(`\{items-\w+\}`).FindString(output)
	if prefix == "" {
		t.Fatalf("the keys are not named:\n%s", output)
	}
	keys, err := redistest.Start(t).Client().Keys(context.Background(), "*"+prefix+"*").Result()
	if err != nil || len(keys) > 0 {
		t.Errorf("left in Redis: %q, %v", keys, err)
	}
}

func refuses(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return true
	}
	_ = conn.Close()
	return false
}

// Without a lock, or with the naive one, too many items are created. That depends on the time
// that the work and the calls take. So it may need a few runs.
func TestRace(t *testing.T) {
	t.Parallel()
	for _, lock := range []string{"none", "naive"} {
		t.Run(lock, func(t *testing.T) {
			t.Parallel()
			for range 10 {
				sum := runOn(t, choices{lock: lock}, "")
				if sum.created > limit {
					return
				}
				t.Log("no race:", sum)
			}
			t.Error("no race in any run")
		})
	}
}

func TestSingle(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"embedded": "", "REDIS_URL": "redis://" + redistest.Start(t).Addr()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sum := runOn(t, choices{lock: "single"}, url)
			if line, want := sum.String(), "items: lock=single created=3 rejected=2 limit=3"; line != want {
				t.Errorf("last line %q, want %q", line, want)
			}
		})
	}
}

// Redlock works with two of five masters killed. With three killed it returns an error in
// time.
func TestRedlock(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	if !srv.Real() {
		t.Skip("needs a real redis-server: none on the PATH, or " + redistest.Env + "=embedded")
	}
	for name, c := range map[string]struct {
		kill int
		want string
	}{
		"all":        {0, "items: lock=redlock created=3 rejected=2 limit=3"},
		"two killed": {2, "items: lock=redlock created=3 rejected=2 limit=3"},
		"no quorum":  {3, "items: lock=redlock created=0 rejected=0 unavailable=5 limit=3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sum := runOn(t, choices{lock: "redlock", masters: 5, kill: c.kill}, "redis://"+srv.Addr())
			if line := sum.String(); line != c.want {
				t.Errorf("last line %q, want %q", line, c.want)
			}
		})
	}
}

// A run ends soon after its context, and leaves no process and no key.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	url := "redis://" + redistest.Start(t).Addr()
	for _, at := range []string{"items: lock", "servers, on", "  server 1"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		interrupted := errors.New("interrupted by the test")
		out := buffer{hit: func(line string) {
			if strings.Contains(line, at) {
				cancel(interrupted)
			}
		}}
		if _, err := run(ctx, choices{lock: "single"}, url, &out); !errors.Is(err, interrupted) {
			t.Errorf("at %q: run = %v, want %v", at, err, interrupted)
		}
		cancel(nil)
		nothingLeft(t, url, out.String())
	}
}

func TestWithoutRedis(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"redis://user:secret word@127.0.0.1:1", "ftp://user:secret@127.0.0.1:1", "redis://user:secret@127.0.0.1:1/0?max_retries=-1"} {
		var out buffer
		_, err := run(t.Context(), choices{lock: "single"}, url, &out)
		if err == nil || strings.Contains(err.Error()+out.String(), "secret") {
			t.Errorf("run on %q = %v, %q", url, err, &out)
		}
	}
}

// A server must not outlive its parent, even if the parent is killed.
func TestServerEndsWithItsParent(t *testing.T) {
	t.Parallel()
	cmd := program(t)
	cmd.Env = settings{redisURL: "redis://" + redistest.Start(t).Addr(), lock: "single", prefix: redistest.Name(t)}.environ()
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	url, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Errorf("it says it serves on %q, %v", url, err)
	}
	if err := errors.Join(stdin.Close(), cmd.Wait()); err != nil {
		t.Error(err)
	}
}

// Scripts depend on the exit status and the output.
func TestExit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args   []string
		env    string
		status int
		stdout string // its end
		stderr string // part of it
	}{
		"single":         {[]string{"-lock", "single"}, "", 0, "\nitems: lock=single created=3 rejected=2 limit=3\n", ""},
		"help":           {[]string{"-h"}, "", 0, "", "-lock which"},
		"unknown lock":   {[]string{"-lock", "two"}, "", 2, "", "want one of none, naive, single, redlock"},
		"argument":       {[]string{"single"}, "", 2, "", "single"},
		"few masters":    {[]string{"-lock", "redlock", "-masters", "2"}, "", 2, "", "-masters=2"},
		"many killed":    {[]string{"-lock", "redlock", "-kill", "6"}, "", 2, "", "want 0 to 5"},
		"without use":    {[]string{"-lock", "naive", "-kill", "1"}, "", 2, "", "-kill is for -lock=redlock only"},
		"unknown flag":   {[]string{"-unlock"}, "", 2, "", "Usage"},
		"no redis":       {[]string{"-lock", "redlock"}, "PATH=", 1, "", "redis-server must be on the PATH"},
		"store is no db": {[]string{"-lock", "single"}, envRedis + "=redis://127.0.0.1:1", 1, "", "the store does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			cmd := program(t, c.args...)
			cmd.Env = append(cmd.Env, c.env)
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Run(); cmd.ProcessState == nil {
				t.Fatal(err)
			}
			if status := cmd.ProcessState.ExitCode(); status != c.status {
				t.Errorf("exit status %d, want %d", status, c.status)
			}
			if !strings.HasSuffix(stdout.String(), c.stdout) || !strings.Contains(stderr.String(), c.stderr) {
				t.Errorf("want %q and %q in:\n%s\n%s", c.stdout, c.stderr, &stdout, &stderr)
			}
		})
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	redlock := choices{lock: "redlock", masters: 5}
	for name, c := range map[string]struct {
		sum  summary
		line string
		ok   bool
	}{
		"race":          {summary{choices: choices{lock: "none"}, created: 5, stored: 5}, "items: lock=none created=5 rejected=0 limit=3", true},
		"lucky":         {summary{choices: choices{lock: "naive"}, created: 3, rejected: 2, stored: 3}, "items: lock=naive created=3 rejected=2 limit=3", true},
		"no lock":       {summary{choices: choices{lock: "single"}, created: 4, rejected: 1, stored: 4}, "items: lock=single created=4 rejected=1 limit=3", false},
		"not there":     {summary{choices: redlock, created: 3, rejected: 2, stored: 2}, "items: lock=redlock created=3 rejected=2 limit=3", false},
		"broken":        {summary{choices: choices{lock: "none"}, created: 4, other: 1, stored: 4}, "items: lock=none created=4 rejected=0 limit=3", false},
		"one without":   {summary{choices: redlock, created: 3, rejected: 1, unavailable: 1, stored: 3}, "items: lock=redlock created=3 rejected=1 unavailable=1 limit=3", false},
		"none of seven": {summary{choices: choices{lock: "redlock", masters: 7, kill: 4}, unavailable: 5}, "items: lock=redlock created=0 rejected=0 unavailable=5 limit=3", true},
		"three of six":  {summary{choices: choices{lock: "redlock", masters: 6, kill: 3}, created: 3, rejected: 2, stored: 3}, "items: lock=redlock created=3 rejected=2 limit=3", false},
	} {
		if line := c.sum.String(); line != c.line {
			t.Errorf("%s: %q, want %q", name, line, c.line)
		}
		if err := c.sum.problem(); (err == nil) != c.ok {
			t.Errorf("%s: problem = %v", name, err)
		}
	}
}

// A client's mistake and a lock that is refused have their own replies.
func TestService(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr()})
	defer rdb.Close()
	key := redistest.Name(t)
	defer rdb.Del(t.Context(), key)
	open := func(ctx context.Context, fn func(context.Context) error) error { return fn(ctx) }
	shut := func(context.Context, func(context.Context) error) error { return errors.New("no lock today") }
	for _, c := range []struct {
		guard        guard
		method, body string
		status       int
		answer       string
	}{
		{open, "POST", `{"name":"a"}`, 201, `{"items":["a"],"total":1}` + "\n"},
		{open, "POST", `{"name":"b"}`, 201, `{"items":["a","b"],"total":2}` + "\n"},
		{shut, "POST", `{"name":"c"}`, 503, `{"detail":"The lock can't be had: no lock today"}` + "\n"},
		{open, "POST", `{"name":"c"}`, 201, `{"items":["a","b","c"],"total":3}` + "\n"},
		{open, "POST", `{"name":"d"}`, 400, `{"detail":"Cannot create more than 3 items."}` + "\n"},
		{open, "POST", `{}`, 422, `{"detail":"want an item with a name"}` + "\n"},
		{open, "POST", `a`, 422, `{"detail":"want an item with a name"}` + "\n"},
		{open, "GET", ``, 405, "Method Not Allowed\n"},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), c.method, "/items", strings.NewReader(c.body))
		(&service{store{rdb, key}, c.guard}).handler().ServeHTTP(w, r)
		body, err := io.ReadAll(w.Result().Body)
		if err != nil || w.Code != c.status || string(body) != c.answer {
			t.Errorf("%s %s: %d %s, %v; want %d %s", c.method, c.body, w.Code, body, err, c.status, c.answer)
		}
	}
}
