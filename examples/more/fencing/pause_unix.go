//go:build unix

package main

import (
	"errors"
	"os"
	"syscall"
)

// pause stops a child as it is, between any two instructions. It returns when the child has stopped: the signal alone takes effect a moment
// later. Stopped a moment too late, the child could be in its transaction, which would block all others.
func pause(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return os.NewSyscallError("wait4", err)
		case status.Stopped():
			return nil
		default:
			return errors.New("the process has ended before it was stopped")
		}
	}
}

// wake lets it go on.
func wake(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
