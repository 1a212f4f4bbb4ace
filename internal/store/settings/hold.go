package settings

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// longestHold is for how long jobs can be held back.
const longestHold = 24 * time.Hour

// HoldBack keeps the jobs of a group from starting for a time, or all of the queue. group is a key with its first byte, and "" for the queue. by is the ID of
// the job whose handler asks for it, or "". An end that is earlier than one that was set before changes nothing. 0 ends what was set. It returns until
// when jobs are held back, by the server's clock; zero if they aren't.
func (q *Settings) HoldBack(ctx context.Context, group, by string, d time.Duration) (until time.Time, err error) {
	r, err := scripts.Hold.Run(ctx, q.Client, scripts.Hold.Keys(&q.Keys), scripts.Hold.Args(0, scripts.Arg("protocol", layout.Protocol), scripts.Arg("group", group),
		scripts.Arg("hold", min(d, longestHold).Microseconds()), scripts.Arg("by", by), scripts.Arg("channel", q.Keys.Control())))
	if err != nil {
		return until, err
	}
	if err := r.Status("ok"); err != nil {
		return until, err
	}
	if us := r.Int(1); us > 0 {
		until = time.UnixMicro(us)
	}
	return until, r.Err
}

// A Hold says until when jobs of a queue are held back.
type Hold struct {
	Group string // key of the group with its first byte; "" for the whole queue
	Until time.Time
	By    string // ID of the job whose handler asked for it; "" for an operator
}

// maxHolds is how many holds are looked up at a time.
const maxHolds = 500

// Holds returns which jobs are held back at the present: the queue first, then its groups by their keys.
func (q *Settings) Holds(ctx context.Context) ([]Hold, error) {
	fields, err := q.Client.HGetAll(ctx, q.Keys.Limits).Result()
	if err != nil {
		return nil, err
	}
	var members []string
	for field := range fields {
		if strings.HasPrefix(field, "h") {
			members = append(members, field)
		}
	}
	if len(members) == 0 {
		return nil, nil
	}
	now, err := q.Now(ctx)
	if err != nil {
		return nil, err
	}
	text, err := q.Client.HMGet(ctx, q.Keys.Stats, ClockField).Result()
	if err != nil {
		return nil, err
	}
	noted, _ := text[0].(string)
	ahead := LimitsClock(noted, now)
	slices.Sort(members)
	var holds []Hold
	for page := range slices.Chunk(members, maxHolds) {
		ends, err := q.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, member := range page {
				p.ZScore(ctx, q.Keys.Rates, member)
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, err
		}
		for i, end := range ends {
			if until := facts.TimeOf(end.(*redis.FloatCmd).Val()).Add(-ahead); until.After(now) { // else it has passed, and a claim forgets it soon
				holds = append(holds, Hold{page[i][1:], until, fields[page[i]]})
			}
		}
	}
	return holds, nil
}

// HoldUntil keeps jobs from starting as Holds has returned it, perhaps of another queue. One that is over changes nothing.
func (q *Settings) HoldUntil(ctx context.Context, h Hold) error {
	now, err := q.Now(ctx)
	if err != nil || !h.Until.After(now) {
		return err
	}
	_, err = q.HoldBack(ctx, h.Group, h.By, max(h.Until.Sub(now), time.Microsecond))
	return err
}
