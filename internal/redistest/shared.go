package redistest

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/signalbox-go/signalbox/embedded"
)

// Env names the environment variable that chooses the server:
//
//	""         a real redis-server if one is on the PATH, else the embedded one
//	"required" a real one; tests fail where it is missing
//	"embedded" the embedded one; tests that need a real one are skipped
const Env = "SIGNALBOX_TEST_REDIS"

// binary finds redis-server. An empty path without an error means: use the embedded one.
func binary() (path string, err error) {
	mode := os.Getenv(Env)
	switch mode {
	case "embedded":
		return "", nil
	case "", "required":
	default:
		return "", fmt.Errorf("%s=%q: want \"\", \"required\" or \"embedded\"", Env, mode)
	}
	path, err = exec.LookPath("redis-server")
	if err != nil && mode == "required" {
		return "", fmt.Errorf("%s=required, but there is no redis-server: %w", Env, err)
	}
	if err != nil {
		return "", nil
	}
	return path, nil
}

// needReal returns the path of redis-server. Without one the test is skipped, or fails if
// one is required.
func needReal(t testing.TB) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	if path == "" {
		t.Skip("needs a real redis-server: none on the PATH, or " + Env + "=embedded")
	}
	return path
}

// shared is the one server of a test binary. The first test that asks for it starts it.
var shared sharedServer

type sharedServer struct {
	mu       sync.Mutex
	process  *process
	embedded *embedded.Server
	err      error
	started  bool
}

// Start returns the server that all tests of this binary share: a real redis-server, or
// the embedded one (see [Env]). Use names from [Name] on it. The package's TestMain must
// call [Main], which ends the server.
func Start(t testing.TB) *Server {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.started {
		shared.started = true
		shared.err = shared.start()
	}
	if shared.err != nil {
		t.Fatalf("no shared Redis: %v", shared.err)
	}
	if shared.embedded != nil {
		t.Log("redistest: on the embedded Redis, not a real one")
		return &Server{endpoint: endpoint{t: t, addr: shared.embedded.Addr()}}
	}
	return &Server{endpoint: endpoint{t: t, addr: shared.process.addr()}, process: shared.process, shared: true}
}

func (s *sharedServer) start() error {
	path, err := binary()
	if err != nil {
		return err
	}
	if path == "" {
		s.embedded, err = embedded.Start(embedded.Logger(slog.New(slog.DiscardHandler)))
		return err
	}
	dir, err := os.MkdirTemp("", "redistest-")
	if err != nil {
		return err
	}
	s.process, err = startProcess(path, dir, nil)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	return nil
}

func (s *sharedServer) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	if s.embedded != nil {
		errs = append(errs, s.embedded.Close())
	}
	if s.process != nil {
		s.process.drop()
		errs = append(errs, os.RemoveAll(s.process.dir))
	}
	s.process, s.embedded = nil, nil
	s.started, s.err = true, errors.New("redistest.Main has ended it")
	return errors.Join(errs...)
}
