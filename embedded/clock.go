package embedded

import (
	"net"
	"slices"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// Each move of the clock makes miniredis visit every key, which takes some 0.2 µs a key.
// The clock moves at most every finest: Redis keeps TTLs in ms. With many keys it moves
// less often, so that the moves take at most a tenth of the time.
const (
	finest   = time.Millisecond
	coarsest = 100 * time.Millisecond
	share    = 10
)

// clock moves the server's time, on which TIME and all TTLs are based.
//
// miniredis can follow the real clock by itself (ClockTTL). But it then reads the clock at
// every access, even in the middle of a script. So a key could expire between two lines of
// Lua, which never happens in Redis. Therefore this type sets the time by hand, and the
// time stands still while a script runs.
//
// The time moves when a request arrives, not on a timer. So an idle server costs nothing,
// and each command sees the time at which it came in.
type clock struct {
	redis *miniredis.Miniredis
	mu    sync.Mutex
	now   time.Time // with the monotonic reading: a step of the wall clock ends no TTL
	pace  pace
	every time.Duration
}

// A pace says how often the clock moves. It has what the last moves took, in a ring. One that had to wait for a script, or for the processor, took
// longer than it costs. So the shortest counts: a TTL that begins between two moves ends too early by the time since the first.
type pace struct {
	took [16]time.Duration
	n    int
}

// next adds what a move took, and returns how long it is to the next one.
func (p *pace) next(took time.Duration) time.Duration {
	p.took[p.n%len(p.took)] = took
	p.n++
	return min(max(share*slices.Min(p.took[:]), finest), coarsest)
}

func newClock(m *miniredis.Miniredis) *clock {
	c := &clock{redis: m, now: time.Now(), every: finest}
	m.SetTime(c.now)
	m.ClockTTL(true)
	return c
}

// advance sets the server's time to the real time, unless that was done a moment ago. If a
// script runs, it waits for its end.
func (c *clock) advance() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Sub(c.now) < c.every {
		return
	}
	c.now = now
	c.redis.SetTime(now)
	c.redis.DB(0) // any access deletes the keys whose TTL has ended
	c.every = c.pace.next(time.Since(now))
}

// timedConn is a client's connection. Each request that comes in moves the clock.
type timedConn struct {
	net.Conn
	clock *clock
}

func (c *timedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.clock.advance()
	}
	return n, err
}
