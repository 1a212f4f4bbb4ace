package lock

import (
	"context"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

func TestMain(m *testing.M) {
	if os.Getenv(pauseEnv) != "" {
		pausedChild()
		os.Exit(0)
	}
	redistest.Main(m)
}

// fakeRedis runs no scripts but a function, so that it can be used where time is not
// real, and can answer what no Redis would.
type fakeRedis struct {
	redis.Scripter
	run func(script *redis.Script, args []any) (any, error)
}

func (f fakeRedis) EvalSha(_ context.Context, sha string, _ []string, args ...any) *redis.Cmd {
	for _, s := range []*redis.Script{acquireScript, extendScript, releaseScript} {
		if s.Hash() == sha {
			return redis.NewCmdResult(f.run(s, args))
		}
	}
	panic("unknown script")
}
