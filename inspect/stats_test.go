package inspect_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

// histogram returns one with these durations.
func (s *stage) histogram(ran ...time.Duration) inspect.Histogram {
	s.t.Helper()
	batch := &store.Times{Lane: s.NewLane()}
	batch.Lane.Next()
	for _, d := range ran {
		batch.Run.Add(d)
	}
	s.ran(batch)
	var all inspect.Histogram
	for _, b := range s.stats(inspect.ByMinute).Buckets {
		all = all.Plus(b.Run)
	}
	return all
}

// ran takes times of deliveries to Redis.
func (s *stage) ran(batch *store.Times) {
	s.t.Helper()
	alive, _, err := s.Taking(batch).Sessions().Renew(s.t.Context(), s.session, time.Hour, "")
	s.must(err)
	if !alive {
		s.t.Fatal("the session is over")
	}
	now := s.rdb.Time(s.t.Context()).Val()
	redistest.Eventually(s.t, func() bool { return s.rdb.Time(s.t.Context()).Val().After(now) }, "the clock moves on")
}

func (s *stage) stats(by inspect.Step) inspect.Stats {
	s.t.Helper()
	stats, err := s.ins.Stats(s.t.Context(), s.Name(), by)
	s.must(err)
	return stats
}

// Buckets follow each other, the last one ends now, and what they count is what happened.
func TestStats(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.puts("a", "b", "c")
	batch := &store.Times{Lane: s.NewLane()}
	batch.Lane.Next()
	batch.Wait.Add(3 * time.Millisecond)
	batch.Run.Add(time.Minute)
	s.ran(batch)
	if _, err := s.ins.Do(t.Context(), s.Name(), "b", inspect.Cancel{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ins.Do(t.Context(), s.Name(), "c", inspect.Delete{}); err != nil {
		t.Fatal(err)
	}
	for _, by := range []inspect.Step{inspect.ByMinute, inspect.ByHour} {
		stats := s.stats(by)
		want := inspect.Counts{Enqueued: 3, Cancelled: 1, Deleted: 1}
		if stats.Queue != s.Name() || stats.Total != want || len(stats.Buckets) == 0 {
			t.Fatalf("%+v", stats)
		}
		var all inspect.Bucket
		end := stats.Buckets[0].Start
		for _, b := range stats.Buckets {
			if !b.Start.Equal(end) || b.Duration <= 0 {
				t.Errorf("a bucket from %v, for %v; the one before ended at %v", b.Start, b.Duration, end)
			}
			end = b.Start.Add(b.Duration)
			all.Enqueued += b.Enqueued
			all.Cancelled += b.Cancelled
			all.Deleted += b.Deleted
			all.Wait, all.Run = all.Wait.Plus(b.Wait), all.Run.Plus(b.Run)
		}
		if !end.Equal(stats.At) || stats.At.Sub(stats.Buckets[0].Start) > by.Window() {
			t.Errorf("they are from %v to %v; it is %v", stats.Buckets[0].Start, end, stats.At)
		}
		if all.Counts != want || all.Wait.Count() != 1 || all.Wait.Quantile(1) != 4*time.Millisecond || all.Run.Quantile(1) != 65536*time.Millisecond {
			t.Errorf("in all %+v", all)
		}
	}
}

func TestStatsInVain(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	if _, err := s.ins.Stats(t.Context(), "mial", inspect.ByMinute); !errors.Is(err, inspect.ErrNoQueue) {
		t.Errorf("of a queue that isn't there: %v", err)
	}
	for _, by := range []inspect.Step{-1, 2} {
		if _, err := s.ins.Stats(t.Context(), s.Name(), by); !errors.Is(err, signalbox.ErrInvalid) {
			t.Errorf("by %d: %v", by, err)
		}
	}
	// What another program wrote is named. The rest is there.
	s.puts("a")
	s.must(s.rdb.HSet(t.Context(), s.keys+"history", "h7", "a secret of somebody").Err())
	stats, err := s.ins.Stats(t.Context(), s.Name(), inspect.ByHour)
	if err == nil || !strings.Contains(err.Error(), "field h7") || !strings.Contains(err.Error(), s.Name()) || strings.Contains(err.Error(), "secret") {
		t.Errorf("with a field that can't be read: %v", err)
	}
	if stats.Total.Enqueued != 1 || stats.At.IsZero() {
		t.Errorf("%+v", stats)
	}
	s.must(s.rdb.HDel(t.Context(), s.keys+"history", "h7").Err())
}

func TestHistogramQuantile(t *testing.T) {
	t.Parallel()
	var none inspect.Histogram
	if none.Count() != 0 || none.Quantile(0.5) != 0 {
		t.Errorf("of none: %d, %v", none.Count(), none.Quantile(0.5))
	}
	h := newStage(t, redistest.Start(t).Client()).histogram(
		time.Microsecond, 2*time.Millisecond, 2*time.Millisecond, 5*time.Millisecond, time.Second, time.Second, time.Second, time.Second, time.Hour, 24*time.Hour)
	for q, want := range map[float64]time.Duration{
		-1: time.Millisecond, 0: time.Millisecond, 0.1: time.Millisecond, 0.11: 2 * time.Millisecond, 0.3: 2 * time.Millisecond, 0.31: 8 * time.Millisecond, 0.4: 8 * time.Millisecond,
		0.5: 1024 * time.Millisecond, 0.8: 1024 * time.Millisecond, 0.81: 1 << 22 * time.Millisecond, 1: 1 << 22 * time.Millisecond, 7: 1 << 22 * time.Millisecond,
	} {
		if got := h.Quantile(q); got != want {
			t.Errorf("Quantile(%v) = %v, want %v", q, got, want)
		}
	}
	if got := h.Quantile(math.NaN()); got != time.Millisecond {
		t.Errorf("Quantile(NaN) = %v", got)
	}
	var list []string
	last := time.Duration(0)
	for most, n := range h.Plus(h).Buckets() {
		if most <= last {
			t.Errorf("the bound %v comes behind %v", most, last)
		}
		last = most
		if n > 0 {
			list = append(list, fmt.Sprintf("%v:%d", most, n))
		}
	}
	if got, want := strings.Join(list, " "), fmt.Sprintf("1ms:2 2ms:4 8ms:2 1.024s:8 1h9m54.304s:2 %v:2", time.Duration(math.MaxInt64)); got != want || last != math.MaxInt64 {
		t.Errorf("buckets %s, want %s", got, want)
	}
	for range h.Buckets() {
		break
	}
}
