package worker_test

import (
	"flag"
	"os"
	"testing"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// long enables measurements that take a long time.
var long = flag.Bool("long", false, "also run the tests that watch an idle worker for half a minute")

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(beChild()) // this process was started by a test
	}
	redistest.Main(m)
}
