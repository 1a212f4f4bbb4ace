//go:build !linux

package demo

import "syscall"

// dieWithParent does nothing: only Linux ends a process with its parent. On other systems the
// masters keep running if this program is killed.
func dieWithParent() *syscall.SysProcAttr { return nil }
