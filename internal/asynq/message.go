package asynq

import (
	"errors"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// A Message is what asynq's message of a task says.
type Message struct {
	Type      string
	Payload   []byte
	ID        string
	Queue     string
	Retry     int // how often it may be retried
	Retried   int
	Error     string
	Failed    time.Time     // the last time; zero if it hasn't
	Timeout   time.Duration // 0: none
	Deadline  time.Time     // zero: none
	UniqueKey string        // of Redis
	Group     string
	Retention time.Duration
	Headers   map[string]string
}

// errMessage says that bytes are no message of a task.
var errMessage = errors.New("asynq: the message of the task can't be read")

// maxSeconds bounds times and durations that are read: 290 years, which a time.Duration can hold.
const maxSeconds = 290 * 365 * 24 * 3600

// Decode reads the message of a task. Fields that it doesn't know are an error: nothing may be dropped unseen.
func Decode(b []byte) (*Message, error) {
	m := new(Message)
	number := func(v uint64) (int64, bool) {
		n := int64(v)
		return n, n >= 0 && n <= maxSeconds
	}
	ok := eachField(b, func(num protowire.Number, text []byte, v uint64) bool {
		n, fits := number(v)
		switch num {
		case 1:
			m.Type = string(text)
		case 2:
			m.Payload = text
		case 3:
			m.ID = string(text)
		case 4:
			m.Queue = string(text)
		case 5:
			m.Retry = int(n)
		case 6:
			m.Retried = int(n)
		case 7:
			m.Error = string(text)
		case 8:
			m.Timeout = time.Duration(n) * time.Second
		case 9:
			m.Deadline = unix(n)
		case 10:
			m.UniqueKey = string(text)
		case 11:
			m.Failed = unix(n)
		case 12:
			m.Retention = time.Duration(n) * time.Second
		case 13: // when it completed
		case 14:
			m.Group = string(text)
		case 15:
			var name, value string
			if !eachField(text, func(num protowire.Number, text []byte, _ uint64) bool {
				switch num {
				case 1:
					name = string(text)
				case 2:
					value = string(text)
				default:
					return false
				}
				return true
			}) {
				return false
			}
			if m.Headers == nil {
				m.Headers = make(map[string]string)
			}
			m.Headers[name] = value
		default:
			return false
		}
		return fits
	})
	if !ok || m.Type == "" && m.ID == "" {
		return nil, errMessage
	}
	return m, nil
}

// An Entry is a periodic task of one of asynq's schedulers.
type Entry struct {
	Spec    string
	Type    string
	Payload []byte
	Options []string // as asynq writes them: MaxRetry(3), Queue("low")
	Next    time.Time
}

// decodeEntry reads an entry. Fields that it doesn't know are passed over: an entry is only shown.
func decodeEntry(b []byte) (Entry, error) {
	var e Entry
	ok := eachField(b, func(num protowire.Number, text []byte, _ uint64) bool {
		switch num {
		case 2:
			e.Spec = string(text)
		case 3:
			e.Type = string(text)
		case 4:
			e.Payload = text
		case 5:
			e.Options = append(e.Options, string(text))
		case 6:
			return eachField(text, func(num protowire.Number, _ []byte, v uint64) bool {
				if num == 1 {
					e.Next = unix(int64(v))
				}
				return true
			})
		}
		return true
	})
	if !ok || e.Spec == "" {
		return Entry{}, errors.New("asynq: an entry of a scheduler can't be read")
	}
	return e, nil
}

// eachField calls field for each field of a message, with its text or its number, until that returns false. It reports whether all were read.
func eachField(b []byte, field func(num protowire.Number, text []byte, v uint64) bool) bool {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		var text []byte
		var v uint64
		switch typ {
		case protowire.BytesType:
			text, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.Fixed32Type, protowire.Fixed64Type, protowire.StartGroupType, protowire.EndGroupType:
			return false
		default:
			return false
		}
		if n < 0 || !field(num, text, v) {
			return false
		}
		b = b[n:]
	}
	return true
}

// unix returns the time of so many seconds, or the zero time for 0.
func unix(s int64) time.Time {
	if s == 0 {
		return time.Time{}
	}
	return time.Unix(s, 0).UTC()
}
