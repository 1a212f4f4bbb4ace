package handlerctx

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"
)

// Each function that was added comes once, in order. After that none is taken.
func TestEnd(t *testing.T) {
	t.Parallel()
	var e End
	var heard []int
	for i := range 4 {
		if !e.Add(func(s int) { heard = append(heard, s*i) }) {
			t.Errorf("number %d will not be called", i)
		}
	}
	for w := e.Seal(); w != nil; w = w.Next {
		w.F.(func(int))(10)
	}
	if want := []int{0, 10, 20, 30}; !slices.Equal(heard, want) {
		t.Errorf("heard %v, want %v", heard, want)
	}
	if e.Add(func(int) {}) {
		t.Error("one that comes too late will be called")
	}
	if e.Seal() != nil {
		t.Error("the end can be told again")
	}
}

// If no function is added, the end allocates nothing.
//
// Not parallel: it measures.
func TestEndUnused(t *testing.T) {
	e := new(End)
	if n := testing.AllocsPerRun(100, func() {
		*e = End{}
		if e.Seal() != nil {
			t.Error("somebody waits")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Functions may be added by several goroutines while the end comes: each is either refused or called.
func TestEndRaces(t *testing.T) {
	t.Parallel()
	for range 100 {
		var e End
		var wg sync.WaitGroup
		taken := make([]bool, 4)
		called := make([]bool, 4)
		for i := range taken {
			wg.Go(func() { taken[i] = e.Add(func(int) { called[i] = true }) })
		}
		first := e.Seal()
		wg.Wait()
		for w := first; w != nil; w = w.Next {
			w.F.(func(int))(0)
		}
		if !slices.Equal(taken, called) {
			t.Fatalf("taken %v, called %v", taken, called)
		}
	}
}

func TestContexts(t *testing.T) {
	t.Parallel()
	if Draining(t.Context()) != nil || HoldOf(t.Context()) != nil {
		t.Error("a context of no delivery has what a worker gives")
	}
	done := make(chan struct{})
	until := time.Unix(1, 0)
	var held time.Time
	ctx, cancel := context.WithCancel(WithHold(WithDraining(t.Context(), done), func(_ context.Context, t time.Time) error { held = t; return nil }))
	defer cancel()
	if got := Draining(ctx); got != (<-chan struct{})(done) {
		t.Errorf("draining: %v", got)
	}
	if err := HoldOf(ctx)(ctx, until); err != nil || held != until {
		t.Errorf("held %v, %v", held, err)
	}
}
