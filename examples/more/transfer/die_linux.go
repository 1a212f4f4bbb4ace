package main

import "syscall"

// dieWithParent makes the kernel end a process when this one ends in any way.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
