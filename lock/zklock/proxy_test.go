package zklock

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
)

// The operations of ZooKeeper's protocol that the tests name.
const (
	opCreate   = 1
	opDelete   = 2
	opPing     = 11
	opChildren = 12
	opMulti    = 14
)

// A proxy stands between a client and a server, counts requests, and loses replies.
type proxy struct {
	target string
	listen net.Listener
	work   sync.WaitGroup

	mu    sync.Mutex
	count map[uint32]int
	lose  uint32 // the reply to the next request of this kind is lost; 0: none
	after func()
	conns map[net.Conn]struct{}
}

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{target: target, listen: listen, count: map[uint32]int{}, conns: map[net.Conn]struct{}{}}
	p.work.Go(func() {
		for {
			conn, err := listen.Accept()
			if err != nil {
				return
			}
			p.work.Go(func() { p.serve(conn) })
		}
	})
	t.Cleanup(func() {
		listen.Close()
		p.mu.Lock()
		for c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		p.work.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.listen.Addr().String() }

// loseReply makes the server do the next request of this kind, and breaks the connection instead of passing on the
// reply. after is called in between.
func (p *proxy) loseReply(op uint32, after func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose, p.after = op, after
}

func (p *proxy) lostIt() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lose == 0
}

// counts returns the requests so far: pings, and all others.
func (p *proxy) counts() (pings, calls int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for op, n := range p.count {
		if op == opPing {
			pings += n
		} else {
			calls += n
		}
	}
	return pings, calls
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	p.conns[client], p.conns[server] = struct{}{}, struct{}{}
	p.mu.Unlock()
	var lost struct {
		sync.Mutex
		xid  uint32
		on   bool
		then func()
	}
	var replies sync.WaitGroup
	replies.Go(func() {
		defer client.Close()
		for first := true; ; first = false {
			frame, err := readFrame(server)
			if err != nil {
				return
			}
			lost.Lock()
			gone := !first && lost.on && binary.BigEndian.Uint32(frame[4:]) == lost.xid
			then := lost.then
			lost.Unlock()
			if gone {
				if then != nil {
					then()
				}
				return
			}
			if _, err := client.Write(frame); err != nil {
				return
			}
		}
	})
	for first := true; ; first = false {
		frame, err := readFrame(client)
		if err != nil {
			break
		}
		if !first {
			op := binary.BigEndian.Uint32(frame[8:])
			p.mu.Lock()
			p.count[op]++
			if op == p.lose {
				lost.Lock()
				lost.xid, lost.on, lost.then = binary.BigEndian.Uint32(frame[4:]), true, p.after
				lost.Unlock()
				p.lose = 0
			}
			p.mu.Unlock()
		}
		if _, err := server.Write(frame); err != nil {
			break
		}
	}
	server.Close()
	replies.Wait()
}

// readFrame returns a message with its length in front.
func readFrame(r io.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	frame := append(head, make([]byte, binary.BigEndian.Uint32(head))...)
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}
