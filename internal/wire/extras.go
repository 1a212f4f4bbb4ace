package wire

import (
	"encoding/binary"
	"time"

	"github.com/signalbox-go/signalbox"
)

// The flags of a record. Each stands for a part of the extras. The parts follow one another in the order of the flags' values.
const (
	// FlagGroup is the group of the job: a byte with a length, and so many bytes. The first of them is 's' if the group is serial, else 'g'. Its
	// key follows.
	FlagGroup byte = 1
	// flagRetain is how long the job is kept after it has ended: 8 bytes, in microseconds, big endian. 0: not at all.
	flagRetain byte = 2
	// FlagUnique is the job's unique key: two bytes with a length, big endian, and a Unique of that length.
	FlagUnique byte = 4
	// FlagExpires is how long after it is due the job expires if it hasn't started: 8 bytes, in microseconds, big endian. 0: it has started. Such a job
	// has a group: one without a group of its own has that of Unstarted. If the first of the bytes is 128, the job has a deadline, and the other seven say
	// when that is, in microseconds since the Unix epoch. With 129 it has started.
	FlagExpires byte = 8
	// flagYield says that a job of a serial group leaves it while it waits for its retry. It has no part in the extras.
	flagYield byte = 16
	// flagPast is what the scripts know of the job's crashes: a byte, how many deliveries in a row have ended by themselves since the last one, and 4
	// bytes, big endian, how long the job had run at the last one, in milliseconds; 0 if that isn't known, or if a later one did not count.
	flagPast byte = 32
	// FlagLinks is the links by which the job is a member of a batch, or waits for one: two bytes with a length, big endian, and so many bytes.
	FlagLinks byte = 64

	// What the first byte of the part of FlagExpires says.
	deadlineSet     = 128
	deadlineStarted = 129

	retainLen  = 8
	expiresLen = 8
	pastLen    = 5
)

// Unstarted is the key of the group of jobs that expire and have no other group. No caller can choose it.
const Unstarted = "{}"

// MaxExpires is the longest time in which a job can have to start.
const MaxExpires = 10_000 * 24 * time.Hour

// maxDeadline is the last deadline, in microseconds since the Unix epoch: in the year 2255. A double holds no more.
const maxDeadline = 1<<53 - 1

// MaxRetain is the longest time for which a record can say that its job is kept. A longer one counts as this one. The function own_age
// of the scripts has the same bound.
const MaxRetain = 10_000 * 24 * time.Hour

// The first byte of a group's key says whether the group is serial.
const (
	serialKey = 's'
	groupKey  = 'g'
)

// Extras returns the flags and the extras of the job's record. The key of a group has at most 200 bytes.
func Extras(job *signalbox.Job) (flags byte, extras []byte) {
	group := job.Group
	if group == "" && (job.ExpireAfter > 0 || !job.Deadline.IsZero()) {
		group = Unstarted
	}
	if group != "" {
		kind := byte(groupKey)
		if job.Serial {
			kind = serialKey
		}
		flags, extras = FlagGroup, append(extras, byte(len(group)+1), kind)
		extras = append(extras, group...)
		if job.Serial && job.YieldOnRetry {
			flags |= flagYield
		}
	}
	switch {
	case job.Retain < 0:
		flags, extras = flags|flagRetain, append(extras, make([]byte, retainLen)...)
	case job.Retain > 0:
		us := max(min(job.Retain, MaxRetain).Microseconds(), 1)
		flags, extras = flags|flagRetain, binary.BigEndian.AppendUint64(extras, uint64(us))
	}
	switch {
	case !job.Deadline.IsZero():
		us := uint64(min(max(job.Deadline.UnixMicro(), 1), maxDeadline))
		flags, extras = flags|FlagExpires, binary.BigEndian.AppendUint64(extras, deadlineSet<<56|us)
	case job.ExpireAfter > 0:
		us := max(min(job.ExpireAfter, MaxExpires).Microseconds(), 1)
		flags, extras = flags|FlagExpires, binary.BigEndian.AppendUint64(extras, uint64(us))
	}
	return flags, extras
}

// WithUnique returns the flags and the extras of a new record with a unique key, too. They have none. The extras are appended to dst.
func WithUnique(dst []byte, flags byte, extras []byte, u Unique) (byte, []byte) {
	before := len(extras) - len(behindUnique(flags, extras))
	return flags | FlagUnique, append(appendUnique(append(dst, extras[:before]...), u), extras[before:]...)
}

// WithLinks returns the flags and the extras of a new record with links, too, which go behind all else. They have none.
func WithLinks(flags byte, extras []byte, links string) (byte, []byte) {
	return flags | FlagLinks, append(binary.BigEndian.AppendUint16(extras, uint16(len(links))), links...)
}

// LinksOf returns the links of a job, as its record says, or "" if it has none. It reads records of every version.
func LinksOf(record []byte) string {
	extras, ok := extrasOf(record, FlagLinks)
	if !ok {
		return ""
	}
	extras = behindPast(record[flagsAt], extras)
	if len(extras) < 2 || len(extras) < 2+int(binary.BigEndian.Uint16(extras)) {
		return ""
	}
	return string(extras[2 : 2+int(binary.BigEndian.Uint16(extras))])
}

// WithoutLinks returns a copy of the record in which no links count, or the record itself if it has none: it is of the same length, and each link has the role [LinkOver].
func WithoutLinks(record []byte) []byte {
	links := LinksOf(record)
	if links == "" {
		return record
	}
	start, _ := envelopeAt(record) // LinksOf has found it
	out := append([]byte(nil), record...)
	at := start - len(links)
	for i := range len(links) {
		if i == 0 || links[i-1] == ' ' {
			out[at+i] = LinkOver
		}
	}
	return out
}

// The roles of links. A link is a role and the name of a batch; there are spaces between links.
const (
	LinkMember        = 'r' // a member that hasn't ended; in upper case one that has, of a record that is kept
	LinkAwaitsSuccess = 's' // waits for the success of the batch; in upper case a job that may run, or has run; so are the next two
	LinkAwaitsEnd     = 'e' // waits for its end
	LinkAwaitsFailure = 'f' // waits for the first member that doesn't complete
	LinkOver          = 'z' // counts no more
)

// Shorten takes a time off the time in which the job of a new record has to start, in its extras. 1 µs is left at least: 0 is never. A deadline stays.
func Shorten(flags byte, extras []byte, by time.Duration) {
	at := behindUnique(flags, extras)
	if flags&FlagExpires == 0 || len(at) < expiresLen || hasDeadline(at) || by <= 0 {
		return
	}
	us := binary.BigEndian.Uint64(at)
	binary.BigEndian.PutUint64(at, us-min(uint64(by.Microseconds()), max(us, 1)-1))
}

// ExpiresOf returns how long after it is due the job expires if it hasn't started, as its record says, or 0 if it doesn't say so: it has started, it has a
// deadline, or its producer said neither. It reads records of every version.
func ExpiresOf(record []byte) time.Duration {
	part := expiresPart(record)
	if part == nil || hasDeadline(part) {
		return 0
	}
	return time.Duration(min(binary.BigEndian.Uint64(part), uint64(MaxExpires.Microseconds()))) * time.Microsecond
}

// DeadlineOf returns the job's deadline, as its record says, or the zero time if it has none, and whether it has started. It reads records of every version.
func DeadlineOf(record []byte) (at time.Time, started bool) {
	part := expiresPart(record)
	if part == nil || !hasDeadline(part) {
		return time.Time{}, false
	}
	us := binary.BigEndian.Uint64(part) &^ (0xff << 56)
	return fromMicros(min(max(us, 1), maxDeadline)), part[0] == deadlineStarted
}

// hasDeadline reports whether a part of FlagExpires is that of a job with a deadline.
func hasDeadline(part []byte) bool { return part[0] == deadlineSet || part[0] == deadlineStarted }

// expiresPart returns the part of FlagExpires, or nil if the record has none.
func expiresPart(record []byte) []byte {
	extras, ok := extrasOf(record, FlagExpires)
	if !ok {
		return nil
	}
	if extras = behindUnique(record[flagsAt], extras); len(extras) < expiresLen {
		return nil
	}
	return extras[:expiresLen]
}

// SurvivedOf returns how many deliveries in a row have ended by themselves since the job's last crash, as its record says. It reads records of every
// version.
func SurvivedOf(record []byte) int {
	extras, ok := extrasOf(record, flagPast)
	if !ok {
		return 0
	}
	if extras = behindExpires(record[flagsAt], extras); len(extras) < pastLen {
		return 0
	}
	return int(extras[0])
}

// IsSpecial reports whether the job has a group, a unique key or links, or may expire, as its record says.
func IsSpecial(record []byte) bool {
	_, ok := extrasOf(record, FlagGroup|FlagUnique|FlagExpires|FlagLinks)
	return ok
}

// GroupOf returns the key of the job's group, as its record says, or "" if it says none. It reads records of every version.
func GroupOf(record []byte) (key string, serial bool) {
	extras, ok := extrasOf(record, FlagGroup)
	if !ok || len(extras) < 3 || len(extras) < 1+int(extras[0]) {
		return "", false
	}
	name := extras[1 : 1+int(extras[0])]
	if len(name) < 2 || name[0] != serialKey && name[0] != groupKey {
		return "", false
	}
	if string(name) == string(groupKey)+Unstarted {
		return "", false
	}
	return string(name[1:]), name[0] == serialKey
}

// YieldsOf reports whether the job's record says that it leaves its serial group while it waits for its retry.
func YieldsOf(record []byte) bool {
	_, ok := extrasOf(record, flagYield)
	return ok
}

// extrasOf returns the extras of a record that has the flag.
func extrasOf(record []byte, flag byte) (extras []byte, ok bool) {
	if len(record) < headerLen || record[0] < version || record[0] >= 0x20 || record[flagsAt]&flag == 0 {
		return nil, false
	}
	if _, known := priority(record[1]); !known {
		return nil, false
	}
	start, err := envelopeAt(record)
	if err != nil {
		return nil, false
	}
	return record[headerLen+2 : start], true
}

// RetainOf returns how long the job is kept after it has ended, as its record says: signalbox.RetainNone, or 0 if the record doesn't say
// it. It reads records of every version.
func RetainOf(record []byte) time.Duration {
	extras, ok := extrasOf(record, flagRetain)
	if !ok {
		return 0
	}
	extras = behindGroup(record[flagsAt], extras)
	if len(extras) < retainLen {
		return 0
	}
	us := min(binary.BigEndian.Uint64(extras), uint64(MaxRetain.Microseconds()))
	if us == 0 {
		return signalbox.RetainNone
	}
	return time.Duration(us) * time.Microsecond
}

// behindGroup returns the extras without the part of FlagGroup.
func behindGroup(flags byte, extras []byte) []byte {
	if flags&FlagGroup != 0 && len(extras) > 0 {
		return extras[min(1+int(extras[0]), len(extras)):]
	}
	return extras
}

// behindUnique returns the extras without the parts of FlagGroup, flagRetain and FlagUnique.
func behindUnique(flags byte, extras []byte) []byte {
	extras = behindGroup(flags, extras)
	if flags&flagRetain != 0 {
		extras = extras[min(retainLen, len(extras)):]
	}
	if flags&FlagUnique != 0 && len(extras) > 1 {
		extras = extras[min(2+int(binary.BigEndian.Uint16(extras)), len(extras)):]
	}
	return extras
}

// behindExpires returns the extras without the parts up to that of FlagExpires, and behindPast without that of flagPast, too.
func behindExpires(flags byte, extras []byte) []byte {
	extras = behindUnique(flags, extras)
	if flags&FlagExpires != 0 {
		extras = extras[min(expiresLen, len(extras)):]
	}
	return extras
}

func behindPast(flags byte, extras []byte) []byte {
	extras = behindExpires(flags, extras)
	if flags&flagPast != 0 {
		extras = extras[min(pastLen, len(extras)):]
	}
	return extras
}
