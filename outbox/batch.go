package outbox

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// errBad makes database/sql close a connection.
var errBad = driver.ErrBadConn

// A row is a job that waits.
type row struct {
	pos    int64
	parcel store.Parcel
	born   time.Time
}

// A batch is a number of rows of a shard that a relay sends.
type batch struct {
	place store.Place
	after store.Place // what Redis must have before
	again bool        // Redis has lost it
	void  bool        // it is to become void
	tries int
	rows  []row
	now   time.Time // the database's clock
}

// A sent is a batch that Redis has, or that is void, before the database knows it.
type sent struct {
	*batch
	void    bool
	refused []int64 // rows that wait again
	gone    []int64 // rows that are left out, for good
	dead    map[int64]string
}

// A head is the row of a shard.
type head struct {
	seq         int64
	lane, floor store.Place
	most        int
	now         int64 // the database's clock, in µs
}

const selectHead = "SELECT seq, lane_seq, lane_nonce, floor_seq, floor_nonce, most, {now} FROM signalbox_outbox_shard WHERE shard = ?"

// lock locks the row of a shard. It returns nil if another relay has it, and wait is not set.
func (t dbTx) lock(ctx context.Context, s shard, wait bool) (*head, error) {
	query := selectHead + "{skip}"
	if wait {
		query = selectHead + "{lock}"
	}
	var h head
	err := t.scan(ctx, query, []any{s.name}, &h.seq, &h.lane.Seq, &h.lane.Nonce, &h.floor.Seq, &h.floor.Nonce, &h.most, &h.now)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return &h, err
}

// step is one transaction: it notes in the database that done was sent, and takes the next batch of the shard. room is how many new rows it may
// have; below 0: no batch is taken. floor is the place behind
// which to look for rows. It returns nil if there is none, or if another relay is at it.
func (r *Relay) step(ctx context.Context, s *shardState, done *sent, room int64, floor int64) (next *batch, err error) {
	missing := false
	err = r.inTx(ctx, func(ctx context.Context, t dbTx) error {
		next, missing = nil, false
		h, err := t.lock(ctx, s.shard, done != nil)
		if err != nil || h == nil {
			missing = err == nil
			return err
		}
		if done != nil {
			if err := t.settle(ctx, s.shard, h, done); err != nil {
				return err
			}
		}
		if room < 0 {
			return nil
		}
		if next, err = r.unsent(ctx, t, s.shard, h); err != nil || next != nil {
			if next != nil && next.rows == nil && !next.void && !next.again { // another relay has it
				next = nil
			}
			return err
		}
		if room > 0 {
			next, err = r.pick(ctx, t, s.shard, h, room, floor)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if missing && done == nil {
		_, err = r.plain().ExecContext(ctx, r.cfg.Dialect.ignore("signalbox_outbox_shard (shard) VALUES (?)"), s.name)
	}
	return next, err
}

// settle notes that a batch was sent. It does nothing if another relay did.
func (t dbTx) settle(ctx context.Context, s shard, h *head, done *sent) error {
	var first sql.NullInt64
	if err := t.scan(ctx, "SELECT MIN(seq) FROM signalbox_outbox_batch WHERE shard = ? AND sent = 0", []any{s.name}, &first); err != nil {
		return err
	}
	if first.Int64 != done.place.Seq || done.place.Seq <= h.lane.Seq {
		return nil // Redis went back since, so that an earlier batch is sent again: this one comes after it
	}
	place, most := done.place, min(2*h.most, maxBatchRows)
	if done.void {
		place, most = place.Void(), max(len(done.rows)/2, 1)
	}
	n, err := t.exec(ctx, "UPDATE signalbox_outbox_batch SET sent = {now}, void = 0, nonce = ? WHERE shard = ? AND seq = ? AND nonce IN (?, ?) AND sent = 0", place.Nonce, s.name, place.Seq, done.place.Nonce, done.place.Void().Nonce)
	if err != nil || n == 0 {
		return err
	}
	h.lane = place
	if done.void {
		// Later batches, which there are only after Redis went back, expect this one as it was.
		if err := t.requeue(ctx, s, "seq > ?", place.Seq); err != nil {
			return err
		}
		if len(done.dead) == 0 {
			if _, err := t.exec(ctx, "UPDATE signalbox_outbox SET batch = 0 WHERE shard = ? AND batch = ?", s.name, done.place.Seq); err != nil {
				return err
			}
		}
	}
	h.most = most
	if _, err := t.exec(ctx, "UPDATE signalbox_outbox_shard SET lane_seq = ?, lane_nonce = ?, most = ? WHERE shard = ?", h.lane.Seq, h.lane.Nonce, most, s.name); err != nil {
		return err
	}
	for _, row := range done.rows {
		if reason, ok := done.dead[row.pos]; ok {
			if err := t.bury(ctx, row.pos, reason); err != nil {
				return err
			}
		}
	}
	if len(done.refused) > 0 {
		if _, err := t.exec(ctx, "UPDATE signalbox_outbox SET batch = 0 WHERE pos IN "+list(done.refused)); err != nil {
			return err
		}
	}
	if len(done.gone) > 0 {
		_, err = t.exec(ctx, "DELETE FROM signalbox_outbox WHERE pos IN "+list(done.gone))
	}
	return err
}

// bury moves a row to those that can't be enqueued.
func (t dbTx) bury(ctx context.Context, pos int64, reason string) error {
	if len(reason) > 1000 {
		reason = strings.ToValidUTF8(reason[:1000], "") // PostgreSQL refuses half a character
	}
	if _, err := t.exec(ctx, `INSERT INTO signalbox_outbox_dead (pos, shard, id, class, due, born, envelope, reason, died)
		SELECT pos, shard, id, class, due, born, envelope, ?, {now} FROM signalbox_outbox WHERE pos = ?`, reason, pos); err != nil {
		return err
	}
	_, err := t.exec(ctx, "DELETE FROM signalbox_outbox WHERE pos = ?", pos)
	return err
}

// unsent returns the first batch that isn't known to be in Redis, or nil. If another relay is at it, the batch has no rows.
func (r *Relay) unsent(ctx context.Context, t dbTx, s shard, h *head) (*batch, error) {
	b := &batch{after: h.lane, now: time.UnixMicro(h.now)}
	var again, void, until int64
	err := t.scan(ctx, "SELECT seq, nonce, again, void, tries, until FROM signalbox_outbox_batch WHERE shard = ? AND sent = 0 ORDER BY seq LIMIT 1", []any{s.name},
		&b.place.Seq, &b.place.Nonce, &again, &void, &b.tries, &until)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if until > h.now && until <= h.now+maxTakeOver.Microseconds() { // else the clock went back
		return &batch{}, nil
	}
	name, voided := strings.CutSuffix(b.place.Nonce, "v") // it is void, and Redis has lost that
	b.place.Nonce = name
	b.again, b.void = again != 0, void != 0 || voided
	b.tries++
	if _, err := t.exec(ctx, "UPDATE signalbox_outbox_batch SET tries = tries + 1, until = ? WHERE shard = ? AND seq = ?", h.now+r.cfg.TakeOver.Microseconds(), s.name, b.place.Seq); err != nil {
		return nil, err
	}
	b.rows, err = t.rows(ctx, s, maxBatchRows, 0, "WHERE batch = ? AND shard = ? ORDER BY pos", b.place.Seq, s.name)
	if len(b.rows) == 0 {
		b.void = true
	}
	return b, err
}

// rows reads rows of a shard. They have at most so many bytes, if that isn't 0, or are one.
func (t dbTx) rows(ctx context.Context, s shard, most, bytes int, where string, args ...any) (rows []row, err error) {
	size := 0
	err = t.each(ctx, fmt.Sprintf("SELECT pos, id, class, due, born, envelope FROM signalbox_outbox %s LIMIT %d", where, most), args, func(scan func(...any) error) (bool, error) {
		var w row
		var due, born int64
		if err := scan(&w.pos, &w.parcel.ID, &w.parcel.Class, &due, &born, &w.parcel.Envelope); err != nil {
			return false, err
		}
		if due > 0 {
			w.parcel.Due = time.UnixMicro(due)
		}
		w.born = time.UnixMicro(born)
		if s.strict() {
			w.parcel = w.parcel.WithSequence(w.pos)
		}
		if size += len(w.parcel.Envelope); bytes > 0 && size > bytes && len(rows) > 0 {
			return false, nil
		}
		rows = append(rows, w)
		return true, nil
	})
	return rows, err
}

// pick makes a batch of rows that wait, or returns nil if there are none. Rows that can't be enqueued go where they wait for nobody.
func (r *Relay) pick(ctx context.Context, t dbTx, s shard, h *head, room, floor int64) (*batch, error) {
	rows, err := t.rows(ctx, s, int(min(max(int64(h.most), 1), maxBatchRows, room)), batchBytes, "WHERE batch = 0 AND shard = ? AND pos > ? ORDER BY pos", s.name, floor)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	b := &batch{place: store.Place{Seq: max(h.seq, h.lane.Seq) + 1, Nonce: nonce()}, after: h.lane, tries: 1, now: time.UnixMicro(h.now)}
	var list_ []int64
	for _, w := range rows {
		if _, err := w.parcel.Item(0); err != nil {
			if err := t.bury(ctx, w.pos, err.Error()); err != nil {
				return nil, err
			}
			r.metrics.Relayed(ctx, s.namespace, s.queue, telemetry.RowDead, 1)
			continue
		}
		b.rows, list_ = append(b.rows, w), append(list_, w.pos)
	}
	if len(b.rows) > 0 {
		n, err := t.exec(ctx, "UPDATE signalbox_outbox SET batch = ? WHERE batch = 0 AND pos IN "+list(list_), b.place.Seq)
		if err == nil && n != len(b.rows) {
			err = fmt.Errorf("outbox: shard %s: %d rows of %d could be taken: is another program writing to the tables?", s.name, n, len(b.rows))
		}
		if err != nil {
			return nil, err
		}
	} else {
		b.void = true
	}
	if _, err := t.exec(ctx, "INSERT INTO signalbox_outbox_batch (shard, seq, nonce, tries, until) VALUES (?, ?, ?, 1, ?)",
		s.name, b.place.Seq, b.place.Nonce, h.now+r.cfg.TakeOver.Microseconds()); err != nil {
		return nil, err
	}
	_, err = t.exec(ctx, "UPDATE signalbox_outbox_shard SET seq = ? WHERE shard = ?", b.place.Seq, s.name)
	return b, err
}

func nonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// shards calls do with the name of each shard that has rows which are in no batch.
func (t dbTx) shards(ctx context.Context, do func(name string) error) error {
	for last, than := "", ">="; ; than = ">" {
		var name sql.NullString
		if err := t.scan(ctx, "SELECT MIN(shard) FROM signalbox_outbox WHERE batch = 0 AND shard "+than+" ?", []any{last}, &name); err != nil {
			return err
		}
		if !name.Valid {
			return nil
		}
		last = name.String
		if err := do(last); err != nil {
			return err
		}
	}
}

// waiting returns the names of the shards that have rows or batches to send.
func (r *Relay) waiting(ctx context.Context) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	t := r.plain()
	seen := make(map[string]bool)
	err = t.shards(ctx, func(name string) error {
		names, seen[name] = append(names, name), true
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = t.each(ctx, fmt.Sprintf("SELECT DISTINCT shard FROM signalbox_outbox_batch WHERE sent = 0 AND (until <= {now} OR until > {now} + %d)", maxTakeOver.Microseconds()), nil, func(scan func(...any) error) (bool, error) {
		var name string
		err := scan(&name)
		if err == nil && !seen[name] {
			names, seen[name] = append(names, name), true
		}
		return true, err
	})
	return names, err
}
