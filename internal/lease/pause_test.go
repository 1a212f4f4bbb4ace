package lease

import (
	"os"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

func TestMain(m *testing.M) {
	if os.Getenv(pauseEnv) != "" {
		pausedChild()
		os.Exit(0)
	}
	redistest.Main(m)
}

// With this environment variable the test binary is the child of the pause test.
const (
	pauseEnv = "SIGNALBOX_LOCK_TEST_PAUSE"
	pauseTTL = 500 * time.Millisecond
)

// pausedChild is what the child runs; nil where processes can't be stopped.
var pausedChild func()
