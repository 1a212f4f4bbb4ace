package zklock

import (
	"net"
	"sync/atomic"
	"time"
)

// A wire is a connection to a server. The client waits up to 6.7 session timeouts for the answer to its first packet,
// during which it tries no other server. A wire waits for a third of one: a server that is stopped accepts connections.
type wire struct {
	net.Conn
	session time.Duration
	met     atomic.Bool // the first answer was awaited
}

func (w *wire) SetReadDeadline(t time.Time) error {
	if t.IsZero() {
		w.met.Store(true)
	} else if end := time.Now().Add(w.session / 3); !w.met.Load() && t.After(end) {
		t = end
	}
	return w.Conn.SetReadDeadline(t)
}
