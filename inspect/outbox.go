package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// ErrNoOutbox is wrapped by the error of a call that names an outbox which has sent nothing to the queue.
var ErrNoOutbox = errors.New("inspect: no such outbox")

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

// Outboxes returns the outboxes of all queues of the namespace, sorted by queue and ID. An outbox without a relay isn't among them. A queue
// that can't be read has its name in the error, which wraps [ErrPartial], and its outboxes are left out.
func (i *Inspector) Outboxes(ctx context.Context) ([]Outbox, error) {
	names, err := i.names(ctx)
	if err != nil && len(names) == 0 {
		return nil, err
	}
	var all []Outbox
	errs := []error{err}
	for _, name := range names {
		q := i.store(name)
		err := q.Site().CheckLayout(ctx)
		var found map[string]string
		if err == nil {
			found, err = q.Outboxes().All(ctx)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("inspect: outboxes of queue %s: %w", name, err))
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
	return all, partial(errs...)
}

// ForgetOutbox has Redis forget what an outbox has sent to a queue, so that [Inspector.RemoveQueue] can remove the queue. It is for an outbox whose database is gone, or of
// which no program uses the queue any more. id is the ID in the database's table signalbox_outbox_box; the error of RemoveQueue names it.
//
// Redis can't know whether the database has rows for the queue that weren't sent yet. Nothing goes wrong at once: what is known stays for 25 hours. If a relay sends
// rows of the queue in that time, it stays for good, as if nothing had been forgotten. A relay that begins later sends again what it had sent in the last
// RelayConfig.Window before its end: of these, jobs that have ended run again. It also reports all older batches as lost.
//
// It goes through the names of all keys of the server, and needs the rights SCAN and PEXPIRE. It may be called again. The error wraps [ErrState] if a relay has reported rows of the queue
// within a minute, or within five if other outboxes report it; [ErrNoOutbox] if the queue knows of nothing that it has sent; and [ErrNoQueue] if nobody has used the queue.
func (i *Inspector) ForgetOutbox(ctx context.Context, queue, id string) error {
	if id == "" || len(id) > maxOutboxID {
		return fmt.Errorf("inspect: %w outbox %.200q: want the ID in the table signalbox_outbox_box, 1 to %d bytes", signalbox.ErrInvalid, id, maxOutboxID)
	}
	if err := i.known(ctx, queue); err != nil {
		return err
	}
	became, err := i.store(queue).Outboxes().Forget(ctx, id)
	if err != nil {
		return fmt.Errorf("inspect: forget outbox %s of queue %s: %w", id, queue, err)
	}
	switch became {
	case store.OutboxUnknown:
		return fmt.Errorf("%w: %.200q has sent nothing to queue %s", ErrNoOutbox, id, queue)
	case store.OutboxLives:
		return fmt.Errorf("%w: outbox %s: a relay has reported rows of queue %s moments ago (signalbox outbox ls); stop the relays of this outbox, or remove the queue's rows from the table signalbox_outbox_shard, and wait for five minutes", ErrState, id, queue)
	case store.OutboxForgotten:
	}
	return nil
}

const maxOutboxID = 200 // bytes
