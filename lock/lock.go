// Package lock holds distributed locks. It stands alone: no queue is needed.
//
// A [Locker] grants a [Lock]: a [Lease] on a key, which its holder can extend and must
// release. [Do] does all of that around a function:
//
//	locker, err := lock.New(rdb, lock.Config{}) // one for all keys, as long as the process runs
//	if err != nil {
//		return err
//	}
//	err = lock.Do(ctx, locker, "digest", func(ctx context.Context) error {
//		return build(ctx) // under the lock, which is extended as long as this runs
//	})
//
// # What is promised
//
// Mutual exclusion: at most one live lease per key at a time, as long as Redis keeps its
// memory, clocks don't step and processes notice their pauses. The lease's context
// helps with the last: it ends with cause [ErrLost] before the TTL in Redis does,
// and its Err reads the clocks itself, so that nothing starts after a pause. Ask it
// before each step. This promise rests on time; it is for efficiency.
//
// Fencing: each grant carries a token larger than all before it for the same key. A store
// that refuses a token smaller than the largest it has seen is safe from holders
// that were superseded, whatever the clocks did. The counter lives in Redis and expires
// 7 days after its last use. Where it is missing, because of that or since Redis lost
// its memory or failed over, tokens go on from the clock of the Redis server, and
// their order rests on that clock not having stepped back.
//
// # One Redis or several
//
// [New] makes a locker on one Redis, over your client. Package lock/redlock makes one on several
// independent masters, which goes on while a majority of them answers. What each
// promises, and what breaks it, is in docs/locks.md.
//
// # On the wire
//
// A lock is a string at exactly the given key, set by SET NX PX to a random value, and
// deleted or extended only while it holds that value. So redsync, bsm/redislock,
// node-redlock and redis-py exclude us on the same key and we exclude them. Beside it
// are a record with the token counter, at key:fence if the key has a hash tag, else at
// key{key}:fence, and while somebody waits the waiting line, at the same with :wait. Keys that
// have a { or } but no hash tag, keys that end as those two do, and keys such as key{key} are refused.
//
// # Caveats
//
// A replica that takes over may not have seen the latest locks. A Redis that evicts keys
// can evict locks, and is refused. At its memory limit no lock is granted, but those
// held are still extended and released. Locks aren't reentrant.
package lock

import (
	"context"
	"time"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/lock/internal/spec"
)

var (
	// ErrHeld: somebody else holds the lock. The lock service itself is well.
	ErrHeld = spec.ErrHeld
	// ErrLost: the lease ended before it was released. It is the cause of the
	// lease's context.
	ErrLost = lease.ErrLost
	// ErrExpired is an ErrLost: the lock was not released or extended in time, and nobody
	// is known to have taken it since.
	ErrExpired = lease.ErrExpired
	// ErrTaken is an ErrLost: the lock expired or was deleted, and another has it now.
	ErrTaken = lease.ErrTaken
	// ErrInvalid: a key, an option or what is stored at the key is not what a lock can
	// be made of. Nothing was changed; trying again doesn't help.
	ErrInvalid = spec.ErrInvalid
)

// A Lease is what its holder may rely on.
type Lease interface {
	// Key is the name that was locked.
	Key() string
	// Token is the fencing token: larger than every token granted before it for
	// the same key.
	Token() int64
	// Until is when the promised validity ends, by this process's clock.
	Until() time.Time
}

// A Lock is a lease that its holder can extend and must release.
type Lock interface {
	Lease
	// Context has the values of the context that the lock was acquired with, but not
	// its end. It ends with cause ErrLost before the validity ends, unless extended, and
	// with cause context.Canceled when the lock is released. Its Err reads the clock
	// itself, so that nothing starts after a pause of the process.
	Context() context.Context
	// Extend renews the lease for the locker's TTL from now. It returns ErrLost if
	// the lease has ended: a lost lock is never resurrected.
	Extend(ctx context.Context) error
	// Release gives the lock up. It works after ctx was cancelled, within a timeout of
	// its own. It returns nil if this call or an earlier one released the lock. Else it
	// says what it found: [ErrExpired] if the lease had ended, [ErrTaken] if another
	// has the key; both are ErrLost. After any other error the lock may stay until its
	// TTL is over, and Release may be tried again.
	Release(ctx context.Context) error
}

// A Locker grants locks. ctx bounds the waiting, not the holding.
type Locker interface {
	// Acquire waits for the lock until ctx ends.
	Acquire(ctx context.Context, key string) (Lock, error)
	// TryAcquire returns ErrHeld at once if somebody else holds the lock.
	TryAcquire(ctx context.Context, key string) (Lock, error)
}
