package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fail returns a copy of the record with that many failed attempts and that last error.
// Everything else stays as it is, including fields that this release doesn't know.
func Fail(record []byte, failed int, lastError string) ([]byte, error) {
	if len(record) < headerLen || record[0] != version {
		return nil, fmt.Errorf("%w: no record of version %d", ErrCorrupt, version)
	}
	start, err := envelopeAt(record)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(record)+len(lastError)+8)
	out = append(out, record[:start]...)
	for b := record[start:]; len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, corrupt("a field's tag", n)
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			return nil, corrupt("a field", m)
		}
		if num != fieldFailed && num != fieldLastError {
			out = append(out, b[:n+m]...)
		}
		b = b[n+m:]
	}
	out = appendUint(out, fieldFailed, uint64(max(failed, 0)))
	return AppendLastError(out, lastError), nil
}
