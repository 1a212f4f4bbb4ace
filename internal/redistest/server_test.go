package redistest_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

func TestStartIsShared(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	key := redistest.Name(t)
	if err := s.Client().Set(bg, key, "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	again := redistest.Start(t)
	if again.Addr() != s.Addr() || again.Client().Get(bg, key).Val() != "v" {
		t.Errorf("another server at %s beside %s", again.Addr(), s.Addr())
	}
	want := os.Getenv(redistest.Env)
	if want == "required" && !s.Real() || want == "embedded" && s.Real() {
		t.Errorf("Real() = %v with %s=%s", s.Real(), redistest.Env, want)
	}
	for name, end := range map[string]func(*redistest.Server){
		"Kill": (*redistest.Server).Kill, "Stop": (*redistest.Server).Stop, "Restart": (*redistest.Server).Restart,
	} {
		if f := watch(t, func(t testing.TB) { end(redistest.Start(t)) }); !f.fatal {
			t.Errorf("%s of the shared server was permitted", name)
		}
	}
	if err := s.Client().Ping(bg).Err(); err != nil {
		t.Error(err)
	}
}

func TestNewTakesArguments(t *testing.T) {
	t.Parallel()
	s := redistest.New(t, "--maxmemory", "50mb", "--requirepass", "secret")
	rdb := s.ClientWith(func(o *redis.UniversalOptions) { o.Password = "secret" })
	if got := rdb.ConfigGet(bg, "maxmemory").Val()["maxmemory"]; got != "52428800" {
		t.Errorf("maxmemory is %q", got)
	}
	if got := rdb.ConfigGet(bg, "bind").Val()["bind"]; got != "127.0.0.1" || !strings.HasPrefix(s.Addr(), "127.0.0.1:") {
		t.Errorf("bound to %q, at %s", got, s.Addr())
	}
	if !strings.Contains(s.Log(), "Ready to accept connections") {
		t.Errorf("the log is %q", s.Log())
	}
}

func TestNewSaysWhyNot(t *testing.T) {
	t.Parallel()
	redistest.New(t) // skips this test if there is no server
	f := watch(t, func(t testing.TB) { redistest.New(t, "--no-such-setting", "1") })
	if !f.fatal || !strings.Contains(f.said, "no-such-setting") {
		t.Errorf("a wrong argument: fatal %v, said %q", f.fatal, f.said)
	}
}

func TestKillAndRestart(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	rdb := s.Client()
	if err := rdb.Set(bg, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	pid := s.Pid()
	s.Kill()
	s.Kill() // a second call is allowed
	s.Restart()
	if s.Pid() == pid {
		t.Error("the same process")
	}
	if n, err := rdb.Exists(bg, "k").Result(); n != 0 || err != nil {
		t.Errorf("EXISTS = %d, %v: nothing is kept over SIGKILL by default", n, err)
	}
}

func TestRestartKeepsWhatWasSaved(t *testing.T) {
	t.Parallel()
	s := redistest.New(t, "--appendonly", "yes", "--appendfsync", "always")
	rdb := s.Client()
	for _, end := range []func(){s.Kill, func() {}, s.Stop} {
		if err := rdb.Incr(bg, "n").Err(); err != nil {
			t.Fatal(err)
		}
		end()
		s.Restart()
	}
	if got := rdb.Get(bg, "n").Val(); got != "3" {
		t.Errorf("%q after three restarts, want 3", got)
	}
}

func TestStopAndCont(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	rdb := s.Client()
	if err := rdb.Ping(bg).Err(); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	ctx, cancel := context.WithTimeout(bg, 50*time.Millisecond)
	defer cancel()
	if err := rdb.Ping(ctx).Err(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("PING of a stopped server: %v", err)
	}
	s.Cont()
	redistest.Eventually(t, func() bool { return rdb.Ping(bg).Err() == nil }, "the server answers again")
}

func TestName(t *testing.T) {
	t.Parallel()
	t.Run("Ünusual {name}/with\x00all sorts of things, and much too long for a key", func(t *testing.T) {
		t.Parallel()
		seen := map[string]bool{}
		for range 1000 {
			name := redistest.Name(t)
			if !regexp.MustCompile(`^testname-[a-z0-9-]{1,60}$`).MatchString(name) || strings.Contains(name, "--") {
				t.Fatalf("Name() = %q", name)
			}
			if seen[name] {
				t.Fatalf("%q twice", name)
			}
			seen[name] = true
		}
	})
}

func TestEventually(t *testing.T) {
	t.Parallel()
	n := 0
	redistest.Eventually(t, func() bool { n++; return n == 3 }, "the third call")
	if n != 3 {
		t.Errorf("%d calls after success", n)
	}
}
