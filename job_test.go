package signalbox_test

import (
	"testing"

	"github.com/signalbox-go/signalbox"
)

func TestEffectKey(t *testing.T) {
	t.Parallel()
	for want, job := range map[string]signalbox.Job{
		"{q}id":                   {Queue: "q", ID: "id"},
		"{q}id{000000000000002a}": {Queue: "q", ID: "id", Incarnation: 42},
		"{q}id{fedcba9876543210}": {Queue: "q", ID: "id", Incarnation: 0xfedcba9876543210},
		"order-17":                {Queue: "q", ID: "id", Incarnation: 42, Effect: "order-17"},
	} {
		job.Attempt, job.Token, job.Crashes, job.LastError = 3, 17, 2, "boom" // of a delivery
		if got := job.EffectKey(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestStates(t *testing.T) {
	t.Parallel()
	live := map[signalbox.State]bool{
		signalbox.StateScheduled: true, signalbox.StateReady: true, signalbox.StateRunning: true,
		signalbox.StateCompleted: false, signalbox.StateDead: false, signalbox.StateCancelled: false, "": false,
	}
	for s, want := range live {
		if s.Live() != want {
			t.Errorf("%q is live: %v", s, s.Live())
		}
	}
}
