package scheduler

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

var cronDuration = flag.Duration("cron.duration", 6*time.Second, "how long the processes of TestTenProcesses run")

// childEnv is set for a process that a test starts from its own binary. Its value is the address, the queue, and perhaps how many entries it has.
const childEnv = "SIGNALBOX_TEST_SCHEDULER"

// beScheduler is the main function of such a process. It ends when its standard input is closed.
func beScheduler(where string) int {
	addr, queue, _ := strings.Cut(where, " ")
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	defer rdb.Close()
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	s, err := New(rdb, Config{})
	queue, count, many := strings.Cut(queue, " ")
	if !many {
		count = "1"
	}
	n, _ := strconv.Atoi(count)
	for i := range n {
		if err == nil {
			err = s.Cron(fmt.Sprint("e", i), "@every 1s", note{i}, Queue(queue), Missed(RunAll(maxRunAll)))
		}
	}
	if err == nil {
		err = s.Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestTenProcesses: ten processes run the same entry. During the test one is killed and one is
// started. Each second is enqueued once.
func TestTenProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	srv := redistest.Start(t)
	q := checked(t, srv.Client())
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var stops, waits []func()
	start := func() *exec.Cmd {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), childEnv+"="+srv.Addr()+" "+q.Name())
		cmd.Stderr = os.Stderr
		stdin, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		stops = append(stops, func() { _ = stdin.Close() })
		waits = append(waits, func() {
			err := cmd.Wait()
			if killed := cmd.ProcessState.ExitCode() < 0; err != nil && !killed {
				t.Errorf("a scheduler ended with %v", err)
			}
		})
		return cmd
	}
	begin := time.Now()
	procs := make([]*exec.Cmd, 10)
	for i := range procs {
		procs[i] = start()
	}
	ticks := int64(*cronDuration / time.Second)
	for third := range int64(3) {
		want := (third + 1) * ticks / 3
		redistest.Eventually(t, func() bool {
			counts, err := q.Looks().Counts(context.Background())
			return err == nil && counts.Ready >= want
		}, "%d ticks are enqueued", want)
		switch third {
		case 0:
			if err := procs[3].Process.Kill(); err != nil {
				t.Error(err)
			}
		case 1:
			start()
		}
	}
	for _, stop := range stops {
		stop()
	}
	for _, wait := range waits {
		wait()
	}
	took := time.Since(begin)
	jobs := claimAll(t, q)
	if most := int(took/time.Second) + 1; len(jobs) < int(ticks) || len(jobs) > most {
		t.Errorf("%d ticks in %v", len(jobs), took)
	}
	gapless(t, scheduled(jobs), len(jobs))
	if !t.Failed() {
		t.Logf("cron: ok, %d consecutive seconds, each once", len(jobs))
	}
}
