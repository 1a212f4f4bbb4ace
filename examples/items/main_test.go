package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/signalbox-go/signalbox/examples/internal/demo"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

// envProgram is set if the test binary must act as the program.
const envProgram = "ITEMS_TEST_PROGRAM"

// TestMain is also the main function of the processes that the tests start.
func TestMain(m *testing.M) {
	if demo.IsChild() || os.Getenv(envProgram) != "" {
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
	cmd.Env = append(os.Environ(), envProgram+"=1", "REDIS_URL=")
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
func runOn(t *testing.T, url string, args ...string) demo.Summary {
	t.Helper()
	var out buffer
	sum, err := demo.Run(t.Context(), locks, args, url, &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if err := sum.Problem(); err != nil {
		t.Errorf("%v\n%s%s", err, &out, sum)
	}
	if n := strings.Count(out.String(), "\n  server "); n != demo.Servers {
		t.Errorf("%d answers are shown, want %d:\n%s", n, demo.Servers, &out)
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
				sum := runOn(t, "", "-lock", lock)
				if sum.Created > demo.Limit {
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
			sum := runOn(t, url, "-lock", "single")
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
			sum := runOn(t, "redis://"+srv.Addr(), "-lock", "redlock", "-kill", strconv.Itoa(c.kill))
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
		if _, err := demo.Run(ctx, locks, []string{"-lock", "single"}, url, &out); !errors.Is(err, interrupted) {
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
		_, err := demo.Run(t.Context(), locks, []string{"-lock", "single"}, url, &out)
		if err == nil || strings.Contains(err.Error()+out.String(), "secret") {
			t.Errorf("run on %q = %v, %q", url, err, &out)
		}
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
		"store is no db": {[]string{"-lock", "single"}, "REDIS_URL=redis://127.0.0.1:1", 1, "", "the store does not answer"},
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
