package worker

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime"
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

// A hook that ends its goroutine stops no other: not those of its batch, and not those that are added later.
func TestHooksAfterGoexit(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h := hooks{log: slog.New(slog.NewTextHandler(&log, nil))}
	var called []int
	began, next := make(chan struct{}), make(chan struct{})
	h.add(func() {
		close(began)
		<-next
	})
	<-began
	for n := range 6 { // one batch
		h.add(func() {
			called = append(called, n)
			if n == 2 {
				h.add(func() { called = append(called, 6) })
			}
			if n%3 == 2 {
				runtime.Goexit()
			}
		})
	}
	close(next)
	h.wait()
	if got := fmt.Sprint(called); got != "[0 1 2 3 4 5 6]" {
		t.Errorf("called were %s", got)
	}
	if text := log.String(); strings.Count(text, "OnDead called runtime.Goexit") != 2 {
		t.Errorf("the log says %s", text)
	}
	h.add(func() { called = nil })
	h.wait()
	if called != nil {
		t.Error("none is called after that")
	}
}
