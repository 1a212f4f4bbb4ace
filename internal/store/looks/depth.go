package looks

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/store/settings"
)

// Depths are the numbers of a queue's jobs, by state.
type Depths struct {
	Ready     int64 // waiting for a worker, or for their group
	Scheduled int64 // waiting for their time; also due jobs that no worker has promoted yet
	Running   int64 // in flight
	Awaiting  int64 // waiting for a flow, such as callbacks of a batch
	Dead      int64 // dead jobs that are kept
	Cancelled int64 // cancelled jobs that are kept
	Completed int64 // completed jobs that are kept
	// Blocked are those of Ready whose group lets none start: it is paused, held back, or at its limits. It is an estimate if more than 1,000 lines of groups
	// may go on.
	Blocked int64
	// Paused groups, and those that are held back, are counted by their names, among some 10,000 that have a pause, a hold or limits of their own.
	PausedGroups, HeldGroups int64
	// Oldest is how long the oldest job that could run has waited since it was last due. It is 0 if there is no such job.
	Oldest    time.Duration
	Paused    bool      // no worker gets jobs of the queue
	HeldUntil time.Time // until when the queue is held back, by the server's clock; zero if it isn't
	// Limited says that jobs are ready which their groups let start, and that the queue's limits allow none to start now.
	Limited bool

	limits signalbox.Limits
	early  bool      // the rate of limits allows no job now
	named  bool      // groups have limits of their own, or are paused or held back
	steady time.Time // the time by the clock of limits
}

// limited notes whether the queue's limits keep jobs from starting, once all that run are counted.
func (d *Depths) limited() {
	d.Limited = d.Ready > d.Blocked && (d.early || d.limits.Running > 0 && d.Running >= int64(d.limits.Running))
	d.limits, d.early, d.named, d.steady = signalbox.Limits{}, false, false, time.Time{}
}

// Depths returns the queue's depths. All numbers are from one moment, except PausedGroups, HeldGroups and Running: it doesn't count sessions that open meanwhile.
func (q *Looks) Depths(ctx context.Context) (Depths, error) {
	k := &q.Keys
	sessions, err := q.Client.ZRange(ctx, k.Sessions, 0, -1).Result()
	if err != nil {
		return Depths{}, err
	}
	keys := scripts.Depth.Keys(k)
	n := min(len(sessions), facts.MaxActSessions)
	for _, id := range sessions[:n] {
		keys = append(keys, k.Inflight(id))
	}
	r, err := scripts.Depth.Run(ctx, q.Client, keys, nil)
	if err != nil {
		return Depths{}, err
	}
	d, err := parseDepths(r)
	if err != nil {
		return Depths{}, err
	}
	if d.named {
		if d.PausedGroups, d.HeldGroups, err = q.settings().CountStopped(ctx, d.steady); err != nil {
			return Depths{}, err
		}
	}
	if n == len(sessions) {
		d.limited()
		return d, nil
	}
	others, err := q.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, id := range sessions[n:] {
			p.HLen(ctx, k.Inflight(id))
		}
		return nil
	})
	if err != nil {
		return Depths{}, err
	}
	for _, cmd := range others {
		d.Running += cmd.(*redis.IntCmd).Val()
	}
	d.limited()
	return d, nil
}

func parseDepths(r *scripts.Reply) (Depths, error) {
	if err := r.Status("ok"); err != nil {
		return Depths{}, err
	}
	d := Depths{Ready: r.Int(2), Scheduled: r.Int(3), Running: r.Int(4), Dead: r.Int(5), Cancelled: r.Int(6), Completed: r.Int(8), Awaiting: r.Int(16)}
	now, since := r.Int(1), r.Int(7)
	at, heldUntil := facts.TimeOf(facts.ParseScore(r.Str(11))), facts.TimeOf(facts.ParseScore(r.Str(12)))
	ahead := settings.LimitsClock(r.Str(13), time.UnixMicro(now))
	d.Blocked, d.named = r.Int(14), r.Int(15) > 0
	d.Paused, d.limits, d.steady = r.Str(9) != "", settings.LimitsOf(r.Str(10)), time.UnixMicro(now).Add(ahead)
	d.early = pauseOf(d.limits.Rate, at.Add(-ahead).Sub(time.UnixMicro(now))) > 0
	if until := heldUntil.Add(-ahead); until.After(time.UnixMicro(now)) {
		d.HeldUntil = until
	}
	if r.Err != nil {
		return Depths{}, r.Err
	}
	if since >= 0 {
		d.Oldest = time.Duration(max(now-since, 0)) * time.Microsecond
	}
	return d, nil
}
