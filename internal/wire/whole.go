package wire

import (
	"reflect"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/signalbox-go/signalbox"
)

// A Whole is all that a record says.
type Whole struct {
	Job      signalbox.Job
	Attempts []Attempt // oldest first
	Flags    byte      // which extras there are
	Extras   []byte    // nil if Flags is 0
}

// DecodeWhole reads a record. exact reports whether [Whole.Record] makes one that says the same: it has no fields that this release doesn't know, and
// its texts are UTF-8. Fields of the job that aren't in a record stay as they are. The error wraps ErrVersion or ErrCorrupt.
func DecodeWhole(record []byte, job *signalbox.Job) (w Whole, exact bool, err error) {
	if err := Decode(record, job); err != nil {
		return Whole{Job: *job}, false, err
	}
	start, err := envelopeAt(record)
	if err != nil {
		return Whole{Job: *job}, false, err
	}
	w = Whole{Job: *job, Attempts: Attempts(record), Flags: record[flagsAt]}
	if w.Flags != 0 {
		w.Extras = append([]byte{}, record[headerLen+2:start]...)
	}
	return w, w.known(record[start:]) && w.same(), nil
}

// known reports whether the envelope has no fields but those of a Whole, and all texts are UTF-8.
func (w *Whole) known(envelope []byte) bool {
	known, attempts := true, 0
	_ = eachField(envelope, func(num protowire.Number, _ protowire.Type, _, value []byte) {
		known = known && (num <= fieldFinished || num == fieldEncoding || num == fieldBorn || num == fieldSaved)
		if num == fieldAttempt {
			attempts++
			_ = eachField(value, func(num protowire.Number, _ protowire.Type, _, _ []byte) { known = known && num <= attemptSpan })
		}
	})
	j := &w.Job
	texts := []string{j.Kind, j.LastError, j.Effect, j.Encoding}
	for name, value := range j.Headers {
		texts = append(texts, name, value)
	}
	for _, a := range w.Attempts {
		texts = append(texts, a.Worker, a.Error, a.Stack)
	}
	for _, text := range texts {
		known = known && utf8.ValidString(text)
	}
	return known && attempts == len(w.Attempts)
}

// same reports whether a record that is made of w says the same.
func (w *Whole) same() bool {
	record := w.Record()
	job := signalbox.Job{ID: w.Job.ID, Namespace: w.Job.Namespace, Queue: w.Job.Queue, Token: w.Job.Token, ClaimedAt: w.Job.ClaimedAt}
	return Decode(record, &job) == nil && reflect.DeepEqual(job, w.Job) && reflect.DeepEqual(Attempts(record), w.Attempts)
}

// Record returns a record.
func (w *Whole) Record() []byte {
	out := AppendEnvelope(appendHead(nil, &w.Job, w.Flags, w.Extras), &w.Job)
	var messages [][]byte
	for i := range w.Attempts {
		messages = append(messages, w.Attempts[i].append(nil))
	}
	return appendAttempts(out, messages, nil)
}
