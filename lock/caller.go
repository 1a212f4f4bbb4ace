package lock

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Client is what a locker needs of its Redis client. Any [redis.UniversalClient] has it.
type Client interface {
	redis.Scripter
	// Pipeline carries the calls of many goroutines in one round trip.
	Pipeline() redis.Pipeliner
	// Subscribe hears who is next for a lock that was waited for.
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

const (
	// maxFlights bounds the pipelines under way at once: the fewer, the more calls share one.
	maxFlights = 2
	// maxSelf bounds the calls under way at once, with the pipelines, when one more sets out in the
	// goroutine of its caller.
	maxSelf = 4
	// flightLinger is how long a flight's goroutine waits for more.
	flightLinger = 50 * time.Millisecond
	// lateFlight is when a call that waits for a flight gets one of its own.
	lateFlight = 10 * time.Millisecond
	// maxBatch bounds the calls of one flight, since the first of them waits for the last.
	maxBatch = 128
)

// A caller runs scripts on one Redis. While it is busy, calls gather, and the next flight
// takes them all in one pipeline: sixty-four goroutines are not sixty-four round trips.
type caller struct {
	rdb     Client
	timeout time.Duration // of a flight
	heeds   bool          // rdb ends a command at the deadline of its context
	alone   bool          // each call flies alone: there is more than one server behind rdb, and one may hang

	mu      sync.Mutex
	waiting []*call
	flights int            // how many there are; a goroutine each
	resting int            // of which so many wait for calls
	selfs   int            // calls under way in the goroutines of their callers
	wake    chan struct{}  // ends the rest of one
	done    sync.WaitGroup // for the flights and what they leave behind
}

func newCaller(rdb Client, timeout time.Duration) *caller {
	c := &caller{rdb: rdb, timeout: timeout, alone: true, wake: make(chan struct{}, maxFlights)}
	if client, ok := rdb.(*redis.Client); ok && client != nil {
		c.alone, c.heeds = false, client.Options().ContextTimeoutEnabled
	}
	return c
}

// A call is one run of a script. The flight that carries it owns it; the goroutine that
// made it may leave at any time.
type call struct {
	ctx    context.Context
	script *redis.Script
	keys   []string
	args   []any
	orphan func(ctx context.Context, reply any, err error)

	state  atomic.Int32
	answer chan answer // has room for it
}

const (
	callWaiting int32 = iota
	callFlying
	callAnswered
	callLeft // while waiting, or while flying: its orphan function is due
)

type answer struct {
	reply any
	err   error
}

// call runs a script and returns when it has its reply, when ctx ends or after the timeout.
// go-redis by default ignores the end of a context once it has sent a command, so the
// command runs in a goroutine of its own, which ends by the flight's timeout. With
// ContextTimeoutEnabled it heeds deadlines, and a call that meets no others runs in
// the caller's goroutine, where a cancel is seen only after the answer or the timeout.
//
// orphan, which may be nil, is called in a goroutine of its own if the reply reached nobody,
// or if there is none and so nobody knows whether the script ran. It isn't called for
// a script that was surely not sent.
func (c *caller) call(
	ctx context.Context, timeout time.Duration, script *redis.Script, keys []string, args []any,
	orphan func(ctx context.Context, reply any, err error),
) (any, error) {
	if c.heeds && c.board() {
		return c.self(ctx, timeout, script, keys, args, orphan)
	}
	k := &call{ctx: ctx, script: script, keys: keys, args: args, orphan: orphan, answer: make(chan answer, 1)}
	c.send(k)
	late := min(lateFlight, timeout)
	timer := time.NewTimer(late)
	defer timer.Stop()
	for {
		select {
		case a := <-k.answer:
			return a.reply, a.err
		case <-ctx.Done():
			if a, ok := k.leave(); ok {
				return a.reply, a.err
			}
			return nil, ended(ctx)
		case <-timer.C:
			if late < timeout {
				c.hurry(k)
				timer.Reset(timeout - late)
				late = timeout
				continue
			}
			if a, ok := k.leave(); ok {
				return a.reply, a.err
			}
			return nil, noReply(timeout)
		}
	}
}

// board tells whether a call may fly by itself: there is a place, and nobody waits for one.
func (c *caller) board() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.alone || len(c.waiting) > 0 || c.selfs+c.flights-c.resting >= maxSelf {
		return false
	}
	c.selfs++
	return true
}

// self runs a script in the goroutine of its caller, who waits for nothing but the answer and
// the timeout: that is quicker by two changes of goroutine.
func (c *caller) self(
	ctx context.Context, timeout time.Duration, script *redis.Script, keys []string, args []any,
	orphan func(ctx context.Context, reply any, err error),
) (any, error) {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	reply, err := script.Run(bounded, c.rdb, keys, args...).Result()
	if deadline, _ := bounded.Deadline(); err != nil && time.Until(deadline) < lateFlight {
		<-bounded.Done() // the connection may have seen it before
	}
	if late := bounded.Err() != nil; late && err != nil && !isAnswer(err) {
		if err = noReply(timeout); ctx.Err() != nil {
			err = ended(ctx)
		}
	}
	cancel()
	if orphan != nil && err != nil && !isAnswer(err) {
		c.done.Go(func() { orphan(ctx, reply, err) })
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.selfs--
	return reply, err
}

// A noReply is the error of a call that took longer.
type noReply time.Duration

func (n noReply) Error() string {
	return fmt.Sprintf("no answer from Redis within %v", time.Duration(n))
}
func (noReply) Timeout() bool { return true } // as errors of package net have it

// leave gives the call up, or returns the answer that came first.
func (k *call) leave() (answer, bool) {
	if k.state.Swap(callLeft) == callAnswered {
		return <-k.answer, true
	}
	return answer{}, false
}

// send hands the call to a flight: a new one unless there are enough.
func (c *caller) send(k *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, k)
	if c.resting > 0 {
		select {
		case c.wake <- struct{}{}:
			c.resting--
			return
		default: // as many as it has room for are waking up
		}
	}
	if c.flights < maxFlights || c.resting > 0 || c.alone {
		c.flights++
		c.done.Go(c.fly)
	}
}

// hurry starts another flight for a call that still waits: those under way are stuck.
func (c *caller) hurry(k *call) {
	if k.state.Load() == callWaiting {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.flights++
		c.done.Go(c.fly)
	}
}

// fly carries calls until none has come for a while: who uses a lock often does so again, and
// a goroutine that is there is quicker than a new one.
func (c *caller) fly() {
	timer := time.NewTimer(flightLinger)
	defer timer.Stop()
	for {
		batch := c.take()
		if len(batch) == 0 {
			timer.Reset(flightLinger)
			select {
			case <-c.wake:
				continue
			case <-timer.C:
			}
			if c.land() {
				return
			}
			<-c.wake // it was called in the last moment
			continue
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(batch[0].ctx), c.timeout)
		if len(batch) == 1 {
			k := batch[0]
			reply, err := k.script.Run(ctx, c.rdb, k.keys, k.args...).Result()
			c.deliver(k, reply, err)
		} else {
			c.carry(ctx, batch)
		}
		cancel()
	}
}

// take returns the calls of the next flight. There are none when the flights end.
func (c *caller) take() []*call {
	c.mu.Lock()
	defer c.mu.Unlock()
	batch := make([]*call, 0, min(len(c.waiting), maxBatch))
	n := 0
	most := maxBatch
	if c.alone {
		most = 1
	}
	for n < len(c.waiting) && len(batch) < most {
		k := c.waiting[n]
		n++
		if k.state.CompareAndSwap(callWaiting, callFlying) {
			batch = append(batch, k)
		}
	}
	rest := copy(c.waiting, c.waiting[n:])
	clear(c.waiting[rest:])
	c.waiting = c.waiting[:rest]
	if len(batch) == 0 {
		c.resting++
	}
	return batch
}

// land ends a flight that rests, unless it was just woken.
func (c *caller) land() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.resting == 0 {
		return false
	}
	c.resting--
	c.flights--
	return true
}

// carry runs a batch in one pipeline. Scripts that the server doesn't know are sent whole.
func (c *caller) carry(ctx context.Context, batch []*call) {
	pipe := c.rdb.Pipeline()
	cmds := make([]*redis.Cmd, len(batch))
	for i, k := range batch {
		cmds[i] = k.script.EvalSha(ctx, pipe, k.keys, k.args...)
	}
	_, _ = pipe.Exec(ctx) // each command has its error
	for i, k := range batch {
		if redis.HasErrorPrefix(cmds[i].Err(), "NOSCRIPT") {
			cmds[i] = k.script.Eval(ctx, pipe, k.keys, k.args...)
		}
	}
	if pipe.Len() > 0 {
		_, _ = pipe.Exec(ctx)
	}
	for i, k := range batch {
		reply, err := cmds[i].Result()
		c.deliver(k, reply, err)
	}
}

// deliver hands over a reply, or says that nobody waits for it any more.
func (c *caller) deliver(k *call, reply any, err error) {
	k.answer <- answer{reply, err}
	left := !k.state.CompareAndSwap(callFlying, callAnswered)
	if k.orphan != nil && (left || err != nil && !isAnswer(err)) {
		c.done.Go(func() { k.orphan(context.WithoutCancel(k.ctx), reply, err) })
	}
}
