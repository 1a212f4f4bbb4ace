package store

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// An Outcome is how a delivery ended.
type Outcome string

// The outcomes.
const (
	Completed Outcome = "completed" // the job is deleted
	Retry     Outcome = "retry"     // runs again after the delay, as the settled job says
	Delay     Outcome = "delay"     // runs again after the delay, its record unchanged
	Return    Outcome = "return"    // runs again at once, before others, its record unchanged
	Dead      Outcome = "dead"      // terminal
	Cancelled Outcome = "cancelled" // terminal
)

// A Settlement is the end of one delivery.
type Settlement struct {
	ID      string
	Token   int64
	Outcome Outcome
	Delay   time.Duration // of Retry and Delay
	Suspect bool          // the job has crashed SuspectAt times
	Prio    signalbox.Priority
	// Record replaces the job's record, unless it is nil. It is ignored for Completed.
	Record []byte
	// Span is the span context of the attempt, if the job runs again: the next delivery has it.
	Span string
	// What the job is, and Ref, are for the caller, who may want to tell how it went.
	Kind    string
	Attempt int
	Ref     any
}

// A Mark is the span context of a delivery that runs.
type Mark struct {
	ID    string
	Token int64
	Span  string // printable; at most 1 KiB
}

// Failed returns the delivery's record with that many failed attempts and that last error, for
// a Settlement.
func (d *Delivery) Failed(attempts int, lastError string) ([]byte, error) {
	return wire.Fail(d.record, attempts, lastError)
}

func (s *Settlement) class() string {
	if s.Suspect {
		return "s"
	}
	return classes[wire.Class(s.Prio)]
}

// A ClaimRequest settles deliveries of a session, then claims up to Want jobs for it.
type ClaimRequest struct {
	Session  string
	Settle   []Settlement // at most MaxBatch; fastest with the completed ones first
	Marks    []Mark       // at most MaxBatch; one that is superseded changes nothing
	Want     int          // at most MaxBatch
	Suspects bool         // a suspect may be among the jobs, if the session has none
}

// A Delivery is a job that was claimed.
type Delivery struct {
	Job *signalbox.Job
	// Err says why the record can't be read: it wraps wire.ErrVersion or wire.ErrCorrupt. Job
	// then has the ID, the queue, the token, and what the record's header says if that can be read.
	Err error
	// Span is that of the last attempt, if it had one.
	Span string

	record []byte
}

// Newer reports whether the record can't be read because a newer release wrote it.
func (d *Delivery) Newer() bool { return errors.Is(d.Err, wire.ErrVersion) }

// Hints say what there is to do next.
type Hints struct {
	More    bool          // ready jobs remain
	Next    time.Duration // until a job is due or a session expires; negative: never
	Expired []string      // sessions to reclaim
}

// A ClaimReply is what became of a ClaimRequest.
type ClaimReply struct {
	Refused []int // indices in Settle: superseded, nothing was changed for them
	// Alive is false if the session is unknown or over, or if Redis has lost calls that it had
	// answered, as after a failover: then what it says the session runs can't be trusted. Nothing
	// was claimed. The session must not be renewed any more, so that its jobs are taken back.
	Alive      bool
	Deliveries []Delivery
	Hints
}

// Claim makes the request, through the lane.
func (q *Queue) Claim(ctx context.Context, lane *Lane, req *ClaimRequest) (*ClaimReply, error) {
	if len(req.Settle) > MaxBatch || len(req.Marks) > MaxBatch || req.Want > MaxBatch || req.Want < 0 {
		return nil, fmt.Errorf("%w claim: %d settlements, %d marks and %d jobs wanted, at most %d go in one call",
			signalbox.ErrInvalid, len(req.Settle), len(req.Marks), req.Want, MaxBatch)
	}
	k := &q.keys
	r, err := run(ctx, q.rdb, claimScript, []string{
		lane.key, k.inflight(req.Session), k.sessions, k.fence, k.jobs, k.due, k.wake, k.stats,
		k.dead, k.cancelled, k.readyHigh, k.readyNormal, k.readyLow, k.readySuspect, k.spans,
	}, claimArgs(lane, req, q.kept))
	if err != nil {
		return nil, err
	}
	reply, err := parseClaim(r, q.name, len(req.Settle))
	if err == nil {
		lane.remember(req.Session)
	}
	return reply, err
}

func parseClaim(r *reply, queue string, settled int) (*ClaimReply, error) {
	if err := r.status("ok"); err != nil {
		return nil, err
	}
	now := time.UnixMicro(r.int(1))
	reply := &ClaimReply{Alive: r.int(3) == 1, Hints: r.hints(5)}
	for _, v := range r.array(2) {
		if i, ok := v.(int64); ok && i >= 1 && i <= int64(settled) {
			reply.Refused = append(reply.Refused, int(i)-1)
		}
	}
	token := r.int(4)
	ids, records, spans := r.strs(8), r.array(9), r.array(10)
	if r.err == nil && len(ids) != len(records) {
		r.fail(9, fmt.Sprintf("%d records of %d jobs", len(records), len(ids)))
	}
	if r.err != nil {
		return nil, r.err
	}
	reply.Deliveries = make([]Delivery, 0, len(ids))
	jobs := make([]signalbox.Job, len(ids))
	for i, id := range ids {
		record, ok := records[i].(string)
		if id == "" || !ok {
			continue // granted by a call whose reply was lost, and gone since
		}
		job := &jobs[i]
		*job = signalbox.Job{ID: id, Queue: queue, Token: token + int64(i), ClaimedAt: now}
		raw := unsafe.Slice(unsafe.StringData(record), len(record)) // only read
		d := Delivery{Job: job, Err: wire.Decode(raw, job), record: raw}
		if len(spans) == len(ids) {
			d.Span, _ = spans[i].(string)
		}
		reply.Deliveries = append(reply.Deliveries, d)
	}
	return reply, nil
}

// longest bounds a delay, so that the time it leads to is one that a double holds.
const longest = 100 * 365 * 24 * time.Hour

func claimArgs(lane *Lane, req *ClaimRequest, kept retention) []any {
	completed := 0
	for completed < len(req.Settle) && req.Settle[completed].Outcome == Completed {
		completed++
	}
	marks := len(req.Marks)
	for i := range req.Settle[completed:] {
		if req.Settle[completed+i].Span != "" {
			marks++
		}
	}
	args := make([]any, 0, 10+2*completed+3*marks+6*(len(req.Settle)-completed))
	args = append(args, lane.seq, req.Session, req.Want, flag(req.Suspects),
		kept.count, kept.bytes, kept.age.Microseconds(), lane.known(req.Session), completed, marks)
	for i := range req.Settle[:completed] {
		args = append(args, req.Settle[i].ID, req.Settle[i].Token)
	}
	for i := range req.Marks {
		args = append(args, req.Marks[i].ID, req.Marks[i].Token, req.Marks[i].Span)
	}
	for i := range req.Settle[completed:] {
		if s := &req.Settle[completed+i]; s.Span != "" {
			args = append(args, s.ID, s.Token, s.Span)
		}
	}
	for i := range req.Settle[completed:] {
		s := &req.Settle[completed+i]
		args = append(args, s.ID, s.Token, string(s.Outcome), s.class(), min(max(s.Delay, 0), longest).Microseconds(), s.Record)
	}
	return args
}

func (r *reply) hints(i int) Hints {
	return Hints{
		More:    r.int(i) == 1,
		Next:    time.Duration(r.int(i+1)) * time.Microsecond,
		Expired: r.strs(i + 2),
	}
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
