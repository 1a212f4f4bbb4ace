package schedule

import (
	"archive/zip"
	"flag"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the same zones on every machine

	"github.com/robfig/cron/v3"
)

var zones = []string{
	"UTC", "Europe/Berlin", "Europe/London", "America/New_York", "America/St_Johns",
	"Australia/Lord_Howe", "America/Sao_Paulo", "Asia/Kathmandu", "Pacific/Apia", "Africa/Casablanca",
	"Africa/Cairo", "America/Nuuk",
}

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func instant(t testing.TB, s string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// TestClockChanges shows the rules by examples. Ticks are written with the UTC offset that the
// wall clock had.
func TestClockChanges(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, zone, spec string
		from, to         string // ticks after from, until to
		want             []string
	}{
		{
			"a time in the gap comes at its end", "Europe/Berlin", "30 2 * * *",
			"2026-03-28T12:00:00+01:00", "2026-03-30T12:00:00+02:00",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"},
		},
		{
			"several times in the gap share one tick", "Europe/Berlin", "*/20 2,3 * * *",
			"2026-03-28T12:00:00+01:00", "2026-03-29T12:00:00+02:00",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-29T03:20:00+02:00", "2026-03-29T03:40:00+02:00"},
		},
		{
			"a doubled time comes at its first occurrence", "Europe/Berlin", "30 2 * * *",
			"2026-10-24T12:00:00+02:00", "2026-10-26T12:00:00+01:00",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"},
		},
		{
			"the end of a doubled hour", "Europe/Berlin", "0 2,3 * * *",
			"2026-10-24T12:00:00+02:00", "2026-10-25T12:00:00+01:00",
			[]string{"2026-10-25T02:00:00+02:00", "2026-10-25T03:00:00+01:00"},
		},
		{
			"started between the two occurrences", "Europe/Berlin", "15 2 * * *",
			"2026-10-25T02:10:00+01:00", "2026-10-26T12:00:00+01:00",
			[]string{"2026-10-26T02:15:00+01:00"},
		},
		{
			"wildcard hour, gap", "Europe/Berlin", "30 * * * *",
			"2026-03-29T00:45:00+01:00", "2026-03-29T05:00:00+02:00",
			[]string{"2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00", "2026-03-29T04:30:00+02:00"},
		},
		{
			"wildcard hour, doubled", "Europe/Berlin", "@hourly",
			"2026-10-25T00:45:00+02:00", "2026-10-25T04:00:00+01:00",
			[]string{
				"2026-10-25T01:00:00+02:00", "2026-10-25T02:00:00+02:00",
				"2026-10-25T02:00:00+01:00", "2026-10-25T03:00:00+01:00", "2026-10-25T04:00:00+01:00",
			},
		},
		{
			"stepped hour, gap", "Europe/Berlin", "0 */2 * * *",
			"2026-03-28T23:00:00+01:00", "2026-03-29T06:00:00+02:00",
			[]string{"2026-03-29T00:00:00+01:00", "2026-03-29T04:00:00+02:00", "2026-03-29T06:00:00+02:00"},
		},
		{
			"stepped hour, doubled", "America/New_York", "0 */1 * * *",
			"2026-11-01T00:30:00-04:00", "2026-11-01T02:00:00-05:00",
			[]string{"2026-11-01T01:00:00-04:00", "2026-11-01T01:00:00-05:00", "2026-11-01T02:00:00-05:00"},
		},
		{
			"gap in New York", "America/New_York", "0 2 * * *",
			"2026-03-07T12:00:00-05:00", "2026-03-09T12:00:00-04:00",
			[]string{"2026-03-08T03:00:00-04:00", "2026-03-09T02:00:00-04:00"},
		},
		{
			"half an hour's gap", "Australia/Lord_Howe", "15,45 2 * * *",
			"2026-10-03T12:00:00+10:30", "2026-10-04T12:00:00+11:00",
			[]string{"2026-10-04T02:30:00+11:00", "2026-10-04T02:45:00+11:00"},
		},
		{
			"half an hour doubled", "Australia/Lord_Howe", "*/15 1 * * *",
			"2026-04-04T12:00:00+11:00", "2026-04-05T12:00:00+10:30",
			[]string{
				"2026-04-05T01:00:00+11:00", "2026-04-05T01:15:00+11:00",
				"2026-04-05T01:30:00+11:00", "2026-04-05T01:45:00+11:00",
			},
		},
		{
			"half an hour doubled, wildcard", "Australia/Lord_Howe", "*/15 * * * *",
			"2026-04-05T01:40:00+11:00", "2026-04-05T02:00:00+10:30",
			[]string{
				"2026-04-05T01:45:00+11:00", "2026-04-05T01:30:00+10:30",
				"2026-04-05T01:45:00+10:30", "2026-04-05T02:00:00+10:30",
			},
		},
		{
			"no midnight", "America/Sao_Paulo", "@daily",
			"2018-11-03T12:00:00-03:00", "2018-11-05T12:00:00-02:00",
			[]string{"2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"},
		},
		{
			"no midnight on the first", "America/Sao_Paulo", "0 0 4 11 *",
			"2018-01-01T00:00:00-02:00", "2019-12-31T00:00:00-03:00",
			[]string{"2018-11-04T01:00:00-02:00", "2019-11-04T00:00:00-03:00"},
		},
		{
			"the day before is doubled at midnight", "America/Sao_Paulo", "30 23 * * *",
			"2019-02-16T12:00:00-02:00", "2019-02-17T23:45:00-03:00",
			[]string{"2019-02-16T23:30:00-02:00", "2019-02-17T23:30:00-03:00"},
		},
		{
			"a day that was left out", "Pacific/Apia", "0 9 * * *",
			"2011-12-29T08:00:00-10:00", "2011-12-31T12:00:00+14:00",
			[]string{"2011-12-29T09:00:00-10:00", "2011-12-31T00:00:00+14:00", "2011-12-31T09:00:00+14:00"},
		},
		{
			"a leap year beyond Go's table", "Europe/Berlin", "0 0 31 12 *",
			"2047-01-01T00:00:00+01:00", "2049-01-01T00:00:00+01:00",
			[]string{"2047-12-31T00:00:00+01:00", "2048-12-31T00:00:00+01:00"},
		},
		{
			"hourly in a leap year beyond Go's table", "America/New_York", "0 */12 * * *",
			"2048-12-30T13:00:00-05:00", "2049-01-01T00:00:00-05:00",
			[]string{
				"2048-12-31T00:00:00-05:00", "2048-12-31T12:00:00-05:00", "2049-01-01T00:00:00-05:00",
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			loc := zone(t, tc.zone)
			s := mustParse(t, tc.spec, loc)
			to := instant(t, tc.to)
			var got []string
			for at := s.Next(instant(t, tc.from)); !at.After(to); at = s.Next(at) {
				got = append(got, at.In(loc).Format(time.RFC3339))
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%q in %s: got\n%v, want\n%v", tc.spec, tc.zone, got, tc.want)
			}
		})
	}
}

// TestClockChangesBruteForce goes through every minute of a few days around all
// changes of some years, in all zones.
func TestClockChangesBruteForce(t *testing.T) {
	t.Parallel()
	specs := []string{
		"* * * * *", "0 */2 * * *", "*/30 */3 * * *", "0 0 * * *", "*/20 1-3 * * *", "45 1 * * *", "15 23 * * *", "0 0 1,31 * *",
	}
	for _, name := range zones {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loc := zone(t, name)
			for _, year := range []int{2011, 2018, 2026, 2048} {
				for _, change := range append(changes(loc, year), time.Date(year, time.December, 31, 12, 0, 0, 0, time.UTC)) {
					from, to := change.Add(-26*time.Hour), change.Add(26*time.Hour)
					for _, spec := range specs {
						s := mustParse(t, spec, loc)
						want := bruteTicks(s, from, to)
						var got []time.Time
						for at := s.Next(from); !at.After(to); at = s.Next(at) {
							got = append(got, at)
						}
						if !slices.EqualFunc(got, want, time.Time.Equal) {
							t.Fatalf("%q in %s around %v: got\n%v, want\n%v", spec, name, change, got, want)
						}
					}
				}
			}
		})
	}
}

// changes returns when the clocks of loc are changed in a year. It checks every quarter of an
// hour.
func changes(loc *time.Location, year int) []time.Time {
	var list []time.Time
	at := time.Date(year, time.January, 1, 0, 0, 0, 0, time.UTC)
	_, before := at.In(loc).Zone()
	for ; at.Year() == year; at = at.Add(15 * time.Minute) {
		if _, offset := at.In(loc).Zone(); offset != before {
			list, before = append(list, at), offset
		}
	}
	return list
}

// bruteTicks returns the ticks in (from, to] of a schedule without seconds. It checks the wall
// clock in every minute. It shares only the parsed fields with Next.
func bruteTicks(s Schedule, from, to time.Time) []time.Time {
	var (
		clock   *cron.SpecSchedule
		loc     *time.Location
		elapsed bool
	)
	switch s := s.(type) {
	case elapsedSchedule:
		clock, loc, elapsed = s.clock, s.loc, true
	case fixedSchedule:
		clock, loc = s.clock, s.loc
	}
	shown := func(t time.Time) time.Time {
		l := t.In(loc)
		year, month, day := l.Date()
		hour, minute, _ := l.Clock()
		return time.Date(year, month, day, hour, minute, 0, 0, time.UTC)
	}
	var list []time.Time
	at := from.Truncate(time.Minute).Add(-3 * time.Hour) // no zone's clock is set back by more
	high := shown(at)
	for at = at.Add(time.Minute); !at.After(to); at = at.Add(time.Minute) {
		wall, tick := shown(at), false
		if elapsed {
			tick = named(clock, wall)
		}
		for ; high.Before(wall); high = high.Add(time.Minute) {
			tick = tick || !elapsed && named(clock, high.Add(time.Minute))
		}
		if tick && at.After(from) {
			list = append(list, at)
		}
	}
	return list
}

// named reports whether the schedule names a minute of the wall clock.
func named(c *cron.SpecSchedule, w time.Time) bool {
	has := func(field uint64, value int) bool { return field>>value&1 == 1 }
	day, weekday := has(c.Dom, w.Day()), has(c.Dow, int(w.Weekday()))
	dayMatches := day || weekday
	if (c.Dom|c.Dow)&wildcardBit != 0 {
		dayMatches = day && weekday
	}
	return dayMatches && has(c.Minute, w.Minute()) && has(c.Hour, w.Hour()) && has(c.Month, int(w.Month()))
}

var allZones = flag.Bool("zones", false, "check all zones of the time zone database, not a sample")

// TestClockChangesOfAllZones compares the ticks around the changes of the clocks from 2000 to 2040 with those of bruteTicks. With
// -zones it does so for each change of each zone of the time zone database, in some minutes. Without it, for a sample.
func TestClockChangesOfAllZones(t *testing.T) {
	t.Parallel()
	specs := []string{"*/15 * * * *", "0 */2 * * *", "30 2 * * *", "0 0 * * *", "*/20 1-3 * * *", "15 23 * * 1-5", "0 0 1,31 * *"}
	names := zoneNames(t)
	everyZone, everyChange := 40, 9
	if *allZones {
		everyZone, everyChange = 1, 1
	}
	compared, found := 0, 0
	for i := 0; i < len(names); i += everyZone {
		loc := zone(t, names[i])
		at := time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)
		_, before := at.In(loc).Zone()
		for ; at.Year() <= 2040; at = at.Add(time.Hour) {
			_, offset := at.In(loc).Zone()
			if offset == before {
				continue
			}
			before = offset
			if found++; found%everyChange != 0 {
				continue
			}
			from, to := at.Add(-26*time.Hour), at.Add(26*time.Hour)
			for _, spec := range specs {
				s := mustParse(t, spec, loc)
				want := bruteTicks(s, from, to)
				var got []time.Time
				for next := s.Next(from); !next.After(to); next = s.Next(next) {
					got = append(got, next)
				}
				if !slices.EqualFunc(got, want, time.Time.Equal) {
					t.Fatalf("%q in %s around %v: got\n%v, want\n%v", spec, names[i], at, got, want)
				}
				compared += len(want)
			}
		}
	}
	if compared < 5_000 {
		t.Errorf("%d ticks were compared, in %d zones with %d changes", compared, len(names), found)
	}
	t.Logf("%d ticks, %d zones, %d changes", compared, len(names), found)
}

// zoneNames returns the names of all zones that Go knows.
func zoneNames(t *testing.T) []string {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal("no go command: ", err)
	}
	archive, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal("no list of zones: ", err)
	}
	defer archive.Close()
	var names []string
	for _, f := range archive.File {
		if !strings.HasSuffix(f.Name, "/") {
			names = append(names, f.Name)
		}
	}
	slices.Sort(names)
	return names
}
