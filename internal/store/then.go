package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// MaxFollowUps is how many follow-ups a delivery can have. Their sizes, as Item.Size has them, are MaxBytes together at most, unless there is one alone.
const MaxFollowUps = 500

// A Completion is the end of a delivery that has completed its job, with follow-ups: jobs that are put in with that end, or not at all.
type Completion struct {
	Session   string
	Settle    Settlement // its Outcome is Completed
	FollowUps []Item
}

// A CompletionReply is what became of a Completion.
type CompletionReply struct {
	// ClaimReply has At, Alive and Forgot, and Refused and Overruled if the delivery was superseded or its job was cancelled: then no follow-up was put in.
	ClaimReply
	// Fates has the outcomes of the follow-ups, by their numbers. It is empty if none was put in, and for a call that was made before.
	Fates string
}

// Complete completes a job and puts its follow-ups in, through a lane of claims. As with Claim, a call that is made again is answered as the first one was. Follow-ups
// are put in whatever the queue's maximum length is.
func (ss *Sessions) Complete(ctx context.Context, lane *Lane, c *Completion) (*CompletionReply, error) {
	if n := len(c.FollowUps); n == 0 || n > MaxFollowUps || c.Settle.Outcome != Completed {
		return nil, fmt.Errorf("%w completion: the outcome %s with %d follow-ups; want %s, with 1 to %d", signalbox.ErrInvalid, c.Settle.Outcome, n, Completed, MaxFollowUps)
	}
	r, err := scripts.Then.Run(ctx, ss.q.rdb, scripts.Then.Keys(&ss.q.keys, lane.key, ss.q.keys.Inflight(c.Session)), ss.completionArgs(lane, c))
	if err != nil {
		return nil, err
	}
	reply, err := parseCompletion(r, len(c.FollowUps))
	if err == nil {
		reply.Forgot = lane.forgotten(reply.known, reply.At)
		lane.remember(c.Session, reply.known, reply.At)
	}
	return reply, err
}

func (ss *Sessions) completionArgs(lane *Lane, c *Completion) []any {
	args := scripts.Then.Args(4*len(c.FollowUps), scripts.Arg("protocol", layout.Protocol), scripts.Arg("seq", lane.seq), scripts.Arg("session", c.Session),
		scripts.Arg("id", c.Settle.ID), scripts.Arg("token", c.Settle.Token), scripts.Arg("keep", c.Settle.Keep),
		scripts.Arg("keep_jobs", ss.q.kept.Jobs), scripts.Arg("keep_bytes", ss.q.kept.Bytes), scripts.Arg("keep_us", ss.q.kept.Age.Microseconds()),
		scripts.Arg("answered", lane.known(c.Session)))
	for i := range c.FollowUps {
		it := &c.FollowUps[i]
		args = append(args, it.id, it.class, it.when, it.envelope)
	}
	return args
}

func parseCompletion(r *scripts.Reply, n int) (*CompletionReply, error) {
	if err := r.Status("ok"); err != nil {
		return nil, err
	}
	reply := &CompletionReply{Fates: r.Str(5)}
	reply.At, reply.Alive, reply.known = time.UnixMicro(r.Int(1)), r.Int(3) == 1, r.Int(4)
	switch outcome := r.Str(2); outcome {
	case "completed":
	case "refused":
		reply.Refused = []int{0}
	case "cancelled":
		reply.Overruled = []int{0}
	default:
		r.Fail(2, fmt.Sprintf("%.40q", outcome))
	}
	if reply.Fates != "" && len(reply.Fates) != n {
		r.Fail(5, fmt.Sprintf("a text of %d outcomes, for %d follow-ups", len(reply.Fates), n))
	}
	if r.Err != nil {
		return nil, r.Err
	}
	return reply, nil
}

// FollowUpID returns the ID of a follow-up, and the number that takes the place of the one that is drawn for an ID of the caller's. Both follow from the job whose handler asks for it, its kind,
// and its place among the follow-ups of the delivery. So if Redis goes back to before the job completed, and the job runs again, the follow-up that runs again has the effect key that it had.
func FollowUpID(maker *signalbox.Job, kind string, place int) (id string, incarnation uint64) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %d", maker.EffectKey(), maker.ID, kind, place))
	var text [22]byte
	base62(text[:11], binary.BigEndian.Uint64(sum[:]))
	base62(text[11:], binary.BigEndian.Uint64(sum[8:]))
	return string(text[:]), max(binary.BigEndian.Uint64(sum[16:]), 1)
}
