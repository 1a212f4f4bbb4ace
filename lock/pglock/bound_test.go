package pglock

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// After an outage as many releases are repeated at a time as maxRepeats says, and each that ends makes room for another.
func TestRepeatsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &Locker{ttl: time.Hour}
		var away atomic.Bool
		away.Store(true)
		release := func() error {
			if away.Load() {
				return errors.New("away")
			}
			return nil
		}
		for i := range maxRepeats {
			if !p.repeat(release) {
				t.Fatalf("the release %d isn't repeated", i)
			}
		}
		if p.repeat(release) {
			t.Error("one more is repeated")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		away.Store(false)
		time.Sleep(2 * longestPause)
		synctest.Wait()
		if !p.repeat(release) {
			t.Error("those that ended made no room")
		}
		time.Sleep(2 * longestPause)
	})
}
