package scheduler

import (
	"fmt"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/schedule"
)

// maxPreview bounds the ticks of a Preview.
const maxPreview = 10_000

// Preview returns what [Scheduler.Cron] would make of a spec: the spec in English words, and its next n ticks after now, in
// its time zone. loc is the zone, as of the option [In]; nil means UTC. n is 0 to 10,000. It needs no Redis. The error wraps
// [signalbox.ErrInvalid].
func Preview(spec string, loc *time.Location, n int) (words string, ticks []time.Time, err error) {
	return previewAt(spec, loc, n, time.Now())
}

func previewAt(spec string, loc *time.Location, n int, now time.Time) (words string, ticks []time.Time, err error) {
	if n < 0 || n > maxPreview {
		return "", nil, fmt.Errorf("scheduler: preview: %w n: %d; want 0 to %d", signalbox.ErrInvalid, n, maxPreview)
	}
	s, err := schedule.Parse(spec, loc, now)
	if err != nil {
		return "", nil, fmt.Errorf("scheduler: preview: %w", err)
	}
	for at := s.Next(now); len(ticks) < n && !at.IsZero(); at = s.Next(at) {
		ticks = append(ticks, at.In(s.Zone()))
	}
	return schedule.Words(s), ticks, nil
}
