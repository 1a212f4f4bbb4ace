package main

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// A process is one that this program started and that ends with it.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // how, once it has

	mu     sync.Mutex
	killed bool
}

// startProcess starts a process from a thread of its own: on Linux it is the end of that thread which
// ends the process. drain, which may be nil, is called before it is waited for.
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

// signal sends a signal; one that has ended doesn't get it.
func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// kill ends the process as a crash does.
func (p *process) kill() {
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	p.signal(syscall.SIGKILL)
	<-p.done
}

// wasKilled tells whether it was this program that ended it.
func (p *process) wasKilled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}
