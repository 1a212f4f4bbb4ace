package scenarios

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds the wait for a condition.
const patience = 10 * time.Second

// until waits until a condition is met.
func until(ctx context.Context, what string, met func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not after %v", patience))
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := met(); ok || err != nil {
			return wrap(what, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return wrap(what, context.Cause(ctx))
		}
	}
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// monotonic is CLOCK_MONOTONIC, which is the same in all processes.
func monotonic() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return time.Duration(ts.Nano())
}

// A process is a child process that ends with this one.
type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *os.File      // its standard output, unless that goes to the log
	done  chan struct{} // closed when it has ended

	mu  sync.Mutex
	log bytes.Buffer
}

// startProcess starts a program whose output goes to its log.
func startProcess(environ []string, path string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(path, args...)}
	p.cmd.Env = append(os.Environ(), environ...)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	return p, p.start()
}

// startChild starts this program again, in a role. The caller has its standard input and
// output.
func startChild(program, role, settings string) (*process, error) {
	p := &process{cmd: exec.Command(program)}
	p.cmd.Env = append(os.Environ(), envRole+"="+role, envSettings+"="+settings)
	p.cmd.Stderr = p
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout, p.out = write, out
	err = p.start()
	_ = write.Close()
	return p, err
}

// start starts the process from its own thread: the kernel ends the process when that thread
// ends.
func (p *process) start() error {
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.done = make(chan struct{})
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // its log says how it ended
		}
	}()
	return <-started
}

// Write adds to the log.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) gone() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill ends the process like a crash.
func (p *process) kill() {
	if p.cmd.Process != nil {
		_ = p.cmd.Process.Kill() // an error means that it has ended already
		<-p.done
	}
	if p.out != nil {
		_ = p.out.Close()
	}
}

// stop pauses the process, and returns when none of its threads runs.
func (p *process) stop(ctx context.Context) error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return until(ctx, "the process stops", func() (bool, error) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.pid()))
		for _, path := range threads {
			stat, err := os.ReadFile(path)
			if err != nil {
				continue // the thread has ended
			}
			// The state follows the name. The name is in parentheses and may contain anything.
			if i := bytes.LastIndexByte(stat, ')'); i+2 >= len(stat) || stat[i+2] != 'T' {
				return false, nil
			}
		}
		return len(threads) > 0, err
	})
}

func (p *process) cont() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
