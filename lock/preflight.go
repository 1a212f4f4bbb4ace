package lock

import (
	"context"
	"fmt"
	"sync/atomic"
)

// A preflight asks once whether Redis would throw locks away.
type preflight struct{ passed atomic.Bool }

// check refuses a Redis that evicts keys: all locks have a TTL, and so are among the first
// to go. What Redis doesn't tell is not held against it.
func (f *preflight) check(ctx context.Context, r *Redis, key string) error {
	if f.passed.Load() || ctx.Err() != nil {
		return nil
	}
	reply, err := r.caller.call(ctx, min(r.ttl, callTimeout), evictionScript, []string{key}, nil, nil)
	if err != nil && !isAnswer(err) {
		return err
	}
	if policy, _ := reply.(string); policy != "" {
		return evicting(policy)
	}
	f.passed.Store(true)
	return nil
}

func evicting(policy string) error {
	return fmt.Errorf("%w: Redis has a memory limit and maxmemory-policy %s, by which it may evict a lock that is held; set it to noeviction, or keep locks on another Redis", ErrInvalid, policy)
}
