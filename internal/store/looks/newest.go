package looks

import (
	"context"
	"iter"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
)

// Newest yields up to most of the dead jobs, and returns how many are dead. If there are more, it yields those that ended last. Of the jobs whose records
// say how long they are kept it yields those that are dropped last, and no more than half of most as long as there are enough others. It reads them as Jobs does.
func (q *Looks) Newest(ctx context.Context, most int) (total int64, jobs iter.Seq2[View, error], err error) {
	dead := q.Keys.Dead
	var all, own *redis.IntCmd
	_, err = q.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		all, own = p.ZCard(ctx, dead), p.ZCount(ctx, dead, "-inf", "(0") // as dropTime tells them apart
		return nil
	})
	if err != nil {
		return 0, nil, err
	}
	total = all.Val()
	first, last := newest(own.Val(), total-own.Val(), int64(most))
	return total, func(yield func(View, error) bool) {
		for _, part := range []struct{ end, n int64 }{{own.Val(), first}, {total, last}} { // the jobs of ranks end-n to end-1
			if part.n == 0 {
				continue
			}
			l := Listing{State: signalbox.StateDead}
			if before := part.end - part.n - 1; before >= 0 {
				found, err := q.Client.ZRangeWithScores(ctx, dead, before, before).Result()
				if err != nil {
					yield(View{}, err)
					return
				}
				for _, z := range found {
					member, _ := z.Member.(string)
					l.After = q.cursorText(cursor{state: l.State, score: z.Score, member: member})
				}
			}
			left := part.n
			for view, err := range q.Jobs(ctx, l) {
				if !yield(view, err) || err != nil {
					return
				}
				if left--; left == 0 {
					break
				}
			}
		}
	}, nil
}

// newest returns how many jobs of each kind are looked at, of so many with a time of their own and so many others: most together, half of each if there are enough.
func newest(own, others, most int64) (ofOwn, ofOthers int64) {
	ofOwn = min(own, max(most/2, most-others))
	return ofOwn, min(others, most-ofOwn)
}
