package signalbox_test

import (
	"context"
	"testing"

	"github.com/signalbox-go/signalbox"
)

// FromContext finds the job of a delivery, through contexts that were made from its own, and allocates nothing.
//
// Not parallel: it measures.
func TestFromContext(t *testing.T) {
	job := &signalbox.Job{ID: "7", Queue: "mail"}
	ctx, cancel := context.WithCancel(&signalbox.DeliveryContext{Context: t.Context(), Job: job})
	defer cancel()
	if got, ok := signalbox.FromContext(ctx); !ok || got != job {
		t.Errorf("%v, %v", got, ok)
	}
	if n := testing.AllocsPerRun(100, func() { signalbox.FromContext(ctx) }); n != 0 {
		t.Errorf("it allocates %v times", n)
	}
	for name, ctx := range map[string]context.Context{
		"no delivery":              t.Context(),
		"a delivery without a job": &signalbox.DeliveryContext{Context: t.Context()},
	} {
		if got, ok := signalbox.FromContext(ctx); ok || got != nil {
			t.Errorf("%s: %v, %v", name, got, ok)
		}
	}
}
