package redlock

import (
	"errors"
	"testing"

	"github.com/signalbox-go/signalbox/lock"
)

// The nodes tell that a lock is held, also when they are out of memory.
func TestRedlockHeldUnderOOM(t *testing.T) {
	t.Parallel()
	servers := masters(t, 3)
	r := redlockOn(t, servers, roomy)
	l, err := r.TryAcquire(t.Context(), "held")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range servers {
		do(t, s.Client(), "CONFIG", "SET", "maxmemory", "1")
	}
	if _, err := redlockOn(t, servers, roomy).TryAcquire(t.Context(), "held"); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("held: %v", err)
	}
	if _, err := r.TryAcquire(t.Context(), "free"); err == nil || errors.Is(err, lock.ErrHeld) {
		t.Errorf("free: %v", err)
	}
	release(t, l)
}
