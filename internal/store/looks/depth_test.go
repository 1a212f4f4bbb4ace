package looks

import (
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

func TestStrangeDepths(t *testing.T) {
	t.Parallel()
	good := []any{"ok", int64(10), int64(1), int64(2), int64(3), int64(4), int64(5), int64(4), int64(7), "", "", "", "", "", int64(1), int64(2), int64(8)}
	d, err := parseDepths(&scripts.Reply{List: good})
	if err != nil || d != (Depths{Ready: 1, Scheduled: 2, Running: 3, Dead: 4, Cancelled: 5, Completed: 7, Awaiting: 8, Oldest: 6 * time.Microsecond, Blocked: 1, steady: time.UnixMicro(10), named: true}) {
		t.Fatalf("%+v, %v", d, err)
	}
	for i := range good {
		bad := append([]any(nil), good...)
		bad[i] = 1.5
		if _, err := parseDepths(&scripts.Reply{List: bad}); err == nil {
			t.Errorf("field %d as %v is accepted", i, bad[i])
		}
		if _, err := parseDepths(&scripts.Reply{List: good[:i]}); err == nil {
			t.Errorf("a reply that ends before field %d is accepted", i)
		}
	}
}
