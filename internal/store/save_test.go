package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// saveCall makes the call that Save makes, as its lost replies and late copies do, and returns its first word.
func (r *rig) saveCall(d Delivery, before, record []byte) string {
	r.t.Helper()
	reply, err := scripts.Save.Run(bg, r.rdb, scripts.Save.Keys(&r.keys, r.keys.Inflight(r.session)),
		scripts.Save.Args(0, scripts.Arg("id", d.Job.ID), scripts.Arg("token", d.Job.Token), scripts.Arg("before", digestOf(before)), scripts.Arg("record", record)))
	r.must(err)
	return reply.Str(0)
}

func (r *rig) save(d *Delivery, saved string) error {
	return r.Sessions().Save(bg, r.session, d.Job.ID, d.Job.Token, d, []byte(saved))
}

// savedOf returns what the record of a job has saved.
func (r *rig) savedOf(id string) string {
	r.t.Helper()
	var job signalbox.Job
	r.must(wire.Decode([]byte(r.rdb.HGet(bg, r.keys.Jobs, id).Val()), &job))
	return string(job.Saved)
}

// What is saved is with the job whatever becomes of it, in any kind of job. Calls that come again, late copies of calls, and deliveries that are over change nothing.
func TestSave(t *testing.T) {
	t.Parallel()
	for name, job := range map[string]signalbox.Job{
		"plain":   {},
		"special": {Group: "g", Serial: true, Retain: time.Hour, ExpireAfter: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := unchecked(t, redistest.Start(t).Client())
			r.open()
			job.ID, job.Kind, job.Payload = "a", "k", []byte(strings.Repeat("x", 5000))
			r.enqueued(r.made(job, "u", When{}))
			d := r.one()
			same(t, "the record of the delivery", string(d.latest()), r.rdb.HGet(bg, r.keys.Jobs, "a").Val())
			before := d.latest()
			r.must(r.save(&d, "one"))
			one := d.latest()
			same(t, "the job has saved", r.savedOf("a"), "one")
			same(t, "the same call again", r.saveCall(d, before, one), "ok")
			r.must(r.save(&d, strings.Repeat("two", 2000)))
			same(t, "a late copy of the first call", r.saveCall(d, before, one), "changed")
			same(t, "the job has saved", r.savedOf("a"), strings.Repeat("two", 2000))
			if largest := r.rdb.HGet(bg, r.keys.Stats, "largest").Val(); largest != fmt.Sprint(len(d.latest())) {
				t.Errorf("the largest record has %s bytes, that of the job %d", largest, len(d.latest()))
			}

			// Redis fails over to the state after the first call: the next one has all that was saved.
			r.must(r.rdb.HSet(bg, r.keys.Jobs, "a", one).Err())
			r.must(r.save(&d, "three"))
			same(t, "the job has saved", r.savedOf("a"), "three")

			last := d
			r.settled(Settlement{ID: "a", Token: d.Job.Token, Outcome: Delay})
			if err := r.save(&last, "late"); !errors.Is(err, ErrSuperseded) {
				t.Errorf("after its end: %v", err)
			}
			d = r.one()
			same(t, "the next delivery has", string(d.Job.Saved), "three")
			for what, err := range map[string]error{
				"the token before":          r.save(&last, "late"),
				"a session that has it not": r.Sessions().Save(bg, "another", "a", d.Job.Token, &d, []byte("late")),
				"a job that isn't there":    r.Sessions().Save(bg, r.session, "b", d.Job.Token, &d, []byte("late")),
			} {
				if !errors.Is(err, ErrSuperseded) {
					t.Errorf("%s: %v", what, err)
				}
			}
			same(t, "the job has saved", r.savedOf("a"), "three")
			r.must(r.save(&d, "four"))

			record, err := d.FailedAttempt("boom", &Attempt{Number: 1})
			r.must(err)
			r.settled(Settlement{ID: "a", Token: d.Job.Token, Outcome: Dead, Record: record, Size: d.Size(), Special: d.Special()})
			same(t, "a dead job has saved", r.savedOf("a"), "four")
			other := r.Sibling(r.Name() + "-other")
			answers, err := r.Transfer().Move(bg, other.name, []string{"a"})
			r.must(err)
			equal(t, "the move", answers, []Answer{{Acted: Done, State: signalbox.StateDead}})
			v, _, _, err := other.Looks().Show(bg, "a")
			r.must(err)
			same(t, "in another queue it has saved", string(v.Job.Saved), "four")
			stored, exact, err := wire.DecodeWhole([]byte(v.Record), &signalbox.Job{ID: "a"})
			if err != nil || !exact || string(stored.Job.Saved) != "four" { // a file has it
				t.Errorf("%v, exact: %v", err, exact)
			}
		})
	}
}

// Anything that is saved reads back as it was.
func TestSavedRoundTrip(t *testing.T) {
	t.Parallel()
	for _, s := range []wire.Saved{
		{},
		{Checkpoint: []byte{}},
		{Checkpoint: []byte("7")},
		{Steps: []wire.Step{{Name: "a", Value: []byte("1")}, {Name: "b", Value: []byte{0, 255}}}, Checkpoint: []byte("x")},
	} {
		got, err := wire.DecodeSaved(s.Append(nil))
		r := &s
		if err != nil || (got.Checkpoint == nil) != (r.Checkpoint == nil) || string(got.Append(nil)) != string(r.Append(nil)) {
			t.Errorf("%+v came back as %+v, %v", s, got, err)
		}
	}
	if _, err := wire.DecodeSaved([]byte("\x0a\xff")); !errors.Is(err, wire.ErrCorrupt) {
		t.Errorf("bytes that are none: %v", err)
	}
}
