package wire

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
)

// An edit changes the fields that it has, in records of each kind, and nothing else.
func TestEdit(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t) {
		for _, e := range []Edit{
			{},
			{Payload: []byte("other")},
			{MaxAttempts: 3},
			{Timeout: time.Nanosecond}, // a microsecond is the least that a record has
			{Payload: []byte{}, MaxAttempts: 1, Timeout: time.Hour},
		} {
			before := bytes.Clone(v.record)
			edited, err := e.Apply(v.record)
			if v.job.Encoding != "" && e.Payload != nil {
				if !errors.Is(err, signalbox.ErrInvalid) {
					t.Errorf("%s: its payload is edited: %v", v.name, err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%s: %v", v.name, err)
			}
			if !bytes.Equal(v.record, before) {
				t.Fatalf("%s: the record that was read is changed", v.name)
			}
			var got signalbox.Job
			if err := Decode(edited, &got); err != nil {
				t.Fatalf("%s: %v", v.name, err)
			}
			want := v.job
			if e.Payload != nil {
				want.Payload = e.Payload
			}
			if e.MaxAttempts > 0 {
				want.MaxAttempts = e.MaxAttempts
			}
			if e.Timeout > 0 {
				want.Timeout = max(e.Timeout, time.Microsecond)
			}
			if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
				t.Errorf("%s: %+v:\n got %+v\nwant %+v", v.name, e, got, want)
			}
			if v.extras && !bytes.Equal(edited[:27], v.record[:27]) {
				t.Errorf("%s: the extras are changed", v.name)
			}
		}
	}
	for what, record := range map[string][]byte{"nothing": nil, "no record": []byte("no record"), "a newer version": append([]byte{3}, make([]byte, 30)...)} {
		if _, err := (Edit{}).Apply(record); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := (Edit{Payload: make([]byte, MaxEnvelope)}).Apply(vectors(t)[0].record); !errors.Is(err, signalbox.ErrInvalid) {
		t.Errorf("a payload that is too large: %v", err)
	}
}

// What is appended to a record counts more than what stands in it.
func TestAppendCancelled(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t) {
		for finished, want := range map[bool]string{false: "job cancelled: why", true: "job cancelled: why (too late: its handler had returned nil)"} {
			var got signalbox.Job
			if err := Decode(AppendCancelled(bytes.Clone(v.record), "why", finished), &got); err != nil {
				t.Fatalf("%s: %v", v.name, err)
			}
			if got.LastError != want || got.Finished != (finished || v.job.Finished) || got.Kind != v.job.Kind {
				t.Errorf("%s, finished %v: %+v", v.name, finished, got)
			}
		}
	}
	var got signalbox.Job
	if err := Decode(AppendCancelled(vectors(t)[0].record, "", false), &got); err != nil || got.LastError != "job cancelled" {
		t.Errorf("without a reason: %q, %v", got.LastError, err)
	}
}
