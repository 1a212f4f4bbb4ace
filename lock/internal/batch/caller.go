package batch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/lock/internal/lua"
)

// Client is what a Caller needs of its Redis client.
type Client interface {
	redis.Scripter
	Pipeline() redis.Pipeliner
}

const (
	// maxFlights bounds the pipelines that are under way at once. With fewer of them, more calls share one.
	maxFlights = 2
	// maxSelf bounds the calls and pipelines under way at which another call may still run in the
	// goroutine of its caller.
	maxSelf = 4
	// flightLinger is how long a flight's goroutine waits for more calls.
	flightLinger = 50 * time.Millisecond
	// lateFlight is how long a call waits for a flight before it gets a new one.
	lateFlight = 10 * time.Millisecond
	// selfPatience is how long a call in the goroutine of its caller waits for the reply. Then a flight sends the
	// call again, so that its caller can leave it.
	selfPatience = 100 * time.Millisecond
	// firstWait is the pause before a call is sent again that Redis can't run now. It doubles each time, up to mostWait.
	firstWait = 10 * time.Millisecond
	// mostWait is the longest such pause.
	mostWait = 250 * time.Millisecond
)

// A Caller runs scripts on one Redis. A flight is a goroutine that carries calls, one pipeline after another.
// While all flights are busy, calls gather, and the next pipeline takes them all. So sixty-four goroutines don't
// make sixty-four round trips.
type Caller struct {
	rdb     Client
	timeout time.Duration // of a pipeline
	heeds   bool          // rdb ends a command at the deadline of its context
	Clock   Clock         // of that Redis
	alone   bool          // each call has a pipeline of its own: rdb has more than one server, and one may hang

	mu      sync.Mutex
	waiting []*call
	flights int            // the number of flights, each a goroutine
	resting int            // how many flights wait for calls
	selfs   int            // calls that run in the goroutines of their callers
	slow    atomic.Bool    // a call in its caller's goroutine got no reply for selfPatience, and no flight got a quick one since
	wake    chan struct{}  // wakes a flight that rests
	timers  sync.Pool      // timers of calls that have ended
	done    sync.WaitGroup // counts the flights and what they started
}

// New returns a Caller. No pipeline takes longer than the timeout.
func New(rdb Client, timeout time.Duration) *Caller {
	c := &Caller{rdb: rdb, timeout: timeout, alone: true, wake: make(chan struct{}, maxFlights)}
	if client, ok := rdb.(*redis.Client); ok && client != nil {
		c.alone, c.heeds = false, client.Options().ContextTimeoutEnabled
	}
	return c
}

// Go runs f in a goroutine that Wait waits for.
func (c *Caller) Go(f func()) { c.done.Go(f) }

// Wait waits until no goroutine of the Caller is left.
func (c *Caller) Wait() { c.done.Wait() }

// UnderWay returns how many calls and pipelines are under way.
func (c *Caller) UnderWay() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.selfs + c.flights - c.resting
}

// A call is one run of a script. The flight that carries it owns it. The goroutine that made it may
// leave at any time.
type call struct {
	ctx    context.Context
	script *redis.Script
	keys   []string
	args   []any
	orphan func(ctx context.Context, reply any, err error)

	state  atomic.Int32
	answer chan answer // has room for one answer
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

// Call runs a script. It returns when it has the reply, when ctx ends or after the timeout. Sometimes Redis says that
// it can't run the script now: a slot migrates, a master is replaced, or the data is loaded. Then Call sends it again.
//
// orphan is called in a goroutine of its own if the reply reached nobody, or if there is no reply, so that nobody
// knows whether the script ran. It isn't called for a script that was surely not sent. It may
// be nil.
//
// A script may be sent more than once, so a script must give the same result when it is repeated. If the last
// of args is Due, it is replaced.
func (c *Caller) Call(
	ctx context.Context, timeout time.Duration, script *redis.Script, keys []string, args []any,
	orphan func(ctx context.Context, reply any, err error),
) (any, error) {
	reply, _, err := c.CallTwice(ctx, timeout, script, keys, args, orphan)
	return reply, err
}

// CallTwice is Call. twice says that the script was sent again after a copy without a reply in time. So the reply, or the error, may be
// that of the second run.
func (c *Caller) CallTwice(
	ctx context.Context, timeout time.Duration, script *redis.Script, keys []string, args []any,
	orphan func(ctx context.Context, reply any, err error),
) (reply any, twice bool, err error) {
	begin := time.Now()
	dated := len(args) > 0 && args[len(args)-1] == Due
	reply, twice, err = c.once(ctx, begin, timeout, script, keys, args, dated, orphan)
	for pause := firstWait; err != nil && c.passes(err); pause = min(2*pause, mostWait) {
		refused := err
		timer := time.NewTimer(min(timeout-time.Since(begin), pause/2+rand.N(pause)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, twice, fmt.Errorf("%w: %w", lease.Ended(ctx), refused)
		}
		now := time.Now()
		left := timeout - now.Sub(begin)
		if left <= 0 {
			break
		}
		var again bool
		reply, again, err = c.once(ctx, now, left, script, keys, args, dated, orphan)
		twice = twice || again
		if err != nil && !lua.IsAnswer(err) {
			return nil, twice, fmt.Errorf("%w: %w", err, refused) // the last refusal
		}
	}
	return reply, twice, err
}

// passes reports whether Redis may run the same call soon: the error says that it didn't run it now.
func (c *Caller) passes(err error) bool {
	for _, prefix := range []string{"LOADING", "CLUSTERDOWN", "TRYAGAIN"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	// A client of one server would get this answer for ever.
	return c.alone && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK"))
}

// once sends a call. It returns when it has the reply, when ctx ends or after the timeout. twice says that it sent a second copy.
//
// By default go-redis ignores the end of a context once it has sent a command. So the command runs in a
// flight, which ends by its own timeout. With ContextTimeoutEnabled go-redis heeds deadlines. Then a
// call that meets no others first runs in the goroutine of its caller. There a cancel is seen
// only after the reply, or after selfPatience.
func (c *Caller) once(
	ctx context.Context, begin time.Time, timeout time.Duration, script *redis.Script, keys []string, args []any, dated bool,
	orphan func(ctx context.Context, reply any, err error),
) (reply any, twice bool, err error) {
	if c.heeds && c.board() {
		patience := min(timeout, selfPatience)
		if dated {
			args[len(args)-1] = c.due(ctx, begin.Add(patience))
		}
		if reply, err, twice = c.self(ctx, patience, patience < timeout, script, keys, args, orphan); !twice {
			return reply, false, err
		}
		timeout -= patience
	}
	if dated {
		args[len(args)-1] = c.due(ctx, begin.Add(timeout))
	}
	k := &call{ctx: ctx, script: script, keys: keys, args: args, orphan: orphan, answer: make(chan answer, 1)}
	c.send(k)
	late := min(lateFlight, timeout)
	timer := c.timer(late)
	defer c.timers.Put(timer)
	defer timer.Stop()
	for {
		select {
		case a := <-k.answer:
			return a.reply, twice, a.err
		case <-ctx.Done():
			if a, ok := k.leave(); ok {
				return a.reply, twice, a.err
			}
			return nil, twice, lease.Ended(ctx)
		case <-timer.C:
			if late < timeout {
				c.hurry(k)
				timer.Reset(timeout - late)
				late = timeout
				continue
			}
			if a, ok := k.leave(); ok {
				return a.reply, twice, a.err
			}
			return nil, twice, NoReply(timeout)
		}
	}
}

// timer returns a timer that fires after d.
func (c *Caller) timer(d time.Duration) *time.Timer {
	if t, ok := c.timers.Get().(*time.Timer); ok {
		t.Reset(d)
		return t
	}
	return time.NewTimer(d)
}

// due returns what the server's clock shows when the call's timeout is over or ctx ends; 0: unknown.
func (c *Caller) due(ctx context.Context, end time.Time) int64 {
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(end) {
		end = deadline
	}
	return c.Clock.At(end)
}

// board reports whether a call may run in its caller's goroutine: there is room, and no call waits for a flight.
func (c *Caller) board() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.alone || c.slow.Load() || len(c.waiting) > 0 || c.selfs+c.flights-c.resting >= maxSelf {
		return false
	}
	c.selfs++
	return true
}

// self runs a script in the goroutine of its caller, which is quicker by two changes of goroutine. A cancel is seen
// only after the answer or the timeout. With more, and no answer within the timeout, it returns again: the call is to be
// sent once more, unless ctx has ended.
func (c *Caller) self(
	ctx context.Context, timeout time.Duration, more bool, script *redis.Script, keys []string, args []any,
	orphan func(ctx context.Context, reply any, err error),
) (reply any, err error, again bool) {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	reply, err = script.Run(bounded, c.rdb, keys, args...).Result()
	if deadline, _ := bounded.Deadline(); err != nil && time.Until(deadline) < lateFlight {
		<-bounded.Done() // the connection may have seen that first
	}
	if late := bounded.Err() != nil; late && err != nil && !lua.IsAnswer(err) {
		again = more && ctx.Err() == nil
		if err = NoReply(timeout); ctx.Err() != nil {
			err = lease.Ended(ctx)
		}
	}
	cancel()
	if again {
		c.slow.Store(true)
	} else if orphan != nil && err != nil && !lua.IsAnswer(err) {
		c.done.Go(func() { orphan(ctx, reply, err) })
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.selfs--
	return reply, err, again
}

// A NoReply is the error of a call that took longer than this.
type NoReply time.Duration

func (n NoReply) Error() string {
	return fmt.Sprintf("no answer from Redis within %v", time.Duration(n).Round(time.Millisecond))
}
func (NoReply) Timeout() bool { return true } // as the errors of package net do

// leave gives the call up. It returns the answer instead, and true, if that came first.
func (k *call) leave() (answer, bool) {
	if k.state.Swap(callLeft) == callAnswered {
		return <-k.answer, true
	}
	return answer{}, false
}

// board reports whether the call may be sent. It may not once its caller has left.
func (k *call) board() bool { return k.state.CompareAndSwap(callWaiting, callFlying) }

// send gives the call to a flight. It starts a new one unless there are enough.
func (c *Caller) send(k *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, k)
	if c.resting > 0 {
		select {
		case c.wake <- struct{}{}:
			c.resting--
			return
		default: // as many flights as wake has room for are waking up
		}
	}
	if c.flights < maxFlights || c.resting > 0 || c.alone {
		c.flights++
		c.done.Go(c.fly)
	}
}

// hurry starts another flight for a call that still waits: the flights under way are stuck.
func (c *Caller) hurry(k *call) {
	if k.state.Load() == callWaiting {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.flights++
		c.done.Go(c.fly)
	}
}

// fly carries calls until none has come for a while. The next call often comes soon, and a goroutine that
// is there is quicker than a new one.
func (c *Caller) fly() {
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
			<-c.wake // it was woken at the last moment
			continue
		}
		begin := time.Now()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(batch[0].ctx), c.timeout)
		if len(batch) == 1 {
			k := batch[0]
			reply, err := k.script.Run(ctx, c.rdb, k.keys, k.args...).Result()
			c.deliver(k, reply, err)
		} else {
			c.carry(ctx, batch)
		}
		if c.slow.Load() && time.Since(begin) < selfPatience/2 {
			c.slow.Store(false)
		}
		cancel()
	}
}

// take returns the calls of the next pipeline. It returns none when the flight ends.
func (c *Caller) take() []*call {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := Max
	if c.alone {
		most = 1
	}
	batch := make([]*call, 0, min(len(c.waiting), most))
	c.waiting, batch = Take(c.waiting, batch, most, (*call).board)
	if len(batch) == 0 {
		c.resting++
	}
	return batch
}

// land ends a flight that rests. It returns false if the flight was just woken.
func (c *Caller) land() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.resting == 0 {
		return false
	}
	c.resting--
	c.flights--
	return true
}

// carry runs a batch in one pipeline. Scripts that the server doesn't know are sent as text.
func (c *Caller) carry(ctx context.Context, batch []*call) {
	pipe := c.rdb.Pipeline()
	cmds := make([]*redis.Cmd, len(batch))
	for i, k := range batch {
		cmds[i] = k.script.EvalSha(ctx, pipe, k.keys, k.args...)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
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

// deliver hands a reply over. If nobody waits for it any more, it calls orphan.
func (c *Caller) deliver(k *call, reply any, err error) {
	k.answer <- answer{reply, err}
	left := !k.state.CompareAndSwap(callFlying, callAnswered)
	if k.orphan != nil && (left || err != nil && !lua.IsAnswer(err)) {
		c.done.Go(func() { k.orphan(context.WithoutCancel(k.ctx), reply, err) })
	}
}
