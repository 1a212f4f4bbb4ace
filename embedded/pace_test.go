package embedded

import (
	"testing"
	"time"
)

// A move that had to wait for something else doesn't make the clock coarse. Many keys do.
func TestPace(t *testing.T) {
	t.Parallel()
	var p pace
	for i := range 31 {
		took := 30 * time.Millisecond
		if i == 15 {
			took = 20 * time.Microsecond
		}
		if every := p.next(took); every != finest {
			t.Fatalf("after %d moves, most of which waited, the next one is in %v", i+1, every)
		}
	}
	if every := p.next(3 * time.Millisecond); every != 30*time.Millisecond {
		t.Errorf("after 16 moves of 3 ms and more, the next one is in %v", every)
	}
	for range 16 {
		p.next(time.Second)
	}
	if every := p.next(time.Second); every != coarsest {
		t.Errorf("after moves of 1 s, the next one is in %v", every)
	}
	if every := p.next(50 * time.Microsecond); every != finest {
		t.Errorf("after a move of 50 µs, the next one is in %v", every)
	}
}
