//go:build !unix

package redistest

import "syscall"

// The real signals don't exist here. Nor does redis-server.
const (
	stopSignal = syscall.SIGKILL
	contSignal = syscall.SIGKILL
)

func childAttr() *syscall.SysProcAttr { return nil }
