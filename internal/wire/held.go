package wire

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// HeldUntil is the due time in the record of a job that is held: later than that of any other job. No worker gets it.
var HeldUntil = time.UnixMicro(1 << 53)

// A Held says what a job was that is held, since it is being moved from one queue to another. Both queues have it then.
type Held struct {
	Peer      string    // the other queue
	Copy      bool      // this is the copy in the queue to which the job goes
	Committed bool      // of the job in the queue that it leaves: the copy may be let go, or has been
	Move      string    // names one try to move the job
	Former    string    // the names before, if other calls have taken the job over, with spaces between: the last few
	Due       time.Time // when the job was due, as its record said
	State     string    // that it had
	Ended     time.Time // when it had ended, if it had; else zero
}

// Fields of the envelope that only a job has that is held.
const (
	fieldHeld  protowire.Number = 100 // Held
	fieldState protowire.Number = 101 // string: the state, a space, when it had ended in us or 0. act.lua appends it

	heldPeer   protowire.Number = 1 // string
	heldFlags  protowire.Number = 2 // uint64: 1 Copy, 2 Committed
	heldMove   protowire.Number = 3 // string
	heldDue    protowire.Number = 4 // uint64: microseconds
	heldFormer protowire.Number = 5 // string
)

// HeldOf returns what the record of a job that is held says. ok is false for another one.
func HeldOf(record []byte) (h Held, ok bool) {
	if len(record) < headerLen || !known(record[0]) {
		return Held{}, false
	}
	start, err := envelopeAt(record)
	if err != nil {
		return Held{}, false
	}
	stated := false
	err = eachField(record[start:], func(num protowire.Number, typ protowire.Type, _, value []byte) {
		switch {
		case typ != protowire.BytesType:
		case num == fieldHeld:
			ok = h.decode(value) == nil
		case num == fieldState:
			state, us, _ := strings.Cut(string(value), " ")
			ended, err := strconv.ParseUint(us, 10, 63)
			h.State, h.Ended, stated = state, fromMicros(ended), err == nil
		}
	})
	if err != nil || !ok || !stated {
		return Held{}, false
	}
	return h, true
}

func (h *Held) decode(b []byte) error {
	return eachField(b, func(num protowire.Number, typ protowire.Type, _, value []byte) {
		if typ == protowire.VarintType {
			v, _ := protowire.ConsumeVarint(value)
			switch num {
			case heldFlags:
				h.Copy, h.Committed = v&1 != 0, v&2 != 0
			case heldDue:
				h.Due = fromMicros(v)
			}
			return
		}
		switch num {
		case heldPeer:
			h.Peer = string(value)
		case heldMove:
			h.Move = string(value)
		case heldFormer:
			h.Former = string(value)
		}
	})
}

// Hold returns the record for a job that is held. If h has no State, that is left to act.lua. The time when the job was due is taken from the
// record, unless that is held already. The error wraps ErrCorrupt.
func Hold(record []byte, h Held) ([]byte, error) {
	if _, held := HeldOf(record); !held {
		if len(record) < headerLen {
			return nil, fmt.Errorf("%w: %d bytes", ErrCorrupt, len(record))
		}
		h.Due = fromMicros(binary.BigEndian.Uint64(record[12:]))
	}
	out, err := without(record, fieldHeld, fieldState)
	if err != nil {
		return nil, err
	}
	var flags uint64
	if h.Copy {
		flags |= 1
	}
	if h.Committed {
		flags |= 2
	}
	var message []byte
	message = protowire.AppendTag(message, heldPeer, protowire.BytesType)
	message = protowire.AppendString(message, h.Peer)
	message = appendUint(message, heldFlags, flags)
	message = protowire.AppendTag(message, heldMove, protowire.BytesType)
	message = protowire.AppendString(message, h.Move)
	message = appendUint(message, heldDue, micros(h.Due))
	if h.Former != "" {
		message = protowire.AppendTag(message, heldFormer, protowire.BytesType)
		message = protowire.AppendString(message, h.Former)
	}
	out = protowire.AppendTag(out, fieldHeld, protowire.BytesType)
	out = protowire.AppendBytes(out, message)
	if h.State == "" {
		return out, nil
	}
	out = protowire.AppendTag(out, fieldState, protowire.BytesType)
	out = protowire.AppendString(out, h.State+" "+strconv.FormatUint(micros(h.Ended), 10))
	binary.BigEndian.PutUint64(out[12:], micros(HeldUntil))
	return out, nil
}

// Unhold returns the record of a job that was held, as it was before. The error wraps ErrCorrupt.
func Unhold(record []byte, h Held) ([]byte, error) {
	out, err := without(record, fieldHeld, fieldState)
	if err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint64(out[12:], micros(h.Due))
	return out, nil
}

// WithEffect returns a copy of the record with an effect key. The error wraps ErrCorrupt.
func WithEffect(record []byte, key string) ([]byte, error) {
	out, err := without(record, fieldEffect)
	if err != nil {
		return nil, err
	}
	out = protowire.AppendTag(out, fieldEffect, protowire.BytesType)
	return protowire.AppendString(out, key), nil
}

// without returns a copy of the record without some fields. All else stays as it is. The error wraps ErrCorrupt.
func without(record []byte, fields ...protowire.Number) ([]byte, error) {
	if len(record) < headerLen || !known(record[0]) {
		return nil, fmt.Errorf("%w: no record of a version that is known", ErrCorrupt)
	}
	start, err := envelopeAt(record)
	if err != nil {
		return nil, err
	}
	out := append(make([]byte, 0, len(record)+256), record[:start]...)
	err = eachField(record[start:], func(num protowire.Number, _ protowire.Type, field, _ []byte) {
		for _, left := range fields {
			if num == left {
				return
			}
		}
		out = append(out, field...)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
