package scheduler

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// TestClockExcursionOnRedis: for five seconds the clock of a real server is an hour ahead, a day ahead, or an hour
// behind. The log says so, and no tick is lost or doubled.
func TestClockExcursionOnRedis(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{time.Hour, 24 * time.Hour, -time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			srv, shift := redistest.NewWithClock(t)
			q := checked(t, srv.Client())
			var log lockedBuffer
			s, err := New(srv.Client(), Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Cron("e", "@every 1s", note{}, Queue(q.Name())); err != nil {
				t.Fatal(err)
			}
			stop := run(t, s)
			defer stop()
			time.Sleep(clockPatience + 2*time.Second) // it has watched the clock long enough
			shift(by)
			time.Sleep(5 * time.Second)
			shift(0)
			redistest.Eventually(t, func() bool { return strings.Contains(log.String(), "the clock of Redis is back") }, "the log says that it is over")
			time.Sleep(2 * time.Second)
			stop()
			if !strings.Contains(log.String(), "the clock of Redis jumped") {
				t.Errorf("log: %s", log.String())
			}
			ticks := scheduled(claimAll(t, q))
			if len(ticks) < 15 || !slices.IsSortedFunc(ticks, time.Time.Compare) {
				t.Errorf("%d ticks", len(ticks))
			}
			gapless(t, ticks, len(ticks))
		})
	}
}
