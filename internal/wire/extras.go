package wire

import (
	"encoding/binary"
	"time"

	"github.com/signalbox-go/signalbox"
)

// The flags of a record. Each stands for a part of the extras. The parts follow one another in the order of the flags' values.
const (
	// flagGroup is for a later release: a byte with a length, and so many bytes.
	flagGroup byte = 1
	// flagRetain is how long the job is kept after it has ended: 8 bytes, in microseconds, big endian. 0: not at all.
	flagRetain byte = 2

	retainLen = 8
)

// MaxRetain is the longest time for which a record can say that its job is kept. A longer one counts as this one. The fragment own_age
// of the scripts has the same bound.
const MaxRetain = 10_000 * 24 * time.Hour

// Extras returns the flags and the extras of the job's record.
func Extras(job *signalbox.Job) (flags byte, extras []byte) {
	switch {
	case job.Retain < 0:
		return flagRetain, make([]byte, retainLen)
	case job.Retain > 0:
		us := max(min(job.Retain, MaxRetain).Microseconds(), 1)
		return flagRetain, binary.BigEndian.AppendUint64(nil, uint64(us))
	}
	return 0, nil
}

// RetainOf returns how long the job is kept after it has ended, as its record says: signalbox.RetainNone, or 0 if the record doesn't say
// it. It reads records of every version.
func RetainOf(record []byte) time.Duration {
	if len(record) < headerLen || record[0] < version || record[0] >= 0x20 || record[flagsAt]&flagRetain == 0 {
		return 0
	}
	if _, known := priority(record[1]); !known {
		return 0
	}
	start, err := envelopeAt(record)
	if err != nil {
		return 0
	}
	extras := record[headerLen+2 : start]
	if record[flagsAt]&flagGroup != 0 && len(extras) > 0 {
		extras = extras[min(1+int(extras[0]), len(extras)):]
	}
	if len(extras) < retainLen {
		return 0
	}
	us := min(binary.BigEndian.Uint64(extras), uint64(MaxRetain.Microseconds()))
	if us == 0 {
		return signalbox.RetainNone
	}
	return time.Duration(us) * time.Microsecond
}
