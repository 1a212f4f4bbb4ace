package lock

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// fakeRedis runs no scripts but a function, so that it can be used where time is not
// real, and can answer what no Redis would.
type fakeRedis struct {
	Client
	run func(script *redis.Script, args []any) (any, error)
}

func (f fakeRedis) EvalSha(_ context.Context, sha string, _ []string, args ...any) *redis.Cmd {
	for _, s := range []*redis.Script{acquireScript, extendScript, releaseScript} {
		if s.Hash() == sha {
			return redis.NewCmdResult(f.run(s, args))
		}
	}
	return redis.NewCmdResult("", nil) // of the preflight, and of free.lua: it was not released
}

// Subscribe never succeeds.
func (f fakeRedis) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return redis.NewClient(&redis.Options{
		DialerRetries: 1, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no network") },
	}).Subscribe(ctx, channels...)
}

// bubble runs a test in a time that is not real, and in the end gives what lingers its time.
func bubble(t *testing.T, test func(t *testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		test(t)
		time.Sleep(time.Minute)
	})
}

// unheeding has the client ignore the deadlines of contexts, as go-redis does by default.
func unheeding(o *redis.UniversalOptions) { o.ContextTimeoutEnabled = false }

type valueKey struct{}

// drifted is the validity that a TTL promises.
func drifted(ttl time.Duration) time.Duration { return ttl - ttl/100 - 2*time.Millisecond }

// newRedis is New with a Config that may be left out and must be right.
func newRedis(rdb Client, c ...Config) *Redis {
	r, err := New(rdb, append(c, Config{})[0])
	if err != nil {
		panic(err)
	}
	return r
}
