package lock

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Releases that are not repeated, since too many are due, take no room from those that come later.
func TestRepeatsAreBounded(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	r := newRedis(rdb)
	r.repeats.Store(maxRepeats - 1)
	if !r.later(time.Hour, func() {}) {
		t.Error("there is room for one, and it is refused")
	}
	for range 10 {
		if r.later(0, func() { t.Error("it runs") }) {
			t.Error("one too many is taken")
		}
	}
	r.repeats.Add(-1) // one of the others has been sent
	done := make(chan struct{})
	if !r.later(0, func() { close(done) }) {
		t.Fatal("there is room again, and it is refused")
	}
	<-done
	if n := r.repeats.Load(); n != maxRepeats-1 {
		t.Errorf("%d are due, want %d", n, maxRepeats-1)
	}
}
