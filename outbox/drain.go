package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// drain sends batch after batch of a shard until nothing waits. It returns for how long to leave the shard alone.
func (r *Relay) drain(ctx context.Context, s *shardState) (pause time.Duration) {
	var (
		done  *sent
		floor int64 // rows behind it are looked at; a row in front of it may come late
		since = time.Now()
	)
	for {
		room, full := int64(maxBatchRows), false
		if ctx.Err() == nil {
			left, limited, err := r.queue(ctx, s.shard).Room(ctx)
			if err == nil {
				r.recovered(ctx, "reach Redis")
			} else if pause = r.hindered(ctx, s, err); done == nil {
				return pause
			}
			if full = limited && left <= 0; limited {
				room = max(min(room, left), 0)
			}
		}
		if ctx.Err() != nil {
			if done != nil { // Redis has it: the database should know
				_, _ = r.step(context.WithoutCancel(ctx), s, done, -1, 0)
			}
			return 0
		}
		within := ctx
		if done != nil { // Redis has it: else another relay would send it once more, after TakeOver
			within = context.WithoutCancel(ctx)
		}
		b, err := r.step(within, s, done, room, floor)
		if r.failed(ctx, "take rows", err) {
			return time.Second
		}
		if done = nil; b == nil {
			if full {
				return fullPause
			}
			if floor > 0 {
				floor = 0
				continue
			}
			return 0
		}
		if done, pause = r.send(ctx, s, b); done == nil {
			return pause
		}
		switch {
		case s.strict() || len(done.refused) > 0 || len(b.rows) == 0: // an order needs a look at all rows
			floor = 0
		case time.Since(since) > lookEvery:
			floor, since = 0, time.Now()
		default:
			floor = max(floor, b.rows[len(b.rows)-1].pos)
		}
	}
}

// send sends a batch, and returns what to note about it; nil: the batch, or another one, is to be taken anew. In that case, then comes for how long to leave the shard alone.
func (r *Relay) send(ctx context.Context, s *shardState, b *batch) (*sent, time.Duration) {
	items, err := b.items()
	if err != nil {
		return nil, r.refused(ctx, s, b, err)
	}
	q := r.queue(ctx, s.shard)
	within, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	fates, err := q.Outboxes().Relay(within, r.box, s.number, &store.Batch{Place: b.place, After: b.after, Again: b.again, Items: items})
	out, job, full := (*store.OutOfStepError)(nil), (*store.JobError)(nil), (*store.NoRoomError)(nil)
	switch {
	case errors.Is(err, store.ErrSent): // it was to become void, and Redis has it
		if b.void = false; len(b.rows) > 0 {
			return r.send(ctx, s, b)
		}
		err = nil
	case errors.Is(err, store.ErrVoid), err == nil && len(items) == 0:
		return r.voided(s, b), 0
	case errors.As(err, &out):
		r.giveBack(ctx, s.shard, b)
		if r.failed(ctx, "repair the shard", r.attend(ctx, s.shard)) {
			return nil, time.Second
		}
		return nil, 10 * time.Millisecond
	case errors.As(err, &full):
		return nil, r.crowded(ctx, s, b, full.Room)
	case errors.As(err, &job):
		return nil, r.refused(ctx, s, b, err)
	}
	done := &sent{batch: b}
	if err == nil && fates.Anew() {
		_ = q.Presence().Register(within) // it may have been removed since r.queue did so
	}
	if err == nil && len(items) > 0 {
		done, err = r.sort(within, q, s, b, fates)
	}
	if err == nil {
		r.moves(ctx, s)
		return done, 0
	}
	r.giveBack(ctx, s.shard, b)
	return nil, r.hindered(ctx, s, err)
}

// items returns the jobs of the batch as they are sent; none for a void one.
func (b *batch) items() ([]store.Item, error) {
	if b.void {
		return nil, nil
	}
	items := make([]store.Item, len(b.rows))
	for i, w := range b.rows {
		from := w.born
		if w.parcel.Due.After(from) {
			from = w.parcel.Due
		}
		item, err := w.parcel.Item(max(b.now.Sub(from), 0))
		if err != nil {
			return nil, err
		}
		if b.again {
			item.IfAbsent()
		}
		items[i] = item
	}
	return items, nil
}

// sort sorts the rows of a batch that was sent by what became of them.
func (r *Relay) sort(ctx context.Context, q *store.Queue, s *shardState, b *batch, fates store.Fates) (*sent, error) {
	done := &sent{batch: b, dead: make(map[int64]string)}
	var out []int // rows of a batch that was sent again, and that were left out
	enqueued, left := 0, 0
	for i, w := range b.rows {
		switch fate := fates.Of(i); {
		case fate.In() || fate == store.Updated:
			enqueued++
		case b.again:
			out = append(out, i)
		default:
			done.gone = append(done.gone, w.pos)
			left++
		}
	}
	if len(out) > 0 {
		parcels := make([]store.Parcel, len(out))
		for k, i := range out {
			parcels[k] = b.rows[i].parcel
		}
		own, err := q.Outboxes().Has(ctx, parcels)
		if err != nil {
			return nil, err
		}
		for k, i := range out {
			pos := b.rows[i].pos
			switch fate := fates.Of(i); {
			case own[k]:
			case fate == store.MetDead || fate == store.MetCancelled || fate == store.MetCompleted:
				done.refused = append(done.refused, pos) // the first time it took the place of that job
			default:
				done.dead[pos] = "Redis had lost the job, and by now another one has its ID or its unique key"
			}
		}
	}
	r.enqueued.Add(int64(enqueued))
	r.metrics.Relayed(ctx, s.namespace, s.queue, telemetry.RowEnqueued, enqueued)
	r.metrics.Relayed(ctx, s.namespace, s.queue, telemetry.RowLeftOut, left)
	r.died(ctx, s, done)
	return done, nil
}

// died logs the rows that can't be enqueued.
func (r *Relay) died(ctx context.Context, s *shardState, done *sent) {
	for pos, reason := range done.dead {
		r.metrics.Relayed(ctx, s.namespace, s.queue, telemetry.RowDead, 1)
		r.log.LogAttrs(ctx, slog.LevelError, "outbox: a row can't be enqueued, and is in the table signalbox_outbox_dead now",
			slog.String("shard", s.name), slog.Int64("pos", pos), slog.String("reason", reason))
	}
}

// voided returns what to note about a batch that can't be sent any more: its rows wait again, and go in smaller batches. One that Redis refused alone is dead.
func (r *Relay) voided(s *shardState, b *batch) *sent {
	done := &sent{batch: b, void: true, dead: make(map[int64]string)}
	if len(b.rows) == 1 && s.refusal.of == b.place {
		done.dead[b.rows[0].pos] = s.refusal.why
		r.died(context.Background(), s, done)
	}
	s.refusal = refusal{}
	return done
}

// A refusal is why Redis, or this relay, refused a batch because of its rows.
type refusal struct {
	of  store.Place
	why string
}

// refused notes that a batch is refused because of one of its rows. After some tries the batch is to become void: only then it is certain that Redis will never have it.
func (r *Relay) refused(ctx context.Context, s *shardState, b *batch, err error) time.Duration {
	s.refusal = refusal{b.place, err.Error()}
	query := "UPDATE signalbox_outbox_batch SET until = 0 WHERE shard = ? AND seq = ? AND nonce IN (?, ?) AND sent = 0"
	if b.tries >= maxTries {
		query = "UPDATE signalbox_outbox_batch SET until = 0, void = 1 WHERE shard = ? AND seq = ? AND nonce IN (?, ?) AND sent = 0"
	}
	_, dbErr := r.plain().exec(ctx, query, s.name, b.place.Seq, b.place.Nonce, b.place.Void().Nonce)
	r.failed(ctx, "note a refusal", dbErr)
	r.failed(ctx, fmt.Sprintf("enqueue a batch of %d rows of shard %s", len(b.rows), s.name), err)
	return 50 * time.Millisecond
}

// crowded is what follows if the queue has room for fewer jobs than the batch has: others have taken it since the batch was made. If it has some, the batch becomes void, and
// its rows go in smaller ones: a large batch would never find the room that producers take one by one. If it has none, the batch waits.
func (r *Relay) crowded(ctx context.Context, s *shardState, b *batch, room int64) time.Duration {
	if room <= 0 {
		r.giveBack(ctx, s.shard, b)
		return fullPause
	}
	_, err := r.plain().exec(ctx, "UPDATE signalbox_outbox_batch SET until = 0, void = 1 WHERE shard = ? AND seq = ? AND nonce IN (?, ?) AND sent = 0 AND again = 0", s.name, b.place.Seq, b.place.Nonce, b.place.Void().Nonce)
	if r.failed(ctx, "note that a batch has no room", err) {
		return time.Second
	}
	return 10 * time.Millisecond
}

// giveBack lets others send the batch at once. The try doesn't count: it says nothing about the rows.
func (r *Relay) giveBack(ctx context.Context, s shard, b *batch) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, err := r.plain().exec(ctx, "UPDATE signalbox_outbox_batch SET until = 0, tries = tries - 1 WHERE shard = ? AND seq = ? AND nonce IN (?, ?) AND sent = 0 AND tries > 0", s.name, b.place.Seq, b.place.Nonce, b.place.Void().Nonce)
	r.failed(ctx, "give a batch back", err)
}
