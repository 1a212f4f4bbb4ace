package main

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
)

// How far a job is has a share if the total is known, and nothing that a terminal would obey.
func TestHowFar(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]*inspect.Progress{
		"":             nil,
		"0":            {},
		"7 rows":       {Done: 7, Note: "rows"},
		"999/1000 99%": {Done: 999, Total: 1000},
		"12/10 120%":   {Done: 12, Total: 10},
	} {
		same(t, howFar(p), want)
	}
	if text := howFar(&inspect.Progress{Done: math.MaxInt64, Total: math.MaxInt64}); !strings.HasSuffix(text, " 100%") {
		t.Error(text)
	}
	var out bytes.Buffer
	now := time.Date(2026, 1, 31, 3, 0, 9, 0, time.UTC)
	a := &app{out: &out}
	a.show(&inspect.Job{State: signalbox.StateRunning, Progress: &inspect.Progress{Done: 1, Total: 4, Note: "\x1b[31m", At: now.Add(-time.Second)}}, now)
	if line := "\nprogress   1/4 25% \\u001b[31m, said 2026-01-31T03:00:08Z (1s ago)\n"; !strings.Contains(out.String(), line) {
		t.Error(out.String())
	}
}
