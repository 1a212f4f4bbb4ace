package store

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// StateHeld and gone are places of put.lua beside the states of jobs.
const (
	StateHeld signalbox.State = "held"
	waits     signalbox.State = "waits" // held, and it has its unique key
	gone      signalbox.State = "gone"
)

// A placement is a job that put.lua is to place.
type placement struct {
	id     string
	digest string // of the record that it must have, as a job that is held; "": there must be no such job
	state  signalbox.State
	at     time.Time // when it is due, or has ended
	record []byte
	move   string // the receipts that this leaves, with spaces between; of a copy, forCopy and its names: of these the queue must have no receipt; or arrives and one name
}

// digestOf returns the digest of a record, as scripts make it.
func digestOf(record []byte) string {
	sum := sha1.Sum(record)
	return hex.EncodeToString(sum[:])
}

// maxPlaced is the most jobs of a call of put.lua.
const maxPlaced = 250

// putRecords places jobs, each by itself. It returns an answer for each: Done, Occupied, KeyTaken, Gone or Changed. If it fails, it has placed those that it returns,
// and may be called again.
func (t *Transfer) putRecords(ctx context.Context, jobs []placement, dry bool) ([]Answer, error) {
	answers := make([]Answer, 0, len(jobs))
	for len(answers) < len(jobs) {
		part, bytes := jobs[len(answers):], 0
		for i := range part {
			if bytes += len(part[i].record); i == maxPlaced || i > 0 && bytes > MaxBytes {
				part = part[:i]
				break
			}
		}
		args := scripts.Put.Args(6*len(part), scripts.Arg("protocol", layout.Protocol), scripts.Arg("dry", scripts.Flag(dry)),
			scripts.Arg("keep_jobs", t.q.kept.Jobs), scripts.Arg("keep_bytes", t.q.kept.Bytes), scripts.Arg("keep_us", t.q.kept.Age.Microseconds()))
		for i := range part {
			p := &part[i]
			args = append(args, p.id, p.digest, string(p.state), strconv.FormatInt(max(p.at.UnixMicro(), 0), 10), p.record, p.move)
		}
		r, err := scripts.Put.Run(ctx, t.q.rdb, scripts.Put.Keys(&t.q.keys), args)
		if err != nil {
			return answers, err
		}
		if err := r.Status("ok"); err != nil {
			return answers, err
		}
		words := r.Strs(2)
		if r.Err == nil && len(words) != len(part) {
			r.Fail(2, fmt.Sprintf("%d answers for %d jobs", len(words), len(part)))
		}
		for _, word := range words {
			acted := slices.Index([]string{"done", "gone", "changed", "taken", "unique"}, word)
			if acted < 0 {
				r.Fail(2, fmt.Sprintf("%.40q", word))
				break
			}
			answers = append(answers, Answer{Acted: []Acted{Done, Gone, Changed, Occupied, KeyTaken}[acted]})
		}
		if r.Err != nil {
			return answers, r.Err
		}
	}
	return answers, nil
}
