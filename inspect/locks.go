package inspect

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/lock"
)

// A Lock is a lock that is held at one moment.
type Lock struct {
	Key string
	// Owner is the holder's name: see [lock.Config]. It is "" if a client of another library holds the lock now.
	Owner string
	// Token is the fencing token that was granted last; if Owner is "" it isn't the holder's.
	Token int64
	// Since is when the holder got the lock, by the clock of Redis; zero if Owner is "".
	Since time.Time
	// Left is how long the lock lives unless it is extended; negative: for ever.
	Left time.Duration
}

// maxScanned is about how many names of keys a call looks at.
const maxScanned = 1000

// Locks yields the locks of package lock, on one Redis, that are held and whose keys fit a pattern as of the command KEYS, such as
// "orders:*"; "*" fits all. It says nothing of a Redlock, of jobs, or of locks of which package lock never had one under that key.
//
// It goes through the names of all keys of the database, or of each master of a Cluster: some milliseconds for every ten thousand, in short
// calls. Then it asks for each lock by itself. A lock that is held all the time is yielded. A lock may be yielded twice. An error is
// yielded last, with a zero Lock. It needs rights that the other methods don't need: see docs/operations/access.md.
func (i *Inspector) Locks(ctx context.Context, pattern string) iter.Seq2[Lock, error] {
	return func(yield func(Lock, error) bool) {
		if err := i.locks(ctx, pattern, func(l Lock) bool { return yield(l, nil) }); err != nil {
			yield(Lock{}, fmt.Errorf("inspect: locks: %w", err))
		}
	}
}

// locks calls yield for each lock until that returns false.
func (i *Inspector) locks(ctx context.Context, pattern string, yield func(Lock) bool) error {
	if pattern == "" {
		return fmt.Errorf("%w pattern: it is empty; pass \"*\" for all locks", signalbox.ErrInvalid)
	}
	locker, err := lock.New(i.rdb, lock.Config{})
	if err != nil {
		return err
	}
	servers, err := i.servers(ctx)
	if err != nil {
		return err
	}
	for _, server := range servers {
		for next, begun := uint64(0), false; !begun || next != 0; begun = true {
			var keys []string
			if keys, next, err = server.ScanType(ctx, next, pattern, maxScanned, "string").Result(); err != nil {
				return err
			}
			for _, key := range keys {
				info, err := locker.Inspect(ctx, key)
				if errors.Is(err, lock.ErrInvalid) {
					continue // no lock: the record of one, or something else
				}
				if err != nil {
					return err
				}
				held := info.Held && info.Token > 0
				if held && !yield(Lock{Key: key, Owner: info.Owner, Token: info.Token, Since: info.Since, Left: info.For}) {
					return nil
				}
			}
		}
	}
	return nil
}

// servers returns who is to be asked for the names of keys: each master of a Cluster.
func (i *Inspector) servers(ctx context.Context) ([]redis.Cmdable, error) {
	cluster, ok := i.rdb.(*redis.ClusterClient)
	if !ok {
		return []redis.Cmdable{i.rdb}, nil
	}
	var mu sync.Mutex
	var masters []redis.Cmdable
	err := cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters = append(masters, master)
		return nil
	})
	return masters, err
}
