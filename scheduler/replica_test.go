package scheduler

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// isReplica answers as a replica does, without a server.
type isReplica struct{}

func (isReplica) DialHook(next redis.DialHook) redis.DialHook { return next }

func (isReplica) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (isReplica) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		if info, ok := cmd.(*redis.StringCmd); ok && cmd.Name() == "info" {
			info.SetVal("redis_version:7.0.15\r\nredis_mode:standalone\r\nmaxmemory_policy:noeviction\r\nmaxmemory:0\r\naof_enabled:1\r\nrole:slave\r\n")
			return nil
		}
		cmd.SetErr(refusal("ERR unknown command"))
		return cmd.Err()
	}
}

// refusal is an error that Redis replies with.
type refusal string

func (e refusal) Error() string { return string(e) }

func (refusal) RedisError() {}

// At its start Run waits while Redis is a replica, however long that takes, and logs it. Then it ends with its context, without an error.
func TestRunWaitsForAMaster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		defer rdb.Close()
		rdb.AddHook(isReplica{})
		var log strings.Builder
		s, err := New(rdb, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Cron("e", "@every 1m", note{}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		if err := s.Run(ctx); err != nil || time.Since(start) < time.Hour {
			t.Errorf("Run returned %v after %v, want nil after its context's hour", err, time.Since(start))
		}
		if s := log.String(); !strings.Contains(s, "waiting for Redis") || !strings.Contains(s, "replica") {
			t.Errorf("the log doesn't say what Run waits for: %s", s)
		}
	})
}
