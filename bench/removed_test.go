package main

import (
	"os/exec"
	"strings"
	"testing"
)

// onThePath are what a job passes through in a worker where somebody could trace or measure.
var onThePath = []string{
	signalboxModule + "/internal/telemetry.Extract",
	signalboxModule + "/middleware.Trace", signalboxModule + "/middleware.(*tracer).", signalboxModule + "/middleware.Metrics",
	signalboxModule + "/worker.(*watch).", signalboxModule + "/worker.(*delivery).note", signalboxModule + "/worker.(*queue).watch",
}

func build(t *testing.T, patch string) (*pair, error) {
	p := &pair{patch: patch}
	t.Cleanup(func() {
		if err := p.remove(); err != nil {
			t.Error(err)
		}
	})
	return p, p.build(t.Context())
}

// TestRemoved: both programs run jobs, and only one of them can trace and measure.
func TestRemoved(t *testing.T) {
	t.Parallel()
	p, err := build(t, removed)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{asItIs: true, patched: false} {
		symbols, err := output(exec.CommandContext(t.Context(), "go", "tool", "nm", p.program(name)))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range onThePath {
			if got := strings.Contains(string(symbols), s); got != want {
				t.Errorf("the program %s has %s: %v, want %v", name, s, got, want)
			}
		}
	}
	srv := testServer(t)
	for name, wrong := range map[string]string{asItIs: "", patched: "64 jobs made 0 spans"} {
		samples, err := p.process(name, "nobody")(t.Context(), srv, 64)
		if err != nil || len(samples) != 1+bothCPU || len(samples[0]) != 1 || samples[0][0] <= 0 {
			t.Errorf("the program %s: samples %v, error %v", name, samples, err)
		}
		_, err = p.process(name, "sdk")(t.Context(), srv, 64)
		if (err == nil) != (wrong == "") || err != nil && !strings.Contains(err.Error(), wrong) {
			t.Errorf("the program %s, with a provider: error %v, want %q", name, err, wrong)
		}
	}
}

// TestStalePatch: a patch of another tree, or one that breaks this one, is an error.
func TestStalePatch(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ patch, wrong string }{
		"the lines are others": {strings.Replace(removed, "-\twatching := ", "-\twatched := ", 1), stale},
		"the file is gone":     {strings.ReplaceAll(removed, "worker/queue.go", "worker/queues.go"), stale},
		"without what isn't":   {strings.Replace(removed, "worker/rehearse.go", "worker/rehearses.go", 1), stale},
		"does not compile":     {strings.Replace(removed, "# without:", "# with:", 1), "undefined"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := build(t, tc.patch); err == nil || !strings.Contains(err.Error(), tc.wrong) {
				t.Errorf("error %v, want %q in it", err, tc.wrong)
			}
		})
	}
}
