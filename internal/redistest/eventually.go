package redistest

import (
	"fmt"
	"testing"
	"time"
)

// patience bounds every wait of this package. It is long since a machine under load is
// slow. It costs nothing if all goes well.
const patience = 20 * time.Second

// Eventually waits until cond is true, and fails the test if that takes more than 20 s.
// It calls cond from this goroutine, at once and then every few ms. Prefer a channel if
// there is one.
func Eventually(t testing.TB, cond func() bool, msg string, args ...any) {
	t.Helper()
	if !poll(patience, cond) {
		t.Fatalf("still not so after %v: %s", patience, fmt.Sprintf(msg, args...))
	}
}

// poll calls cond until it is true or d is over. It reports whether cond was true.
func poll(d time.Duration, cond func() bool) bool {
	if cond() {
		return true
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); {
		<-tick.C
		if cond() {
			return true
		}
	}
	return false
}
