package store

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// Saved is what the handlers of a job have saved, and a SavedStep is a step of it that has finished.
type (
	Saved     = wire.Saved
	SavedStep = wire.Step
)

// DecodeSaved reads what the field Saved of a job has. The error wraps wire.ErrCorrupt.
func DecodeSaved(b []byte) (Saved, error) { return wire.DecodeSaved(b) }

// ErrSuperseded says that the delivery is over, or that another one has taken over its job.
var ErrSuperseded = errors.New("store: the delivery is over, or another one has taken over its job")

// maxSaveTries bounds the calls of one Save: one is the rule, and one more after a failover.
const maxSaveTries = 4

// Save gives the job of a delivery that runs in the session, with that ID and token, a record with what its handler has saved, in place of all that was saved before. The delivery has that
// record then. Redis compares the token, and the record before with the one that the delivery has: so a copy of an earlier call that comes late changes nothing. It may be
// called again after an error.
func (ss *Sessions) Save(ctx context.Context, session, id string, token int64, d *Delivery, saved []byte) error {
	record, err := wire.WithSaved(d.latest(), saved)
	if err != nil {
		return err
	}
	sum := sha1.Sum(d.latest())
	before := hex.EncodeToString(sum[:])
	for range maxSaveTries {
		r, err := scripts.Save.Run(ctx, ss.q.rdb, scripts.Save.Keys(&ss.q.keys, ss.q.keys.Inflight(session)),
			scripts.Save.Args(0, scripts.Arg("id", id), scripts.Arg("token", token), scripts.Arg("before", before), scripts.Arg("record", record)))
		if err != nil {
			return err
		}
		switch word := r.Str(0); word {
		case "ok":
			d.saved = record
			return nil
		case "superseded":
			return ErrSuperseded
		case "changed":
			// Redis has failed over to a state with an older record of this delivery. The new one has all that was saved since.
			before = r.Str(1)
		}
		if r.Err != nil {
			return r.Err
		}
	}
	return errors.New("store: the job's record was changed by others at each try")
}

// Decoded reads the record that was claimed into job, which has what isn't in it. The delivery's own Job may have been changed by its handler. It may be called while Save and Keep are.
func (d *Delivery) Decoded(job *signalbox.Job) error { return wire.Decode(d.record, job) }

// Keep keeps what is saved with the delivery alone: for the record that its settlement may write.
func (d *Delivery) Keep(saved []byte) error {
	record, err := wire.WithSaved(d.latest(), saved)
	if err == nil {
		d.saved = record
	}
	return err
}
