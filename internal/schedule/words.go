package schedule

import (
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Words says in English when a schedule ticks, such as "at 09:00 on Monday to Friday, in Europe/Berlin".
func Words(s Schedule) string {
	var c wallClock
	switch s := s.(type) {
	case everySchedule:
		text := "every " + (time.Duration(s.period) * everyUnit).String()
		if s.offset != 0 {
			text += ", " + (time.Duration(s.offset) * everyUnit).String() + " after each multiple"
		}
		return text
	case varied:
		return s.words()
	case elapsedSchedule:
		c = s.wallClock
	case fixedSchedule:
		c = s.wallClock
	default:
		return ""
	}
	return timeWords(c.clock) + dayWords(c.clock) + ", in " + c.loc.String()
}

// A unit is a field of a spec.
type unit struct {
	name        string
	first, last int
	show        func(int) string
}

var (
	seconds = unit{"second", 0, 59, number}
	minutes = unit{"minute", 0, 59, number}
	hours   = unit{"hour", 0, 23, number}
	days    = unit{"day", 1, 31, number}
	months  = unit{"month", 1, 12, func(n int) string { return time.Month(n).String() }}
	weekday = unit{"weekday", 0, 6, func(n int) string { return time.Weekday(n).String() }}
)

func number(n int) string { return fmt.Sprint(n) }

// timeWords says at which times of a day a schedule ticks.
func timeWords(c *cron.SpecSchedule) string {
	second, minute, hour := values(c.Second, seconds), values(c.Minute, minutes), values(c.Hour, hours)
	if len(second)*len(minute)*len(hour) <= 4 { // so few that each time can be named
		var times []string
		for _, h := range hour {
			for _, m := range minute {
				for _, s := range second {
					text := fmt.Sprintf("%02d:%02d", h, m)
					if len(second) > 1 || s != 0 {
						text += fmt.Sprintf(":%02d", s)
					}
					times = append(times, text)
				}
			}
		}
		return "at " + list(times)
	}
	text := ""
	if len(second) > 1 || second[0] != 0 {
		text = among(second, seconds) + " of "
	}
	return text + among(minute, minutes) + " of " + among(hour, hours)
}

// dayWords says on which days a schedule ticks. "" means every day.
func dayWords(c *cron.SpecSchedule) string {
	dom, dow, month := values(c.Dom, days), values(c.Dow, weekday), values(c.Month, months)
	all, allWeek := len(dom) == 31, len(dow) == 7
	ofMonth, ofWeek := "on "+among(dom, days)+" of the month", "on "+spans(dow, weekday)
	text := ""
	switch wild := (c.Dom|c.Dow)&wildcardBit != 0; {
	case all && allWeek, !wild && (all || allWeek): // without a wildcard one match of the two is enough
	case all:
		text = " " + ofWeek
	case allWeek:
		text = " " + ofMonth
	default:
		text = " " + ofMonth + " or " + ofWeek
	}
	if len(month) < 12 {
		text += " in " + spans(month, months)
	}
	return text
}

// values returns the values of a field in ascending order.
func values(field uint64, u unit) []int {
	var all []int
	for field &^= wildcardBit; field != 0; field &= field - 1 {
		if n := bits.TrailingZeros64(field); n >= u.first && n <= u.last {
			all = append(all, n)
		}
	}
	return all
}

// among says which values of a unit are meant: "every minute", "every 5th minute from 0", "minutes 1, 2 and 7 to 9".
func among(all []int, u unit) string {
	if len(all) == u.last-u.first+1 {
		return "every " + u.name
	}
	if len(all) == 1 {
		return u.name + " " + u.show(all[0])
	}
	if step := all[1] - all[0]; step > 1 && len(all) > 2 && regular(all, step) && all[0] < u.first+step && all[len(all)-1]+step > u.last {
		text := fmt.Sprintf("every %s %s", ordinal(step), u.name)
		if all[0] != u.first {
			text += " from " + u.show(all[0])
		}
		return text
	}
	return u.name + "s " + spans(all, u)
}

func regular(all []int, step int) bool {
	for i := 1; i < len(all); i++ {
		if all[i]-all[i-1] != step {
			return false
		}
	}
	return true
}

// spans lists values. Three or more successive ones are a span: "Monday to Friday".
func spans(all []int, u unit) string {
	var parts []string
	for i := 0; i < len(all); {
		end := i
		for end+1 < len(all) && all[end+1] == all[end]+1 {
			end++
		}
		switch {
		case end >= i+2:
			parts = append(parts, u.show(all[i])+" to "+u.show(all[end]))
		default:
			for ; i <= end; i++ {
				parts = append(parts, u.show(all[i]))
			}
		}
		i = end + 1
	}
	return list(parts)
}

func list(parts []string) string {
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
}

func ordinal(n int) string {
	switch {
	case n%100 >= 11 && n%100 <= 13:
	case n%10 == 1:
		return fmt.Sprintf("%dst", n)
	case n%10 == 2:
		return fmt.Sprintf("%dnd", n)
	case n%10 == 3:
		return fmt.Sprintf("%drd", n)
	}
	return fmt.Sprintf("%dth", n)
}
