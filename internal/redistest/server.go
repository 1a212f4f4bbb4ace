package redistest

import (
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/servertest"
)

// endpoint is an address for clients, as used by one test.
type endpoint struct {
	t    testing.TB
	addr string
}

// Addr returns the address as host:port.
func (e endpoint) Addr() string { return e.addr }

// Client returns a new client with go-redis's defaults, but for ContextTimeoutEnabled, which is set. It is closed when the test ends.
func (e endpoint) Client() redis.UniversalClient { e.t.Helper(); return e.ClientWith(nil) }

// ClientWith is Client with other options.
func (e endpoint) ClientWith(change func(*redis.UniversalOptions)) redis.UniversalClient {
	e.t.Helper()
	return newClient(e.t, redis.UniversalOptions{Addrs: []string{e.addr}}, change)
}

func newClient(t testing.TB, o redis.UniversalOptions, change func(*redis.UniversalOptions)) redis.UniversalClient {
	t.Helper()
	o.ContextTimeoutEnabled = true
	if change != nil {
		change(&o)
	}
	rdb := redis.NewUniversalClient(&o)
	t.Cleanup(func() {
		if err := rdb.Close(); err != nil {
			t.Errorf("redistest: close the client: %v", err)
		}
	})
	return rdb
}

// A Server is a Redis as used by one test. If a method fails, that test fails. Methods that
// end or stop the server can't be used on a shared one.
type Server struct {
	endpoint
	process *process // nil: the embedded one
	shared  bool
}

// New starts a redis-server for this test alone. args are appended to its command line, such
// as "--maxmemory", "50mb". By default it keeps nothing on disk. It ends with the test. If
// the test failed, the end of its log is shown. Without a real redis-server the test is
// skipped, or fails if one is required (see [Env]).
func New(t testing.TB, args ...string) *Server {
	t.Helper()
	path := needReal(t)
	p, err := startProcess(path, t.TempDir(), args)
	if err != nil {
		t.Fatal(err)
	}
	return adopt(t, p)
}

// adopt makes a process end with a test.
func adopt(t testing.TB, p *process) *Server {
	t.Cleanup(func() {
		p.drop()
		if t.Failed() {
			t.Logf("log of the server at %s:\n%s", p.addr(), p.logTail())
		}
	})
	return &Server{endpoint: endpoint{t: t, addr: p.addr()}, process: p}
}

// Real reports whether this is a redis-server and not the embedded one.
func (s *Server) Real() bool { return s.process != nil }

// Pid returns the server's process ID.
func (s *Server) Pid() int { s.t.Helper(); return s.real().pid() }

// Log returns the end of the server's log, at most 4 KiB.
func (s *Server) Log() string { s.t.Helper(); return s.real().logTail() }

// LogPath returns the path of the server's log.
func (s *Server) LogPath() string { s.t.Helper(); return s.real().logPath() }

// Kill ends the server by SIGKILL and returns when it has ended. Data that it had not saved
// is lost.
func (s *Server) Kill() { s.t.Helper(); s.own().kill() }

// Stop freezes the server by SIGSTOP: its connections stay open and it answers nothing.
func (s *Server) Stop() { s.t.Helper(); s.signal(servertest.StopSignal) }

// Cont lets a stopped server continue.
func (s *Server) Cont() { s.t.Helper(); s.signal(servertest.ContSignal) }

// Restart starts the server again at the same address, with the same arguments and with the
// data that it had saved. It returns when the server answers. If the server still runs, it is
// shut down properly first.
func (s *Server) Restart() {
	s.t.Helper()
	if err := s.own().restart(); err != nil {
		s.t.Fatal(err)
	}
}

// admin sends a command that must succeed and returns the reply's text.
func (s *Server) admin(args ...string) string {
	s.t.Helper()
	text, err := ask(s.addr, args...)
	if err != nil {
		s.t.Fatalf("redistest: %s at %s: %v", strings.Join(args, " "), s.addr, err)
	}
	return text
}

// says reports whether the reply to a command contains all of these lines.
func (s *Server) says(cmd string, lines ...string) bool {
	text, err := ask(s.addr, strings.Fields(cmd)...)
	for _, want := range lines {
		if !strings.Contains("\n"+text+"\n", "\n"+want+"\n") {
			return false
		}
	}
	return err == nil
}

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.own().signal(sig); err != nil {
		s.t.Fatalf("redistest: %v: %v", sig, err)
	}
}

func (s *Server) real() *process {
	s.t.Helper()
	if s.process == nil {
		s.t.Fatal("redistest: the embedded Redis is no process; check Real, or use New")
	}
	return s.process
}

func (s *Server) own() *process {
	s.t.Helper()
	if s.shared {
		s.t.Fatal("redistest: other tests use this server; start one of your own with New")
	}
	return s.real()
}
