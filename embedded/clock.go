package embedded

import (
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// Moving the clock makes miniredis visit every key, some 0.2 µs each. The clock moves at
// most every finest, since Redis keeps TTLs in ms, and less often where there are
// so many keys that this would take more than a tenth of the time.
const (
	finest   = time.Millisecond
	coarsest = 100 * time.Millisecond
	share    = 10
)

// clock moves the server's time, on which TIME and all TTLs are based.
//
// miniredis can follow the real clock by itself (ClockTTL), but it then looks at the
// clock at every access, also in the middle of a script: a key could expire
// between two lines of Lua, which Redis rules out. So its time is set by hand, and
// stands still while a script runs. It moves when a request arrives and not on a
// timer: an idle server costs nothing, and a TTL starts and ends with the time of
// the command that sets or meets it, not with that of some tick before it.
type clock struct {
	redis *miniredis.Miniredis
	mu    sync.Mutex
	now   time.Time // with the monotonic reading: steps of the wall clock end no TTL
	cost  time.Duration
	every time.Duration
}

func newClock(m *miniredis.Miniredis) *clock {
	c := &clock{redis: m, now: time.Now(), every: finest}
	m.SetTime(c.now)
	m.ClockTTL(true)
	return c
}

// advance sets the server's time to the real time, unless it was set a moment ago. It
// waits for a running script.
func (c *clock) advance() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Sub(c.now) < c.every {
		return
	}
	c.now = now
	c.redis.SetTime(now)
	c.redis.DB(0) // any access ends what has expired

	// One measurement can include the wait for a script; of two, the smaller is the cost.
	before := c.cost
	c.cost = time.Since(now)
	c.every = min(max(share*min(c.cost, before), finest), coarsest)
}

// timedConn is a client's connection; each request that comes in moves the clock.
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
