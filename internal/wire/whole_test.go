package wire

import (
	"bytes"
	"errors"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/signalbox-go/signalbox"
)

// A record that is read whole, and made again, says the same. One with more than that is known.
func TestWhole(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t) {
		var job signalbox.Job
		if v.success != nil {
			if _, exact, err := DecodeWhole(v.record, &job); err != nil || exact {
				t.Errorf("%s: a Whole doesn't have that, and exact is %v, %v", v.name, exact, err)
			}
			continue
		}
		w, exact, err := DecodeWhole(v.record, &job)
		if err != nil || !exact || len(w.Attempts) != len(v.kept) || (v.extras || v.job.Retain != 0 || v.job.ExpireAfter != 0 || !v.job.Deadline.IsZero() || v.job.Group != "") != (w.Flags != 0) {
			t.Errorf("%s: %+v, exact %v, %v", v.name, w, exact, err)
		}
		if record := w.Record(); !bytes.Equal(record, v.record) {
			t.Errorf("%s: it is made to\n%x, and was\n%x", v.name, record, v.record)
		}
		retried, err := FailAttempt(v.record, "boom", &Attempt{Number: 3, Worker: "w", Error: "boom"})
		if err != nil {
			t.Fatal(err)
		}
		if _, exact, err := DecodeWhole(retried, &job); err != nil || !exact {
			t.Errorf("%s, failed once more: exact %v, %v", v.name, exact, err)
		}
		for what, more := range map[string][]byte{
			"a field of a later release":             appendUint(nil, 50, 1),
			"a last error that is no text":           protowire.AppendBytes(protowire.AppendTag(nil, fieldLastError, protowire.BytesType), []byte("\xff")),
			"an attempt with a field":                protowire.AppendBytes(protowire.AppendTag(nil, fieldAttempt, protowire.BytesType), appendUint(nil, 30, 1)),
			"an attempt that can't be read":          protowire.AppendBytes(protowire.AppendTag(nil, fieldAttempt, protowire.BytesType), []byte("\xff")),
			"an attempt whose texts are too long":    protowire.AppendBytes(protowire.AppendTag(nil, fieldAttempt, protowire.BytesType), protowire.AppendBytes(protowire.AppendTag(nil, attemptError, protowire.BytesType), make([]byte, 5000))),
			"an attempt with half of a trace's name": protowire.AppendBytes(protowire.AppendTag(nil, fieldAttempt, protowire.BytesType), protowire.AppendBytes(protowire.AppendTag(nil, attemptTrace, protowire.BytesType), make([]byte, 50))),
		} {
			if _, exact, err := DecodeWhole(append(bytes.Clone(v.record), more...), &job); err != nil || exact {
				t.Errorf("%s, with %s: exact %v, %v", v.name, what, exact, err)
			}
		}
	}
	if _, exact, err := DecodeWhole([]byte("no record"), &signalbox.Job{}); !errors.Is(err, ErrCorrupt) || exact {
		t.Errorf("%v, %v", exact, err)
	}
}
