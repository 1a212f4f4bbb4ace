package servertest

import (
	"net"
	"sync"
	"testing"
)

// A Link passes bytes between clients and a server, whatever their protocol, and imitates a bad network. All methods
// may be called concurrently.
type Link struct {
	port   *Port // its listener stays open: a port that was closed may be another's when it is wanted back
	target string
	work   sync.WaitGroup

	mu       sync.Mutex
	cut      bool // connections are refused
	conns    map[net.Conn]struct{}
	up, down chan struct{} // closed when bytes to the server, and to the client, may pass
	closed   bool
}

// NewLink starts a link on loopback to the server at an address. It ends with the test.
func NewLink(t testing.TB, target string) *Link {
	t.Helper()
	port := ReservePort()
	open := make(chan struct{})
	close(open)
	l := &Link{port: port, target: target, conns: map[net.Conn]struct{}{}, up: open, down: open}
	l.work.Go(l.accept)
	t.Cleanup(l.close)
	return l
}

// Addr returns the address for clients as host:port.
func (l *Link) Addr() string { return l.port.Addr() }

// Cut closes all connections and refuses new ones until Heal. Where a listener can't refuse them, they are closed at once.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.cut {
		l.cut = true
		refuse(l.port.First.(*net.TCPListener))
	}
	for c := range l.conns {
		c.Close()
	}
}

// Drop closes all connections. New ones are accepted.
func (l *Link) Drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.Close()
	}
}

// Hold keeps back all bytes, in both directions, until Heal. Connections stay open, and new ones are accepted.
func (l *Link) Hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.up, l.down = held(l.up), held(l.down)
}

// HoldReplies keeps back the bytes to the client until Heal: the server gets and does what was asked.
func (l *Link) HoldReplies() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = held(l.down)
}

// held returns a gate that is shut: the gate itself if it is shut already.
func held(gate chan struct{}) chan struct{} {
	select {
	case <-gate:
		return make(chan struct{})
	default:
		return gate
	}
}

// Heal ends Cut, Hold and HoldReplies. Bytes that were held back are passed on.
func (l *Link) Heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open()
	if l.cut && !l.closed {
		l.cut = false
		if welcome(l.port.First.(*net.TCPListener)) {
			l.work.Go(l.accept)
		}
	}
}

func (l *Link) open() {
	for _, gate := range []chan struct{}{l.up, l.down} {
		select {
		case <-gate:
		default:
			close(gate)
		}
	}
}

// accept serves clients until the listener refuses or is closed.
func (l *Link) accept() {
	for {
		client, err := l.port.First.Accept()
		if err != nil {
			return
		}
		l.work.Go(func() { l.serve(client) })
	}
}

// serve passes on what one client and the server say.
func (l *Link) serve(client net.Conn) {
	defer client.Close()
	l.mu.Lock()
	refused := l.cut
	l.mu.Unlock()
	if refused {
		return
	}
	server, err := net.Dial("tcp", l.target)
	if err != nil {
		return
	}
	defer server.Close()
	l.mu.Lock()
	refused = l.closed || l.cut
	l.conns[client], l.conns[server] = struct{}{}, struct{}{}
	l.mu.Unlock()
	if !refused {
		var replies sync.WaitGroup
		replies.Go(func() { l.pass(client, server, func() chan struct{} { return l.down }) })
		l.pass(server, client, func() chan struct{} { return l.up })
		replies.Wait()
	}
	l.mu.Lock()
	delete(l.conns, client)
	delete(l.conns, server)
	l.mu.Unlock()
}

// pass copies bytes as long as both connections are open, and closes both at the end.
func (l *Link) pass(to, from net.Conn, gate func() chan struct{}) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			for passed := false; !passed; { // Hold may follow Heal at once
				l.mu.Lock()
				g := gate()
				l.mu.Unlock()
				<-g
				l.mu.Lock()
				passed = gate() == g
				l.mu.Unlock()
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *Link) close() {
	l.Cut()
	l.port.First.Close()
	l.mu.Lock()
	l.closed = true
	l.open()
	l.mu.Unlock()
	l.work.Wait()
	l.port.Release()
}
