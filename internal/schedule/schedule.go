// Package schedule computes the ticks of cron entries. Schedulers enqueue a job at each tick, and inspect says when the
// next ticks come. So both must compute them alike.
//
// [Parse] makes a [Schedule] of a spec. [ZoneName] and [LoadZone] carry a time zone from one machine to another.
package schedule

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/signalbox-go/signalbox"
)

const (
	maxSpec     = 1024                      // bytes in a cron spec
	minEvery    = time.Second               // shortest period of @every
	everyUnit   = time.Millisecond          // periods of @every are multiples of it
	searchLimit = 30 * 365 * 24 * time.Hour // how far ahead a tick is searched for
	longestStep = 48 * time.Hour            // no wall clock was ever set back by more
	allHours    = uint64(1)<<24 - 1         // one bit for each hour
	wildcardBit = uint64(1) << 63           // set by the parser for "*" and "?"
)

const specForms = `want "[second] minute hour day-of-month month day-of-week", ` +
	`a descriptor (@hourly, @daily, @weekly, @monthly, @yearly), "@every 1m30s" or "@every 6h offset 90m", ` +
	`optionally after "CRON_TZ=Area/City "`

// A Schedule has the ticks of a cron entry.
type Schedule interface {
	// Next returns the earliest tick strictly after the given time, in UTC: whole
	// seconds, or whole milliseconds for @every. It returns the zero time only if no tick
	// comes in 30 years. Parse refuses such a spec.
	Next(after time.Time) time.Time
	// Zone returns the time zone whose wall clock the schedule follows. That of @every is UTC.
	Zone() *time.Location
}

var parser = cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour |
	cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// Parse parses a cron spec: five fields, an optional field for seconds in front,
// a descriptor, or "@every d". The fields name times of a wall clock in loc (nil is UTC),
// unless the spec begins with "CRON_TZ=" or "TZ=" and the name of a zone. A spec with no
// tick after now is refused. Errors wrap [signalbox.ErrInvalid].
//
// At the beginning and the end of daylight saving time the wall clock changes:
//
//   - A schedule whose hour is a wildcard ("*", "*/n", @hourly) follows elapsed time. It
//     fires in both of two equal hours, and not in an hour that does not exist.
//   - Any other schedule fires once for each wall-clock time that it names. In a doubled
//     hour it fires at the first occurrence. If the time does not exist, it fires at the first
//     instant after the gap. Several such times share that one tick.
//   - "@every d" doesn't use the wall clock. It ticks at multiples of d since the Unix epoch.
//     So all processes agree without communication. "@every d offset o" ticks at the time o after each multiple.
func Parse(spec string, loc *time.Location, now time.Time) (Schedule, error) {
	s, err := parseSpec(spec, loc)
	if err != nil {
		shown := spec
		if len(shown) > 100 {
			shown = shown[:100] + "..."
		}
		return nil, fmt.Errorf("%w: cron spec %q: %w", signalbox.ErrInvalid, shown, err)
	}
	if s.Next(now).IsZero() {
		return nil, fmt.Errorf("%w: cron spec %q: its date never comes; check the day against the month", signalbox.ErrInvalid, spec)
	}
	return s, nil
}

// Last returns the latest ticks of a schedule after one time and before another, at most n of them, the earliest first.
func Last(s Schedule, after, before time.Time, n int) []time.Time {
	var last []time.Time
	for back := time.Second; len(last) < n; back *= 4 {
		from := before.Add(-back)
		if from.Before(after) || back > searchLimit {
			from = after
		}
		last = last[:0]
		for at := s.Next(from); !at.IsZero() && at.Before(before); at = s.Next(at) {
			last = append(last, at)
		}
		if from.Equal(after) {
			break
		}
	}
	return last[max(len(last)-n, 0):]
}

func parseSpec(spec string, loc *time.Location) (Schedule, error) {
	if len(spec) > maxSpec {
		return nil, fmt.Errorf("%d bytes long, at most %d are read", len(spec), maxSpec)
	}
	if loc == nil {
		loc = time.UTC
	}
	loc, spec, err := cutZone(strings.TrimSpace(spec), loc)
	if err != nil {
		return nil, err
	}
	if period, ok := strings.CutPrefix(spec, "@every"); ok {
		return parseEvery(strings.TrimSpace(period))
	}
	parsed, err := parser.Parse(withSunday(spec))
	if err != nil {
		return nil, fmt.Errorf("%w; %s", err, specForms)
	}
	clock, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("unsupported; %s", specForms)
	}
	for _, field := range []uint64{clock.Second, clock.Minute, clock.Hour, clock.Dom, clock.Month, clock.Dow} {
		if field&^wildcardBit == 0 {
			return nil, errors.New("a field names no value; " + specForms)
		}
	}
	clock.Location = time.UTC // a wall-clock time has the zone UTC, see wallClock
	w := wallClock{clock: clock, loc: loc}
	if hourIsWildcard(spec, clock.Hour) {
		return elapsedSchedule{w}, nil
	}
	return fixedSchedule{w}, nil
}

// withSunday returns a spec in which each 7 of the day of the week is a 0, as the parser has it: cron takes both for Sunday. It leaves to the parser what it can't read.
func withSunday(spec string) string {
	fields := strings.Fields(spec)
	if len(fields) != 5 && len(fields) != 6 {
		return spec
	}
	days := strings.Split(fields[len(fields)-1], ",")
	for i, part := range days {
		part, every, stepped := strings.Cut(part, "/")
		low, high, ranged := strings.Cut(part, "-")
		first, ok := dayNumbers[strings.ToLower(low)]
		step, err := 1, error(nil)
		if stepped {
			step, err = strconv.Atoi(every)
		}
		switch {
		case !ok || err != nil || step < 1:
		case !ranged && first == 7:
			days[i] = "0"
		case ranged && high == "7":
			var all []string
			for day := first; day <= 7; day += step {
				all = append(all, strconv.Itoa(day%7))
			}
			days[i] = strings.Join(all, ",")
		}
	}
	fields[len(fields)-1] = strings.Join(days, ",")
	return strings.Join(fields, " ")
}

// dayNumbers are the numbers of the days of the week, by how a spec names them.
var dayNumbers = map[string]int{
	"0": 0, "1": 1, "2": 2, "3": 3, "4": 4, "5": 5, "6": 6, "7": 7,
	"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6,
}

// cutZone removes the zone from the front of a spec. The parser could do it, but it
// panics if nothing follows the zone.
func cutZone(spec string, loc *time.Location) (*time.Location, string, error) {
	rest, ok := strings.CutPrefix(spec, "CRON_TZ=")
	if !ok {
		rest, ok = strings.CutPrefix(spec, "TZ=")
	}
	if !ok {
		return loc, spec, nil
	}
	end := strings.IndexAny(rest, " \t")
	if end <= 0 {
		return nil, "", errors.New(`the zone's name needs a schedule behind it; want "CRON_TZ=Area/City 0 9 * * *"`)
	}
	if rest[:end] == "Local" { // which is another zone on each machine
		return nil, "", errors.New(`the zone "Local" is another one on each machine; want a name of the IANA time zone database, such as "Europe/Berlin"`)
	}
	loc, err := time.LoadLocation(rest[:end])
	if err != nil {
		return nil, "", fmt.Errorf(`%w; want a name of the IANA time zone database, such as "Europe/Berlin"`, err)
	}
	rest = strings.TrimSpace(rest[end:])
	if strings.HasPrefix(rest, "CRON_TZ=") || strings.HasPrefix(rest, "TZ=") {
		return nil, "", errors.New("names two time zones; want one")
	}
	return loc, rest, nil
}

// parseEvery parses what follows "@every".
func parseEvery(text string) (Schedule, error) {
	period, offset, shifted := strings.Cut(text, " ")
	d, err := everyPart(period, "period", minEvery)
	if err != nil {
		return nil, err
	}
	s := everySchedule{period: int64(d / everyUnit)}
	if !shifted {
		return s, nil
	}
	offset, named := strings.CutPrefix(strings.TrimSpace(offset), "offset ")
	if !named {
		return nil, errors.New(`after the period comes nothing, or an offset such as in "@every 6h offset 90m"`)
	}
	o, err := everyPart(strings.TrimSpace(offset), "offset", 0)
	if err != nil {
		return nil, err
	}
	if o >= d {
		return nil, fmt.Errorf("offset %v is too long; want less than the period %v", o, d)
	}
	s.offset = int64(o / everyUnit)
	return s, nil
}

// everyPart parses a duration of an @every, which is at least the given one.
func everyPart(text, what string, least time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf(`%w; want a period such as "@every 1m30s"`, err)
	}
	if d < least {
		return 0, fmt.Errorf("%s %v is too short; want at least %v", what, d, least)
	}
	if d%everyUnit != 0 {
		return 0, fmt.Errorf("%s %v is too fine; want whole milliseconds", what, d)
	}
	return d, nil
}

// hourIsWildcard reports whether a schedule follows elapsed time. It does if its hour
// field begins with a wildcard and names more than one hour, or if it names all 24.
func hourIsWildcard(spec string, hours uint64) bool {
	hours &^= wildcardBit
	if hours == allHours {
		return true
	}
	if hours&(hours-1) == 0 {
		return false
	}
	fields := strings.Fields(spec)
	if len(fields) < 5 {
		return false // a descriptor
	}
	hour := fields[len(fields)-4]
	return hour[0] == '*' || hour[0] == '?'
}

// everySchedule ticks at a time after the multiples of its period since the Unix epoch. Both are in ms, and the offset is
// less than the period.
type everySchedule struct{ period, offset int64 }

func (s everySchedule) Next(after time.Time) time.Time {
	ms := after.UnixMilli() - s.offset
	return time.UnixMilli(ms - (ms%s.period+s.period)%s.period + s.period + s.offset).UTC()
}

func (s everySchedule) Zone() *time.Location { return time.UTC }

// wallClock is a schedule in wall-clock time. A wall-clock time is stored as the UTC time
// with the same digits. So times can be compared and counted without a zone.
type wallClock struct {
	clock *cron.SpecSchedule // in UTC
	loc   *time.Location
}

func (c wallClock) Zone() *time.Location { return c.loc }

// next returns the first wall-clock time after w that the schedule names, or the zero
// time. The parser's own search ends after five years. Around the year 2100 there are
// eight years from one 29 February to the next. So next searches twice.
func (c wallClock) next(w time.Time) time.Time {
	if t := c.clock.Next(w); !t.IsZero() {
		return t
	}
	return c.clock.Next(time.Date(w.Year()+5, time.January, 1, 0, 0, -1, 0, time.UTC))
}

// A span is a period with one offset from UTC. start is zero if the period has no
// beginning, and end is zero if it has no end.
type span struct {
	start, end time.Time
	offset     time.Duration
}

func (c wallClock) span(t time.Time) span {
	t = t.In(c.loc)
	start, end := t.ZoneBounds()
	// For years after its table, Go assumes 365 days. So on 31 December of a leap year it
	// says that the span has ended already. A span may be shorter than the real one, so
	// cut it at midnight.
	if !end.IsZero() && !end.After(t) {
		end = t.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
	}
	_, offset := t.Zone()
	return span{start.UTC(), end.UTC(), time.Duration(offset) * time.Second}
}

func (s span) wall(t time.Time) time.Time    { return t.Add(s.offset) }
func (s span) instant(w time.Time) time.Time { return w.Add(-s.offset) }
func (s span) holds(t time.Time) bool        { return s.end.IsZero() || t.Before(s.end) }

// elapsedSchedule fires whenever the wall clock shows a time that the schedule names.
type elapsedSchedule struct{ wallClock }

func (s elapsedSchedule) Next(after time.Time) time.Time {
	from := floor(after)
	for at, limit := from, from.Add(searchLimit); at.Before(limit); {
		sp := s.span(at)
		w := s.next(sp.wall(from))
		if w.IsZero() {
			break
		}
		if next := sp.instant(w); sp.holds(next) {
			return next
		}
		// No tick is left before the offset changes. Search again from there on, the
		// first second included, with the new offset.
		at, from = sp.end, sp.end.Add(-time.Second)
	}
	return time.Time{}
}

// fixedSchedule fires once for each wall-clock time that the schedule names, when the
// wall clock first shows this time or a later one. So it follows the highest time that
// the clock has ever shown. That time stands still in a doubled hour, and jumps over a
// gap.
type fixedSchedule struct{ wallClock }

func (s fixedSchedule) Next(after time.Time) time.Time {
	t := floor(after)
	w := s.next(s.highest(t))
	if w.IsZero() {
		return time.Time{}
	}
	for sp := s.span(t); ; sp = s.span(sp.end) {
		next := sp.instant(w)
		if !sp.holds(next) {
			continue
		}
		if next.Before(sp.start) { // w is in the gap before this span
			return sp.start
		}
		return next
	}
}

// highest returns the highest wall-clock time that was shown until t, in whole seconds.
func (s fixedSchedule) highest(t time.Time) time.Time {
	sp := s.span(t)
	high := sp.wall(t)
	for !sp.start.IsZero() && t.Sub(sp.start) < longestStep {
		last := sp.start.Add(-time.Second)
		sp = s.span(last)
		if w := sp.wall(last); w.After(high) {
			high = w
		}
	}
	return high
}

// floor returns t in whole seconds, rounded down, in UTC.
func floor(t time.Time) time.Time { return time.Unix(t.Unix(), 0).UTC() }
