package servertest

import (
	"net"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

func endWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

// runAs makes the command run as a user of the system, and gives it the folder. Only root needs that: PostgreSQL
// and MariaDB refuse to run as root.
func runAs(cmd *exec.Cmd, name, dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return err
	}
	if err := os.Chown(dir, int(uid), int(gid)); err != nil {
		return err
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return nil
}

// signalAll sends a signal to a process and all that descend from it, and returns those. The backends of PostgreSQL are
// processes in sessions of their own.
func signalAll(pid int, sig syscall.Signal) (children []int, err error) {
	children = descendants(pid) // a child of a process that was killed has another parent
	err = syscall.Kill(pid, sig)
	for _, child := range children {
		_ = syscall.Kill(child, sig) // it may have ended
	}
	return children, err
}

// running reports whether a process runs. A zombie doesn't.
func running(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

// descendants returns the processes that descend from pid.
func descendants(pid int) []int {
	parents := map[int][]int{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		// After the name in parentheses come the state and the parent.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) < 2 {
			continue
		}
		if parent, err := strconv.Atoi(fields[1]); err == nil {
			parents[parent] = append(parents[parent], child)
		}
	}
	var all []int
	for next := parents[pid]; len(next) > 0; next = next[1:] {
		all = append(all, next[0])
		next = append(next, parents[next[0]]...)
	}
	return all
}

// refuse makes a listener refuse connections. It keeps its port. Accept returns an error.
func refuse(l *net.TCPListener) {
	onSocket(l, func(fd int) error { return syscall.Shutdown(fd, syscall.SHUT_RD) })
}

// welcome undoes refuse. It reports whether Accept must be called anew.
func welcome(l *net.TCPListener) bool {
	onSocket(l, func(fd int) error { return syscall.Listen(fd, syscall.SOMAXCONN) })
	return true
}

func onSocket(l *net.TCPListener, f func(fd int) error) {
	raw, err := l.SyscallConn()
	if err == nil {
		if e := raw.Control(func(fd uintptr) { err = f(int(fd)) }); e != nil {
			err = e
		}
	}
	if err != nil {
		panic("servertest: " + l.Addr().String() + ": " + err.Error())
	}
}
