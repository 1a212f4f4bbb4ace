// Package parcelseam is how package outbox has package scheduler make jobs, and how scheduler gives follow-ups to the deliveries of package worker. So all take the same options, and scheduler and worker export nothing for it.
package parcelseam

import (
	"context"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// A Made is a job for an outbox.
type Made struct {
	Namespace, Queue string
	Group            string // the key of its group; ""
	Parcel           store.Parcel
}

// A Maker makes the job of one call. opts is a []scheduler.EnqueueOption; a delay is turned into a time after now. Then it calls write, and returns the
// job's ID. The span of the call includes write.
type Maker func(ctx context.Context, args signalbox.Args, opts any, now time.Time, write func(context.Context, Made) error) (id string, err error)

// New returns a Maker. config is a scheduler.Config. Package scheduler sets it.
var New func(config any) (Maker, error)
