package main

import (
	"bufio"
	"strings"
	"syscall"
	"testing"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// However the program ends, its servers and masters end too: with one Ctrl-C or two, which reach
// all processes of a terminal, or when it is killed and can't clean up.
func TestNoProcessIsLeft(t *testing.T) {
	t.Parallel()
	args := []string{"-lock", "single"}
	if redistest.Start(t).Real() {
		args = []string{"-lock", "redlock"}
	} else {
		t.Log("without masters: they need a real redis-server")
	}
	for name, signals := range map[string]func(pid int) error{
		"Ctrl-C":       func(pid int) error { return syscall.Kill(-pid, syscall.SIGINT) },
		"Ctrl-C twice": func(pid int) error { _ = syscall.Kill(-pid, syscall.SIGINT); return syscall.Kill(-pid, syscall.SIGINT) },
		"killed":       func(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := program(t, args...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // like a shell
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var output strings.Builder
			sent := false
			for lines := bufio.NewScanner(stdout); lines.Scan(); {
				output.WriteString(lines.Text() + "\n")
				if strings.Contains(lines.Text(), "servers, on") {
					sent = true
					if err := signals(cmd.Process.Pid); err != nil {
						t.Error(err)
					}
				}
			}
			if err := cmd.Wait(); err == nil || !sent {
				t.Errorf("it ended with %v:\n%s", err, &output)
			}
			nothingLeft(t, "", output.String())
			redistest.Eventually(t, func() bool {
				return syscall.Kill(-cmd.Process.Pid, 0) == syscall.ESRCH
			}, "no process of the group is left")
		})
	}
}
