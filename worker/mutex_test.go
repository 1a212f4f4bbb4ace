package worker

import (
	"slices"
	"sync"
	"testing"
)

// Postponed calls are made once, in order, after the mutex is unlocked. That holds as well while a goroutine waits for a condition.
func TestMutexPutsOff(t *testing.T) {
	t.Parallel()
	var m mutex
	var done []int
	add := func(n int) func() {
		return func() {
			if !m.TryLock() {
				t.Fatal("it is done while the mutex is held")
			}
			done = append(done, n)
			m.Unlock()
		}
	}
	m.Lock()
	m.later(add(1))
	m.later(func() {
		m.Lock()
		m.later(add(2))
		m.Unlock()
	})
	m.Unlock()
	m.Lock()
	if !slices.Equal(done, []int{1, 2}) {
		t.Errorf("done: %v, want 1 and 2", done)
	}
	cond, over := sync.NewCond(&m), false
	m.later(func() {
		m.Lock()
		defer m.Unlock()
		over = true
		cond.Signal() // the waiter gets the signal, even if it doesn't sleep yet
	})
	for !over {
		cond.Wait()
	}
	m.Unlock()
}
