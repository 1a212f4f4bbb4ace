package schedule

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
)

func mustParse(t testing.TB, spec string, loc *time.Location) Schedule {
	t.Helper()
	s, err := Parse(spec, loc, time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNext(t *testing.T) {
	t.Parallel()
	berlin := zone(t, "Europe/Berlin")
	for _, tc := range []struct {
		spec  string
		loc   *time.Location
		after string
		want  string
	}{
		{"0 9 * * 1-5", nil, "2026-07-03T09:00:00Z", "2026-07-06T09:00:00Z"},
		{"0 9 * * mon-fri", time.UTC, "2026-07-03T08:59:59.999999999Z", "2026-07-03T09:00:00Z"},
		{"0 9 * * 1-5", berlin, "2026-07-03T09:00:00Z", "2026-07-06T07:00:00Z"},
		{"TZ=Europe/Berlin 0 9 * * *", nil, "2026-07-03T00:00:00Z", "2026-07-03T07:00:00Z"},
		{" CRON_TZ=Asia/Kathmandu  0 9 * * *", berlin, "2026-07-03T00:00:00Z", "2026-07-03T03:15:00Z"},
		{"*/10 * * * * *", nil, "2026-07-03T09:00:00Z", "2026-07-03T09:00:10Z"},
		{"* * * * *", nil, "2026-12-31T23:59:30Z", "2027-01-01T00:00:00Z"},
		{"@hourly", zone(t, "Asia/Kathmandu"), "2026-07-03T00:00:00Z", "2026-07-03T00:15:00Z"},
		{"@daily", berlin, "2026-07-03T00:00:00Z", "2026-07-03T22:00:00Z"},
		{"@weekly", nil, "2026-07-03T00:00:00Z", "2026-07-05T00:00:00Z"},
		{"@monthly", nil, "2026-07-03T00:00:00Z", "2026-08-01T00:00:00Z"},
		{"@yearly", nil, "2026-07-03T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"0 0 29 2 *", nil, "2026-07-03T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"0 0 29 2 *", nil, "2097-07-03T00:00:00Z", "2104-02-29T00:00:00Z"},
		{"0 * 29 2 *", berlin, "2097-07-03T00:00:00Z", "2104-02-28T23:00:00Z"},
		{"@every 1s", nil, "2026-07-03T00:00:00.5Z", "2026-07-03T00:00:01Z"},
		{"@every 1s", nil, "2026-07-03T00:00:01Z", "2026-07-03T00:00:02Z"},
		{"@every 90m", nil, "1970-01-01T00:00:00Z", "1970-01-01T01:30:00Z"},
		{"@every 90m", nil, "1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z"},
		{"@every 1500ms", berlin, "1970-01-01T00:00:01.4999Z", "1970-01-01T00:00:01.5Z"},
		{"CRON_TZ=Europe/Berlin @every 24h", nil, "2026-07-03T01:00:00Z", "2026-07-04T00:00:00Z"},
	} {
		s := mustParse(t, tc.spec, tc.loc)
		got := s.Next(instant(t, tc.after))
		if want := instant(t, tc.want); !got.Equal(want) || got.Location() != time.UTC {
			t.Errorf("%q after %s: got %v, want %v", tc.spec, tc.after, got, want)
		}
	}
}

func TestEveryAgreesBetweenProcesses(t *testing.T) {
	t.Parallel()
	start := instant(t, "2026-07-03T00:00:00.123456789Z")
	for _, spec := range []string{"@every 1s", "@every 7s", "@every 1m0.25s", "@every 25h"} {
		one := mustParse(t, spec, nil)
		other, err := Parse(spec, zone(t, "America/New_York"), start.Add(137*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		period, err := time.ParseDuration(strings.TrimPrefix(spec, "@every "))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 1000 {
			at := start.Add(time.Duration(i) * 333 * time.Millisecond)
			a, b := one.Next(at), other.Next(at)
			if !a.Equal(b) {
				t.Fatalf("%s after %v: %v and %v", spec, at, a, b)
			}
			if a.UnixNano()%int64(period) != 0 {
				t.Fatalf("%s after %v: %v is not a multiple of the period since the epoch", spec, at, a)
			}
			if !a.After(at) || a.Sub(at) > period {
				t.Fatalf("%s after %v: %v", spec, at, a)
			}
		}
	}
}

// 7 is Sunday, as 0 is, wherever a day of the week stands.
func TestSundayIsSeven(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"30 9 * * 7":              "30 9 * * 0",
		"0 30 9 * * 7":            "0 30 9 * * SUN",
		"30 9 * * 5-7":            "30 9 * * 5,6,0",
		"30 9 * * fri-7":          "30 9 * * FRI,SAT,SUN",
		"30 9 * * 0-7":            "30 9 * * 0-6",
		"30 9 * * 7-7":            "30 9 * * 0",
		"30 9 * * 1-7/3":          "30 9 * * 1,4,0",
		"30 9 * * 7/2":            "30 9 * * 0",
		"30 9 7 7 1,7,3":          "30 9 7 7 1,0,3",
		"TZ=Asia/Tokyo 7 7 7 7 7": "TZ=Asia/Tokyo 7 7 7 7 0",
		"7 7 * * *":               "7 7 * * *",
	} {
		got, same := mustParse(t, spec, nil), mustParse(t, want, nil)
		at := instant(t, "2026-07-03T00:00:00Z")
		for range 50 {
			next := got.Next(at)
			if other := same.Next(at); !next.Equal(other) {
				t.Fatalf("%q after %v: %v, and %q has %v", spec, at, next, want, other)
			}
			at = next
		}
		if Words(got) != Words(same) {
			t.Errorf("%q is %q, and %q is %q", spec, Words(got), want, Words(same))
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ spec, want string }{
		{"", "day-of-week"},
		{" ", "day-of-week"},
		{"* * * *", "day-of-week"},
		{"* * * * * * *", "day-of-week"},
		{"61 * * * *", "above maximum"},
		{"* * * * 8", "above maximum"},
		{"* * * * 6-8", "above maximum"},
		{"* * * * 7-2", "beyond end"},
		{"* * * 13 7", "above maximum"},
		{"*/0 * * * *", "positive"},
		{"a * * * *", "parse int"},
		{", * * * *", "names no value"},
		{", * * * * *", "names no value"},
		{"0 0 30 2 *", "never comes"},
		{"0 0 31 2,4,6,9,11 *", "never comes"},
		{"* * 30 2 *", "never comes"},
		{"CRON_TZ=Europe/Berlin 0 0 30 2 *", "never comes"},
		{"@fortnightly", "@weekly"},
		{"@every", "@every 1m30s"},
		{"@every soon", "@every 1m30s"},
		{"@every 0s", "at least 1s"},
		{"@every -1h", "at least 1s"},
		{"@every 999ms", "at least 1s"},
		{"@every 1.0005s", "milliseconds"},
		{"TZ=0", "Area/City"},
		{"TZ=", "Area/City"},
		{"TZ= 0 9 * * *", "Area/City"},
		{"CRON_TZ=Europe/Berlin", "Area/City"},
		{"TZ=Europe/Bonn 0 9 * * *", "IANA"},
		{"TZ=../etc/passwd 0 9 * * *", "IANA"},
		{"TZ=UTC TZ=0", "two time zones"},
		{"TZ=UTC CRON_TZ=UTC 0 9 * * *", "two time zones"},
		{"CRON_TZ=Local 0 9 * * *", `"Local" is another one on each machine`},
		{"0" + strings.Repeat(",0", 1000) + " * * * *", "1024"},
	} {
		s, err := Parse(tc.spec, nil, time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC))
		if err == nil {
			t.Errorf("%q: accepted as %v", tc.spec, s)
			continue
		}
		if !errors.Is(err, signalbox.ErrInvalid) {
			t.Errorf("%q: %v does not wrap ErrInvalid", tc.spec, err)
		}
		if !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: %q does not contain %q", tc.spec, err, tc.want)
		}
		if len(err.Error()) > 500 {
			t.Errorf("%q: the message has %d bytes", tc.spec, len(err.Error()))
		}
	}
}

func TestHourIsWildcard(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]bool{
		"0 * * * *":      true,
		"0 ? * * *":      true,
		"0 */2 * * *":    true,
		"5 0 */2 * * *":  true,
		"0 0-23 * * *":   true,
		"@hourly":        true,
		"0 */24 * * *":   false,
		"0 0,12 * * *":   false,
		"* 2 * * *":      false,
		"* * 2 * * *":    false,
		"0 2-4 * * *":    false,
		"@daily":         false,
		"*/5 0-22 * * *": false,
	} {
		_, got := mustParse(t, spec, nil).(elapsedSchedule)
		if got != want {
			t.Errorf("%q: %v, want %v", spec, got, want)
		}
	}
}

// TestNextProperties compares random schedules with the brute force of dst_test.go, over
// a few random days.
func TestNextProperties(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	pick := func(list ...string) string { return list[rng.IntN(len(list))] }
	start := instant(t, "1996-01-01T00:00:00Z")
	for range 300 {
		spec := strings.Join([]string{
			pick("0", "*/15", "30", "0,59", "*"),
			pick("*", "*/2", "*/6", "0", "1", "2", "3", "0-3", "2,3", "23", "22-23"),
			pick("*", "*", "*", "1", "31", "25-31"),
			pick("*", "*", "*", "3,10", "2,10"),
			pick("*", "*", "*", "0", "1-5"),
		}, " ")
		loc := zone(t, zones[rng.IntN(len(zones))])
		s := mustParse(t, spec, loc)
		from := start.Add(time.Duration(rng.Int64N(int64(60 * 365 * 24 * time.Hour))))
		to := from.Add(4 * 24 * time.Hour)
		var got []time.Time
		for at := s.Next(from); !at.After(to); at = s.Next(at) {
			if len(got) > 0 && !at.After(got[len(got)-1]) {
				t.Fatalf("%q in %v: %v is not after %v", spec, loc, at, got[len(got)-1])
			}
			got = append(got, at)
		}
		if want := bruteTicks(s, from, to); !slices.EqualFunc(got, want, time.Time.Equal) {
			t.Fatalf("%q in %v after %v: got\n%v, want\n%v", spec, loc, from, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, spec := range []string{
		"0 9 * * 1-5", "*/10 * * * * *", "@hourly", "@every 90m", "TZ=0", "TZ=UTC TZ=0",
		"CRON_TZ=Europe/Berlin 0 2 * * *", "0 0 30 2 *", "0 0 29 2 *", ",", "? ? ? ? ?", "@", "",
		"0/9223372036854775807 * * * *", "*-5 * * * *",
	} {
		f.Add(spec, int64(1_774_747_800))
	}
	berlin := zone(f, "Europe/Berlin")
	f.Fuzz(func(t *testing.T, spec string, unix int64) {
		now := time.Unix(unix%(1<<40), 0) // less than some 35,000 years from 1970
		s, err := Parse(spec, berlin, now)
		if err != nil {
			if !errors.Is(err, signalbox.ErrInvalid) {
				t.Fatalf("%q: %v does not wrap ErrInvalid", spec, err)
			}
			return
		}
		for range 3 {
			next := s.Next(now)
			if !next.After(now) || next.Location() != time.UTC {
				t.Fatalf("%q after %v: %v", spec, now, next)
			}
			if _, every := s.(everySchedule); !every && next.Nanosecond() != 0 {
				t.Fatalf("%q after %v: %v is not a whole second", spec, now, next)
			}
			now = next
		}
	})
}

// TestLast: the latest ticks before a time are those that Next counts up to.
func TestLast(t *testing.T) {
	t.Parallel()
	before := instant(t, "2026-03-29T12:00:00Z")
	for _, spec := range []string{"* * * * * *", "@every 90s", "*/7 * * * *", "@hourly", "0 9 * * *", "30 2 * * 0", "0 0 29 2 *", "*/5 * 1 1 *"} {
		s := mustParse(t, spec, zone(t, "Europe/Berlin"))
		for _, after := range []time.Time{before.Add(-time.Minute), before.Add(-50 * time.Hour), before.AddDate(-3, 0, 0)} {
			if spec == "* * * * * *" && before.Sub(after) > 100*time.Hour {
				continue
			}
			var all []time.Time
			for at := s.Next(after); at.Before(before) && len(all) < 20_000; at = s.Next(at) {
				all = append(all, at)
			}
			if len(all) == 20_000 {
				continue
			}
			for _, n := range []int{1, 3, 40} {
				want := all[max(len(all)-n, 0):]
				if got := Last(s, after, before, n); !slices.EqualFunc(got, want, time.Time.Equal) {
					t.Errorf("%q, the last %d since %v: %v, want %v", spec, n, after, got, want)
				}
			}
		}
	}
}
