package doctor

import (
	"hash/maphash"
	"strconv"
	"testing"

	"github.com/signalbox-go/signalbox/internal/store/facts"
)

// The memory of what was found is bounded, and tells faults apart whose texts are the same.
func TestDoctorRemembersFindings(t *testing.T) {
	t.Parallel()
	d := &doctor{seed: maphash.MakeSeed(), told: make(map[uint64]struct{})}
	for range 2 {
		d.find(facts.NoRecord, "a", "text", false)
		d.find(facts.NoRecord, "b", "text", false)
		d.find(facts.NoPlace, "b", "text", false)
	}
	if d.Checked.Found != 3 {
		t.Errorf("findings: %d", d.Checked.Found)
	}
	for i := range 2 * maxTold {
		d.find(facts.NoRecord, strconv.Itoa(i), "", false)
	}
	if len(d.told) > maxTold {
		t.Errorf("it remembers %d", len(d.told))
	}
	if d.Checked.Found != 3+2*maxTold {
		t.Errorf("findings: %d", d.Checked.Found)
	}
}
