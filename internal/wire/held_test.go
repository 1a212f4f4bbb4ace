package wire

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/signalbox-go/signalbox"
)

// A record that is held says what it was, and nothing of it is lost.
func TestHeld(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t) {
		if _, held := HeldOf(v.record); held {
			t.Errorf("%s: it is held", v.name)
		}
		want := Held{Peer: "other", Move: "m", Due: v.job.ScheduledAt, State: "dead", Ended: time.UnixMicro(1750000000000003)}
		record, err := Hold(v.record, want)
		if err != nil {
			t.Fatalf("%s: %v", v.name, err)
		}
		if got, held := HeldOf(record); !held || got != want {
			t.Errorf("%s: got %+v, want %+v", v.name, got, want)
		}
		var job signalbox.Job
		if err := Decode(record, &job); err != nil || !job.ScheduledAt.Equal(HeldUntil) || job.Kind != v.job.Kind {
			t.Errorf("%s: %+v, %v", v.name, job, err)
		}
		want.Copy, want.Committed, want.Move, want.Former = true, true, "n", "m"
		again, err := Hold(record, want)
		if got, held := HeldOf(again); err != nil || !held || got != want {
			t.Errorf("%s again: got %+v, %v, want %+v", v.name, got, err, want)
		}
		before, err := Unhold(again, want)
		if err != nil || !bytes.Equal(before, v.record) {
			t.Errorf("%s afterwards: %x, %v\nwant %x", v.name, before, err, v.record)
		}
		for n := range again { // cut anywhere, there is no panic
			HeldOf(again[:n])
		}
	}
	for what, record := range map[string][]byte{"nothing": nil, "no record": []byte("no record"), "a newer version": append([]byte{3}, make([]byte, 30)...)} {
		if _, err := Hold(record, Held{}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := Unhold(record, Held{}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := WithEffect(record, "k"); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// hold_job (scripts/chapters/acts.lua) appends the state with a tag of its own making, and leaves the due time to itself.
func TestHeldByAScript(t *testing.T) {
	t.Parallel()
	record, err := Hold(vectors(t)[0].record, Held{Peer: "other", Move: "m"})
	if err != nil {
		t.Fatal(err)
	}
	if _, held := HeldOf(record); held {
		t.Error("it is held without a state")
	}
	if tag := string(protowire.AppendTag(nil, fieldState, protowire.BytesType)); tag != "\xaa\x06" {
		t.Errorf("the tag of the state is %q; hold_job has \\170\\6", tag)
	}
	record = append(record, "\xaa\x06\x07ready 0"...)
	h, held := HeldOf(record)
	if !held || h.State != "ready" || !h.Ended.IsZero() || !h.Due.Equal(vectors(t)[0].job.ScheduledAt) {
		t.Errorf("%+v, %v", h, held)
	}
}

// An effect key takes the place of the one before.
func TestWithEffect(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t) {
		record, err := WithEffect(v.record, "{q}id")
		var job signalbox.Job
		if err == nil {
			err = Decode(record, &job)
		}
		if err != nil || job.Effect != "{q}id" || job.Incarnation != v.job.Incarnation || string(job.Payload) != string(v.job.Payload) {
			t.Errorf("%s: %+v, %v", v.name, job, err)
		}
	}
}
