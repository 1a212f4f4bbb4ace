package lock

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/signalbox-go/signalbox/lock/internal/lua"
)

// lookAgain is how often the settings of a Redis that is in use are checked.
const lookAgain = 30 * time.Second

// A preflight checks that Redis doesn't throw locks away. It does so before the first lock, and again every
// lookAgain, since settings change while a server runs.
type preflight struct {
	next atomic.Pointer[time.Time] // when to check again; nil: no check has passed yet
}

// check returns an error if Redis evicts keys. All locks have a TTL, so they would be among the first to go. A Redis
// that doesn't report its settings passes.
func (f *preflight) check(ctx context.Context, r *Redis, key string) error {
	next, now := f.next.Load(), time.Now()
	if next != nil && now.Before(*next) || ctx.Err() != nil {
		return nil
	}
	again := now.Add(lookAgain)
	if next != nil && !f.next.CompareAndSwap(next, &again) {
		return nil // another goroutine is checking
	}
	reply, err := r.caller.Call(ctx, r.askTimeout, evictionScript, []string{key}, nil, nil)
	if err != nil && !lua.IsAnswer(err) {
		if next != nil {
			f.next.Store(next) // the next acquire checks again
		}
		return err
	}
	var policy string
	if fields, _ := reply.([]any); len(fields) == 2 {
		policy, _ = fields[0].(string)
		clock, _ := fields[1].(int64)
		r.caller.Clock.Saw(clock, now)
	}
	if policy != "" {
		f.next.Store(nil)
		return evicting(policy)
	}
	f.next.Store(&again)
	return nil
}

func evicting(policy string) error {
	return fmt.Errorf("%w: Redis has a memory limit and maxmemory-policy %s, by which it may evict a lock that is held; set it to noeviction, or keep locks on another Redis", ErrInvalid, policy)
}
