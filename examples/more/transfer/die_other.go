//go:build !linux

package main

import "syscall"

// dieWithParent does nothing: only Linux ends a process with its parent. On other systems redis-server keeps running if this program is killed.
func dieWithParent() *syscall.SysProcAttr { return nil }
