package store

import (
	"context"
	"strconv"
	"strings"
	"time"
)

const (
	// TickGrace is how late a tick may be, by the server's clock. The script refuses ticks that are later.
	TickGrace = 5 * time.Second
	// TickAhead is how far in the future the last tick of an entry may be without being ignored. It matters only for a caller that
	// knows the server's clock. A clock that was ahead leaves such ticks behind.
	TickAhead = 10 * time.Second
)

// A Reckoning is a caller's own estimate of the server's time, for EnqueueTicks. With the zero value the server's clock counts.
type Reckoning struct {
	Known bool          // the caller has watched the clock for long enough to notice a jump
	Skew  time.Duration // how far the estimate is ahead of the server's clock, if Known
}

// EnqueueTicks is like Enqueue, for jobs of ticks. It uses the caller's reckoning as the time.
func (q *Queue) EnqueueTicks(ctx context.Context, lane *Lane, items []Item, r Reckoning) (Fates, error) {
	return q.enqueue(ctx, lane, items, r)
}

// LastTicks returns for each entry the last tick that was enqueued, or the zero time. entries may have at most 1,000 names.
func (q *Queue) LastTicks(ctx context.Context, entries []string) ([]time.Time, error) {
	values, err := q.rdb.HMGet(ctx, q.keys.cron, entries...).Result()
	if err != nil {
		return nil, err
	}
	last := make([]time.Time, len(entries))
	for i := range min(len(values), len(last)) {
		text, _ := values[i].(string)
		if us, err := strconv.ParseInt(text, 10, 64); err == nil {
			last[i] = time.UnixMicro(us)
		}
	}
	return last, nil
}

// NewFates returns fates like those of a call. It is for tests of callers.
func NewFates(now time.Time, fates ...Fate) Fates {
	list := make([]byte, len(fates))
	for i, f := range fates {
		list[i] = byte(f)
	}
	return Fates{Now: now, list: string(list)}
}

// Tick returns the tick and the entry of an item, if it has them.
func (it *Item) Tick() (tick time.Time, entry string) {
	us, entry, _ := strings.Cut(strings.TrimPrefix(it.when, "="), " ")
	n, _ := strconv.ParseInt(us, 10, 64)
	return time.UnixMicro(n).UTC(), entry
}
