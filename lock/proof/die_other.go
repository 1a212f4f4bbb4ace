//go:build !linux

package main

import "syscall"

// dieWithParent does nothing: only Linux ends a process with its parent. Elsewhere the servers
// outlive this program if it is killed.
func dieWithParent() *syscall.SysProcAttr { return nil }
