package wire

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/signalbox-go/signalbox"
)

// An Edit changes what a producer has said of a job. Zero fields leave it as it is.
type Edit struct {
	Payload     []byte
	MaxAttempts int
	Timeout     time.Duration
}

// Apply returns a copy of the record with the changes. All else stays as it is, fields that this release doesn't know included. The
// error wraps ErrCorrupt, or signalbox.ErrInvalid if the job is too large then.
func (e Edit) Apply(record []byte) ([]byte, error) {
	if len(record) < headerLen || !known(record[0]) {
		return nil, fmt.Errorf("%w: no record of a version that is known", ErrCorrupt)
	}
	if e.Payload != nil && record[0] == encoded {
		return nil, fmt.Errorf("%w payload: that of the job isn't JSON, and only a program with its codec can make another one; enqueue the job anew", signalbox.ErrInvalid)
	}
	start, err := envelopeAt(record)
	if err != nil {
		return nil, err
	}
	out := append(make([]byte, 0, len(record)+len(e.Payload)+16), record[:start]...)
	err = eachField(record[start:], func(num protowire.Number, _ protowire.Type, field, _ []byte) {
		switch {
		case num == fieldPayload && e.Payload != nil, num == fieldMaxAttempts && e.MaxAttempts > 0, num == fieldTimeout && e.Timeout > 0:
		default:
			out = append(out, field...)
		}
	})
	if err != nil {
		return nil, err
	}
	if len(e.Payload) > 0 {
		out = protowire.AppendTag(out, fieldPayload, protowire.BytesType)
		out = protowire.AppendBytes(out, e.Payload)
	}
	if e.MaxAttempts > 0 {
		out = appendUint(out, fieldMaxAttempts, uint64(e.MaxAttempts))
	}
	if e.Timeout > 0 {
		out = appendUint(out, fieldTimeout, uint64(max(e.Timeout.Microseconds(), 1)))
	}
	if n := len(out) - start; n > MaxEnvelope {
		return nil, fmt.Errorf("%w payload: the job takes %d bytes, at most %d are allowed", signalbox.ErrInvalid, n, MaxEnvelope)
	}
	return out, nil
}
