package schedule

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func day(d, h, m int) time.Time { return time.Date(2026, time.July, d, h, m, 0, 0, time.UTC) }

// next returns the first n ticks after a time, or fewer if there are no more.
func next(s Schedule, after time.Time, n int) (ticks []time.Time) {
	for at := s.Next(after); !at.IsZero() && len(ticks) < n; at = s.Next(at) {
		ticks = append(ticks, at)
	}
	return ticks
}

func TestEveryOffset(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string][]time.Time{
		"@every 6h":                          {day(1, 6, 0), day(1, 12, 0), day(1, 18, 0)},
		"@every 6h offset 90m":               {day(1, 1, 30), day(1, 7, 30), day(1, 13, 30)},
		"@every 6h  offset  0s":              {day(1, 6, 0), day(1, 12, 0), day(1, 18, 0)},
		"@every 24h offset 23h59m":           {day(1, 23, 59), day(2, 23, 59)},
		"@every 1s offset 250ms":             {day(1, 0, 0).Add(250 * time.Millisecond), day(1, 0, 0).Add(1250 * time.Millisecond)},
		"TZ=Asia/Tokyo @every 24h offset 1h": {day(1, 1, 0), day(2, 1, 0)},
	} {
		if got := next(mustParse(t, spec, nil), day(1, 0, 0), len(want)); !slices.EqualFunc(got, want, time.Time.Equal) {
			t.Errorf("%q: %v, want %v", spec, got, want)
		}
	}
	early := time.Unix(-90, 0)
	if got := mustParse(t, "@every 1m offset 10s", nil).Next(early); !got.Equal(time.Unix(-50, 0)) {
		t.Errorf("before the epoch: %v", got)
	}
	for spec, part := range map[string]string{
		"@every 1m offset 1m":    "offset 1m0s is too long",
		"@every 1m offset -1s":   "too short",
		"@every 1m offset 1us":   "whole milliseconds",
		"@every 1m offset":       "such as in",
		"@every 1m 10s":          "such as in",
		"@every 1m offset x":     "invalid duration",
		"@every 1m offset 1s 1s": "unknown unit",
	} {
		if _, err := Parse(spec, nil, day(1, 0, 0)); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q: %v, want %q", spec, err, part)
		}
	}
	if got := Words(mustParse(t, "@every 6h offset 90m", nil)); got != "every 6h0m0s, 1h30m0s after each multiple" {
		t.Error(got)
	}
}

func TestStartAndEnd(t *testing.T) {
	t.Parallel()
	daily := mustParse(t, "0 9 * * *", zone(t, "Europe/Berlin")) // 07:00 UTC
	for _, tc := range []struct {
		start, end time.Time
		want       []time.Time
	}{
		{day(2, 7, 0), day(4, 7, 0), []time.Time{day(2, 7, 0), day(3, 7, 0), day(4, 7, 0)}},
		{day(2, 7, 1), day(4, 6, 59), []time.Time{day(3, 7, 0)}},
		{day(2, 7, 0).Add(1), day(4, 7, 0).Add(-1), []time.Time{day(3, 7, 0)}},
		{time.Time{}, day(2, 0, 0), []time.Time{day(1, 7, 0)}},
		{day(30, 0, 0), time.Time{}, []time.Time{day(30, 7, 0), day(31, 7, 0), day(32, 7, 0), day(33, 7, 0)}},
		{time.Time{}, day(1, 6, 0), nil},
	} {
		s := Vary(daily, Variation{Start: tc.start, End: tc.end})
		if got := next(s, day(1, 0, 0), 4); !slices.EqualFunc(got, tc.want, time.Time.Equal) {
			t.Errorf("from %v until %v: %v, want %v", tc.start, tc.end, got, tc.want)
		}
	}
	s := Vary(daily, Variation{Start: day(2, 0, 0), End: day(4, 0, 0), Jitter: time.Minute})
	if got, want := Words(s), "at 09:00, in Europe/Berlin, up to 1m0s later, from 2026-07-02T02:00:00+02:00, until 2026-07-04T02:00:00+02:00"; got != want {
		t.Errorf("in words %q, want %q", got, want)
	}
	if got := Last(s, day(1, 0, 0), day(20, 0, 0), 9); len(got) != 2 {
		t.Errorf("the last ticks: %v", got)
	}
	if Vary(daily, Variation{Seed: "x"}) != daily {
		t.Error("a schedule without a variation is another one")
	}
}

// TestJitter: each tick is delayed by a time of its own, which all processes know, and less than the time to the next tick.
func TestJitter(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		spec   string
		jitter time.Duration
		window time.Duration
	}{
		{"@every 1m", 20 * time.Second, 20 * time.Second},
		{"@every 1m", time.Hour, time.Minute},
		{"@every 1s", 1500 * time.Millisecond, time.Second},
		{"0,30 9 * * *", 10 * time.Minute, 10 * time.Minute},
		{"* * * * * *", time.Second, time.Second},
	} {
		base := mustParse(t, tc.spec, nil)
		s := Vary(base, Variation{Jitter: tc.jitter, Seed: "a"})
		nominal, got := next(base, day(1, 0, 0).Add(-1), 500), next(s, day(1, 0, 0).Add(-1), 500)
		if len(got) != 500 {
			t.Fatalf("%s: %d ticks", tc.spec, len(got))
		}
		var least, most time.Duration = time.Hour, 0
		for i, at := range got[:499] {
			late := at.Sub(nominal[i])
			least, most = min(least, late), max(most, late)
			if late < 0 || late >= tc.window || late%time.Millisecond != 0 {
				t.Fatalf("%s: tick %v comes at %v", tc.spec, nominal[i], at)
			}
			// From wherever one asks, the same ticks come.
			for _, from := range []time.Time{at.Add(-1), nominal[i], at.Add(-late / 2)} {
				if again := s.Next(from); from.Before(at) && !again.Equal(at) {
					t.Fatalf("%s: after %v comes %v, want %v", tc.spec, from, again, at)
				}
			}
		}
		if least > tc.window/20 || most < tc.window*19/20 {
			t.Errorf("%s: delays from %v to %v", tc.spec, least, most)
		}
		if other := next(Vary(base, Variation{Jitter: tc.jitter, Seed: "b"}), day(1, 0, 0).Add(-1), 500); slices.EqualFunc(other, got, time.Time.Equal) {
			t.Errorf("%s: two entries have the same delays", tc.spec)
		}
	}
}
