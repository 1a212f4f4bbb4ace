package redistest

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// clientLog keeps the last lines that go-redis logs. go-redis logs each dial that fails and each
// master that Sentinel names. Tests of outages and failovers cause many such lines, which are of
// interest only if a test fails.
type clientLog struct {
	mu      sync.Mutex
	lines   []string
	dropped int
}

const clientLogLines = 40

// Printf implements the logger of go-redis.
func (l *clientLog) Printf(_ context.Context, format string, args ...any) {
	line := time.Now().Format("15:04:05.000 ") + fmt.Sprintf(format, args...)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) == clientLogLines {
		l.lines = l.lines[1:]
		l.dropped++
	}
	l.lines = append(l.lines, line)
}

// print writes the lines that were kept.
func (l *clientLog) print(w io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) == 0 {
		return
	}
	fmt.Fprintf(w, "redistest: go-redis logged %d lines; the last %d:\n", l.dropped+len(l.lines), len(l.lines))
	for _, line := range l.lines {
		fmt.Fprintln(w, "  redis:", line)
	}
}
