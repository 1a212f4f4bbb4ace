package store

import (
	"context"
	"time"

	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// Open opens a session, or renews it: it lives for ttl from now, by the server's clock.
func (ss *Sessions) Open(ctx context.Context, session string, ttl time.Duration) (alive bool, hints Hints, err error) {
	return ss.renew(ctx, session, ttl, "", true)
}

// Renew lets the session live for ttl from now. It is not alive if it is unknown or over. address is where it waits for wake-ups, or "".
func (ss *Sessions) Renew(ctx context.Context, session string, ttl time.Duration, address string) (alive bool, hints Hints, err error) {
	return ss.renew(ctx, session, ttl, address, false)
}

func (ss *Sessions) renew(ctx context.Context, session string, ttl time.Duration, address string, open bool) (bool, Hints, error) {
	seq, waited, ran := ss.q.times.args()
	r, err := scripts.Renew.Run(ctx, ss.q.rdb, scripts.Renew.Keys(&ss.q.keys, ss.q.timesLane()), scripts.Renew.Args(0,
		scripts.Arg("protocol", layout.Protocol), scripts.Arg("session", session), scripts.Arg("ttl", ttl.Microseconds()), scripts.Arg("open", scripts.Flag(open)),
		scripts.Arg("address", address), scripts.Arg("worker", ss.q.worker), scripts.Arg("seq", seq), scripts.Arg("waited", waited), scripts.Arg("ran", ran)))
	if err != nil {
		return false, Hints{}, err
	}
	return parseRenew(r)
}

func parseRenew(r *scripts.Reply) (alive bool, hints Hints, err error) {
	if err := r.Status("ok"); err != nil {
		return false, Hints{}, err
	}
	alive, hints = r.Int(2) == 1, hintsOf(r, 3)
	hints.Withheld, hints.Slots = withheldOf(r, 6), slotsOf(r, 7)
	hints.Heard, hints.Idle = r.Int(8) == 1, r.Int(9) == 1
	hints.Cancels = len(r.List) > 10 && r.Int(10) > 0
	if r.Err != nil {
		return false, Hints{}, r.Err
	}
	return alive, hints, nil
}

// Close ends a session that has no deliveries left, and the lanes of its worker. The lane of a batch of times is none of them: it must
// outlive a call that is made again. ends says that the worker ends, so that it is no longer to be quiet. Close returns how many deliveries are left.
func (ss *Sessions) Close(ctx context.Context, session string, ends bool, lanes ...*Lane) (left int, err error) {
	worker := ""
	if ends {
		worker = ss.q.worker
	}
	seq, waited, ran := ss.q.times.args()
	keys := scripts.Close.Keys(&ss.q.keys, ss.q.timesLane(), ss.q.keys.Inflight(session))
	for _, l := range lanes {
		keys = append(keys, l.key)
	}
	r, err := scripts.Close.Run(ctx, ss.q.rdb, keys, scripts.Close.Args(0, scripts.Arg("session", session), scripts.Arg("channel", ss.q.keys.Channel(session)),
		scripts.Arg("worker", worker), scripts.Arg("seq", seq), scripts.Arg("waited", waited), scripts.Arg("ran", ran)))
	if err != nil {
		return 0, err
	}
	left = int(r.Int(0))
	return left, r.Err
}

// Sweep drops terminal jobs beyond what the queue keeps, windows of unique keys that are over, and old receipts of moves, up to 500 of each kind. It returns how many:
// 0 if nothing is left to drop.
func (ss *Sessions) Sweep(ctx context.Context) (dropped int, err error) {
	r, err := scripts.Sweep.Run(ctx, ss.q.rdb, scripts.Sweep.Keys(&ss.q.keys), scripts.Sweep.Args(0, scripts.Arg("protocol", layout.Protocol),
		scripts.Arg("keep_jobs", ss.q.kept.Jobs), scripts.Arg("keep_bytes", ss.q.kept.Bytes), scripts.Arg("keep_us", ss.q.kept.Age.Microseconds())))
	if err != nil {
		return 0, err
	}
	dropped = int(r.Int(0))
	return dropped, r.Err
}

// NewSession returns a name for a session of a worker.
func NewSession(worker string) string { return NewID() + "@" + worker }
