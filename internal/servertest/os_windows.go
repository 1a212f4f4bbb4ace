package servertest

import "syscall"

// The real signals don't exist here. Nor do the servers.
const (
	StopSignal = syscall.SIGKILL
	ContSignal = syscall.SIGKILL
)
