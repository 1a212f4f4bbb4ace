package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"

	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// look compares the lanes of all shards with what the database has of them. Where they agree, it deletes what was sent longer ago than the window.
func (r *Relay) look(ctx context.Context) error {
	type known struct {
		shard
		lane, floor store.Place
	}
	var now int64
	queues := make(map[string][]known)
	err := r.plain().each(ctx, "SELECT shard, lane_seq, lane_nonce, floor_seq, floor_nonce, {now} FROM signalbox_outbox_shard", nil, func(scan func(...any) error) (bool, error) {
		var name string
		var k known
		if err := scan(&name, &k.lane.Seq, &k.lane.Nonce, &k.floor.Seq, &k.floor.Nonce, &now); err != nil {
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
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for i, k := range list {
			if last[i] != k.lane {
				err = r.mend(ctx, k.shard)
			} else if k.lane != k.floor {
				err = r.purge(ctx, k.shard, k.lane, now-r.cfg.Window.Microseconds())
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// mend makes the database agree with Redis about which batch of a shard was the last one. It decides while it has the lock of the shard.
func (r *Relay) mend(ctx context.Context, s shard) error {
	var repair, detail string
	err := r.inTx(ctx, func(ctx context.Context, t dbTx) error {
		repair, detail = "", ""
		h, err := t.lock(ctx, s, true)
		if err != nil || h == nil {
			return err
		}
		places, err := r.queue(ctx, s).Relayed(ctx, r.box, s.number)
		if err != nil {
			return err
		}
		last := places[0]
		if last == h.lane {
			return nil
		}
		var nonce string
		var seq, sent int64
		err = t.scan(ctx, "SELECT seq, nonce FROM signalbox_outbox_batch WHERE shard = ? AND sent = 0 ORDER BY seq LIMIT 1", []any{s.name}, &seq, &nonce)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if err == nil && last == (store.Place{Seq: seq, Nonce: nonce}) {
			return nil // it is sent once more, which notes it
		}
		nonce = ""
		err = t.scan(ctx, "SELECT nonce, sent FROM signalbox_outbox_batch WHERE shard = ? AND seq = ?", []any{s.name, last.Seq}, &nonce, &sent)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		requeue := false
		switch known := nonce == last.Nonce && sent > 0 || last == h.floor; {
		case last.Seq > h.lane.Seq:
			repair, requeue = telemetry.RepairDatabase, true
			detail = fmt.Sprintf("the database went back: its last batch is %d, and that of Redis is %d; jobs may be enqueued twice, and those of transactions that the database lost are in Redis", h.lane.Seq, last.Seq)
		case known:
			repair = telemetry.RepairRedis
			detail = fmt.Sprintf("Redis has lost batches %d to %d: they are sent again", last.Seq+1, h.lane.Seq)
		case last.Seq < h.floor.Seq:
			repair = telemetry.RepairLost
			detail = fmt.Sprintf("Redis has lost batches %d to %d: those up to %d are lost, as they were sent longer ago than the window; the others are sent again", last.Seq+1, h.lane.Seq, h.floor.Seq)
		default:
			repair, requeue = telemetry.RepairFork, true
			detail = fmt.Sprintf("the database and Redis went back: Redis has a batch %d that the database doesn't know; what was sent lately is enqueued again, and jobs may be enqueued twice", last.Seq)
		}
		if requeue { // what the database has under these numbers isn't what Redis has
			which := "seq <= ? AND sent = 0"
			if repair == telemetry.RepairFork {
				which = "seq <= ?"
			}
			if _, err := t.exec(ctx, "UPDATE signalbox_outbox SET batch = 0 WHERE shard = ? AND batch IN (SELECT seq FROM signalbox_outbox_batch WHERE shard = ? AND "+which+")", s.name, s.name, last.Seq); err != nil {
				return err
			}
			if _, err := t.exec(ctx, "DELETE FROM signalbox_outbox_batch WHERE shard = ? AND "+which, s.name, last.Seq); err != nil {
				return err
			}
		}
		if _, err := t.exec(ctx, "UPDATE signalbox_outbox_batch SET sent = 0, again = 1, tries = 0, until = 0 WHERE shard = ? AND seq > ? AND sent > 0", s.name, last.Seq); err != nil {
			return err
		}
		_, err = t.exec(ctx, "UPDATE signalbox_outbox_shard SET lane_seq = ?, lane_nonce = ?, seq = ? WHERE shard = ?", last.Seq, last.Nonce, max(h.seq, last.Seq), s.name)
		return err
	})
	if err != nil || repair == "" {
		return err
	}
	level := slog.LevelError
	if repair == telemetry.RepairRedis {
		level = slog.LevelWarn
	}
	r.metrics.Repaired(ctx, s.queue, repair)
	r.log.LogAttrs(ctx, level, "outbox: "+detail, slog.String("shard", s.name), slog.String("queue", s.queue), slog.String("reason", repair))
	return nil
}

// purged is how many batches a transaction deletes.
const purged = 4

// purge deletes batches that were sent before a time of the database's clock, and their rows. lane is what Redis had at a later time.
func (r *Relay) purge(ctx context.Context, s shard, lane store.Place, before int64) error {
	for {
		n := 0
		err := r.inTx(ctx, func(ctx context.Context, t dbTx) error {
			n = 0
			h, err := t.lock(ctx, s, false)
			if err != nil || h == nil || h.lane.Seq < lane.Seq {
				return err
			}
			var floor store.Place
			err = t.each(ctx, fmt.Sprintf("SELECT seq, nonce, sent FROM signalbox_outbox_batch WHERE shard = ? AND seq <= ? ORDER BY seq LIMIT %d", purged), []any{s.name, lane.Seq},
				func(scan func(...any) error) (bool, error) {
					var p store.Place
					var sent int64
					if err := scan(&p.Seq, &p.Nonce, &sent); err != nil || sent == 0 || sent >= before {
						return false, err
					}
					n, floor = n+1, p
					return true, nil
				})
			if err != nil || n == 0 {
				return err
			}
			// Each statement names its batches, so that the index on them is used.
			if _, err := t.exec(ctx, "DELETE FROM signalbox_outbox WHERE shard = ? AND batch > 0 AND batch <= ?", s.name, floor.Seq); err != nil {
				return err
			}
			if _, err := t.exec(ctx, "DELETE FROM signalbox_outbox_batch WHERE shard = ? AND seq <= ?", s.name, floor.Seq); err != nil {
				return err
			}
			_, err = t.exec(ctx, "UPDATE signalbox_outbox_shard SET floor_seq = ?, floor_nonce = ? WHERE shard = ?", floor.Seq, floor.Nonce, s.name)
			return err
		})
		if err != nil || n < purged {
			return err
		}
	}
}
