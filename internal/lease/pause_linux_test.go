package lease

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// monotonic is CLOCK_MONOTONIC, which is the same in all processes.
func monotonic() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

func init() { pausedChild = workUnderALease }

// workUnderALease runs operations under a short lease until the lease ends. Then it prints when
// the latest operation asked whether the lease still lasts, and was told yes. A pause can fall
// between that question and the operation. Only a check of the token can refuse such an operation.
func workUnderALease() {
	v := NewValidity(context.Background())
	v.Extend(Now(), pauseTTL)
	fmt.Println("running")
	var (
		mu   sync.Mutex
		last int64
		wg   sync.WaitGroup
	)
	for range 8 {
		wg.Go(func() {
			for {
				asked := monotonic()
				if v.Context().Err() != nil {
					return
				}
				mu.Lock()
				last = max(last, asked)
				mu.Unlock()
				<-time.After(200 * time.Microsecond) // the operation
			}
		})
	}
	wg.Wait()
	fmt.Println(last, context.Cause(v.Context()))
}

func TestNoOperationStartsAfterAPause(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), pauseEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the child did not start")
	}
	<-time.After(pauseTTL / 5) // pause while the child works
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, func() bool { return processState(t, cmd.Process.Pid) == 'T' }, "the child stops")
	<-time.After(2 * pauseTTL) // the pause
	continued := monotonic()
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if !lines.Scan() {
		t.Fatal("the child said nothing")
	}
	var last int64
	var cause string
	if _, err := fmt.Sscanf(lines.Text(), "%d lock: lease %s", &last, &cause); err != nil || cause != "lost" {
		t.Errorf("the child said %q", lines.Text())
	}
	if last == 0 || last >= continued {
		t.Errorf("an operation was allowed %v after the pause", time.Duration(last-continued))
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// processState returns the state letter of /proc/pid/stat: T for stopped.
func processState(t *testing.T, pid int) byte {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	var name string
	var state byte
	if _, err := fmt.Sscanf(string(stat), "%d %s %c", &pid, &name, &state); err != nil {
		t.Fatal(err)
	}
	return state
}
