package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// If the program is killed, so that it can't clean up, its processes end all the same.
func TestNoProcessIsLeft(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-transfers", "1000000")
	cmd.Env = append(os.Environ(), "DATABASE_URL=", "TMPDIR="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	group := cmd.Process.Pid
	t.Cleanup(func() { _ = syscall.Kill(-group, syscall.SIGKILL) })
	waitFor(t, group, 5)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it was not killed")
	}
	waitFor(t, group, 0)
}

// waitFor waits until a group has so many processes.
func waitFor(t *testing.T, group, want int) {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(5 * time.Second); ; <-ticker.C {
		switch n := members(t, group); {
		case n == want:
			return
		case time.Now().After(end):
			t.Fatalf("%d processes, want %d", n, want)
		}
	}
}

// members returns how many processes of a group run. A zombie doesn't.
func members(t *testing.T, group int) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it is no process, or has ended
		}
		// After the name in parentheses come the state, the parent and the group.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) > 2 && fields[0] != "Z" && fields[2] == strconv.Itoa(group) {
			n++
		}
	}
	return n
}
