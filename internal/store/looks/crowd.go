package looks

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/settings"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// A GroupInUse says what there is of a group.
type GroupInUse struct {
	Key     string           // with its first byte
	Holding int64            // jobs that hold it: those that run, and those that come to run again without waiting in the line
	Waiting int64            // jobs in its lines
	Until   time.Time        // it is held back until then; zero if it isn't
	Limits  signalbox.Limits // its own, or those of all groups
	Paused  bool             // none of its jobs starts
	Since   time.Time        // it is paused; zero if it isn't, or that isn't known
}

// groupsRead is at how many groups GroupsInUse looks.
const groupsRead = 10_000

// GroupsInUse returns the largest groups that jobs hold or wait in: those with the most jobs first. It looks at some 10,000 groups at most; more reports whether there are
// others than those that it returns.
func (q *Looks) GroupsInUse(ctx context.Context, most int) (groups []GroupInUse, more bool, err error) {
	if groups, more, err = q.someGroups(ctx); err != nil {
		return nil, false, err
	}
	for page := range slices.Chunk(groups, 500) {
		if err := q.countLines(ctx, page); err != nil {
			return nil, false, err
		}
	}
	slices.SortFunc(groups, func(a, b GroupInUse) int {
		return cmp.Or(cmp.Compare(b.Holding+b.Waiting, a.Holding+a.Waiting), cmp.Compare(a.Key, b.Key))
	})
	if len(groups) > most {
		groups, more = groups[:most], true
	}
	return groups, more, q.boundsOf(ctx, groups)
}

// GroupInUse returns what there is of one group, by its key with the first byte, and whether jobs hold it or wait in its lines.
func (q *Looks) GroupInUse(ctx context.Context, key string) (g GroupInUse, found bool, err error) {
	value, err := q.Client.HGet(ctx, q.Keys.Groups, key).Result()
	if errors.Is(err, redis.Nil) {
		return g, false, nil
	}
	known, ok := facts.ParseGroup(value)
	if err != nil || !ok {
		return g, false, err
	}
	one := []GroupInUse{{Key: key, Holding: int64(known.Holders)}}
	if err := q.countLines(ctx, one); err != nil {
		return g, false, err
	}
	return one[0], true, q.boundsOf(ctx, one)
}

// someGroups returns groups that are in use, and how many jobs hold them.
func (q *Looks) someGroups(ctx context.Context) (groups []GroupInUse, more bool, err error) {
	seen := make(map[string]bool)
	for next := uint64(0); ; {
		fields, cursor, err := q.Client.HScan(ctx, q.Keys.Groups, next, "", 1000).Result()
		if err != nil {
			return nil, false, err
		}
		for i := 0; i+1 < len(fields); i += 2 {
			if g, ok := facts.ParseGroup(fields[i+1]); ok && !seen[fields[i]] && fields[i] != "g"+wire.Unstarted { // a scan may return one twice
				seen[fields[i]] = true
				groups = append(groups, GroupInUse{Key: fields[i], Holding: int64(g.Holders)})
			}
		}
		if next = cursor; next == 0 || len(groups) >= groupsRead {
			return groups, next != 0, nil
		}
	}
}

// countLines counts the jobs that wait in the lines of some groups.
func (q *Looks) countLines(ctx context.Context, groups []GroupInUse) error {
	counts, err := q.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range groups {
			for _, class := range []string{"0", "1", "2"} {
				line := class + groups[i].Key
				p.ZLexCount(ctx, q.Keys.Lined, "["+line+"\x01", "("+line+"\x02")
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, count := range counts {
		groups[i/3].Waiting += count.(*redis.IntCmd).Val()
	}
	return nil
}

// boundsOf fills in what bounds some groups.
func (q *Looks) boundsOf(ctx context.Context, groups []GroupInUse) error {
	made, err := q.settings().Read(ctx)
	if err != nil {
		return err
	}
	own, err := q.settings().GroupLimits(ctx)
	if err != nil {
		return err
	}
	holds, err := q.settings().Holds(ctx)
	if err != nil {
		return err
	}
	keys := make([]string, len(groups))
	for i := range groups {
		keys[i] = groups[i].Key
	}
	paused, err := q.settings().PausedAmong(ctx, keys)
	if err != nil {
		return err
	}
	until := make(map[string]time.Time, len(holds))
	for _, h := range holds {
		until[h.Group] = h.Until
	}
	for i := range groups {
		g := &groups[i]
		g.Until, g.Limits = until[g.Key], made.GroupLimits
		g.Since, g.Paused = paused[g.Key]
		if l, ok := own[g.Key[1:]]; ok {
			g.Limits = settings.LimitsIn(l, g.Limits)
		}
		if g.Key[0] == 's' {
			g.Limits.Running = 1
		}
	}
	return nil
}
