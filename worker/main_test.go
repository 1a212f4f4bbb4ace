package worker_test

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/worker"
)

// long enables measurements that take a long time.
var long = flag.Bool("long", false, "also run the tests that watch an idle worker for half a minute")

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(beChild()) // this process was started by a test
	}
	worker.HoldRoom(2 * time.Second) // a lane that waits for the processor isn't one that doesn't come
	redistest.Main(m)
}
