package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// look compares the lanes of all shards with what the database has of them, and attends to those where they differ or something can be deleted.
func (r *Relay) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	type known struct {
		shard
		lane, floor store.Place
	}
	queues := make(map[string][]known)
	err := r.plain().each(ctx, "SELECT shard, lane_seq, lane_nonce, floor_seq, floor_nonce FROM signalbox_outbox_shard", nil, func(scan func(...any) error) (bool, error) {
		var name string
		var k known
		if err := scan(&name, &k.lane.Seq, &k.lane.Nonce, &k.floor.Seq, &k.floor.Nonce); err != nil {
			return false, err
		}
		if s, ok := parseShard(name); ok {
			k.shard = s
			queues[s.namespace+":"+s.queue] = append(queues[s.namespace+":"+s.queue], k)
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, list := range queues {
		numbers := make([]int, len(list))
		for i, k := range list {
			numbers[i] = k.number
		}
		last, err := r.queue(ctx, list[0].shard).Outboxes().Relayed(ctx, r.box, numbers...)
		errs = append(errs, err)
		for i := range last {
			k := list[i]
			if last[i] != k.lane || k.lane != k.floor {
				errs = append(errs, r.attend(ctx, k.shard))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if len(queues) > 0 {
		r.recovered(ctx, "reach Redis")
	}
	return nil
}

// attend makes the database agree with Redis about which batch of a shard was the last one, and deletes what was sent longer ago than the window. It decides
// while it has the lock of the shard.
func (r *Relay) attend(ctx context.Context, s shard) error {
	for {
		n := 0
		var found *repair
		err := r.inTx(ctx, func(ctx context.Context, t dbTx) error {
			n, found = 0, nil
			h, err := t.lock(ctx, s, true)
			if err != nil || h == nil {
				return err
			}
			places, err := r.queue(ctx, s).Outboxes().Relayed(ctx, r.box, s.number)
			if err != nil {
				return err
			}
			if found, err = t.mend(ctx, s, h, places[0]); err == nil && found == nil {
				n, err = t.purge(ctx, s, h, r.cfg.Window)
			}
			return err
		})
		if err != nil {
			return err
		}
		if found != nil {
			level := slog.LevelError
			if found.reason == telemetry.RepairRedis && !found.all {
				level = slog.LevelWarn
			}
			r.metrics.Repaired(ctx, s.namespace, s.queue, found.reason)
			r.log.LogAttrs(ctx, level, "outbox: "+found.text, slog.String("shard", s.name), slog.String("queue", s.queue), slog.String("reason", found.reason))
		}
		if n < purged {
			return nil
		}
	}
}

// A repair is what mend did.
type repair struct {
	reason, text string
	all          bool // Redis has no batch
}

// mend repairs what the database has of a shard. last is the shard's last batch in Redis. It returns nil if nothing is wrong.
func (t dbTx) mend(ctx context.Context, s shard, h *head, last store.Place) (*repair, error) {
	if last == h.lane {
		return nil, nil
	}
	var own store.Place // the batch of that number in the database
	var sent int64
	err := t.scan(ctx, "SELECT seq, nonce, sent FROM signalbox_outbox_batch WHERE shard = ? AND seq = ?", []any{s.name, last.Seq}, &own.Seq, &own.Nonce, &sent)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	known := err == nil && own == last
	voided := err == nil && own.Void() == last
	if (known || voided) && sent == 0 {
		// It is sent once more, which notes what became of it. Late calls have put in all before it.
		return nil, t.sentBefore(ctx, s, last.Seq)
	}
	var found repair
	requeue := "" // of which batches the rows are to wait again: what they expect in Redis can't come
	switch {
	case known || last == h.floor:
		found = repair{reason: telemetry.RepairRedis, text: fmt.Sprintf("Redis has lost batches %d to %d: they are sent again", last.Seq+1, h.lane.Seq)}
		if last.Seq == 0 {
			found = repair{reason: telemetry.RepairRedis, text: fmt.Sprintf("Redis has no batch, and it had %d: has it lost everything, or is it another one? What the database still has is sent again", h.lane.Seq), all: true}
		}
	case voided:
		requeue = "seq >= ?"
		found = repair{reason: telemetry.RepairRedis, text: fmt.Sprintf("Redis has lost batches %d to %d: their jobs are enqueued again", last.Seq, h.lane.Seq)}
	case err == nil && last.Void() == own:
		found = repair{reason: telemetry.RepairFork, text: fmt.Sprintf("Redis went back, and a late call has put batch %d in, whose jobs were enqueued in other ones: jobs may be enqueued twice", last.Seq)}
	case last.Seq <= h.floor.Seq:
		found = repair{reason: telemetry.RepairLost, text: fmt.Sprintf("Redis has lost batches %d to %d: those up to %d are lost, as they were sent longer ago than the window; the others are sent again", last.Seq+1, h.lane.Seq, h.floor.Seq)}
	case last.Seq > h.lane.Seq:
		requeue = "seq <= ? AND sent = 0"
		found = repair{reason: telemetry.RepairDatabase, text: fmt.Sprintf("the database went back: its last batch is %d, and that of Redis is %d; jobs may be enqueued twice, and those of transactions that the database lost are in Redis", h.lane.Seq, last.Seq)}
	default:
		requeue = "seq <= ?"
		found = repair{reason: telemetry.RepairFork, text: fmt.Sprintf("the database and Redis went back: Redis has a batch %d that the database doesn't know; what was sent in the window is enqueued again, so that jobs may be enqueued twice; what is older may be lost", last.Seq)}
	}
	if requeue != "" {
		if err := t.requeue(ctx, s, requeue, last.Seq); err != nil {
			return nil, err
		}
	}
	if _, err := t.exec(ctx, "UPDATE signalbox_outbox_batch SET sent = 0, again = 1, tries = 0, until = 0 WHERE shard = ? AND seq > ? AND sent > 0", s.name, last.Seq); err != nil {
		return nil, err
	}
	_, err = t.exec(ctx, "UPDATE signalbox_outbox_shard SET lane_seq = ?, lane_nonce = ?, seq = ? WHERE shard = ?", last.Seq, last.Nonce, max(h.seq, last.Seq), s.name)
	return &found, err
}

// sentBefore notes that all batches below a number are in Redis. The lane that the database knows is never below a batch that it notes as sent.
func (t dbTx) sentBefore(ctx context.Context, s shard, seq int64) error {
	var p store.Place
	err := t.scan(ctx, "SELECT seq, nonce FROM signalbox_outbox_batch WHERE shard = ? AND seq < ? AND sent = 0 ORDER BY seq DESC LIMIT 1", []any{s.name, seq}, &p.Seq, &p.Nonce)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := t.exec(ctx, "UPDATE signalbox_outbox_batch SET sent = {now}, void = 0 WHERE shard = ? AND seq < ? AND sent = 0", s.name, seq); err != nil {
		return err
	}
	_, err = t.exec(ctx, "UPDATE signalbox_outbox_shard SET lane_seq = ?, lane_nonce = ? WHERE shard = ?", p.Seq, p.Nonce, s.name)
	return err
}

// requeue has the rows of batches wait again, and deletes these batches. which is a condition on them.
func (t dbTx) requeue(ctx context.Context, s shard, which string, seq int64) error {
	var seqs []int64
	err := t.each(ctx, "SELECT seq FROM signalbox_outbox_batch WHERE shard = ? AND "+which, []any{s.name, seq}, func(scan func(...any) error) (bool, error) {
		var seq int64
		err := scan(&seq)
		seqs = append(seqs, seq)
		return true, err
	})
	if err != nil || len(seqs) == 0 {
		return err
	}
	if _, err := t.exec(ctx, "UPDATE signalbox_outbox SET batch = 0 WHERE shard = ? AND batch IN "+list(seqs), s.name); err != nil {
		return err
	}
	_, err = t.exec(ctx, "DELETE FROM signalbox_outbox_batch WHERE shard = ? AND seq IN "+list(seqs), s.name)
	return err
}

// purged is how many batches a transaction deletes.
const purged = 4

// purge deletes batches that were sent longer ago than the window, and their rows: the oldest ones, up to a batch that is younger or not sent. It returns how many.
// Redis has all of them: it was asked after h was read.
func (t dbTx) purge(ctx context.Context, s shard, h *head, window time.Duration) (int, error) {
	var floor store.Place
	var seqs []int64
	err := t.each(ctx, fmt.Sprintf("SELECT seq, nonce, sent FROM signalbox_outbox_batch WHERE shard = ? AND seq <= ? ORDER BY seq LIMIT %d", purged), []any{s.name, h.lane.Seq},
		func(scan func(...any) error) (bool, error) {
			var p store.Place
			var sent int64
			if err := scan(&p.Seq, &p.Nonce, &sent); err != nil || sent == 0 || sent >= h.now-window.Microseconds() {
				return false, err
			}
			floor, seqs = p, append(seqs, p.Seq)
			return true, nil
		})
	if err != nil || len(seqs) == 0 {
		return 0, err
	}
	if _, err := t.exec(ctx, "DELETE FROM signalbox_outbox WHERE shard = ? AND batch IN "+list(seqs), s.name); err != nil {
		return 0, err
	}
	if _, err := t.exec(ctx, "DELETE FROM signalbox_outbox_batch WHERE shard = ? AND seq IN "+list(seqs), s.name); err != nil {
		return 0, err
	}
	_, err = t.exec(ctx, "UPDATE signalbox_outbox_shard SET floor_seq = ?, floor_nonce = ? WHERE shard = ?", floor.Seq, floor.Nonce, s.name)
	return len(seqs), err
}
