// Package lock holds distributed locks. It stands alone: no queue is needed.
//
// A [Locker] grants a [Lock]. A Lock is a [Lease] on a key. Its holder can extend it and must
// release it. [Do] does all of that around a function:
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
// Mutual exclusion: each key has at most one live lease at a time. This promise rests on time:
// Redis keeps its memory, clocks don't step, and processes notice their pauses. The lease's context
// helps with the last. It ends with cause [ErrLost] before the TTL in Redis does, and its Err
// reads the clocks itself, so that no work starts after a pause. Ask it before each step. Two
// holders can still overlap for a moment. Check the token where that would do harm.
//
// Fencing: each grant carries a token that is larger than all earlier tokens of the same key. Let
// your store refuse a token that is smaller than the largest it has seen. Then a holder that was
// superseded can't change it, whatever the clocks did. The counter of tokens is in Redis and expires
// 7 days after its last use. It may also be missing because Redis lost its memory or failed over.
// Then tokens go on from the clock of the Redis server. Their order holds if that clock
// didn't step back.
//
// # One Redis or several
//
// [New] makes a locker on one Redis, with your client. Package lock/redlock makes one on several
// independent masters. It works while a majority of them answers. docs/locks.md says what each
// promises and what breaks it.
//
// # On the wire
//
// A lock is a string at exactly the given key. It is set by SET NX PX to a random value, and
// deleted or extended only while it holds that value. So locks of redsync, bsm/redislock,
// node-redlock and redis-py on the same key exclude ours, and ours exclude theirs. Two keys stand beside it:
//
//   - key:fence is a record with the counter of tokens.
//   - key:fence:wait is the queue of waiters, while there are any.
//
// If the key has no hash tag they are key{key}:fence and key{key}:fence:wait. Three kinds of keys are refused:
// those that have a { or } but no hash tag, those that end in :fence or :fence:wait, and those such as key{key}.
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
	// ErrHeld means that somebody else holds the lock. The lock service itself is well.
	ErrHeld = spec.ErrHeld
	// ErrLost means that the lease ended before it was released. It is the cause of the end of the
	// lease's context.
	ErrLost = lease.ErrLost
	// ErrExpired is an ErrLost: the lock was not released or extended in time. Nobody is known to have
	// taken it since.
	ErrExpired = lease.ErrExpired
	// ErrTaken is an ErrLost: the lock expired or was deleted, and somebody else has it now.
	ErrTaken = lease.ErrTaken
	// ErrInvalid means that no lock can be made of the arguments, or of what is stored at the key.
	// Nothing was changed. Trying again doesn't help. All lockers return it. It isn't signalbox.ErrInvalid, which package
	// fence returns: this package can be used without the rest of Signalbox.
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

// An Origin is a [Lease] that says where its token comes from. Package lock/fence needs that: tokens can be
// compared only if they come from the same counter. All locks of this project are Origins, and so are the leases of
// jobs.
type Origin interface {
	// Issuer names the counter that the token comes from, such as "redis" or "etcd". Tokens of different issuers
	// can't be compared. It has 1 to 64 bytes of printable ASCII.
	Issuer() string
	// Holder is the grant's own value. It is different for every grant, so it tells two holders of an equal token
	// apart. It has at most 255 bytes of printable ASCII.
	Holder() string
}

// A Lock is a lease that its holder can extend and must release.
type Lock interface {
	Lease
	// Context has the values of the context that the lock was acquired with, but not
	// its end. It ends with cause ErrLost before the validity ends, unless the lock is extended. It ends
	// with cause context.Canceled when the lock is released. Its Err reads the clock itself,
	// so that no work starts after a pause of the process.
	Context() context.Context
	// Extend renews the lease for the locker's TTL from now. It returns ErrLost if
	// the lease has ended: a lost lock is never resurrected.
	Extend(ctx context.Context) error
	// Release gives the lock up. It works after ctx was cancelled, within a timeout of
	// its own. It returns nil if this call or an earlier one released the lock. It returns
	// [ErrExpired] if the lease had ended, and [ErrTaken] if somebody else has the key.
	// Both are ErrLost. After any other error the lock may stay until its TTL is over, and
	// Release may be tried again.
	Release(ctx context.Context) error
}

// A Locker grants locks. A ctx bounds the waiting, not the holding.
type Locker interface {
	// Acquire waits for the lock until ctx ends.
	Acquire(ctx context.Context, key string) (Lock, error)
	// TryAcquire returns ErrHeld at once if somebody else holds the lock.
	TryAcquire(ctx context.Context, key string) (Lock, error)
}
