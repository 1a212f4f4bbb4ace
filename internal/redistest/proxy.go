package redistest

import (
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/signalbox-go/signalbox/internal/servertest"
)

// A Proxy stands between clients and a server and imitates a bad network: it loses a reply, holds traffic,
// cuts connections, refuses new ones. It can also answer in place of the server.
//
// It understands requests and replies in RESP2 and RESP3, pipelines, MULTI and blocking commands. It
// doesn't support pub/sub, whose replies have no count. A match function gets the whole command with its
// arguments. It must not change the command, and must not call the proxy. All methods may be called
// concurrently.
type Proxy struct {
	endpoint
	port   *servertest.Port
	target string

	mu       sync.Mutex
	listener net.Listener // nil while connections are refused
	links    map[*link]struct{}
	rules    []*rule
	seen     [][]string
	hold     chan struct{} // closed when traffic may pass
	rate     int           // of each connection in each direction, in bytes a second; 0: no limit
	closed   bool
	work     sync.WaitGroup
}

// rule says what the proxy does with matching commands.
type rule struct {
	match func(cmd []string) bool
	skip  int // this many matching commands pass first
	left  int // this many commands are left; negative: all
	do    treatment
	reply []byte        // for answer
	fired chan struct{} // for cuts: closed when the cut was made
	held  chan struct{} // for holds: gets a value for each held command
	free  chan struct{} // for holds: closed when the commands may go on
}

type treatment int

const (
	pass        treatment = iota
	answer                // don't pass the command on; answer with reply
	cutReply              // pass it on, drop the reply, close the connection
	cutRequest            // don't pass it on, close the connection
	holdReply             // pass it on, hold the reply and what follows on the connection
	holdRequest           // hold it and what follows on the connection
)

// NewProxy starts a proxy on loopback to the server at addr. It ends with the test.
func NewProxy(t testing.TB, addr string) *Proxy {
	t.Helper()
	port := servertest.ReservePort()
	p := &Proxy{
		endpoint: endpoint{t: t, addr: port.Addr()},
		port:     port,
		target:   addr,
		links:    map[*link]struct{}{},
		hold:     make(chan struct{}),
	}
	close(p.hold)
	p.listen(port.First)
	t.Cleanup(p.close)
	return p
}

// Command matches commands by name, in any case, and by their first arguments:
// Command("EVALSHA", sha), Command("SET", key).
func Command(name string, args ...string) func(cmd []string) bool {
	return func(cmd []string) bool {
		return len(cmd) > len(args) && strings.EqualFold(cmd[0], name) && slices.Equal(cmd[1:1+len(args)], args)
	}
}

// Any matches every command, including those of a client's handshake (HELLO, CLIENT).
func Any(cmd []string) bool { return len(cmd) > 0 }

// CutReply passes the k-th matching command from now on, counted from 1, to the server. It reads the whole
// reply, drops it and closes the client's connection. Commands that the client sent after it on this
// connection do not reach the server. The channel is closed before the client can notice that.
func (p *Proxy) CutReply(match func(cmd []string) bool, k int) <-chan struct{} {
	p.t.Helper()
	return p.cut(match, k, cutReply)
}

// CutRequest closes the client's connection instead of passing the k-th matching command from now on to the
// server. The channel is closed before the client can notice that.
func (p *Proxy) CutRequest(match func(cmd []string) bool, k int) <-chan struct{} {
	p.t.Helper()
	return p.cut(match, k, cutRequest)
}

func (p *Proxy) cut(match func(cmd []string) bool, k int, how treatment) <-chan struct{} {
	p.t.Helper()
	if k < 1 {
		p.t.Fatalf("redistest: command %d of a match: they are counted from 1", k)
	}
	return p.add(&rule{match: match, skip: k - 1, left: 1, do: how})
}

// Reply answers the next n matching commands with a line, and doesn't pass them on. A negative n means all
// commands. The line is RESP without its end: "-LOADING Redis is loading the dataset in memory", "+OK",
// ":0". Earlier rules come first.
func (p *Proxy) Reply(match func(cmd []string) bool, line string, n int) {
	p.t.Helper()
	if line == "" || !strings.ContainsRune("-+:", rune(line[0])) || strings.ContainsAny(line, "\r\n") {
		p.t.Fatalf("redistest: %q is not one line that begins with -, + or :", line)
	}
	p.add(&rule{match: match, left: n, do: answer, reply: []byte(line + "\r\n")})
}

// HoldReplies passes matching commands to the server, and holds their replies until free is called. The
// channel gets a value for each held reply.
func (p *Proxy) HoldReplies(match func(cmd []string) bool) (held <-chan struct{}, free func()) {
	return p.holdAll(match, holdReply)
}

// HoldRequests holds matching commands. They do not reach the server until free is called. The channel gets
// a value for each held command.
func (p *Proxy) HoldRequests(match func(cmd []string) bool) (held <-chan struct{}, free func()) {
	return p.holdAll(match, holdRequest)
}

func (p *Proxy) holdAll(match func(cmd []string) bool, how treatment) (<-chan struct{}, func()) {
	r := &rule{match: match, left: -1, do: how, held: make(chan struct{}, 1000), free: make(chan struct{})}
	p.add(r)
	return r.held, sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		r.left = 0
		close(r.free)
	})
}

// Reset removes all rules of CutReply, CutRequest and Reply.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = nil
}

// Count returns how many matching commands have come from clients, including those that were not passed on.
func (p *Proxy) Count(match func(cmd []string) bool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, cmd := range p.seen {
		if match(cmd) {
			n++
		}
	}
	return n
}

// Pause holds all traffic, in both directions, until Resume. Connections stay open, and new ones are
// accepted. A command or reply in transit may still pass.
func (p *Proxy) Pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if closed(p.hold) {
		p.hold = make(chan struct{})
	}
}

// Resume lets the held traffic pass, in order.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !closed(p.hold) {
		close(p.hold)
	}
}

// Limit bounds the speed of each connection in each direction, in bytes per second, like a slow link. 0
// means no limit. A command that is sent during a reply waits for the end of the reply.
func (p *Proxy) Limit(bytesPerSecond int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate = bytesPerSecond
}

// bandwidth returns the value that Limit has set.
func (p *Proxy) bandwidth() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rate
}

// Sever closes all connections. Clients may connect again at once.
func (p *Proxy) Sever() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sever()
}

func (p *Proxy) sever() {
	for l := range p.links {
		l.close()
	}
}

// Refuse refuses new connections, as if nothing listened. Refuse(false) accepts them again. Existing connections
// stay open: see Sever.
func (p *Proxy) Refuse(refuse bool) {
	p.t.Helper()
	if refuse {
		p.refuse()
		// A process that is being forked holds the socket as well, until it executes another program.
		Eventually(p.t, func() bool {
			conn, err := net.Dial("tcp", p.addr)
			if err == nil {
				conn.Close()
			}
			return errors.Is(err, syscall.ECONNREFUSED)
		}, "nobody listens at the proxy's address")
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil || p.closed {
		return
	}
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		p.t.Fatalf("redistest: proxy: %v", err)
	}
	p.listen(l)
}

func (p *Proxy) refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
}

func (p *Proxy) listen(l net.Listener) {
	p.listener = l
	p.work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.serve(conn)
		}
	})
}

// serve connects a client with the server.
func (p *Proxy) serve(client net.Conn) {
	server, err := net.DialTimeout("tcp", p.target, patience)
	if err != nil {
		client.Close()
		return
	}
	l := &link{proxy: p, client: client, server: server, gone: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.listener == nil {
		l.close()
		return
	}
	p.links[l] = struct{}{}
	p.work.Go(func() {
		l.run()
		p.mu.Lock()
		delete(p.links, l)
		p.mu.Unlock()
	})
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	if p.listener != nil {
		p.listener.Close()
	}
	p.sever()
	p.mu.Unlock()
	p.work.Wait()
	p.port.Release()
}

func (p *Proxy) add(r *rule) <-chan struct{} {
	r.fired = make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, r)
	return r.fired
}

// judge counts a command and returns the rule for it.
func (p *Proxy) judge(cmd []string) *rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, cmd)
	for _, r := range p.rules {
		if r.left == 0 || !r.match(cmd) {
			continue
		}
		if r.skip > 0 {
			r.skip--
			continue
		}
		if r.left > 0 {
			r.left--
		}
		return r
	}
	return &rule{do: pass}
}

// gate returns a channel that is closed when traffic may pass.
func (p *Proxy) gate() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hold
}
