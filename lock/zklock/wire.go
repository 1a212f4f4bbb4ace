package zklock

import (
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// hosts is a zk.HostProvider. It leaves names to the dialer. So a name that can't be resolved is one server that can't be
// reached, and a server that got another address is found again. The client's own provider looks all names up once.
type hosts struct {
	mu         sync.Mutex
	servers    []string
	curr, last int // the server in use, and the last one that was connected; -1: none
}

func (h *hosts) Init(servers []string) error {
	h.servers = slices.Clone(servers)
	rand.Shuffle(len(h.servers), func(i, j int) { h.servers[i], h.servers[j] = h.servers[j], h.servers[i] })
	return nil
}

func (h *hosts) Len() int { return len(h.servers) }

// Next returns the next server. again reports that all were tried since the last connection.
func (h *hosts) Next() (server string, again bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.curr = (h.curr + 1) % len(h.servers)
	again = h.curr == h.last
	if h.last < 0 {
		h.last = 0
	}
	return h.servers[h.curr], again
}

func (h *hosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = h.curr
}

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
