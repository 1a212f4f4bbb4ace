package parcelseam

import (
	"context"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/facts"
)

// MemberKey is the context key for the [Member] of a delivery whose job is a member of a batch.
type MemberKey struct{}

// FlowKey is the context key for the [Flow] of a delivery whose job is a member or a callback of a batch.
type FlowKey struct{}

// A Flow is a batch, and the queue that it is in. Package worker makes it, and scheduler.BatchStatusOf and scheduler.Results find it.
type Flow struct {
	Queue  *store.Queue
	Of     facts.FlowRef
	Codecs map[string]signalbox.Codec // of the worker, by encoding, without JSON's
}

// A Member adds jobs to the batch that it is of. Package worker makes it, and scheduler.BatchOf finds it. It is locked while it is asked.
type Member interface {
	// Lock waits until nobody else has it locked. The error is that of ctx, if that ends before.
	Lock(ctx context.Context) error
	Unlock()
	// Of returns the batch.
	Of() facts.FlowRef
	// Queue returns the queue of the batch.
	Queue() *store.Queue
	// Enter returns what the next jobs are made by. Place is how many the delivery has added. The error says why it can add none.
	Enter() (*Origin, error)
	// Next begins a call that adds jobs. Until then Add makes the same call again.
	Next()
	// Add makes the call, once. If it succeeds, the delivery has added them.
	Add(ctx context.Context, items []store.Item) (store.Added, error)
}
