package redistest

import (
	"bufio"
	"net"
	"slices"
	"sync"
	"time"
)

// link is one connection of a client through a proxy.
type link struct {
	proxy  *Proxy
	client net.Conn
	server net.Conn
	once   sync.Once
	gone   chan struct{}

	mu      sync.Mutex // held while writing to the client
	pending []*rule    // commands that wait for their reply, oldest first
}

func (l *link) close() {
	l.once.Do(func() {
		close(l.gone)
		l.client.Close()
		l.server.Close()
	})
}

func (l *link) run() {
	var replies sync.WaitGroup
	replies.Go(func() {
		defer l.close()
		l.copyReplies()
	})
	if !l.copyRequests() {
		l.close()
	}
	replies.Wait()
}

// copyRequests passes the client's commands on. It reports whether the connection must stay open for a reply that is
// to be cut.
func (l *link) copyRequests() bool {
	r := bufio.NewReader(l.client)
	for {
		cmd, raw, err := readCommand(r)
		if err != nil || !l.wait() {
			return false
		}
		rule := l.proxy.judge(cmd)
		switch rule.do {
		case cutRequest:
			close(rule.fired) // before the client can notice
			l.close()
			return false
		case answer:
			l.expect(rule)
			continue
		case holdRequest:
			if !l.held(rule) {
				return false
			}
		}
		l.expect(rule)
		if err := l.write(l.server, raw); err != nil {
			return false
		}
		if rule.do == cutReply {
			return true
		}
	}
}

// copyReplies passes the server's replies on, in the order of the commands.
func (l *link) copyReplies() {
	r := bufio.NewReader(l.server)
	for {
		raw, err := readReply(r, nil)
		if err != nil || !l.wait() || !l.waitHeld(raw) || !l.reply(raw) {
			return
		}
	}
}

// waitHeld waits until the reply may pass. It returns false if the connection was closed meanwhile.
func (l *link) waitHeld(raw []byte) bool {
	l.mu.Lock()
	var rule *rule
	if raw[0] != '>' && len(l.pending) > 0 && l.pending[0].do == holdReply {
		rule = l.pending[0]
	}
	l.mu.Unlock()
	return rule == nil || l.held(rule)
}

// held signals that the rule holds something, and waits until that may pass. It returns false if the connection was
// closed meanwhile.
func (l *link) held(r *rule) bool {
	select {
	case r.held <- struct{}{}:
	default:
	}
	select {
	case <-r.free:
		return true
	case <-l.gone:
		return false
	}
}

// wait waits until traffic may pass. It returns false if the connection was closed meanwhile.
func (l *link) wait() bool {
	select {
	case <-l.proxy.gate():
		return true
	case <-l.gone:
		return false
	}
}

// expect adds a command to those that wait for a reply.
func (l *link) expect(r *rule) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(l.pending, r)
	l.answerDue()
}

// reply handles the server's reply to the oldest command. It reports whether the connection stays open.
func (l *link) reply(raw []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if raw[0] == '>' || len(l.pending) == 0 { // a push belongs to no command
		return l.write(l.client, raw) == nil
	}
	rule := l.pending[0]
	l.pending = l.pending[1:]
	if rule.do == cutReply {
		close(rule.fired) // before the client can notice
		l.close()
		return false
	}
	if err := l.write(l.client, raw); err != nil {
		return false
	}
	l.answerDue()
	return true
}

// write writes at the speed that the proxy's limit allows. If a part is late, on a busy machine, the next one is sent
// sooner.
func (l *link) write(to net.Conn, raw []byte) error {
	rate := l.proxy.bandwidth()
	if rate <= 0 {
		_, err := to.Write(raw)
		return err
	}
	due := time.Now()
	for part := range slices.Chunk(raw, 16<<10) {
		if _, err := to.Write(part); err != nil {
			return err
		}
		due = due.Add(time.Duration(len(part)) * time.Second / time.Duration(rate))
		select {
		case <-time.After(time.Until(due)):
		case <-l.gone:
			return net.ErrClosed
		}
	}
	return nil
}

// answerDue sends the proxy's own answers to the commands that are next.
func (l *link) answerDue() {
	for len(l.pending) > 0 && l.pending[0].do == answer {
		if _, err := l.client.Write(l.pending[0].reply); err != nil {
			l.close()
			return
		}
		l.pending = l.pending[1:]
	}
}
