package zklock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/signalbox-go/signalbox/internal/lease"
)

var (
	errClosed = errors.New("zklock: the Locker is closed")
	errAway   = errors.New("ZooKeeper has not answered")
)

const (
	// leastPatience is the least time for a call. After a lost connection the client pauses for a second before it tries
	// the same server again.
	leastPatience = 5 * time.Second
	// maxCalls bounds the calls that are under way, and so the goroutines that wait for a server that hangs.
	maxCalls = 256
	// retryPause is between two tries of a call while the client looks for another server.
	retryPause = 20 * time.Millisecond
)

// A session is the one connection of a locker. It is made at the first call. When ZooKeeper ends the session, the client
// begins another.
type session struct {
	addrs    []string
	timeout  time.Duration
	patience time.Duration // how long ZooKeeper may be away before calls and waits fail
	scheme   string
	auth     []byte
	expired  func() // ZooKeeper has ended a session; must not block

	ctx    context.Context // ends when the locker is closed
	cancel context.CancelFunc
	calls  chan struct{}
	work   sync.WaitGroup

	dialing sync.Mutex // held while the connection is made
	in      bool       // logged in

	mu      sync.Mutex
	closed  bool
	conn    *zk.Conn
	events  <-chan zk.Event
	wire    *wire
	silent  *time.Timer // runs while there is no connection
	away    chan struct{}
	watches map[string]*watch
}

func newSession(addrs []string, c Config, expired func()) *session {
	ctx, cancel := context.WithCancel(context.Background())
	return &session{
		addrs: addrs, timeout: c.SessionTimeout, patience: max(c.SessionTimeout, leastPatience), scheme: c.AuthScheme, auth: c.Auth, expired: expired,
		ctx: ctx, cancel: cancel, calls: make(chan struct{}, maxCalls),
		away: make(chan struct{}), watches: map[string]*watch{},
	}
}

// quiet is the client's logger. Errors are returned.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

// connected returns the connection, and makes it first if necessary. Only goroutines of calls may wait for it.
func (s *session) connected() (*zk.Conn, error) {
	s.dialing.Lock()
	defer s.dialing.Unlock()
	s.mu.Lock()
	conn, closed := s.conn, s.closed
	s.mu.Unlock()
	if closed {
		return nil, errClosed
	}
	if conn == nil {
		made, events, err := zk.Connect(s.addrs, s.timeout, zk.WithLogger(quiet{}), zk.WithLogInfo(false), zk.WithDialer(s.dial), zk.WithEventCallback(s.event))
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		s.conn, s.events, conn, closed = made, events, made, s.closed
		s.mu.Unlock()
		if closed { // Close didn't see the connection
			end(made, events)
			return nil, errClosed
		}
	}
	if s.scheme != "" && !s.in {
		if err := conn.AddAuth(s.scheme, s.auth); err != nil {
			return nil, err
		}
		s.in = true
	}
	return conn, nil
}

func (s *session) dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: timeout}).DialContext(s.ctx, network, addr)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		conn.Close()
		return nil, errClosed
	}
	s.wire = &wire{Conn: conn, session: s.timeout}
	return s.wire, nil
}

// event follows the state of the connection. The client calls it and waits for it.
func (s *session) event(e zk.Event) {
	if e.Type != zk.EventSession {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.State {
	case zk.StateHasSession:
		if s.silent != nil && !s.silent.Stop() {
			s.away = make(chan struct{}) // the timer has closed the last one, or finds that it is another's
		}
		s.silent = nil
	case zk.StateExpired:
		s.expired()
	case zk.StateDisconnected, zk.StateConnecting:
		if s.silent == nil && !s.closed {
			away := s.away
			s.silent = time.AfterFunc(s.patience, func() { close(away) })
		}
	}
}

// up reports whether there is a connection, as far as the client knows.
func (s *session) up() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.silent == nil
}

// gone returns a channel that is closed when there has been no connection for too long.
func (s *session) gone() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away
}

// close ends the session and returns when all its goroutines have ended.
func (s *session) close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		s.work.Wait()
		return
	}
	s.closed = true
	conn, events := s.conn, s.events
	if s.silent != nil {
		s.silent.Stop()
	}
	s.mu.Unlock()
	if conn != nil {
		conn.Close() // at most some seconds
	}
	s.cancel()
	s.mu.Lock()
	if s.wire != nil {
		s.wire.Close()
	}
	s.mu.Unlock()
	if conn != nil {
		end(conn, events)
	}
	s.work.Wait()
}

// end closes a connection and waits until its goroutines have ended.
func end(conn *zk.Conn, events <-chan zk.Event) {
	conn.Close()
	for range events {
	}
}

// run runs f in a goroutine that close waits for. It returns false if the session is closed.
func (s *session) run(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.work.Go(f)
	return true
}

// once makes one call. If ctx ends first, it returns the cause at once; the call goes on and late gets its outcome. late
// may be nil, and must not make calls.
func once[T any](ctx context.Context, s *session, op func(*zk.Conn) (T, error), late func(T, error)) (T, error) {
	var none T
	select {
	case s.calls <- struct{}{}:
	case <-ctx.Done():
		return none, lease.Ended(ctx)
	}
	var value T
	var err error
	var first atomic.Bool // to be the end of the call, or of the caller's patience
	done := make(chan struct{})
	started := s.run(func() {
		defer func() { <-s.calls }()
		var conn *zk.Conn
		if conn, err = s.connected(); err == nil {
			value, err = op(conn)
		}
		if first.CompareAndSwap(false, true) {
			close(done)
		} else if late != nil {
			late(value, err)
		}
	})
	if !started {
		<-s.calls
		return none, errClosed
	}
	select {
	case <-done:
	case <-ctx.Done():
		if first.CompareAndSwap(false, true) {
			return none, lease.Ended(ctx)
		}
		<-done
	}
	return value, err
}

// ask makes a call that may be made twice, until it is answered. It gives up when its patience is over.
func ask[T any](ctx context.Context, s *session, op func(*zk.Conn) (T, error)) (T, error) {
	bound, cancel := context.WithTimeoutCause(ctx, s.patience, errAway)
	defer cancel()
	for {
		v, err := once(bound, s, op, nil)
		switch {
		case err == nil || !cut(err):
			if ctx.Err() == nil && errors.Is(err, errAway) {
				err = s.silence()
			}
			return v, err
		case !pause(bound, retryPause):
			var none T
			if ctx.Err() != nil {
				return none, lease.Ended(ctx)
			}
			return none, s.silence()
		}
	}
}

// silence is the error of a call that nobody answered.
func (s *session) silence() error {
	return fmt.Errorf("%w for %v: none of its %d servers serves; see that a majority of them runs and can be reached", errAway, s.patience, len(s.addrs))
}

// cut reports whether a call may not have reached a server that serves, or its reply was lost: nobody knows whether it
// was done.
func cut(err error) bool {
	return errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zk.ErrNoServer) || errors.Is(err, zk.ErrSessionMoved) ||
		errors.Is(err, zk.ErrSessionExpired) || errors.Is(err, zk.ErrClosing)
}

// pause returns false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// A watch waits for the end of one node. The client can't take a watch back. So all waiters for a node share one.
type watch struct {
	done chan struct{}
	over sync.Once
}

// watch returns the node's Stat, and a watch that is done when the node is deleted or nobody watches it any more. If
// there is no such node the error is zk.ErrNoNode.
//
// It watches the node's children, of which there are none: so an extension, which changes the node's data, wakes nobody.
func (s *session) watch(ctx context.Context, path string) (*zk.Stat, *watch, error) {
	s.mu.Lock()
	w, known := s.watches[path]
	if !known {
		w = &watch{done: make(chan struct{})}
		s.watches[path] = w
	}
	s.mu.Unlock()
	stat, err := ask(ctx, s, func(c *zk.Conn) (*zk.Stat, error) {
		if known {
			_, stat, err := c.Children(path)
			return stat, err
		}
		_, stat, events, err := c.ChildrenW(path)
		if err == nil && !s.run(func() { <-events; s.unwatch(path, w) }) { // ends with the connection at the latest
			err = errClosed
		}
		return stat, err
	})
	if err != nil && !known {
		s.unwatch(path, w)
	}
	return stat, w, err
}

func (s *session) unwatch(path string, w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watches[path] == w {
		delete(s.watches, path)
	}
	w.over.Do(func() { close(w.done) })
}
