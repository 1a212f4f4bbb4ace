//go:build unix && !linux

package redistest

import "syscall"

const (
	stopSignal = syscall.SIGSTOP
	contSignal = syscall.SIGCONT
)

// childAttr returns nil: only Linux ends a child with its parent.
func childAttr() *syscall.SysProcAttr { return nil }
