package main

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// A toxic is a fault for requests and replies, made of toxiproxy's faults. A nil field passes
// everything on.
type toxic struct {
	requests, replies toxics.Toxic
	// share is the part of the connections that have the fault, chosen separately for each direction:
	// 0 to 1.
	share float32
}

// A network connects all clients with one server. It uses the faults of toxiproxy, but not its proxy.
// That proxy can deadlock when a fault ends on a connection whose other end is closed, and servers are
// killed here.
type network struct {
	to       string
	listener net.Listener
	work     sync.WaitGroup

	mu    sync.Mutex
	toxic toxic
	links map[*link]bool // nil: closed
}

// newNetwork listens on a free port.
func newNetwork(to string) (*network, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n := &network{to: to, listener: l, links: map[*link]bool{}}
	n.work.Go(n.accept)
	return n, nil
}

// addr returns the address that clients connect to.
func (n *network) addr() string { return n.listener.Addr().String() }

func (n *network) accept() {
	for {
		client, err := n.listener.Accept()
		if err != nil {
			return // closed
		}
		if server, err := net.Dial("tcp", n.to); err != nil {
			_ = client.Close() // the server is down: act as if it had refused
		} else {
			n.connect(client.(*net.TCPConn), server.(*net.TCPConn))
		}
	}
}

// connect carries a connection over two links.
func (n *network) connect(client, server *net.TCPConn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range []*link{newLink(client, server, true), newLink(server, client, false)} {
		if n.links == nil {
			l.hangUp()
			continue
		}
		n.links[l] = true
		l.infect(n.toxic)
		n.work.Go(l.read)
		n.work.Go(func() {
			l.write()
			n.mu.Lock()
			defer n.mu.Unlock()
			delete(n.links, l)
		})
	}
}

// change sets the toxic of all present and future connections, until the next change.
func (n *network) change(t toxic) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.toxic = t
	for l := range n.links {
		l.infect(t)
	}
}

// close ends all connections.
func (n *network) close() {
	_ = n.listener.Close()
	n.mu.Lock()
	for l := range n.links {
		l.hangUp()
	}
	n.links = nil
	n.mu.Unlock()
	n.work.Wait()
}

const (
	// linkBuffer is how many pieces a link takes while a toxic holds them back.
	linkBuffer = 1024
	// writeTimeout is for a peer that hangs longer than any fault lasts.
	writeTimeout = 5 * time.Second
)

// A link is one direction of a connection. It reads data, passes it through a toxic, and writes it.
type link struct {
	from, to *net.TCPConn
	requests bool
	in, out  chan *stream.StreamChunk
	stub     *toxics.ToxicStub
	cleanup  func(*toxics.ToxicStub) // of the current toxic; nil: none
	acts     bool
	gone     chan struct{} // closed when nothing more will be written
}

func newLink(from, to *net.TCPConn, requests bool) *link {
	l := &link{
		from: from, to: to, requests: requests, gone: make(chan struct{}),
		in: make(chan *stream.StreamChunk, linkBuffer), out: make(chan *stream.StreamChunk),
	}
	l.stub = toxics.NewToxicStub(l.in, l.out)
	return l
}

// infect replaces the link's toxic. The caller holds the network's mutex.
func (l *link) infect(t toxic) {
	if l.acts {
		if !l.stub.InterruptToxic() {
			return // the link has ended
		}
		if l.cleanup != nil {
			if l.cleanup(l.stub); l.stub.Closed() {
				return
			}
		}
	}
	w := &toxics.ToxicWrapper{Toxic: t.replies, Toxicity: t.share}
	if l.requests {
		w.Toxic = t.requests
	}
	if w.Toxic == nil {
		w.Toxic = &toxics.NoopToxic{}
	}
	if _, ok := w.Toxic.(*toxics.ResetToxic); ok {
		for _, conn := range []*net.TCPConn{l.from, l.to} {
			_ = conn.SetLinger(0) // so that closing it is a reset; it fails if the connection has ended
		}
	}
	l.acts, l.cleanup = true, nil
	if c, ok := w.Toxic.(toxics.CleanupToxic); ok {
		l.cleanup = c.Cleanup
	}
	go l.stub.Run(w) // ends with the link
}

// read reads until the connection ends.
func (l *link) read() {
	defer close(l.in)
	buffer := make([]byte, 32<<10)
	for {
		n, err := l.from.Read(buffer)
		if n > 0 {
			piece := &stream.StreamChunk{Data: append([]byte(nil), buffer[:n]...), Timestamp: time.Now()}
			select {
			case l.in <- piece:
			case <-l.gone:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// write writes what the toxic lets through. It goes on reading after the other end is closed, since a
// toxic can be removed only while its output is read.
func (l *link) write() {
	var err error
	for piece := range l.out {
		if err == nil {
			_ = l.to.SetWriteDeadline(time.Now().Add(writeTimeout))
			if _, err = l.to.Write(piece.Data); err != nil {
				l.hangUp()
			}
		}
	}
	close(l.gone)
	l.hangUp()
}

// hangUp closes the connection in both directions.
func (l *link) hangUp() {
	_ = errors.Join(l.from.Close(), l.to.Close()) // an error means that it is closed already
}
