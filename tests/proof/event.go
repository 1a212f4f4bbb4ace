package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// An event is the begin or the end of a client's operation. It is written at once. So the
// operations of a client that was killed are known.
type event struct {
	Op    int64  `json:"op"` // the operation's number in its process
	Do    do     `json:"do"`
	End   bool   `json:"end,omitempty"`
	Key   string `json:"key,omitempty"`
	Lease int64  `json:"lease,omitempty"` // the operation that acquired it, if that is another one
	At    int64  `json:"at"`              // CLOCK_MONOTONIC, ns

	// The following fields are set at an end.
	Result result `json:"result,omitempty"`
	Token  int64  `json:"token,omitempty"`
	Until  int64  `json:"until,omitempty"` // the promised end, CLOCK_MONOTONIC, ns
	Error  string `json:"error,omitempty"`
}

type do string

const (
	acquire do = "acquire"
	extend  do = "extend"
	release do = "release"
)

// A result is the library's answer.
type result string

const (
	open   result = ""     // no answer: the client was killed
	done   result = "done" // nil
	held   result = "held" // lock.ErrHeld
	lost   result = "lost" // lock.ErrLost
	failed result = "failed"
)

// never is the return time of an operation that hasn't returned.
const never = math.MaxInt64

// An operation is a client's request, from its call to its return.
type operation struct {
	process, op, lease int64
	do                 do
	key                string
	call, back         int64
	result             result
	token, until       int64
	err                string
}

// assemble makes operations from the events of one process.
func assemble(process int64, events []event) ([]operation, error) {
	begun := map[int64]int{}
	var ops []operation
	for _, e := range events {
		if !e.End {
			if _, twice := begun[e.Op]; twice {
				return nil, fmt.Errorf("process %d began operation %d twice", process, e.Op)
			}
			begun[e.Op] = len(ops)
			ops = append(ops, operation{
				process: process, op: e.Op, lease: cmp.Or(e.Lease, e.Op), do: e.Do, key: e.Key, call: e.At, back: never,
			})
			continue
		}
		i, ok := begun[e.Op]
		if !ok || ops[i].back != never {
			return nil, fmt.Errorf("process %d ended operation %d, which is not under way", process, e.Op)
		}
		o := &ops[i]
		o.back, o.result, o.token, o.until, o.err = e.At, e.Result, e.Token, e.Until, e.Error
		if o.back < o.call {
			return nil, fmt.Errorf("process %d ended operation %d before it began", process, e.Op)
		}
	}
	return ops, nil
}

// A lease is a grant, with the time for which it was promised.
type lease struct {
	grant operation
	from  int64 // when the grant was known
	until int64 // the earliest of: the release, the end of the promise, the moment when the loss was known
	// released is the release that Redis confirmed.
	released *operation
}

// validity is how long a grant is promised, from the moment before the request.
const validity = ttl - ttl/100 - 2*time.Millisecond

// asked returns when the granted request was made. An Acquire may have waited long before that.
func (l lease) asked() int64 { return max(l.grant.call, l.grant.until-int64(validity)) }

// leasesOf returns the leases among the operations of one key, in the order in which they began.
func leasesOf(ops []operation) []lease {
	type id struct{ process, lease int64 }
	byGrant := map[id]*lease{}
	var all []*lease
	for _, o := range ops {
		if o.do == acquire && o.result == done {
			l := &lease{grant: o, from: o.back, until: o.until}
			byGrant[id{o.process, o.lease}] = l
			all = append(all, l)
		}
	}
	for _, o := range ops { // the operations of a lease are in order, since one goroutine made them
		l := byGrant[id{o.process, o.lease}]
		switch {
		case l == nil || o.do == acquire:
		case o.do == extend && o.result == done:
			l.until = max(l.until, o.until)
		case o.do == extend && o.result == lost:
			l.until = min(l.until, o.back)
		case o.do == release:
			l.until = min(l.until, o.call)
			if o.result == done {
				l.released = &o
			}
		}
	}
	leases := make([]lease, len(all))
	for i, l := range all {
		leases[i] = *l
	}
	slices.SortFunc(leases, func(a, b lease) int { return cmp.Compare(a.from, b.from) })
	return leases
}
