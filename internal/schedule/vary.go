package schedule

import (
	"crypto/sha1"
	"encoding/binary"
	"time"
)

// A Variation changes when the ticks of a schedule come. The zero value changes nothing.
type Variation struct {
	// Start leaves out the ticks before it, End those after it. The zero time is no bound.
	Start, End time.Time
	// Jitter delays each tick by a time from 0 to less than Jitter, and less than the time to the next tick. Whole ms.
	Jitter time.Duration
	// Seed decides with the time of a tick how long it is delayed: the same for all who have the same seed.
	Seed string
}

// Seed returns the seed of a cron entry.
func Seed(queue, entry string) string { return queue + "\n" + entry + "\n" }

// Vary returns the schedule with the variation. Start and End bound the ticks as they are before the jitter delays them.
func Vary(s Schedule, v Variation) Schedule {
	if v.Jitter == 0 && v.Start.IsZero() && v.End.IsZero() {
		return s
	}
	return varied{s, v}
}

// varied is a schedule with a variation. A tick never comes after the time of the next one before its own delay. So the order of ticks is
// kept, and the last tick before a time can be found.
type varied struct {
	Schedule
	v Variation
}

func (s varied) Next(after time.Time) time.Time {
	if s.v.Jitter == 0 {
		return s.bounded(after)
	}
	// Of the ticks that have come by then only the last one can be delayed beyond it.
	first := after.Add(-s.v.Jitter)
	for _, t := range Last(plain{s}, first, after.Add(1), 1) {
		if at := s.delayed(t); at.After(after) {
			return at
		}
	}
	if t := s.bounded(after); !t.IsZero() {
		return s.delayed(t)
	}
	return time.Time{}
}

// bounded returns the next tick without its delay.
func (s varied) bounded(after time.Time) time.Time {
	if before := s.v.Start.Add(-1); !s.v.Start.IsZero() && after.Before(before) {
		after = before
	}
	next := s.Schedule.Next(after)
	if !s.v.End.IsZero() && next.After(s.v.End) {
		return time.Time{}
	}
	return next
}

// plain is a varied schedule without the delays.
type plain struct{ varied }

func (p plain) Next(after time.Time) time.Time { return p.bounded(after) }

// delayed returns when the tick t comes.
func (s varied) delayed(t time.Time) time.Time {
	window := s.v.Jitter
	if next := s.Schedule.Next(t); !next.IsZero() {
		window = min(window, next.Sub(t))
	}
	sum := sha1.Sum(binary.BigEndian.AppendUint64([]byte(s.v.Seed), uint64(t.UnixMilli())))
	ms := binary.BigEndian.Uint64(sum[:]) % uint64(max(window/time.Millisecond, 1))
	return t.Add(time.Duration(ms) * time.Millisecond)
}

func (s varied) words() string {
	text := Words(s.Schedule)
	if s.v.Jitter > 0 {
		text += ", up to " + s.v.Jitter.String() + " later"
	}
	if !s.v.Start.IsZero() {
		text += ", from " + s.v.Start.In(s.Zone()).Format(time.RFC3339)
	}
	if !s.v.End.IsZero() {
		text += ", until " + s.v.End.In(s.Zone()).Format(time.RFC3339)
	}
	return text
}
