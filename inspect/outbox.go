package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/signalbox-go/signalbox/internal/store"
)

// An Outbox is what the relays of a database say of its rows for a queue. They say it every few seconds; it stays for a minute.
type Outbox struct {
	Queue string
	ID    string // of the database's outbox
	// At is when the relays said it, by the clock of the database.
	At time.Time
	// Backlog is how many rows wait. If More is set, there are more.
	Backlog int64
	More    bool
	// Lag is for how long the oldest of them has been waiting.
	Lag time.Duration
	// Dead is how many rows can't be enqueued. The table signalbox_outbox_dead has them.
	Dead int64
	// Strays is how many more of the dead rows of the whole outbox are of no queue, since their shard has a name that is none. It is the same for
	// all queues of an outbox.
	Strays int64
}

// Outboxes returns the outboxes of all queues of the namespace, sorted by queue and ID. An outbox without a relay isn't among them.
func (i *Inspector) Outboxes(ctx context.Context) ([]Outbox, error) {
	names, err := store.Queues(ctx, i.rdb, i.cfg.Namespace)
	if err != nil {
		return nil, fmt.Errorf("inspect: outboxes: %w", err)
	}
	var all []Outbox
	for _, name := range names {
		found, err := i.store(name).Outboxes(ctx)
		if err != nil {
			return nil, fmt.Errorf("inspect: outboxes of queue %s: %w", name, err)
		}
		for id, text := range found {
			var s store.OutboxState
			if json.Unmarshal([]byte(text), &s) != nil {
				continue // of a later release
			}
			all = append(all, Outbox{
				Queue: name, ID: id, At: time.UnixMicro(s.At), Backlog: s.Backlog, More: s.More,
				Lag: time.Duration(s.Lag(s.At)) * time.Microsecond, Dead: s.Dead, Strays: s.Strays,
			})
		}
	}
	slices.SortFunc(all, func(a, b Outbox) int { return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.ID, b.ID)) })
	return all, nil
}
