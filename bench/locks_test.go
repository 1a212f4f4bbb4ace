package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// TestMain lets the processes of a measurement be this binary.
func TestMain(m *testing.M) {
	if ok, err := part(context.Background()); ok {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestSumUp: cycles a second, waits, and how equal the shares were.
func TestSumUp(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	// Each has four cycles; the slow ones had had n of them after a second, when the fast had all.
	shares := func(fast, n int) [][]float64 {
		wants := make([]want, contenders)
		for i := range wants {
			w := &wants[i]
			w.End = begin.Add(2 * time.Second)
			if i < fast {
				w.End = begin.Add(time.Second)
			}
			for j := range 4 {
				w.Waits = append(w.Waits, float64(j))
				got := begin.Add(1500 * time.Millisecond)
				if i < fast || j < n {
					got = begin.Add(500 * time.Millisecond)
				}
				w.Got = append(w.Got, got)
			}
		}
		return sumUp(wants, begin)
	}
	for _, tc := range []struct {
		fast, n int
		want    float64
	}{
		{contenders, 0, 1},
		{contenders / 2, 0, 0.5},
		{1, 0, 1.0 / contenders},
		{1, 4, 1},
	} {
		s := shares(tc.fast, tc.n)
		if got := s[jain][0]; math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("%d fast, the others had %d of 4: fairness %v, want %v", tc.fast, tc.n, got, tc.want)
		}
		if len(s[waits]) != 4*contenders {
			t.Errorf("%d waits, want %d", len(s[waits]), 4*contenders)
		}
	}
	if got := shares(1, 0)[cyclesPerSecond][0]; got != 2*contenders {
		t.Errorf("%v cycles/s, want %d: 64 in 2 s", got, 2*contenders)
	}
}

// testServer starts a redis-server for one test, which is skipped without one unless one is required.
func testServer(t *testing.T) *server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv(redistest.Env) == "required" {
			t.Fatal(err)
		}
		t.Skip("needs a redis-server:", err)
	}
	srv, err := start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.close(); err != nil {
			t.Error(err)
		}
	})
	return srv
}

// TestLockMeasures: every library does a few cycles in every way in which it is measured.
func TestLockMeasures(t *testing.T) {
	srv := testServer(t)
	measures := map[string]measure{
		"redlock, signalbox":           redlockCycles(ourRedlock, 4),
		"redlock, redsync":             redlockCycles(redsyncs, 4),
		"redlock two down, signalbox":  redlockTwoDown(ourRedlock),
		"redlock two down, redsync":    redlockTwoDown(redsyncsFailingFast),
		"postgres, signalbox":          pgCycles(ourPostgres, 4),
		"postgres, cirello pglock":     pgCycles(peerPostgres, 4),
		"processes, signalbox":         contendedProcesses("signalbox"),
		"processes, redislock":         contendedProcesses("redislock"),
		"16 goroutines of rueidislock": contended(rueidislocks),
	}
	for name, open := range libraries {
		measures[name] = lockCycles(open, 4)
	}
	for name, m := range measures {
		samples, err := m(t.Context(), srv, 32)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for i, series := range samples {
			if len(series) == 0 || quantile(series, 1) <= 0 {
				t.Errorf("%s: series %d is %v", name, i, series)
			}
		}
	}
}
