package parcelseam

import (
	"sync"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// FollowerKey is the context key for the [Follower] of a delivery.
type FollowerKey struct{}

// A Follower takes the jobs that a handler has follow its own. Package worker makes it, and scheduler.Then finds it.
type Follower interface {
	// Enter returns what the next follow-up is made by. The error says why there can't be one more.
	Enter() (*Origin, error)
	// Follow takes the follow-up. The error says why it can't.
	Follow(store.Item) error
}

// An Origin is what a follow-up is made by.
type Origin struct {
	*House
	Maker *signalbox.Job  // the job of the handler, without its arguments
	Codec signalbox.Codec // that of its arguments; nil: JSON
	Place int             // of the follow-up among those of the delivery, from 0
}

// A House is what all follow-ups of a worker have in common. They are in its namespace.
type House struct {
	Namespace      string
	TracerProvider trace.TracerProvider
	Propagator     propagation.TextMapPropagator

	Makers sync.Map // what package scheduler makes them by, by the encoding of their arguments
}
