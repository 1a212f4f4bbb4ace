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
		last, err := r.queue(ctx, list[0].shard).Relayed(ctx, r.box, numbers...)
		errs = append(errs, err)
		for i := range last {
			k := list[i]
			if last[i] != k.lane || k.lane != k.floor {
				errs = append(errs, r.attend(ctx, k.shard))
			}
		}
	}
	return errors.Join(errs...)
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
			places, err := r.queue(ctx, s).Relayed(ctx, r.box, s.number)
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
			if found.reason == telemetry.RepairRedis {
				level = slog.LevelWarn
			}
			r.metrics.Repaired(ctx, s.queue, found.reason)
			r.log.LogAttrs(ctx, level, "outbox: "+found.text, slog.String("shard", s.name), slog.String("queue", s.queue), slog.String("reason", found.reason))
		}
		if n < purged {
			return nil
		}
	}
}

// A repair is what mend did.
type repair struct{ reason, text string }

// mend repairs what the database has of a shard. last is the shard's last batch in Redis. It returns nil if nothing is wrong.
func (t dbTx) mend(ctx context.Context, s shard, h *head, last store.Place) (*repair, error) {
	if last == h.lane {
		return nil, nil
	}
	// In the order of numbers: what Redis has of this one, all before it were put in before.
	var nonce string
	var sent int64
	err := t.scan(ctx, "SELECT nonce, sent FROM signalbox_outbox_batch WHERE shard = ? AND seq = ?", []any{s.name, last.Seq}, &nonce, &sent)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	known := err == nil && nonce == last.Nonce
	if known && sent == 0 { // it is sent once more, which notes it
		_, err := t.exec(ctx, "UPDATE signalbox_outbox_batch SET sent = {now} WHERE shard = ? AND seq < ? AND sent = 0", s.name, last.Seq)
		return nil, err
	}
	var found repair
	var requeue string // which batches have numbers that stand for something else in Redis
	switch {
	case last.Seq > h.lane.Seq:
		requeue = "seq <= ? AND sent = 0"
		found = repair{telemetry.RepairDatabase, fmt.Sprintf("the database went back: its last batch is %d, and that of Redis is %d; jobs may be enqueued twice, and those of transactions that the database lost are in Redis", h.lane.Seq, last.Seq)}
	case known || last == h.floor:
		found = repair{telemetry.RepairRedis, fmt.Sprintf("Redis has lost batches %d to %d: they are sent again", last.Seq+1, h.lane.Seq)}
	case last.Seq < h.floor.Seq:
		found = repair{telemetry.RepairLost, fmt.Sprintf("Redis has lost batches %d to %d: those up to %d are lost, as they were sent longer ago than the window; the others are sent again", last.Seq+1, h.lane.Seq, h.floor.Seq)}
	default:
		requeue = "seq <= ?"
		found = repair{telemetry.RepairFork, fmt.Sprintf("the database and Redis went back: Redis has a batch %d that the database doesn't know; what was sent lately is enqueued again, and jobs may be enqueued twice", last.Seq)}
	}
	if requeue != "" {
		var seqs []int64
		err := t.each(ctx, "SELECT seq FROM signalbox_outbox_batch WHERE shard = ? AND "+requeue, []any{s.name, last.Seq}, func(scan func(...any) error) (bool, error) {
			var seq int64
			err := scan(&seq)
			seqs = append(seqs, seq)
			return true, err
		})
		if err != nil {
			return nil, err
		}
		if len(seqs) > 0 {
			if _, err := t.exec(ctx, "UPDATE signalbox_outbox SET batch = 0 WHERE shard = ? AND batch IN "+list(seqs), s.name); err != nil {
				return nil, err
			}
			if _, err := t.exec(ctx, "DELETE FROM signalbox_outbox_batch WHERE shard = ? AND seq IN "+list(seqs), s.name); err != nil {
				return nil, err
			}
		}
	}
	if _, err := t.exec(ctx, "UPDATE signalbox_outbox_batch SET sent = 0, again = 1, tries = 0, until = 0 WHERE shard = ? AND seq > ? AND sent > 0", s.name, last.Seq); err != nil {
		return nil, err
	}
	_, err = t.exec(ctx, "UPDATE signalbox_outbox_shard SET lane_seq = ?, lane_nonce = ?, seq = ? WHERE shard = ?", last.Seq, last.Nonce, max(h.seq, last.Seq), s.name)
	return &found, err
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
