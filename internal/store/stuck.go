package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// MaxStuckStack is the longest stack of a stuck handler, in bytes.
	MaxStuckStack = 2048

	maxStuck  = 100 // jobs that are kept of a session: those that are stuck for longest
	maxStacks = 16  // how many of these have their stacks
)

// Stuck is a job whose handler goes on though its context has ended.
type Stuck struct {
	ID    string
	Kind  string // "" if its worker is of an older release
	Token int64
	Since time.Time // when the end of the context was seen, by the server's clock
	Stack string    // of the handler's goroutine; "" if it isn't known
	Freed bool      // the worker has another job in its slot
}

type stuckJSON struct {
	ID    string `json:"id"`
	Kind  string `json:"kind,omitempty"`
	Token int64  `json:"token"`
	Since int64  `json:"since"` // us
	Stack string `json:"stack,omitempty"`
	Freed bool   `json:"freed,omitempty"`
}

// WriteStuck keeps which jobs of a session are stuck, for ttl. Without any, nothing is kept.
func (ss *Sessions) WriteStuck(ctx context.Context, session string, ttl time.Duration, jobs []Stuck) error {
	key := ss.q.keys.Stuck(session)
	if len(jobs) == 0 {
		return ss.q.rdb.Del(ctx, key).Err()
	}
	jobs = slices.SortedFunc(slices.Values(jobs), func(a, b Stuck) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Token, b.Token)) })
	all := make([]stuckJSON, min(len(jobs), maxStuck))
	for i := range all {
		j := &jobs[i]
		all[i] = stuckJSON{ID: j.ID, Kind: j.Kind, Token: j.Token, Since: j.Since.UnixMicro(), Freed: j.Freed}
		if i < maxStacks && len(j.Stack) <= MaxStuckStack {
			all[i].Stack = j.Stack
		}
	}
	return ss.setNote(ctx, key, ttl, all)
}

// Stuck returns which jobs of a session are stuck, as its worker has last written. What it can't read counts as none.
func (ss *Sessions) Stuck(ctx context.Context, session string) ([]Stuck, error) {
	all, err := readNote[stuckJSON](ctx, ss.q, ss.q.keys.Stuck(session))
	if err != nil || all == nil {
		return nil, err
	}
	jobs := make([]Stuck, len(all))
	for i, j := range all {
		jobs[i] = Stuck{ID: j.ID, Kind: j.Kind, Token: j.Token, Since: time.UnixMicro(j.Since), Stack: j.Stack, Freed: j.Freed}
	}
	return jobs, nil
}

// setNote keeps what a worker says of a session's jobs to people, for ttl.
func (ss *Sessions) setNote(ctx context.Context, key string, ttl time.Duration, jobs any) error {
	value, err := json.Marshal(jobs)
	if err != nil {
		return err
	}
	return ss.q.rdb.Set(ctx, key, value, ttl).Err()
}

// readNote returns what setNote has kept. What it can't read counts as none.
func readNote[J any](ctx context.Context, q *Queue, key string) (jobs []J, err error) {
	value, err := q.rdb.Get(ctx, key).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if json.Unmarshal(value, &jobs) != nil {
		return nil, nil // another program wrote it
	}
	return jobs, nil
}
