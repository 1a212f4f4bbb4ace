package store

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// An Outcome is what Redis is asked to do with a job when its delivery has ended. What that means to users is a signalbox.Outcome: the
// worker translates.
type Outcome string

// The outcomes.
const (
	Completed Outcome = "completed" // the job is deleted, or kept: see Settlement.Keep
	Retry     Outcome = "retry"     // runs again after the delay, as the settled job says
	Delay     Outcome = "delay"     // runs again after the delay; no attempt has failed
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
	// Survived says that the job has crashed before, and that its handler was called and has returned. It counts for Retry and Delay.
	Survived bool
	// Record replaces the job's record, unless it is nil. It is ignored for Completed.
	Record []byte
	// Keep asks to keep the job, if it completed and its record or the queue's settings say so. It is appended to the job's record. nil: the job is
	// deleted.
	Keep []byte
	// Span is the span context of the attempt, if the job runs again: the next delivery has it.
	Span string
	// Size is the size of the job's record in bytes, as Delivery.Size has it. Special is what Delivery.Special says.
	Size    int
	Special bool
	// Kind, Attempt and Ref are for the caller's logs and traces. Redis doesn't get them.
	Kind    string
	Attempt int
	Ref     any
}

// A Note is what a delivery that runs leaves with its job, for who has the job after a crash: its span context. It counts only
// with the token under which the job runs, and is gone when the job ends.
type Note struct {
	ID    string
	Token int64
	Span  string // printable; at most 1 KiB
}

// An Attempt is one that failed, as a record keeps it.
type Attempt = wire.Attempt

// Failed returns the delivery's record with that many failed attempts and that last error, for
// a Settlement.
func (d *Delivery) Failed(attempts int, lastError string) ([]byte, error) {
	return wire.Fail(d.latest(), attempts, lastError)
}

// FailedAttempt is Failed, and keeps the attempt beside those that the record has.
func (d *Delivery) FailedAttempt(lastError string, attempt *Attempt) ([]byte, error) {
	return wire.FailAttempt(d.latest(), lastError, attempt)
}

// Kept returns what asks to keep a completed job, for Settlement.Keep. The job keeps the attempt, and its result unless that is nil.
func Kept(attempt *Attempt, result []byte) []byte { return wire.AppendSuccess(nil, attempt, result) }

// KeptAnew is Kept for a job whose handlers have saved something: that is over.
func KeptAnew(attempt *Attempt, result []byte) []byte {
	return wire.AppendSaved(Kept(attempt, result), nil)
}

func (s *Settlement) class() string {
	class := classes[wire.Class(s.Prio)]
	if s.Suspect {
		class = "s"
	}
	if s.Survived && (s.Outcome == Retry || s.Outcome == Delay) {
		class += "g"
	}
	return class
}

// A ClaimRequest settles deliveries of a session, then claims up to Want jobs for it.
type ClaimRequest struct {
	Session string
	// Settle has as many settlements as Fit says, at most; it is fastest with the completed ones first.
	Settle []Settlement
	Notes  []Note // at most MaxNotes; one that is superseded changes nothing
	// Want is how many jobs are wanted, at most MaxBatch. Fewer come if their records are large, and at most MaxSpecial from a queue that isn't plain: one
	// with groups, unique keys, limits, a maximum length, batches, or jobs that may expire.
	Want int
	// Suspects says that suspects may be among the jobs. The script grants those that the session's running suspects
	// leave room for.
	Suspects bool
	// Address is where the session waits for wake-ups, or "". If the call gets less than it wants and nothing is left, the session is
	// registered to be woken. Leaving says that it needs no more wake-ups: one that it may have got is passed on.
	Address string
	Leaving bool
	// Apart is for how long a suspect that runs keeps others out of the session; 0: for as long as it runs.
	Apart time.Duration
}

// MaxBytes bounds the records in a call, in either direction, in bytes: they are read within a second
// on a slow link, and hold Redis up for some milliseconds. A single record may be larger.
const MaxBytes = 1 << 20

const (
	// MaxNotes is the most notes in one call.
	MaxNotes = 200
)

// Fit returns how many of the settlements, from the first on, go in one call: at least one, if there is any.
func Fit(settle []Settlement) int {
	args, bytes := 3*MaxNotes, 0
	for i := range settle {
		a, b := settle[i].load()
		if settle[i].Special {
			b = max(b, specialSize)
		}
		args, bytes = args+a, bytes+b
		if i > 0 && (i == MaxBatch || args > scripts.MaxArgs || bytes > MaxBytes) {
			return i
		}
	}
	return len(settle)
}

// deleted reports whether the settlement deletes the job.
func (s *Settlement) deleted() bool { return s.Outcome == Completed && s.Keep == nil }

// change returns what the settlement does to the record: what is appended to that of a completed job, or what replaces another.
func (s *Settlement) change() []byte {
	if s.Outcome == Completed {
		return s.Keep
	}
	return s.Record
}

// load returns the number of arguments that the settlement takes in a call, and the bytes of records that it sends,
// or has Redis read and write. A deleted record counts for a fraction of its size: it costs Redis less.
func (s *Settlement) load() (args, bytes int) {
	if s.deleted() {
		return 2, s.Size / 64
	}
	args = 6
	if s.Span != "" {
		args += 3
	}
	switch {
	case s.Outcome == Completed:
		bytes = s.Size + len(s.Keep)
	case s.Record != nil:
		bytes = len(s.Record)
	case s.Outcome == Retry || s.Outcome == Delay:
		bytes = s.Size
	}
	return args, bytes
}

// A Delivery is a job that was claimed.
type Delivery struct {
	Job *signalbox.Job
	// Err says why the record can't be read: it wraps wire.ErrVersion or wire.ErrCorrupt. Job
	// then has the ID, the queue, the token, and what the record's header says if that can be read.
	Err error
	// Span is that of the last attempt, if it had one.
	Span string

	record []byte // as it was claimed. It isn't changed, so that it can be read while the handler saves
	saved  []byte // the record with what the handler has saved, or nil: it is of those who save and settle
}

// latest returns the delivery's record with what its handler has saved.
func (d *Delivery) latest() []byte {
	if d.saved != nil {
		return d.saved
	}
	return d.record
}

// Size returns the size of the delivery's record in bytes.
func (d *Delivery) Size() int { return len(d.latest()) }

// Special reports whether the job has a group or a unique key, is of a flow, or may expire.
func (d *Delivery) Special() bool { return wire.IsSpecial(d.record) }

// Newer reports whether the record can't be read because a newer release wrote it.
func (d *Delivery) Newer() bool { return errors.Is(d.Err, wire.ErrVersion) }

// Hints say what there is to do next.
type Hints struct {
	At      time.Time     // of the call, by the server's clock
	More    bool          // ready jobs remain
	Next    time.Duration // until a job is due or a session expires; negative: never
	Expired []string      // sessions to reclaim
	Slots   int           // that each worker is to have, by the queue's settings; 0: they don't say
	Withheld
	// Of a renewal: whether anybody listens at the session's address, and whether the session is registered to be woken.
	Heard, Idle bool
	// Cancels, of a renewal, says that jobs of the queue were cancelled and still run: see Cancelled.
	Cancels bool
}

// A ClaimReply is what became of a ClaimRequest.
type ClaimReply struct {
	Refused []int // indices in Settle: superseded, nothing was changed for them
	// Alive is false if the session is unknown or over, or if Redis has lost calls that it had
	// answered, as after a failover: then what it says the session runs can't be trusted. Nothing
	// was claimed. The session must not be renewed any more, so that its jobs are taken back.
	Alive      bool
	Deliveries []Delivery
	// CutShort says that the call stopped before it had looked for more: it got all that it wanted, or as much as one may. The session was not registered to be
	// woken.
	CutShort bool
	// Overruled are the indices in Settle whose jobs ended cancelled, though another outcome was asked for: they were cancelled while
	// they ran.
	Overruled []int
	// Late are jobs that the call ended, as they hadn't started in time: see scheduler.ExpireAfter. Err says so of one whose record didn't fit into
	// the reply.
	Late []Delivery
	Hints
	// Forgot is when Redis, by its clock, answered a call of the lane that it does not know any more, though it can't
	// have expired. It is zero if there is none. Redis has lost memory then.
	Forgot time.Time

	known int64 // number of the lane's last call that Redis had before
}

// Sessions is a queue for its workers, from the opening of a session to what is taken back when it has died; and for those who look at what workers run.
type Sessions struct{ q *Queue }

// Sessions returns the queue for its workers.
func (q *Queue) Sessions() *Sessions { return &Sessions{q} }

// Claim makes the request, through the lane.
func (ss *Sessions) Claim(ctx context.Context, lane *Lane, req *ClaimRequest) (*ClaimReply, error) {
	if Fit(req.Settle) < len(req.Settle) || len(req.Notes) > MaxNotes || req.Want > MaxBatch || req.Want < 0 {
		return nil, fmt.Errorf("%w claim: %d settlements, %d notes and %d jobs wanted; in one call go %d of these settlements, at most %d notes and %d jobs",
			signalbox.ErrInvalid, len(req.Settle), len(req.Notes), req.Want, Fit(req.Settle), MaxNotes, MaxBatch)
	}
	r, err := scripts.Claim.Run(ctx, ss.q.rdb, scripts.Claim.Keys(&ss.q.keys, lane.key, ss.q.keys.Inflight(req.Session)), ss.claimArgs(lane, req))
	if err != nil {
		return nil, err
	}
	reply, err := parseClaim(r, ss.q.name, len(req.Settle))
	if err == nil {
		for i := range reply.Deliveries {
			reply.Deliveries[i].Job.Namespace = ss.q.namespace
		}
		reply.Forgot = lane.forgotten(reply.known, reply.At)
		lane.remember(req.Session, reply.known, reply.At)
	}
	return reply, err
}

func parseClaim(r *scripts.Reply, queue string, settled int) (*ClaimReply, error) {
	if err := r.Status("ok"); err != nil {
		return nil, err
	}
	reply := &ClaimReply{Alive: r.Int(3) == 1, Hints: hintsOf(r, 5), known: r.Int(11)}
	reply.Withheld, reply.Slots, reply.CutShort = withheldOf(r, 12), slotsOf(r, 13), r.Int(14) == 1
	now := reply.At
	reply.Refused = readPositions(r, 2, settled)
	if len(r.List) > 15 {
		reply.Overruled = readPositions(r, 15, settled)
	}
	token := r.Int(4)
	ids, records, spans := r.Strs(8), r.Array(9), r.Array(10)
	if r.Err == nil && len(ids) != len(records) {
		r.Fail(9, fmt.Sprintf("%d records of %d jobs", len(records), len(ids)))
	}
	if r.Err != nil {
		return nil, r.Err
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
	if len(r.List) > 16 {
		reply.Late = lateOf(r, 16, queue)
	}
	return reply, r.Err
}

// errNotRead: a record that the reply had no room for.
var errNotRead = errors.New("store: its record was not read")

// lateOf reads jobs that have expired: IDs and records.
func lateOf(r *scripts.Reply, i int, queue string) (list []Delivery) {
	texts := r.Strs(i)
	for ; len(texts) > 1; texts = texts[2:] {
		d := Delivery{Job: &signalbox.Job{ID: texts[0], Queue: queue}, Err: errNotRead, record: []byte(texts[1])}
		if texts[1] != "" {
			d.Err = wire.Decode(d.record, d.Job)
		}
		list = append(list, d)
	}
	return list
}

// longest bounds a delay, so that the time it leads to is one that a double holds.
const longest = 100 * 365 * 24 * time.Hour

func (ss *Sessions) claimArgs(lane *Lane, req *ClaimRequest) []any {
	completed := 0
	for completed < len(req.Settle) && req.Settle[completed].deleted() {
		completed++
	}
	notes := len(req.Notes)
	for i := range req.Settle[completed:] {
		if req.Settle[completed+i].Span != "" {
			notes++
		}
	}
	apart := int64(0)
	if req.Suspects {
		apart = longest.Microseconds()
		if req.Apart > 0 {
			apart = req.Apart.Microseconds()
		}
	}
	args := scripts.Claim.Args(2*completed+3*notes+6*(len(req.Settle)-completed),
		scripts.Arg("protocol", layout.Protocol), scripts.Arg("seq", lane.seq), scripts.Arg("session", req.Session), scripts.Arg("want", req.Want), scripts.Arg("apart", apart),
		scripts.Arg("keep_jobs", ss.q.kept.Jobs), scripts.Arg("keep_bytes", ss.q.kept.Bytes), scripts.Arg("keep_us", ss.q.kept.Age.Microseconds()),
		scripts.Arg("answered", lane.known(req.Session)), scripts.Arg("completed", completed), scripts.Arg("notes", notes), scripts.Arg("room", ss.q.room),
		scripts.Arg("address", req.Address), scripts.Arg("leaving", scripts.Flag(req.Leaving)), scripts.Arg("worker", ss.q.worker))
	for i := range req.Settle[:completed] {
		args = append(args, req.Settle[i].ID, req.Settle[i].Token)
	}
	for i := range req.Notes {
		args = append(args, req.Notes[i].ID, req.Notes[i].Token, req.Notes[i].Span)
	}
	for i := range req.Settle[completed:] {
		if s := &req.Settle[completed+i]; s.Span != "" {
			args = append(args, s.ID, s.Token, s.Span)
		}
	}
	for i := range req.Settle[completed:] {
		s := &req.Settle[completed+i]
		args = append(args, s.ID, s.Token, string(s.Outcome), s.class(), min(max(s.Delay, 0), longest).Microseconds(), s.change())
	}
	return args
}

// readPositions reads a list of positions from 1 to n, and returns them from 0.
func readPositions(r *scripts.Reply, i, n int) (list []int) {
	for _, v := range r.Array(i) {
		if p, ok := v.(int64); ok && p >= 1 && p <= int64(n) {
			list = append(list, int(p)-1)
		}
	}
	return list
}

// hintsOf reads the time, which is the second field, and what begins at field i.
func hintsOf(r *scripts.Reply, i int) Hints {
	return Hints{
		At:      time.UnixMicro(r.Int(1)),
		More:    r.Int(i) == 1,
		Next:    time.Duration(r.Int(i+1)) * time.Microsecond,
		Expired: r.Strs(i + 2),
	}
}

// Group returns the key of the group that the delivery's job is of, with its first byte: 's' if it is serial, else 'g'. "" if it is of none, also for
// a job that expires, and waits in a line for that.
func (d *Delivery) Group() string {
	key := facts.GroupOf(string(d.record[:min(len(d.record), 300)]))
	if key == "g"+wire.Unstarted {
		return ""
	}
	return key
}
