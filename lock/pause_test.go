package lock

import "time"

// The environment variable that makes the test binary the child of the pause test.
const (
	pauseEnv = "SIGNALBOX_LOCK_TEST_PAUSE"
	pauseTTL = 500 * time.Millisecond
)

// pausedChild is what the child runs; nil where processes can't be stopped.
var pausedChild func()
