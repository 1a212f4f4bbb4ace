package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

// TestRunRefuses: at its start, Run returns an error if this Redis would lose jobs or its user
// lacks a right.
func TestRunRefuses(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	admin := srv.Client()
	ctx := context.Background()
	set := func(args ...any) {
		t.Helper()
		if err := admin.Do(ctx, args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(rdb redis.UniversalClient, want string) {
		t.Helper()
		s := newScheduler(t, rdb)
		if err := s.Cron("e", "@every 1s", note{}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(ctx)
		ended := make(chan struct{})
		var err error
		go func() {
			defer close(ended)
			err = s.Run(ctx)
		}()
		defer func() { cancel(); <-ended }()
		redistest.Eventually(t, func() bool {
			if n := admin.HLen(ctx, "signalbox:{default:default}:cron").Val(); n > 0 {
				t.Fatalf("Run enqueues ticks, want an error with %q", want)
			}
			select {
			case <-ended:
				return true
			default:
				return false
			}
		}, "Run returns")
		if !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("Run returned %v, want one with %q", err, want)
		}
	}
	set("CONFIG", "SET", "maxmemory", "100mb")
	set("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	refused(admin, "allkeys-lru")
	set("CONFIG", "SET", "maxmemory-policy", "noeviction")
	set("ACL", "SETUSER", "poor", "on", ">pw", "~*", "&*", "+@all", "-rpush")
	poor := srv.ClientWith(func(o *redis.UniversalOptions) { o.Username, o.Password = "poor", "pw" })
	refused(poor, "RPUSH")
}

// TestRunLooksAgain: after an outage, Run checks the server's configuration again.
func TestRunLooksAgain(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	p := redistest.NewProxy(t, srv.Addr())
	var log lockedBuffer
	s, err := New(p.ClientWith(noRetries), Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Cron("e", "@every 1s", note{}); err != nil {
		t.Fatal(err)
	}
	defer run(t, s)()
	admin := srv.Client()
	redistest.Eventually(t, func() bool {
		return admin.HLen(context.Background(), "signalbox:{default:default}:cron").Val() == 1
	}, "it runs")
	for _, args := range [][]any{{"CONFIG", "SET", "maxmemory", "100mb"}, {"CONFIG", "SET", "maxmemory-policy", "allkeys-lru"}} {
		if err := admin.Do(context.Background(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	p.Refuse(true)
	p.Sever()
	redistest.Eventually(t, func() bool { return strings.Contains(log.String(), "waiting for Redis") }, "it is cut off")
	p.Refuse(false)
	redistest.Eventually(t, func() bool { return strings.Contains(log.String(), "allkeys-lru") }, "the log names the policy")
}

// TestRunSaysThatRedisIsSilent: if a server accepts connections and doesn't answer, the log says
// so.
func TestRunSaysThatRedisIsSilent(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, redistest.Start(t).Addr())
	p.Pause()
	var log lockedBuffer
	s, err := New(p.ClientWith(noRetries), Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Cron("e", "0 0 1 1 *", note{}); err != nil {
		t.Fatal(err)
	}
	defer run(t, s)()
	redistest.Eventually(t, func() bool { return strings.Contains(log.String(), "Redis has not answered yet") }, "the log says so")
	p.Resume()
}
