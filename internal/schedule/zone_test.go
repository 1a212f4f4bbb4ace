package schedule

import (
	"errors"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
)

// A zone's name leads to a zone with the same offsets, or is refused.
func TestZoneName(t *testing.T) {
	t.Parallel()
	now := instant(t, "2026-07-03T09:00:00Z")
	for _, tc := range []struct {
		loc  *time.Location
		want string
	}{
		{time.UTC, "UTC"},
		{zone(t, "Europe/Berlin"), "Europe/Berlin"},
		{zone(t, "Asia/Kathmandu"), "Asia/Kathmandu"},
		{zone(t, "Etc/GMT-3"), "Etc/GMT-3"},
		{time.FixedZone("", 0), "UTC"},
		{time.FixedZone("Local", 0), "UTC"},
		{time.FixedZone("CET", 5400), "UTC+01:30"},
		{time.FixedZone("UTC", 3600), "UTC+01:00"},
		{time.FixedZone("Europe/Berlin", 7200), "UTC+02:00"}, // as Berlin, but in summer only
		{time.FixedZone("odd", -12345), "UTC-03:25:45"},
	} {
		got := ZoneName(tc.loc, now)
		if got != tc.want {
			t.Errorf("the name of %v is %q, want %q", tc.loc, got, tc.want)
		}
		back, err := LoadZone(got)
		if err != nil || !alike(back, tc.loc, now) {
			t.Errorf("%q leads to %v, %v", got, back, err)
		}
	}
	for _, name := range []string{"", "Local", "UTC+", "UTC+1", "UTC+99:00:00", "Mars/Olympus", "../etc/passwd"} {
		if loc, err := LoadZone(name); !errors.Is(err, signalbox.ErrInvalid) {
			t.Errorf("LoadZone(%q) = %v, %v", name, loc, err)
		}
	}
}
