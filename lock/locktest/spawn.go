package locktest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Processes makes Run test with real processes as well, which it kills and stops: subtests KilledHolder, StoppedHolder
// and LostWaiters. They are this test binary, started again. TestMain must call [Child]. arg is passed to Child's
// function there. It says how to reach the lock service, such as an address. The lockers of the processes and those of
// the [Maker] must use the same locks.
//
// It needs signals, so it is for Unix.
func Processes(arg string) Option {
	return func(o *options) { o.processes, o.arg = true, arg }
}

// A process holds the lock, or waits for it.
type process interface {
	reports() <-chan report // closed when it has ended
	look() error            // makes it look whether it still has the lock
	stop() error
	cont() error
	kill()
	output() string // what it said besides its reports
}

// spawner returns a function that starts processes.
func spawner(arg string) func(*suite, order) process {
	return func(s *suite, o order) process {
		o.Arg = arg
		p, err := start(o)
		if err != nil {
			s.Fatalf("a process can't be started: %v", err)
		}
		return p
	}
}

// A child is a process of the system.
type child struct {
	cmd   *exec.Cmd
	stdin io.Writer
	said  chan report
	ended chan struct{}

	mu   sync.Mutex
	rest bytes.Buffer
}

func start(o order) (*child, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	// If TestMain doesn't call Child, no test runs there.
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), orderVariable+"="+string(text))
	endWithParent(cmd)
	c := &child{cmd: cmd, said: make(chan report, 8), ended: make(chan struct{})}
	cmd.Stderr = c
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	c.stdin = stdin
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	// If this process ends, Linux kills the child. It watches the thread that started the child. So this goroutine
	// keeps its thread.
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(c.ended)
		err := cmd.Start()
		if started <- err; err != nil {
			return
		}
		c.read(stdout)
		_ = cmd.Wait() // it was killed, or has reported why it failed
	}()
	return c, <-started
}

// read passes the child's reports on.
func (c *child) read(stdout io.Reader) {
	defer close(c.said)
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var r report
		text, ok := strings.CutPrefix(lines.Text(), marker)
		if !ok || json.Unmarshal([]byte(text), &r) != nil {
			_, _ = c.Write([]byte(lines.Text() + "\n"))
			continue
		}
		c.said <- r
	}
}

// Write is for what the child says besides its reports.
func (c *child) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rest.Len() < 4<<10 {
		c.rest.Write(b)
	}
	return len(b), nil
}

func (c *child) output() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rest.String()
}

func (c *child) reports() <-chan report { return c.said }

func (c *child) look() error {
	_, err := io.WriteString(c.stdin, "look\n")
	return err
}

func (c *child) stop() error { return stopProcess(c.cmd.Process) }
func (c *child) cont() error { return contProcess(c.cmd.Process) }

func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may have ended
	<-c.ended
}

// start starts a process that acquires the lock of a key and holds it. It is killed when the test ends.
func (s *suite) start(ttl time.Duration, key string) process {
	s.Helper()
	p := s.spawn(s, order{TTL: ttl, Key: key})
	s.Cleanup(p.kill)
	return p
}

// hears waits for a process's next report.
func (s *suite) hears(p process, step string) report {
	s.Helper()
	timer := time.NewTimer(s.patience) // it has to start first
	defer timer.Stop()
	select {
	case r, ok := <-p.reports():
		if !ok {
			s.Fatalf("a process ended without a report (want %q); does TestMain call locktest.Child? Its output: %s", step, p.output())
		}
		if r.Step != step {
			s.Fatalf("a process reports %q (%s), not %q; its output: %s", r.Step, r.Error, step, p.output())
		}
		return r
	case <-timer.C:
		s.Fatalf("a process has not reported %q after %v; its output: %s", step, s.patience, p.output())
	}
	return report{}
}

// signal fails the test if a process can't be told something.
func (s *suite) signal(what string, f func() error) {
	s.Helper()
	if err := f(); err != nil {
		s.Fatalf("a process can't be told to %s: %v", what, err)
	}
}
