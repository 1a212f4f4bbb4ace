// Package wire encodes and decodes records. A record is the data that Redis stores for a job.
//
// A record is a fixed header of 20 bytes, then extras if the flags aren't 0, then an envelope. The scripts of
// internal/store read and write the header, and never read the envelope. docs/wire.md describes the record byte by
// byte. testdata/golden.txt has examples that must never change.
//
//	offset  size  content
//	0       1     version: 0x01, or 0x02 if the payload has another encoding than JSON
//	1       1     class: '0' high, '1' normal, '2' low priority
//	2       1     crashes, 0 to 255
//	3       1     flags: which extras there are; 0 is none. See extras.go
//	4       8     enqueued, microseconds since the Unix epoch, big endian
//	12      8     due, likewise
//	20      2     length of the extras, big endian; not there if the flags are 0
//	22      -     extras: data about the job for the scripts; not there if the flags are 0
//	-       -     envelope, a protocol buffers message
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/signalbox-go/signalbox"
)

const (
	version   = 0x01
	encoded   = 0x02 // the version of a record whose payload isn't JSON: releases that know no encodings put it back
	headerLen = 20
	flagsAt   = 3

	// MaxEnvelope is the largest envelope that is accepted, in bytes. Put larger data into a store of its own, and its
	// name into the job.
	MaxEnvelope = 1 << 20
	// MaxExtras is the largest size of a record's extras, in bytes.
	MaxExtras = 1000
	// MaxRecord is the largest record, in bytes.
	MaxRecord = headerLen + 2 + MaxExtras + MaxEnvelope
)

// The fields of the envelope.
const (
	fieldKind        protowire.Number = 1  // string
	fieldPayload     protowire.Number = 2  // bytes
	fieldHeader      protowire.Number = 3  // map<string, string>
	fieldFailed      protowire.Number = 4  // uint64: failed attempts so far
	fieldMaxAttempts protowire.Number = 5  // uint64: 0 is signalbox.DefaultMaxAttempts
	fieldTimeout     protowire.Number = 6  // uint64: microseconds, 0 is none
	fieldLastError   protowire.Number = 7  // string
	fieldEffect      protowire.Number = 8  // string: the effect key that the caller set
	fieldIncarnation protowire.Number = 9  // fixed64: differs between jobs that use an ID one after the other
	fieldAttempt     protowire.Number = 10 // repeated Attempt: the latest failed attempts, oldest first
	fieldFinished    protowire.Number = 11 // bool: the handler had returned nil when the job ended cancelled
	fieldSuccess     protowire.Number = 12 // Attempt: the one that completed the job; of jobs that are kept
	fieldEncoding    protowire.Number = 13 // string: how the payload is encoded, if it isn't JSON
	fieldBorn        protowire.Number = 14 // fixed64: when the job was to run first, in microseconds, if its producer gave a time
	fieldSaved       protowire.Number = 16 // Saved: what its handler has saved for later deliveries

	// The fields of a header, that is of an entry of the map.
	headerName  protowire.Number = 1
	headerValue protowire.Number = 2
)

var (
	// ErrVersion means that a newer release wrote the record.
	ErrVersion = errors.New("wire: record of a newer version")
	// ErrCorrupt means that the bytes are not a record.
	ErrCorrupt = errors.New("wire: corrupt record")
)

// Class is the byte for a priority.
func Class(p signalbox.Priority) byte {
	switch p {
	case signalbox.PriorityHigh:
		return '0'
	case signalbox.PriorityLow:
		return '2'
	case signalbox.PriorityNormal:
	}
	return '1'
}

func priority(class byte) (signalbox.Priority, bool) {
	switch class {
	case '0':
		return signalbox.PriorityHigh, true
	case '1':
		return signalbox.PriorityNormal, true
	case '2':
		return signalbox.PriorityLow, true
	}
	return 0, false
}

// AppendRecord appends the job's record: the header, then the envelope.
func AppendRecord(b []byte, job *signalbox.Job) []byte {
	flags, extras := Extras(job)
	return AppendEnvelope(appendHead(b, job, flags, extras), job)
}

func appendHead(b []byte, job *signalbox.Job, flags byte, extras []byte) []byte {
	return Head{
		Encoded: job.Encoding != "", Class: Class(job.Priority), Crashes: byte(min(max(job.Crashes, 0), 255)), Flags: flags,
		Enqueued: micros(job.EnqueuedAt), Due: micros(job.ScheduledAt), Extras: extras,
	}.Append(b)
}

// A Head is what a record has before its envelope.
type Head struct {
	Encoded       bool // the payload isn't JSON
	Class         byte
	Crashes       byte
	Flags         byte
	Enqueued, Due uint64 // µs
	Extras        []byte // left out without flags
}

// Append appends the header, and the extras if there are flags.
func (h Head) Append(b []byte) []byte {
	v := byte(version)
	if h.Encoded {
		v = encoded
	}
	b = append(b, v, h.Class, h.Crashes, h.Flags)
	b = binary.BigEndian.AppendUint64(b, h.Enqueued)
	b = binary.BigEndian.AppendUint64(b, h.Due)
	if h.Flags != 0 {
		b = binary.BigEndian.AppendUint16(b, uint16(len(h.Extras)))
		b = append(b, h.Extras...)
	}
	return b
}

// known reports whether this release knows records of that version.
func known(v byte) bool { return v == version || v == encoded }

// AppendEnvelope appends the job's envelope. Fields at their default are left out.
func AppendEnvelope(b []byte, job *signalbox.Job) []byte {
	b = protowire.AppendTag(b, fieldKind, protowire.BytesType)
	b = protowire.AppendString(b, job.Kind)
	if len(job.Payload) > 0 {
		b = protowire.AppendTag(b, fieldPayload, protowire.BytesType)
		b = protowire.AppendBytes(b, job.Payload)
	}
	for _, k := range names(job.Headers) {
		b = AppendHeader(b, k, job.Headers[k])
	}
	if job.Attempt > 1 {
		b = appendUint(b, fieldFailed, uint64(job.Attempt-1))
	}
	if job.MaxAttempts > 0 && job.MaxAttempts != signalbox.DefaultMaxAttempts {
		b = appendUint(b, fieldMaxAttempts, uint64(job.MaxAttempts))
	}
	if job.Timeout > 0 {
		b = appendUint(b, fieldTimeout, uint64(max(job.Timeout.Microseconds(), 1)))
	}
	if job.LastError != "" {
		b = AppendLastError(b, job.LastError)
	}
	if job.Effect != "" {
		b = protowire.AppendTag(b, fieldEffect, protowire.BytesType)
		b = protowire.AppendString(b, job.Effect)
	}
	if job.Incarnation != 0 {
		b = protowire.AppendTag(b, fieldIncarnation, protowire.Fixed64Type)
		b = protowire.AppendFixed64(b, job.Incarnation)
	}
	if job.Finished {
		b = appendUint(b, fieldFinished, 1)
	}
	if job.Encoding != "" {
		b = protowire.AppendTag(b, fieldEncoding, protowire.BytesType)
		b = protowire.AppendString(b, job.Encoding)
	}
	if us := micros(job.Born); us != 0 {
		b = protowire.AppendTag(b, fieldBorn, protowire.Fixed64Type)
		b = protowire.AppendFixed64(b, us)
	}
	if len(job.Saved) > 0 {
		b = AppendSaved(b, job.Saved)
	}
	return b
}

// AppendHeader appends a header to an envelope. It replaces an earlier one of that name: in this encoding the last entry of a map counts.
func AppendHeader(b []byte, name, value string) []byte {
	b = protowire.AppendTag(b, fieldHeader, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(2+protowire.SizeBytes(len(name))+protowire.SizeBytes(len(value))))
	b = protowire.AppendTag(b, headerName, protowire.BytesType)
	b = protowire.AppendString(b, name)
	b = protowire.AppendTag(b, headerValue, protowire.BytesType)
	return protowire.AppendString(b, value)
}

// names returns the headers' names in sorted order: so a job has one encoding.
func names(headers map[string]string) []string {
	if len(headers) == 0 {
		return nil
	}
	all := make([]string, 0, len(headers))
	for k := range headers {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

// AppendLastError appends the last error. In this encoding a later field replaces an earlier one. So a script can set
// it by appending, without reading the record.
func AppendLastError(b []byte, message string) []byte {
	b = protowire.AppendTag(b, fieldLastError, protowire.BytesType)
	return protowire.AppendString(b, strings.ToValidUTF8(message, "\uFFFD"))
}

func appendUint(b []byte, field protowire.Number, v uint64) []byte {
	b = protowire.AppendTag(b, field, protowire.VarintType)
	return protowire.AppendVarint(b, v)
}

// Decode reads a record into job. It doesn't change fields that are not part of a record: the ID, the namespace, the
// queue, the token, ClaimedAt. It copies all data that it keeps, and ignores fields that it doesn't know. The error
// wraps ErrVersion or ErrCorrupt. Even then the header's fields have been read, if possible.
func Decode(record []byte, job *signalbox.Job) error {
	*job = signalbox.Job{ID: job.ID, Namespace: job.Namespace, Queue: job.Queue, Token: job.Token, ClaimedAt: job.ClaimedAt}
	if len(record) == 0 {
		return fmt.Errorf("%w: it is empty", ErrCorrupt)
	}
	v := record[0]
	if v < version || v >= 0x20 { // no version is a printable byte
		return fmt.Errorf("%w: it starts with byte 0x%02x", ErrCorrupt, v)
	}
	err := decodeHead(record, job)
	if v > encoded {
		return fmt.Errorf("%w: version %d, this release reads up to %d: update the workers before the producers", ErrVersion, v, encoded)
	}
	if err != nil {
		return err
	}
	start, err := envelopeAt(record)
	if err != nil {
		return err
	}
	head := *job
	if err := decodeEnvelope(record[start:], job); err != nil {
		*job = head
		return err
	}
	return nil
}

// envelopeAt returns the offset of the envelope. The record must be at least as long as a header.
func envelopeAt(record []byte) (int, error) {
	if record[flagsAt] == 0 {
		return headerLen, nil
	}
	start := headerLen + 2
	if len(record) >= start {
		start += int(binary.BigEndian.Uint16(record[headerLen:]))
	}
	if len(record) < start {
		return 0, fmt.Errorf("%w: it ends in its extras", ErrCorrupt)
	}
	return start, nil
}

// decodeHead reads the header. It is the same in all versions, since the scripts read it too.
func decodeHead(record []byte, job *signalbox.Job) error {
	if len(record) < headerLen {
		return fmt.Errorf("%w: %d bytes, the header alone takes %d", ErrCorrupt, len(record), headerLen)
	}
	prio, ok := priority(record[1])
	if !ok {
		return fmt.Errorf("%w: priority byte 0x%02x", ErrCorrupt, record[1])
	}
	job.Priority = prio
	job.Crashes = int(record[2])
	job.EnqueuedAt = fromMicros(binary.BigEndian.Uint64(record[4:]))
	job.ScheduledAt = fromMicros(binary.BigEndian.Uint64(record[12:]))
	job.Retain, job.ExpireAfter = RetainOf(record), ExpiresOf(record)
	job.Deadline, _ = DeadlineOf(record)
	job.Group, job.Serial = GroupOf(record)
	job.YieldOnRetry = job.Serial && YieldsOf(record)
	return nil
}

// DecodeEnvelope returns what an envelope says of its job. It is an error if it has no kind.
func DecodeEnvelope(envelope []byte) (job signalbox.Job, err error) {
	if err := decodeEnvelope(envelope, &job); err != nil {
		return job, err
	}
	if job.Kind == "" {
		return job, fmt.Errorf("wire: the envelope has no kind")
	}
	return job, nil
}

func decodeEnvelope(b []byte, job *signalbox.Job) error {
	job.Attempt, job.MaxAttempts = 1, signalbox.DefaultMaxAttempts
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return corrupt("a field's tag", n)
		}
		b = b[n:]
		switch {
		case typ == protowire.BytesType && (num <= fieldHeader || num == fieldLastError || num == fieldEffect || num == fieldEncoding || num == fieldSaved):
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return corrupt("a field's length", n)
			}
			b = b[n:]
			switch num {
			case fieldKind:
				job.Kind = string(v)
			case fieldPayload:
				job.Payload = append([]byte(nil), v...)
			case fieldHeader:
				if err := decodeHeader(v, job); err != nil {
					return err
				}
			case fieldLastError:
				job.LastError = string(v)
			case fieldEffect:
				job.Effect = string(v)
			case fieldEncoding:
				job.Encoding = string(v)
			case fieldSaved:
				job.Saved = append([]byte(nil), v...)
			}
		case typ == protowire.VarintType && fieldFailed <= num && num <= fieldTimeout:
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return corrupt("a number", n)
			}
			b = b[n:]
			switch num {
			case fieldFailed:
				job.Attempt = int(min(v, 1<<31-2)) + 1
			case fieldMaxAttempts:
				if v > 0 {
					job.MaxAttempts = int(min(v, 1<<31-1))
				}
			case fieldTimeout:
				job.Timeout = time.Duration(min(v, 1<<53)) * time.Microsecond
			}
		case (num == fieldIncarnation || num == fieldBorn) && typ == protowire.Fixed64Type:
			v, n := protowire.ConsumeFixed64(b)
			if n < 0 {
				return corrupt("a number", n)
			}
			b = b[n:]
			if num == fieldBorn {
				job.Born = fromMicros(v)
			} else {
				job.Incarnation = v
			}
		case num == fieldFinished && typ == protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return corrupt("a number", n)
			}
			b = b[n:]
			job.Finished = v != 0
		default:
			n := protowire.ConsumeFieldValue(num, typ, b)
			if n < 0 {
				return corrupt("an unknown field", n)
			}
			b = b[n:]
		}
	}
	if job.Kind == "" {
		return fmt.Errorf("%w: it names no kind", ErrCorrupt)
	}
	return nil
}

// KindAt returns the kind of an envelope from the envelope's first bytes. It returns "" if the kind isn't there as a whole: Signalbox
// writes it first, other producers may not.
func KindAt(head []byte) string {
	num, _, n := protowire.ConsumeTag(head)
	if n < 0 || num != fieldKind {
		return ""
	}
	kind, n := protowire.ConsumeBytes(head[n:])
	if n < 0 {
		return ""
	}
	return string(kind)
}

func decodeHeader(b []byte, job *signalbox.Job) error {
	var key, value string
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return corrupt("a header's tag", n)
		}
		b = b[n:]
		if typ != protowire.BytesType {
			n := protowire.ConsumeFieldValue(num, typ, b)
			if n < 0 {
				return corrupt("a header", n)
			}
			b = b[n:]
			continue
		}
		v, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return corrupt("a header", n)
		}
		b = b[n:]
		switch num {
		case headerName:
			key = string(v)
		case headerValue:
			value = string(v)
		}
	}
	if job.Headers == nil {
		job.Headers = make(map[string]string)
	}
	job.Headers[key] = value
	return nil
}

func corrupt(where string, code int) error {
	return fmt.Errorf("%w: %s: %w", ErrCorrupt, where, protowire.ParseError(code))
}

func micros(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(max(t.UnixMicro(), 0))
}

func fromMicros(us uint64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(min(us, 1<<53)))
}
