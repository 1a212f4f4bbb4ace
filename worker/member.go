package worker

import (
	"context"

	"github.com/signalbox-go/signalbox/internal/parcelseam"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/facts"
)

// A member adds jobs to the batch that a delivery's job is a member of.
type member struct {
	d     *delivery
	ref   facts.FlowRef
	turn  chan struct{} // has room for one: whose turn it is
	lane  *store.Lane
	added int // jobs, in this delivery
}

// member returns what adds to the delivery's batch, or nil if its job is a member of none. It is made when it is first asked for.
func (d *delivery) member() any {
	if m := d.long.member.Load(); m != nil {
		return m
	}
	ref, ok := d.claimed.FlowOf()
	if !ok {
		return nil
	}
	d.long.member.CompareAndSwap(nil, &member{d: d, ref: ref, turn: make(chan struct{}, 1), lane: d.session.queue.store.NewLane()})
	return d.long.member.Load()
}

// flow returns the batch that the delivery's job is a member or a callback of, or nil if there is none.
func (d *delivery) flow() any {
	ref, ok := d.claimed.AnyFlowOf()
	if !ok {
		return nil
	}
	return parcelseam.Flow{Queue: d.session.queue.store, Of: ref, Codecs: d.session.queue.w.codecs}
}

// Of implements [parcelseam.Member], as the others do.
func (m *member) Of() facts.FlowRef { return m.ref }

func (m *member) Queue() *store.Queue { return m.d.session.queue.store }

func (m *member) Lock(ctx context.Context) error {
	select {
	case m.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *member) Unlock() { <-m.turn }

func (m *member) Enter() (*parcelseam.Origin, error) {
	origin, err := m.d.follower().origin()
	if err != nil {
		return nil, err
	}
	origin.Place = m.added
	return origin, nil
}

func (m *member) Next() { m.lane.Next() }

func (m *member) Add(ctx context.Context, items []store.Item) (store.Added, error) {
	added, err := m.d.session.queue.store.Flows().Add(ctx, m.lane, &store.Addition{
		Flow: m.ref, Items: items, Session: m.d.session.id, ID: m.d.id, Token: m.d.token, Before: m.added,
	})
	if err == nil && added.Word == "in" {
		m.added += len(items)
	}
	return added, err
}
