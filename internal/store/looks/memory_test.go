package looks

import (
	"testing"

	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// Each key of a queue counts in one part of its memory.
func TestMemoryOfEachKey(t *testing.T) {
	t.Parallel()
	named := layout.KeysOf("", "q").Named
	for name := range named {
		if memoryParts[name] == nil {
			t.Errorf("the key %s counts nowhere", name)
		}
	}
	if len(memoryParts) != len(named) {
		t.Errorf("%d keys count, of %d", len(memoryParts), len(named))
	}
}
