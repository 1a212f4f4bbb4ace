package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// An Entry is the description of a cron entry, without its name, its queue and its job.
type Entry struct {
	Kind string // of its jobs
	Spec string // when they are enqueued, as package scheduler describes it
	Zone string // of the spec's times, if the spec itself names none
	// Missed says in words what happens to missed ticks.
	Missed string
	// Overlap says what happens to a tick while a job of the entry is live: "skip", "queue" or "cancel". "" is none of them.
	Overlap string
	// Jitter is by how much the ticks are delayed at most, as a duration of Go. "": they aren't.
	Jitter string
	// Start and End are the times of the first and the last tick that may come, in RFC 3339. "" is no bound.
	Start, End string
}

// The fields of an Entry.
const (
	entryKind protowire.Number = 1 // string
	entrySpec protowire.Number = 2 // string
	entryZone protowire.Number = 3 // string

	// These are strings, and left out if they are "".
	entryMissed  protowire.Number = 4
	entryOverlap protowire.Number = 5
	entryJitter  protowire.Number = 6
	entryStart   protowire.Number = 7
	entryEnd     protowire.Number = 8
)

// Append appends the entry's message.
func (e *Entry) Append(b []byte) []byte {
	for _, f := range []struct {
		num   protowire.Number
		value string
	}{{entryKind, e.Kind}, {entrySpec, e.Spec}, {entryZone, e.Zone}, {entryMissed, e.Missed}, {entryOverlap, e.Overlap}, {entryJitter, e.Jitter}, {entryStart, e.Start}, {entryEnd, e.End}} {
		if f.num >= entryMissed && f.value == "" {
			continue
		}
		b = protowire.AppendTag(b, f.num, protowire.BytesType)
		b = protowire.AppendString(b, f.value)
	}
	return b
}

// DecodeEntry reads an entry's message. It ignores fields that it doesn't know. The error wraps ErrCorrupt.
func DecodeEntry(b []byte) (Entry, error) {
	var e Entry
	err := eachField(b, func(num protowire.Number, typ protowire.Type, _, value []byte) {
		if typ != protowire.BytesType {
			return
		}
		switch num {
		case entryKind:
			e.Kind = string(value)
		case entrySpec:
			e.Spec = string(value)
		case entryZone:
			e.Zone = string(value)
		case entryMissed:
			e.Missed = string(value)
		case entryOverlap:
			e.Overlap = string(value)
		case entryJitter:
			e.Jitter = string(value)
		case entryStart:
			e.Start = string(value)
		case entryEnd:
			e.End = string(value)
		}
	})
	if err == nil && (e.Kind == "" || e.Spec == "") {
		err = fmt.Errorf("%w: it names no kind or no spec", ErrCorrupt)
	}
	if err != nil {
		return Entry{}, err
	}
	return e, nil
}
