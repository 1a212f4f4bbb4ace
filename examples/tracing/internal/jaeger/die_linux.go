package jaeger

import "syscall"

// dieWithParent makes the kernel end a process with this one, however this one ends.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
