//go:build unix

package servertest

import "syscall"

// Signals that freeze a process and let it continue.
const (
	StopSignal = syscall.SIGSTOP
	ContSignal = syscall.SIGCONT
)
