package scheduler

import (
	"bytes"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

// TestTwoVersionsOnRedis: two schedulers have different specs for one entry. Both specs tick each second. Only the newer version fires,
// until its scheduler has been gone for three minutes. Then the older one is back.
func TestTwoVersionsOnRedis(t *testing.T) {
	t.Parallel()
	srv, shift := redistest.NewWithClock(t)
	q := checked(t, srv.Client())
	var ahead atomic.Int64 // how far the clocks of all are ahead
	clock := monotonic()
	start := func(version int, spec string) (stop func()) {
		s, err := New(srv.Client(), Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		s.now = func() time.Time { return clock().Add(time.Duration(ahead.Load())) }
		if err := s.Cron("e", spec, note{version}, Queue(q.Name()), Missed(Skip)); err != nil {
			t.Fatal(err)
		}
		return run(t, s)
	}
	var fired []*signalbox.Job
	of := func(version int) int {
		fired = append(fired, claimAll(t, q)...)
		n := 0
		for _, j := range fired {
			if bytes.Contains(j.Payload, []byte{byte('0' + version)}) {
				n++
			}
		}
		return n
	}
	defer start(1, "@every 1s")()
	redistest.Eventually(t, func() bool { return of(1) > 0 }, "the older version fires")
	stop := start(2, "* * * * * *")
	redistest.Eventually(t, func() bool { return of(2) > 0 }, "the newer version fires")
	before := of(1)
	redistest.Eventually(t, func() bool { return of(2) > 2 }, "the newer version goes on")
	if n := of(1); n != before {
		t.Errorf("%d ticks of the older version beside the newer one", n-before)
	}
	stop()
	// Redis' clock and those of the schedulers go on by two minutes, until the older scheduler has seen that it is alone.
	newer, next := of(2), time.Now()
	redistest.Eventually(t, func() bool {
		if of(1) == before && time.Now().After(next) {
			ahead.Add(int64(2 * time.Minute))
			shift(time.Duration(ahead.Load()))
			next = time.Now().Add(longestSleep)
		}
		return of(1) > before+1
	}, "the older version is back")
	if n := of(2); n > newer+1 {
		t.Errorf("%d ticks of the newer version after its end", n-newer)
	}
	ticks := scheduled(fired)
	if once := slices.Compact(slices.Clone(ticks)); len(once) != len(ticks) {
		t.Errorf("%d ticks fired twice", len(ticks)-len(once))
	}
	if took := time.Duration(ahead.Load()); took < store.NoticePatience {
		t.Errorf("the older version was back after %v", took)
	}
}
