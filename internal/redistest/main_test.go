package redistest_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// child is an environment variable. If it is set, TestChild acts as a test binary that
// ends in this way.
const child = "REDISTEST_CHILD"

func TestChild(t *testing.T) {
	how := os.Getenv(child)
	if how == "" {
		t.Skip("runs as a child of TestMainEndsServers")
	}
	fmt.Printf("at %s\n", redistest.Start(t).Addr())
	switch how {
	case "leak":
		go func() { select {} }()
	case "fail":
		t.Error("fails")
	case "killed":
		self, err := os.FindProcess(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		_ = self.Kill()
		select {}
	}
}

// However a test binary ends, its shared server ends with it.
func TestMainEndsServers(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]int{"well": 0, "leak": 1, "fail": 1, "killed": -1} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			if how == "killed" && runtime.GOOS != "linux" {
				t.Skip("only Linux ends a child with its parent")
			}
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(self, "-test.run=^TestChild$")
			cmd.Env = append(os.Environ(), child+"="+how, "TMPDIR="+t.TempDir())
			out, err := cmd.CombinedOutput()
			if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
				t.Fatal(err)
			}
			if got := cmd.ProcessState.ExitCode(); got != want {
				t.Errorf("exit status %d, want %d:\n%s", got, want, out)
			}
			addr := ""
			for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
				if rest, ok := strings.CutPrefix(lines.Text(), "at "); ok {
					addr = rest
				}
			}
			if addr == "" {
				t.Fatalf("no address in %s", out)
			}
			redistest.Eventually(t, func() bool {
				conn, err := net.DialTimeout("tcp", addr, time.Second)
				if err == nil {
					conn.Close()
				}
				return errors.Is(err, syscall.ECONNREFUSED)
			}, "the server at %s has ended", addr)
		})
	}
}
