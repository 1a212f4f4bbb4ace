package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fail returns a copy of the record with that many failed attempts and that last error.
// Everything else stays as it is, including fields that this release doesn't know.
func Fail(record []byte, failed int, lastError string) ([]byte, error) {
	return fail(record, failed, lastError, nil)
}

// FailAttempt is Fail for an attempt that the record keeps: it is the last that failed.
func FailAttempt(record []byte, lastError string, attempt *Attempt) ([]byte, error) {
	return fail(record, attempt.Number, lastError, attempt)
}

func fail(record []byte, failed int, lastError string, attempt *Attempt) ([]byte, error) {
	if len(record) < headerLen || !known(record[0]) {
		return nil, fmt.Errorf("%w: no record of a version that is known", ErrCorrupt)
	}
	start, err := envelopeAt(record)
	if err != nil {
		return nil, err
	}
	more := 8 + len(lastError)
	if attempt != nil {
		more += 100 + len(attempt.Worker) + min(len(attempt.Error), MaxAttemptError) + min(len(attempt.Stack), MaxAttemptStack)
	}
	out := append(make([]byte, 0, len(record)+more), record[:start]...)
	var kept [][]byte
	err = eachField(record[start:], func(num protowire.Number, typ protowire.Type, field, value []byte) {
		switch {
		case num == fieldFailed, num == fieldLastError:
		case num == fieldAttempt && typ == protowire.BytesType:
			kept = append(kept, value)
		default:
			out = append(out, field...)
		}
	})
	if err != nil {
		return nil, err
	}
	out = appendUint(out, fieldFailed, uint64(max(failed, 0)))
	return appendAttempts(AppendLastError(out, lastError), kept, attempt), nil
}
