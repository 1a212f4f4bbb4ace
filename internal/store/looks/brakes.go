package looks

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/settings"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// Brakes say what keeps jobs that are ready from starting: those of a queue, or of one group of it. The zero value is none.
type Brakes struct {
	Paused    bool             // the group is paused; that the queue is, its settings say
	HeldUntil time.Time        // until when they are held back; zero if they aren't
	Limits    signalbox.Limits // those that are in force
	AtLimit   bool             // as many jobs run as Limits.Running allows
	Allowed   time.Time        // when Limits.Rate allows the next start; zero if it allows one now
}

// queueBrakes returns those of the queue. now is the time by the server's clock. beside adds commands to the call.
func (q *Looks) queueBrakes(ctx context.Context, l signalbox.Limits, now time.Time, beside ...func(redis.Pipeliner)) (Brakes, error) {
	var runs *redis.MapStringStringCmd
	b, err := q.brakes(ctx, "", now, func(p redis.Pipeliner) {
		if l.Running > 0 {
			runs = p.HGetAll(ctx, q.Keys.Running)
		}
		for _, add := range beside {
			add(p)
		}
	}, func() signalbox.Limits { return l })
	if err != nil || runs == nil {
		return b, err
	}
	running := 0
	for _, text := range runs.Val() {
		n, _ := strconv.Atoi(text) // what can't be read counts for none, as it does for the scripts
		running += n
	}
	b.AtLimit = running >= l.Running
	return b, nil
}

// groupBrakes returns those of a group, by its key with the first byte. usual are the limits of groups without limits of their own.
func (q *Looks) groupBrakes(ctx context.Context, key string, usual signalbox.Limits, now time.Time) (Brakes, error) {
	var own, state, paused *redis.StringCmd
	b, err := q.brakes(ctx, key, now, func(p redis.Pipeliner) {
		own, state = p.HGet(ctx, q.Keys.Limits, "g"+key[1:]), p.HGet(ctx, q.Keys.Groups, key)
		paused = p.HGet(ctx, q.Keys.Limits, settings.PauseField+key)
	}, func() signalbox.Limits {
		if text, err := own.Result(); err == nil {
			return settings.LimitsIn(settings.OwnLimitsOf(text), usual)
		}
		return usual
	})
	if err != nil {
		return b, err
	}
	b.Paused = paused.Err() == nil
	if key[0] == 's' {
		b.Limits.Running = 0 // one job of it runs at a time, whatever that says
	}
	g, _ := facts.ParseGroup(state.Val())
	b.AtLimit = b.Limits.Running > 0 && g.Holders >= b.Limits.Running
	return b, nil
}

// brakes reads what there is of a group, or of the queue if key is "". more adds commands to the call; limits is called behind it.
func (q *Looks) brakes(ctx context.Context, key string, now time.Time, more func(redis.Pipeliner), limits func() signalbox.Limits) (Brakes, error) {
	var until, at *redis.FloatCmd
	var clock *redis.StringCmd
	cmds, err := q.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		until, at, clock = p.ZScore(ctx, q.Keys.Rates, "h"+key), p.ZScore(ctx, q.Keys.Rates, key), p.HGet(ctx, q.Keys.Stats, settings.ClockField)
		more(p)
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return Brakes{}, err
	}
	for _, cmd := range cmds { // redis.Nil of one may hide the error of another
		if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
			return Brakes{}, err
		}
	}
	b := Brakes{Limits: limits()}
	ahead := settings.LimitsClock(clock.Val(), now)
	if held := facts.TimeOf(until.Val()).Add(-ahead); held.After(now) {
		b.HeldUntil = held
	}
	if pause := pauseOf(b.Limits.Rate, facts.TimeOf(at.Val()).Add(-ahead).Sub(now)); pause > 0 {
		b.Allowed = now.Add(pause)
	}
	return b, nil
}

// pauseOf returns how long it is until a rate allows a start. ahead is how far the time of the next start is ahead, if jobs started evenly. It is
// allowed of the function limits_of of the scripts.
func pauseOf(r signalbox.Rate, ahead time.Duration) time.Duration {
	if r.Jobs == 0 {
		return 0
	}
	per, burst := cmp.Or(r.Per, time.Second), max(r.Burst, 1)
	each := float64(per) / float64(r.Jobs)
	ahead = min(max(ahead, 0), time.Duration(float64(burst)*each)) // more is from before the rate was changed
	return max(ahead-time.Duration(float64(burst-1)*each), 0)
}

// readBrakes notes what keeps the job from starting, if it waits: by its queue, and by its group if it has one. Of a job that isn't in the line of its group only
// that the group is paused keeps it.
func (q *Looks) readBrakes(ctx context.Context, v *View, s *Situation) (err error) {
	if v.State != signalbox.StateReady && v.State != signalbox.StateScheduled {
		return nil
	}
	key := facts.GroupOf(v.Record)
	if s.Queue, err = q.queueBrakes(ctx, s.Settings.Limits, s.At); err != nil || key == "" || key == "g"+wire.Unstarted {
		return err
	}
	if v.Brakes, err = q.groupBrakes(ctx, key, s.Settings.GroupLimits, s.At); !v.Lined {
		v.Brakes = Brakes{Paused: v.Brakes.Paused}
	}
	return err
}
