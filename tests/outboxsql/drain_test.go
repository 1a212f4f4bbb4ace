package outboxsql

import (
	"database/sql"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/outbox"
)

// drain fills the table, and measures how a relay empties it.
func drain(t *testing.T, b *database) {
	box := b.box(outbox.Config{})
	for n := 0; n < *drainRows; {
		b.in(func(tx *sql.Tx) error {
			for range 5000 {
				if _, err := box.Enqueue(bg, tx, note{N: n}); err != nil {
					return err
				}
				if n++; n == *drainRows {
					break
				}
			}
			return nil
		})
	}
	rdb := redistest.New(t).Client()
	began := time.Now()
	b.relay(rdb, outbox.RelayConfig{Window: time.Second, Logger: slog.New(slog.DiscardHandler)})
	q := store.New(rdb, "", "default")
	var first, peak uint64
	for last := int64(-1); ; time.Sleep(200 * time.Millisecond) {
		c, err := q.Looks().Counts(bg)
		if err != nil {
			t.Fatal(err)
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		if done := c.Total.Enqueued; done > int64(*drainRows)/10 && first == 0 {
			first = m.HeapAlloc
		}
		peak = max(peak, m.HeapAlloc)
		if c.Total.Enqueued == int64(*drainRows) {
			break
		}
		if c.Total.Enqueued == last && time.Since(began) > 20*time.Minute {
			t.Fatalf("%d of %d after %v", last, *drainRows, time.Since(began))
		}
		last = c.Total.Enqueued
	}
	took := time.Since(began)
	redistest.Eventually(t, func() bool { return settled(b, 0) }, "not settled")
	if first > 0 && peak > 3*first+32<<20 {
		t.Errorf("memory grew from %d to %d bytes", first, peak)
	}
	t.Logf("rows=%d took=%v rows/s=%.0f heap: %.1f MiB after a tenth, %.1f MiB at most", *drainRows, took.Round(time.Millisecond), float64(*drainRows)/took.Seconds(), float64(first)/(1<<20), float64(peak)/(1<<20))
}
