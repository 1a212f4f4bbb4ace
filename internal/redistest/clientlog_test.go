package redistest

import (
	"context"
	"strings"
	"testing"
)

// clientLog keeps the last lines for a test run that fails, and counts all lines.
func TestClientLogKeepsTheLastLines(t *testing.T) {
	t.Parallel()
	var l clientLog
	var b strings.Builder
	if l.print(&b); b.Len() != 0 {
		t.Errorf("of nothing it prints %q", b.String())
	}
	for i := range clientLogLines + 5 {
		l.Printf(context.Background(), "line %d.", i)
	}
	l.print(&b)
	if out := b.String(); strings.Contains(out, "line 4.") || !strings.Contains(out, "line 5.") ||
		!strings.Contains(out, "line 44.") || !strings.Contains(out, "logged 45 lines; the last 40") {
		t.Error(out)
	}
}
