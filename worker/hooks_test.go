package worker

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

// Hooks are called in order, one that panics stops no other, and what is too much is dropped.
func TestHooksInOrder(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h := hooks{log: slog.New(slog.NewTextHandler(&log, nil))}
	h.wait() // for nothing
	var called []int
	began, next := make(chan struct{}), make(chan struct{})
	h.add(func() {
		close(began)
		<-next
		panic("oh")
	})
	<-began
	for n := range maxHooks + 5 {
		h.add(func() { called = append(called, n) })
	}
	close(next)
	h.wait()
	if len(called) != maxHooks || !slices.IsSorted(called) {
		t.Errorf("%d were called", len(called))
	}
	if text := log.String(); strings.Count(text, "are dropped") != 1 || strings.Count(text, "OnDead panicked") != 1 {
		t.Errorf("the log says %s", text)
	}
	h.add(func() { called = nil })
	h.wait()
	if called != nil {
		t.Error("none is called after that")
	}
}
