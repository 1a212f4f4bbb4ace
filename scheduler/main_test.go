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
	redistest.Main(m,
		// A client whose server was away looks for it once a second, and sees only then that it was closed.
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}
