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
	move   string // the receipts that this leaves, with spaces between; of a copy, forCopy and its names: of these the queue must have no receipt
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
func (q *Queue) putRecords(ctx context.Context, jobs []placement, dry bool) ([]Answer, error) {
	answers := make([]Answer, 0, len(jobs))
	for len(answers) < len(jobs) {
		part, bytes := jobs[len(answers):], 0
		for i := range part {
			if bytes += len(part[i].record); i == maxPlaced || i > 0 && bytes > MaxBytes {
				part = part[:i]
				break
			}
		}
		args := putScript.args(6*len(part), arg{"protocol", Protocol}, arg{"dry", flag(dry)},
			arg{"keep_jobs", q.kept.count}, arg{"keep_bytes", q.kept.bytes}, arg{"keep_us", q.kept.age.Microseconds()})
		for i := range part {
			p := &part[i]
			args = append(args, p.id, p.digest, string(p.state), strconv.FormatInt(max(p.at.UnixMicro(), 0), 10), p.record, p.move)
		}
		r, err := run(ctx, q.rdb, putScript, putScript.keys(&q.keys), args)
		if err != nil {
			return answers, err
		}
		if err := r.status("ok"); err != nil {
			return answers, err
		}
		words := r.strs(2)
		if r.err == nil && len(words) != len(part) {
			r.fail(2, fmt.Sprintf("%d answers for %d jobs", len(words), len(part)))
		}
		for _, word := range words {
			acted := slices.Index([]string{"done", "gone", "changed", "taken", "unique"}, word)
			if acted < 0 {
				r.fail(2, fmt.Sprintf("%.40q", word))
				break
			}
			answers = append(answers, Answer{Acted: []Acted{Done, Gone, Changed, Occupied, KeyTaken}[acted]})
		}
		if r.err != nil {
			return answers, r.err
		}
	}
	return answers, nil
}
