//go:build !unix

package redistest

import "syscall"

// There is no such signal, and no redis-server to send it to.
const (
	stopSignal = syscall.SIGKILL
	contSignal = syscall.SIGKILL
)

func childAttr() *syscall.SysProcAttr { return nil }
