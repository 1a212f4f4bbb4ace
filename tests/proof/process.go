package main

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// A process is a child process that ends with this program.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // its result, set before done is closed

	mu     sync.Mutex
	killed bool
}

// startProcess starts a process from its own thread. On Linux the process ends when that thread ends.
// drain, which may be nil, is called before the process is waited for.
func startProcess(cmd *exec.Cmd, drain func()) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	cmd.SysProcAttr = dieWithParent()
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		if drain != nil {
			drain()
		}
		p.err = cmd.Wait()
	}()
	return p, <-started
}

// signal sends a signal. It does nothing if the process has ended.
func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// kill ends the process like a crash.
func (p *process) kill() {
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	p.signal(syscall.SIGKILL)
	<-p.done
}

// wasKilled reports whether this program killed the process.
func (p *process) wasKilled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}
