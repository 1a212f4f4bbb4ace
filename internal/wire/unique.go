package wire

import (
	"encoding/binary"
	"strings"
	"time"
)

// The scopes of a unique key: until when its job has it.
const (
	UntilStarted byte = 's' // until a worker first gets the job
	UntilEnded   byte = 'e' // until the job has ended
	ForWindow    byte = 'w' // for a time from the enqueue on, whatever becomes of the job
	Throttled    byte = 't' // until a worker first gets the job, and then for a time; others that come in that time are due at its end
)

// HasStarted is what the record has as the scope of a key of UntilStarted once a worker has got the job. Such a job has no key any more.
const HasStarted byte = 'S'

// A Unique is a key that one job has at a time, of those of its kind and queue.
type Unique struct {
	Key    string        // see UniqueKey
	Scope  byte          // or 0, if the job has no key
	Window time.Duration // of ForWindow and Throttled, in whole microseconds
}

// UniqueKey returns a key for jobs of a kind: of a name that a producer chose, or of a digest of arguments.
func UniqueKey(kind, name string, digest bool) string {
	if digest {
		return kind + " a" + name
	}
	return kind + " k" + name
}

// Name returns what the key was made of. digest reports whether that is a digest of arguments.
func (u Unique) Name() (name string, digest bool) {
	_, name, _ = strings.Cut(u.Key, " ")
	if name == "" {
		return u.Key, false // of another program
	}
	return name[1:], name[0] == 'a'
}

// appendUnique appends the part of the extras for the key.
func appendUnique(dst []byte, u Unique) []byte {
	size := 1 + len(u.Key)
	timed := u.Scope == ForWindow || u.Scope == Throttled
	if timed {
		size += 8
	}
	dst = append(binary.BigEndian.AppendUint16(dst, uint16(size)), u.Scope)
	if timed {
		dst = binary.BigEndian.AppendUint64(dst, uint64(u.Window.Microseconds()))
	}
	return append(dst, u.Key...)
}

// UniqueOf returns the key of the job with this record. Its scope is 0 if there is none, or if it can't be read. It reads records of every
// version.
func UniqueOf(record []byte) Unique {
	extras, ok := extrasOf(record, FlagUnique)
	if !ok {
		return Unique{}
	}
	part := behindGroup(record[flagsAt], extras)
	if record[flagsAt]&flagRetain != 0 {
		part = part[min(retainLen, len(part)):]
	}
	return ParseUnique(part)
}

// ParseUnique reads a part that appendUnique has made. More may follow.
func ParseUnique(part []byte) Unique {
	if len(part) < 2 {
		return Unique{}
	}
	size := int(binary.BigEndian.Uint16(part))
	part = part[2:]
	if size < 2 || size > len(part) {
		return Unique{}
	}
	u := Unique{Scope: part[0]}
	part = part[1:size]
	switch u.Scope {
	case UntilStarted, UntilEnded, HasStarted:
	case ForWindow, Throttled:
		if len(part) < 9 {
			return Unique{}
		}
		u.Window = time.Duration(min(binary.BigEndian.Uint64(part), uint64(MaxRetain.Microseconds()))) * time.Microsecond
		part = part[8:]
	default:
		return Unique{}
	}
	u.Key = string(part)
	return u
}

// Until says in words until when the job has the key.
func (u Unique) Until() string {
	switch u.Scope {
	case UntilStarted, HasStarted:
		return "started"
	case UntilEnded:
		return "ended"
	case ForWindow:
		return u.Window.String()
	case Throttled:
		return "started, then " + u.Window.String()
	}
	return ""
}
