package schedule

import (
	"fmt"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox"
)

// offsetPrefix begins the name of a zone that has one offset from UTC and no other name: "UTC+05:45".
const offsetPrefix = "UTC"

// offsetForms are the forms of what follows, without and with seconds.
var offsetForms = [2]string{"-07:00", "-07:00:00"}

// ZoneName returns a name by which LoadZone finds the zone on another machine. It is a name of the IANA time zone
// database, or "UTC+05:45" for a zone with that offset. For any other zone, such as a time.Local that has no name, it
// is the zone's own name, which LoadZone refuses.
func ZoneName(loc *time.Location, now time.Time) string {
	name := loc.String()
	if same, err := LoadZone(name); err == nil && alike(loc, same, now) {
		return name
	}
	if start, end := now.In(loc).ZoneBounds(); start.IsZero() && end.IsZero() {
		_, offset := now.In(loc).Zone()
		return offsetName(offset)
	}
	return name
}

// alike reports whether the zones have the same offset now and in the two years to come.
func alike(a, b *time.Location, now time.Time) bool {
	for week := range 104 {
		at := now.AddDate(0, 0, 7*week)
		_, x := at.In(a).Zone()
		_, y := at.In(b).Zone()
		if x != y {
			return false
		}
	}
	return true
}

// offsetName returns the name of a zone with an offset in seconds: "UTC" for 0.
func offsetName(offset int) string {
	if offset == 0 {
		return offsetPrefix
	}
	form := offsetForms[0]
	if offset%60 != 0 {
		form = offsetForms[1]
	}
	return offsetPrefix + time.Unix(0, 0).In(time.FixedZone("", offset)).Format(form)
}

// LoadZone returns the zone of a name that ZoneName returned. The error wraps [signalbox.ErrInvalid]: the name is none
// that is known on this machine.
func LoadZone(name string) (*time.Location, error) {
	if offset, ok := strings.CutPrefix(name, offsetPrefix); ok && offset != "" {
		for _, form := range offsetForms {
			if at, err := time.Parse(form, offset); err == nil {
				_, east := at.Zone()
				return time.FixedZone(name, east), nil
			}
		}
		return nil, unknown(name)
	}
	if name == "" || name == "Local" { // LoadLocation would return a zone of this machine, or UTC
		return nil, unknown(name)
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", unknown(name), err)
	}
	return loc, nil
}

func unknown(name string) error {
	return fmt.Errorf("%w time zone %q: it is not known on this machine; give scheduler.In a zone of time.LoadLocation", signalbox.ErrInvalid, name)
}
