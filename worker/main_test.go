package worker_test

import (
	"flag"
	"os"
	"testing"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// long runs the measurements that take their time.
var long = flag.Bool("long", false, "also run the tests that watch an idle worker for half a minute")

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(beChild()) // this process was started by a test
	}
	flag.Parse()
	parallel := false
	flag.Visit(func(f *flag.Flag) { parallel = parallel || f.Name == "test.parallel" })
	if !parallel {
		// These tests wait for leases to end more than they compute.
		_ = flag.Set("test.parallel", "8")
	}
	redistest.Main(m)
}
