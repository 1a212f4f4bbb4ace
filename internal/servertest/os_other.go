//go:build !linux

package servertest

import (
	"net"
	"os"
	"os/exec"
	"syscall"
)

// endWithParent does nothing: only Linux ends a child with its parent.
func endWithParent(*exec.Cmd) {}

// runAs does nothing: on other systems tests don't run as root.
func runAs(*exec.Cmd, string, string) error { return nil }

// signalAll sends a signal to the process only.
func signalAll(pid int, sig syscall.Signal) (children []int, err error) {
	p, err := os.FindProcess(pid)
	if err != nil {
		return nil, err
	}
	return nil, p.Signal(sig)
}

func running(int) bool { return false }

// refuse does nothing: connections are accepted, and closed.
func refuse(*net.TCPListener) {}

// welcome undoes refuse. It reports whether Accept must be called anew.
func welcome(*net.TCPListener) bool { return false }
