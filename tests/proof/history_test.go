package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestMain also makes the test's program a client.
func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(envClient); ok {
		if err := runClient(text, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// One second of a real history passes the checks, and is too short to count.
func TestShortHistory(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("SIGNALBOX_TEST_REDIS") == "required" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	for _, s := range setups {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			_, _, v, err := s.prove(t.Context(), bound{time.Second, needAcquisitions, needWindows}, 1, &out)
			t.Logf("%s", &out)
			if err == nil || !strings.Contains(err.Error(), "the run is invalid") {
				t.Errorf("the error is %v; want that the run is invalid", err)
			}
			if !v.ok() {
				t.Error("the lock broke a promise")
			}
		})
	}
}

func TestHistoryIsStopped(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := setups[1].record(ctx, bound{time.Hour, 1, 1}, 1); err == nil {
		t.Error("a history that was stopped is none")
	}
}

func TestBound(t *testing.T) {
	t.Parallel()
	b := bound{time.Minute, 100, 10}
	for _, c := range []struct {
		passed                time.Duration
		acquisitions, windows int
		want                  bool
	}{
		{time.Second, 200, 20, false},
		{61 * time.Second, 200, 20, true},
		{61 * time.Second, 99, 20, false},
		{61 * time.Second, 200, 9, false},
		{5*time.Minute + 59*time.Second, 0, 0, false},
		{6*time.Minute + time.Second, 0, 0, true},
	} {
		if got := b.reached(time.Now().Add(-c.passed), c.acquisitions, c.windows); got != c.want {
			t.Errorf("after %v with %d and %d: %v", c.passed, c.acquisitions, c.windows, got)
		}
	}
}

func TestLossesAreOfTheOnlyServer(t *testing.T) {
	t.Parallel()
	windows := []window{{name: "slicing", begin: 1, end: 2}, {name: "FLUSHALL", begin: 3, end: 9, forgot: 4}}
	if losses := setups[0].losses(windows); losses != nil {
		t.Errorf("Redlock may lose locks: %v", losses)
	}
	if losses := setups[1].losses(windows); len(losses) != 1 || losses[0] != (loss{3, 4}) {
		t.Errorf("losses: %v", losses)
	}
}
