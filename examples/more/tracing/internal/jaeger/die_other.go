//go:build !linux

package jaeger

import "syscall"

// dieWithParent does nothing: only Linux ends a process with its parent.
func dieWithParent() *syscall.SysProcAttr { return nil }
