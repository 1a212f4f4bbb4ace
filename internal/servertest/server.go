package servertest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait of this package. It is long since a machine under load is slow. It costs nothing if all
// goes well.
const patience = time.Minute

// A Server is a process that serves at one address of loopback. It keeps its data over Kill and Restart. All methods
// may be called concurrently.
type Server struct {
	name  string
	port  *Port
	dir   string               // of its own; removed by Close
	line  func() []string      // the command line
	user  string               // as whom root starts it; "" as root
	ready func() (bool, error) // reports whether it answers; an error says what it still waits for
	free  []func()             // what Close releases besides

	mu   sync.Mutex
	cmd  *exec.Cmd
	done <-chan struct{}
}

// Addr returns the address for clients as host:port.
func (s *Server) Addr() string { return s.port.Addr() }

// Port returns the number of the port for clients.
func (s *Server) Port() int { return s.port.Number }

// Dir returns the server's folder. Its data and its log are there.
func (s *Server) Dir() string { return s.dir }

// Pid returns the ID of the process.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd.Process.Pid
}

// Kill ends the server and its child processes by SIGKILL, like a crash. It returns when the server has ended.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
}

func (s *Server) end() {
	if s.cmd == nil {
		return
	}
	children, _ := signalAll(s.cmd.Process.Pid, syscall.SIGKILL) // it may have ended already
	<-s.done
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); slices.ContainsFunc(children, running) && time.Now().Before(end); {
		<-tick.C
	}
}

// Stop freezes the server and its child processes by SIGSTOP: connections stay open, nothing answers.
func (s *Server) Stop() error { return s.signal(StopSignal) }

// Cont lets a stopped server continue.
func (s *Server) Cont() error { return s.signal(ContSignal) }

// Terminate asks the server to shut down by SIGTERM and waits until it has ended.
func (s *Server) Terminate() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-s.done:
		return nil
	case <-time.After(patience):
		s.end()
		return fmt.Errorf("%s did not end within %v of SIGTERM", s.name, patience)
	}
}

func (s *Server) signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := signalAll(s.cmd.Process.Pid, sig)
	return err
}

// Start starts the server and returns when it answers. The server must not be running. Start it again after Kill or
// Terminate: it has the same address and its data.
func (s *Server) Start() error {
	if err := s.launch(); err != nil {
		return err
	}
	return s.await()
}

// launch starts the process.
func (s *Server) launch() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	log, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	line := s.line()
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	if s.user != "" {
		if err := runAs(cmd, s.user, s.dir); err != nil {
			return err
		}
	}
	done, err := Start(cmd)
	if err != nil {
		return err
	}
	s.cmd, s.done = cmd, done
	return nil
}

// await waits until the server answers.
func (s *Server) await() error {
	var err error
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		var ok bool
		if ok, err = s.ready(); ok {
			return nil
		}
		select {
		case <-s.done:
			return fmt.Errorf("%s ended while it was starting: %w\n%s", s.name, err, s.Log())
		default:
		}
	}
	s.Kill()
	return fmt.Errorf("%s does not answer after %v: %w\n%s", s.name, patience, err, s.Log())
}

// Log returns the end of the server's log, at most 4 KiB.
func (s *Server) Log() string {
	b, err := os.ReadFile(s.logPath())
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4096):])
}

func (s *Server) logPath() string { return filepath.Join(s.dir, "server.log") }

// Close ends the server, removes its data and releases its ports.
func (s *Server) Close() {
	s.Kill()
	os.RemoveAll(s.dir)
	s.port.Release()
	for _, free := range s.free {
		free()
	}
}

// adopt makes a server end with a test, and shows its log if the test failed.
func adopt(t testing.TB, s *Server) *Server {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of %s at %s:\n%s", s.name, s.Addr(), s.Log())
		}
		s.Close()
	})
	return s
}

// ownDir makes a folder that other users may reach: the folders of testing.T are for their owner only.
func ownDir() (string, error) {
	dir, err := os.MkdirTemp("", "servertest-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}
