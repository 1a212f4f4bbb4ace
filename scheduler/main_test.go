package scheduler

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

func TestMain(m *testing.M) {
	if where := os.Getenv(childEnv); where != "" {
		os.Exit(beScheduler(where))
	}
	if where := os.Getenv(importEnv); where != "" {
		os.Exit(beImport(where))
	}
	redistest.Main(m,
		// If its server was away, a client dials once a second. Only then it notices that it was closed.
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}
