package wire

import (
	"encoding/hex"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// An Attempt is one that failed, or the one that completed the job, as a record keeps it.
type Attempt struct {
	Number          int           // from 1
	At              time.Time     // when it was claimed
	Ran             time.Duration // until its handler had returned
	Worker          string        // the worker's ID
	Error           string
	Stack           string // of a panic
	TraceID, SpanID string // of its span, in hexadecimal; "" if it had none
}

// Bounds of the attempts that a record keeps. Texts that are longer are cut.
const (
	MaxAttempts     = 10      // attempts; the oldest ones go first
	MaxAttemptError = 512     // bytes of an error
	MaxAttemptStack = 2 << 10 // bytes of a stack
	MaxAttemptBytes = 16 << 10
	maxWorker       = 200
)

// The fields of an attempt.
const (
	attemptNumber protowire.Number = 1 // uint64
	attemptAt     protowire.Number = 2 // uint64: microseconds since the Unix epoch
	attemptRan    protowire.Number = 3 // uint64: microseconds
	attemptWorker protowire.Number = 4 // string
	attemptError  protowire.Number = 5 // string
	attemptStack  protowire.Number = 6 // string
	attemptTrace  protowire.Number = 7 // bytes: 16
	attemptSpan   protowire.Number = 8 // bytes: 8
	attemptResult protowire.Number = 9 // bytes: of the attempt that completed the job, what its handler said is its result
)

// append appends the attempt's message. Fields at their default are left out.
func (a *Attempt) append(b []byte) []byte {
	for _, f := range []struct {
		field protowire.Number
		value uint64
	}{
		{attemptNumber, uint64(max(a.Number, 0))}, {attemptAt, micros(a.At)}, {attemptRan, uint64(max(a.Ran.Microseconds(), 0))},
	} {
		if f.value > 0 {
			b = appendUint(b, f.field, f.value)
		}
	}
	trace, _ := hex.DecodeString(a.TraceID)
	span, _ := hex.DecodeString(a.SpanID)
	for _, f := range []struct {
		field protowire.Number
		value string
		most  int
	}{
		{attemptWorker, a.Worker, maxWorker},
		{attemptError, a.Error, MaxAttemptError},
		{attemptStack, a.Stack, MaxAttemptStack},
		{attemptTrace, string(trace), 16},
		{attemptSpan, string(span), 8},
	} {
		value := f.value
		if f.field < attemptTrace {
			value = clip(value, f.most)
		}
		if value != "" && len(value) <= f.most {
			b = protowire.AppendTag(b, f.field, protowire.BytesType)
			b = protowire.AppendString(b, value)
		}
	}
	return b
}

// clip returns the beginning of a text, of at most n bytes, in UTF-8.
func clip(text string, n int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) > n {
		text = strings.ToValidUTF8(text[:n], "")
	}
	return text
}

// Attempts returns the attempts that a record keeps, oldest first. One that can't be read is left out, as are all of a record that can't.
func Attempts(record []byte) (all []Attempt) {
	if len(record) < headerLen || !known(record[0]) {
		return nil
	}
	start, err := envelopeAt(record)
	if err != nil {
		return nil
	}
	_ = eachField(record[start:], func(num protowire.Number, typ protowire.Type, _, value []byte) {
		if num == fieldAttempt && typ == protowire.BytesType {
			if a, err := decodeAttempt(value); err == nil {
				all = append(all, a)
			}
		}
	})
	return all
}

// AppendSuccess appends the attempt that has completed a job, with its result unless that is nil, as it is appended to the record of one that is kept. Of several
// in a record the last one counts: so a result is never that of an earlier run.
func AppendSuccess(b []byte, a *Attempt, result []byte) []byte {
	message := a.append(nil)
	if result != nil {
		message = protowire.AppendTag(message, attemptResult, protowire.BytesType)
		message = protowire.AppendBytes(message, result)
	}
	b = protowire.AppendTag(b, fieldSuccess, protowire.BytesType)
	return protowire.AppendBytes(b, message)
}

// Success returns the attempt that has completed a job, as its record says, or nil if that says nothing of it, or can't be read. result is a copy of its
// result, or nil if it has none.
func Success(record []byte) (a *Attempt, result []byte) {
	if len(record) < headerLen || !known(record[0]) {
		return nil, nil
	}
	start, err := envelopeAt(record)
	if err != nil {
		return nil, nil
	}
	var last []byte // the message of a
	_ = eachField(record[start:], func(num protowire.Number, typ protowire.Type, _, value []byte) {
		if num == fieldSuccess && typ == protowire.BytesType {
			if one, err := decodeAttempt(value); err == nil {
				a, last = &one, value
			}
		}
	})
	_ = eachField(last, func(num protowire.Number, typ protowire.Type, _, value []byte) {
		if num == attemptResult && typ == protowire.BytesType {
			result = append([]byte{}, value...)
		}
	})
	return a, result
}

// decodeAttempt reads an attempt's message.
func decodeAttempt(b []byte) (a Attempt, err error) {
	err = eachField(b, func(num protowire.Number, typ protowire.Type, _, value []byte) {
		if typ == protowire.VarintType {
			v, _ := protowire.ConsumeVarint(value)
			switch num {
			case attemptNumber:
				a.Number = int(min(v, 1<<31-1))
			case attemptAt:
				a.At = fromMicros(v)
			case attemptRan:
				a.Ran = time.Duration(min(v, 1<<53)) * time.Microsecond
			}
			return
		}
		if typ != protowire.BytesType {
			return
		}
		switch num {
		case attemptWorker:
			a.Worker = string(value)
		case attemptError:
			a.Error = string(value)
		case attemptStack:
			a.Stack = string(value)
		case attemptTrace:
			a.TraceID = hex.EncodeToString(value)
		case attemptSpan:
			a.SpanID = hex.EncodeToString(value)
		}
	})
	return a, err
}

// eachField calls f for each field of a message: with the whole field, and with its value without a length. It returns an error that wraps
// ErrCorrupt if the bytes are no message; f has been called for the fields before then.
func eachField(b []byte, f func(num protowire.Number, typ protowire.Type, field, value []byte)) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return corrupt("a field's tag", n)
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			return corrupt("a field", m)
		}
		value := b[n : n+m]
		if typ == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		f(num, typ, b[:n+m], value)
		b = b[n+m:]
	}
	return nil
}

// appendAttempts appends the messages of attempts, oldest first, and that of one more, as far as they are kept.
func appendAttempts(b []byte, kept [][]byte, more *Attempt) []byte {
	if more != nil {
		kept = append(kept, more.append(nil))
	}
	for _, message := range bounded(kept) {
		b = protowire.AppendTag(b, fieldAttempt, protowire.BytesType)
		b = protowire.AppendBytes(b, message)
	}
	return b
}

// bounded drops what is too much: attempts, then stacks, then attempts again, the oldest first.
func bounded(all [][]byte) [][]byte {
	all = all[max(len(all)-MaxAttempts, 0):]
	size := 0
	for _, message := range all {
		size += len(message)
	}
	for i := 0; i < len(all) && size > MaxAttemptBytes; i++ {
		less := withoutStack(all[i])
		size -= len(all[i]) - len(less)
		all[i] = less
	}
	for len(all) > 0 && size > MaxAttemptBytes {
		size -= len(all[0])
		all = all[1:]
	}
	return all
}

// withoutStack returns an attempt's message without its stack.
func withoutStack(message []byte) []byte {
	less := make([]byte, 0, len(message))
	_ = eachField(message, func(num protowire.Number, _ protowire.Type, field, _ []byte) {
		if num != attemptStack {
			less = append(less, field...)
		}
	})
	return less
}
