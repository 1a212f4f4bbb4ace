package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox"
)

const day = 24 * time.Hour

// span returns a duration for people, in at most two units: "3m12s", "4d2h".
func span(d time.Duration) string {
	if d < 0 {
		d = -d
	}
	two := func(a, b time.Duration, nameA, nameB string) string {
		s := strconv.FormatInt(int64(d/a), 10) + nameA
		if rest := d % a / b; rest > 0 {
			s += strconv.FormatInt(int64(rest), 10) + nameB
		}
		return s
	}
	switch {
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	case d < time.Minute:
		return strconv.FormatInt(int64(d/time.Second), 10) + "s"
	case d < time.Hour:
		return two(time.Minute, time.Second, "m", "s")
	case d < day:
		return two(time.Hour, time.Minute, "h", "m")
	}
	return two(day, time.Hour, "d", "h")
}

// seconds is a duration in JSON.
func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1e6) / 1e6 }

// timestamp is a time in JSON: RFC 3339 in UTC, or null.
func timestamp(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := stamp(t)
	return &s
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// size returns a number of bytes for people.
func size(n int64) string {
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if size := int64(1) << (30 - 10*i); n >= size {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(n)/float64(size)), ".0") + " " + unit
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// A spanFlag is a flag with a duration, that may be in days: "30d", "12h".
type spanFlag struct {
	d   time.Duration
	set bool
}

func (f *spanFlag) String() string {
	if !f.set {
		return ""
	}
	return span(f.d)
}
func (f *spanFlag) Type() string { return "duration" }
func (f *spanFlag) Set(s string) error {
	d, err := parseSpan(s)
	if err != nil {
		return err
	}
	f.d, f.set = d, true
	return nil
}

// A retainFlag is a flag that says how long a job is kept after it has ended: a duration, or none.
type retainFlag struct{ spanFlag }

// noneKept is the flag's value for signalbox.RetainNone.
const noneKept = "none"

func (f *retainFlag) String() string {
	if f.d == signalbox.RetainNone {
		return noneKept
	}
	return f.spanFlag.String()
}

func (f *retainFlag) Set(s string) error {
	if s == noneKept {
		f.d, f.set = signalbox.RetainNone, true
		return nil
	}
	if err := f.spanFlag.Set(s); err != nil || f.d > 0 {
		return err
	}
	return fmt.Errorf("want a duration such as 12h or 30d, or none")
}

func parseSpan(s string) (time.Duration, error) {
	total := time.Duration(0)
	rest := s
	if days, after, ok := strings.Cut(s, "d"); ok {
		n, err := strconv.ParseInt(days, 10, 64)
		if err != nil || n < 0 || n > 36500 {
			return 0, fmt.Errorf("want a duration such as 90s, 12h or 30d")
		}
		total, rest = time.Duration(n)*day, after
		if rest == "" {
			return total, nil
		}
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("want a duration such as 90s, 12h or 30d")
	}
	return total + d, nil
}

// A bytesFlag is a flag with a number of bytes: "1048576", "64MiB", "1GiB".
type bytesFlag struct{ n int64 }

func (f *bytesFlag) String() string { return strconv.FormatInt(f.n, 10) }
func (f *bytesFlag) Type() string   { return "bytes" }
func (f *bytesFlag) Set(s string) error {
	shift := 0
	number := s
	for i, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if before, ok := strings.CutSuffix(s, unit); ok {
			number, shift = before, 10*(i+1)
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64>>shift {
		return fmt.Errorf("want bytes such as 1048576, 64MiB or 1GiB")
	}
	f.n = n << shift
	return nil
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// nonNil is a list in JSON: [] if it is empty, never null.
func nonNil(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
