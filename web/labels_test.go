package web

import (
	"strings"
	"testing"
	"time"
)

// Labels of events never lie over each other, also where several began at the same time.
func TestLabelsHaveRows(t *testing.T) {
	t.Parallel()
	var events []event
	for _, ago := range []time.Duration{59 * time.Minute, 59 * time.Minute, 50 * time.Minute, 20 * time.Minute, 9 * time.Minute, 2 * time.Minute, time.Minute, time.Minute, 0} {
		events = append(events, event{At: noon.Add(-ago), Text: "reports paused"})
	}
	labels, rows := placeLabels(noon, events)
	for i, a := range labels {
		for _, b := range labels[:i] {
			if a.row == b.row && a.from <= b.to && b.from <= a.to {
				t.Errorf("two labels lie over each other: %+v, %+v", a, b)
			}
		}
	}
	if rows < 4 || rows > len(events) {
		t.Errorf("%d rows", rows)
	}
	if drawn := string(hourEvents(noon, events)); strings.Count(drawn, "<text") != len(events) {
		t.Errorf("%s", drawn)
	}
}
