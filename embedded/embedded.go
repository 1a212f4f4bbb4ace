package embedded

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// A Server is a Redis inside this process. It listens on loopback, so that other
// processes on the machine can use it too.
type Server struct {
	redis    *miniredis.Miniredis
	server   *server.Server // its network side
	clock    *clock
	listener net.Listener
	accepted sync.WaitGroup
	close    func() error
}

// An Option changes how [Start] starts a server.
type Option func(*options)

type options struct {
	addr   string
	logger *slog.Logger
}

// Addr makes the server listen on a fixed address, such as "127.0.0.1:6379". The default
// is a free port on 127.0.0.1. The server has no password. So an address that other
// machines can reach is refused.
func Addr(addr string) Option { return func(o *options) { o.addr = addr } }

// Logger sets the logger. The server logs one line, a warning at its start. The default
// is [slog.Default].
func Logger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }

// Start starts an empty server. The caller must Close it.
func Start(opts ...Option) (*Server, error) {
	o := options{addr: "127.0.0.1:0"}
	for _, opt := range opts {
		opt(&o)
	}
	if o.logger == nil {
		o.logger = slog.Default()
	}
	if err := loopback(o.addr); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", o.addr)
	if err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}

	// Dial starts miniredis without a listener of its own. The listener here is better:
	// it lets no client in before the clock runs, and none after Close began.
	m := miniredis.NewMiniRedis()
	first, err := m.Dial()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("embedded: %w", err), l.Close())
	}
	first.Close()

	s := &Server{redis: m, server: m.Server(), clock: newClock(m), listener: l}
	s.close = sync.OnceValue(s.shutdown)
	id := newIdentity(l.Addr().(*net.TCPAddr).Port, s.server)
	if err := id.install(s.server); err != nil {
		return nil, errors.Join(fmt.Errorf("embedded: %w", err), s.Close())
	}
	s.accepted.Go(s.accept)
	o.logger.Warn("EMBEDDED REDIS: for development, examples and tests only. It keeps nothing when this process ends, and no guarantee holds on it", "addr", s.Addr())
	return s, nil
}

// Addr returns the address that clients connect to, as host:port.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close ends the server and deletes its data. All clients lose their connections, even
// those that are blocked in a command. Close returns when the last connection is closed.
// It may be called more than once.
func (s *Server) Close() error { return s.close() }

func (s *Server) shutdown() error {
	err := s.listener.Close()
	s.accepted.Wait()
	s.redis.Close()
	return err
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // mostly out of file descriptors, which passes
			time.Sleep(10 * time.Millisecond)
			continue
		}
		s.server.ServeConn(&timedConn{Conn: conn, clock: s.clock})
	}
}

// loopback returns an error if other machines can reach the address.
func loopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("embedded: address %q: %w", addr, err)
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("embedded: address %q is not a loopback address: the server has no password", addr)
}
