package scenarios

import (
	"net"
	"slices"
	"sync"
)

// A direction of traffic.
type direction int

const (
	requests direction = iota
	replies
)

// A proxy stands between clients and one server. It can hold the data of one direction for any
// time, and deliver it later, even if the sender has closed the connection.
type proxy struct {
	listener net.Listener
	target   string
	work     sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond
	held    [2]bool
	refused bool
	closed  bool
	links   []*link // oldest first
}

// A link is one connection through the proxy.
type link struct {
	ends [2]*net.TCPConn // the server's end, to which requests go, and the client's end
	pipe [2]pipe
}

// A pipe has the data that a link still has to deliver in one direction.
type pipe struct {
	waiting []byte
	open    bool // delivers although the proxy holds that direction
	ended   bool // no more data comes
	busy    bool // data is being written
	broken  bool // the receiver has closed the connection
}

func newProxy(target string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, target: target}
	p.changed = sync.NewCond(&p.mu)
	p.work.Go(p.accept)
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		l := &link{ends: [2]*net.TCPConn{server.(*net.TCPConn), client.(*net.TCPConn)}}
		p.mu.Lock()
		if p.refused || p.closed {
			l.close()
		} else {
			p.links = append(p.links, l)
			for _, d := range []direction{requests, replies} {
				p.work.Go(func() { p.take(l, d) })
				p.work.Go(func() { p.deliver(l, d) })
			}
		}
		p.mu.Unlock()
	}
}

// take reads the data of a direction, held or not. So the sender can close the connection.
func (p *proxy) take(l *link, d direction) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := l.ends[1-d].Read(buffer)
		p.mu.Lock()
		pipe := &l.pipe[d]
		pipe.waiting = append(pipe.waiting, buffer[:n]...)
		pipe.ended = pipe.ended || err != nil
		p.changed.Broadcast()
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// deliver writes the data as soon as that is allowed.
func (p *proxy) deliver(l *link, d direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pipe := &l.pipe[d]
	for {
		for !p.closed && (p.held[d] && !pipe.open || len(pipe.waiting) == 0 && !pipe.ended) {
			p.changed.Wait()
		}
		if p.closed || len(pipe.waiting) == 0 {
			_ = l.ends[d].CloseWrite()
			return
		}
		data := pipe.waiting
		pipe.waiting, pipe.busy = nil, true
		p.mu.Unlock()
		_, err := l.ends[d].Write(data)
		p.mu.Lock()
		pipe.busy, pipe.broken = false, pipe.broken || err != nil
		p.changed.Broadcast()
	}
}

// hold holds the data of a direction from now on.
func (p *proxy) hold(d direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[d] = true
}

// release delivers the held data, the oldest connection's first.
func (p *proxy) release(d direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := 0; i < len(p.links); i++ {
		pipe := &p.links[i].pipe[d]
		pipe.open = true
		p.changed.Broadcast()
		for !p.closed && !pipe.broken && (pipe.busy || len(pipe.waiting) > 0) {
			p.changed.Wait()
		}
	}
	p.held[d] = false
	for _, l := range p.links {
		l.pipe[d].open = false
	}
	p.changed.Broadcast()
}

// waiting returns how many bytes are held.
func (p *proxy) waiting(d direction) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, l := range p.links {
		n += len(l.pipe[d].waiting)
	}
	return n
}

// refuse closes all connections and accepts no more.
func (p *proxy) refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = true
	for _, l := range slices.Clone(p.links) {
		l.close()
	}
}

func (l *link) close() {
	for _, end := range l.ends {
		_ = end.Close()
	}
}

func (p *proxy) end() {
	p.mu.Lock()
	p.closed = true
	_ = p.listener.Close()
	for _, l := range p.links {
		l.close()
	}
	p.changed.Broadcast()
	p.mu.Unlock()
	p.work.Wait()
}
