package scheduler

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
)

// A time that nobody has set is named as that.
func TestAtTheZeroTime(t *testing.T) {
	t.Parallel()
	for at, want := range map[time.Time]string{{}: "zero time", time.Date(2255, 1, 2, 0, 0, 0, 0, time.UTC): "before 2255"} {
		if _, err := Resolve(note{7}, At(at)); !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("At(%v): %v, want %q", at, err, want)
		}
	}
}
