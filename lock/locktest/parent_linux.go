package locktest

import (
	"os/exec"
	"syscall"
)

// endWithParent makes the kernel kill a child when this process ends. A child that is stopped couldn't end by itself.
func endWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
