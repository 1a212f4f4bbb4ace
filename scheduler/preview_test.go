package scheduler

import (
	"errors"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
)

func TestPreview(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	words, ticks, err := previewAt("30 2 * * *", berlin, 3, time.Date(2026, time.March, 27, 12, 0, 0, 0, time.UTC))
	if err != nil || words != "at 02:30, in Europe/Berlin" || len(ticks) != 3 {
		t.Fatalf("%q, %v, %v", words, ticks, err)
	}
	for i, want := range []string{"2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"} {
		if got := ticks[i].Format(time.RFC3339); got != want {
			t.Errorf("tick %d: %s, want %s", i, got, want)
		}
	}
	if words, ticks, err := Preview("@daily", nil, 0); err != nil || len(ticks) > 0 || words != "at 00:00, in UTC" {
		t.Errorf("%q, %v, %v", words, ticks, err)
	}
	for _, c := range []struct {
		spec string
		n    int
	}{{"", 1}, {"0 0 30 2 *", 1}, {"@daily", -1}, {"@daily", maxPreview + 1}} {
		if words, ticks, err := Preview(c.spec, nil, c.n); !errors.Is(err, signalbox.ErrInvalid) || words != "" || ticks != nil {
			t.Errorf("%q, %d: %q, %v, %v", c.spec, c.n, words, ticks, err)
		}
	}
}
