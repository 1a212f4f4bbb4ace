// Package facts reads what a queue has in Redis, as it was at one moment: the places of jobs, groups, batches. It has the rules of what must be true of
// these, which the doctor and the check of tests have in common. It writes nothing: TestReadingRooms in internal/archtest.
package facts

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// A Site is where a queue is: its name, its keys, and a client of their server.
type Site struct {
	Client redis.UniversalClient
	Name   string
	Keys   layout.Keys
	// Readable reports whether a field of the settings has a value that can be read, or is none that is known.
	Readable func(field, value string) bool
}

// AtOnce reads what is of one moment, in a transaction. A Redis that is out of memory refuses these, also of reads. Then the reads follow each other, and
// calls of others may come between them. read may be called twice.
func (q *Site) AtOnce(ctx context.Context, read func(redis.Pipeliner) error) ([]redis.Cmder, error) {
	cmds, err := q.Client.TxPipelined(ctx, read)
	if redis.IsOOMError(err) || redis.IsExecAbortError(err) {
		return q.Client.Pipelined(ctx, read)
	}
	return cmds, err
}

// KindOf returns what the name of a key of the queue says: "" for one that a queue doesn't have. session is that of "inflight".
func (q *Site) KindOf(key string) (kind, session string) {
	kind, id, _ := strings.Cut(strings.TrimPrefix(key, q.Keys.Prefix), ":")
	switch {
	case kind == "inflight" && id != "":
		return kind, id
	case q.Keys.Fixed()[key]:
		return "fixed", ""
	case kind == "lane" && id != "", kind == "stuck" && id != "", kind == "progress" && id != "", kind == "outbox" && id != "":
		return kind, ""
	}
	return "", ""
}

// StrayAddress reports whether an address that waits for wake-ups is of none of the sessions.
func (q *Site) StrayAddress(address string, registered func(session string) bool) bool {
	if len(address) < 2 {
		return true
	}
	session, ok := strings.CutPrefix(address[1:], q.Keys.Channel(""))
	return !ok || !registered(session)
}

// Pattern is what the names of the queue's keys match.
func (q *Site) Pattern() string { return Escaped(q.Keys.Prefix) + "*" }

// Escaped returns the pattern that fits a text alone.
func Escaped(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}

// AllKeys returns the names of all keys of the queue.
func (q *Site) AllKeys(ctx context.Context) ([]string, error) { return q.KeysLike(ctx, q.Pattern()) }

// KeysLike returns the names of all keys that fit a pattern. In a Cluster it asks each master, so that
// it doesn't matter which of them has the queue's slot.
func (q *Site) KeysLike(ctx context.Context, pattern string) ([]string, error) {
	var mu sync.Mutex
	found := make(map[string]bool) // SCAN may name a key twice
	scan := func(ctx context.Context, c redis.Cmdable) error {
		it := c.Scan(ctx, 0, pattern, 1000).Iterator()
		for it.Next(ctx) {
			mu.Lock()
			found[it.Val()] = true
			mu.Unlock()
		}
		return it.Err()
	}
	var err error
	if cluster, ok := q.Client.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return scan(ctx, c) })
	} else {
		err = scan(ctx, q.Client)
	}
	keys := make([]string, 0, len(found))
	for key := range found {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys, err
}

// ReadyClasses are the classes of the ready lists, in the order in which Jobs reads them.
var ReadyClasses = []string{"0", "1", "2", "s"}

// ParseScore reads the score of a sorted set, which Redis has checked. It is 0 for anything else.
func ParseScore(text string) float64 {
	score, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return score
}

// CheckLayout returns a *layout.Error if the queue's layout is older than layout.Number: a program that reads the queue would misread it.
func (q *Site) CheckLayout(ctx context.Context) error {
	_, err := q.Begun(ctx)
	return err
}

// Begun reports whether the queue has counters or settings. It returns a *layout.Error if its layout is older than layout.Number. The counters have the layout, too: it
// counts if the settings were deleted or evicted.
func (q *Site) Begun(ctx context.Context) (bool, error) {
	for last := false; ; last = true {
		for _, key := range []string{q.Keys.Settings, q.Keys.Stats} {
			values, err := q.Client.HMGet(ctx, key, "layout").Result()
			if err != nil {
				return false, err
			}
			if text, noted := values[0].(string); noted {
				return true, layout.Check(text)
			}
		}
		if last {
			return true, layout.Check("1")
		}
		used, err := q.Client.Exists(ctx, q.Keys.Settings, q.Keys.Stats).Result()
		if err != nil || used == 0 {
			return false, err
		} // else it may have begun between the two calls: then it has a layout now
	}
}

// Now returns the server's clock.
func (q *Site) Now(ctx context.Context) (time.Time, error) { return q.Client.Time(ctx).Result() }

// TimeOf returns the time that a score stands for: microseconds. It is bounded by what a record can hold.
func TimeOf(score float64) time.Time {
	return time.UnixMicro(int64(min(max(score, 0), 1<<53)))
}
