package fence

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// maxSkew is how far the clocks of the database and of this process may be apart.
const maxSkew = time.Minute

// Check looks whether the guards can work: the tables are there, and the database's clock agrees with this process' to within a
// minute. Call it at the start. It doesn't look at the database's timeouts: [DB.InTx] bounds its waits by itself.
func (db *DB) Check(ctx context.Context) error {
	err := db.InTx(ctx, func(tx *Tx) error {
		var unused any
		st := tx.dialect.statements()
		for _, query := range []string{
			"SELECT name, issuer, holder, token FROM signalbox_fence WHERE 1 = 0",
			"SELECT namespace, effect, step, born, token, result FROM signalbox_once WHERE 1 = 0",
		} {
			if err := tx.conn.scan(ctx, query, nil, []any{&unused, &unused, &unused, &unused, &unused, &unused}); err != nil && !isNoRows(err) {
				return tx.dialect.explain("check", err)
			}
		}
		var born, within int64
		if err := tx.conn.scan(ctx, st.horizon, nil, []any{&born, &within}); isNoRows(err) {
			return noHorizon(tx.dialect, "check")
		} else if err != nil {
			return tx.dialect.explain("check", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, err = db.clock(ctx)
	return err
}

// clock returns the time, by the slower one of the clocks of the database and of this process.
func (db *DB) clock(ctx context.Context) (time.Time, error) {
	var us int64
	before := db.now()
	if err := db.pool.QueryRowContext(ctx, db.dialect.statements().clock).Scan(&us); err != nil {
		return time.Time{}, db.dialect.explain("read the clock", err)
	}
	after, theirs := db.now(), timeOf(us)
	if theirs.Before(before.Add(-maxSkew)) || theirs.After(after.Add(maxSkew)) {
		return time.Time{}, fmt.Errorf("fence: the clocks of the database and of this process differ by %v, and may differ by %v; set them, then try again", theirs.Sub(after).Round(time.Second), maxSkew)
	}
	if theirs.Before(before) {
		return theirs, nil
	}
	return before, nil
}

// Sweep forgets effects that were first asked for longer than keep ago. It returns how many records it deleted. Call it now and then, such as once
// a day from a cron entry. It may run in several processes, and beside all handlers. It waits for the transactions that call [Guard.Once] at that moment, for as long as ctx and the database's own bounds let it.
//
// Nothing is doubled by it: it first raises the horizon, then deletes what is older. What was born before the horizon and has no record is refused, with [ErrForgotten]. So
// keep must be longer than a job's retries take (102 to 204 h by default), with snoozes, pauses of queues, and retries of dead jobs. A month is a good value. It is at least
// a second.
//
// If the clocks of the database and of this process are more than a minute apart, Sweep does nothing and returns an error.
func (db *DB) Sweep(ctx context.Context, keep time.Duration) (deleted int64, err error) {
	if keep < time.Second {
		return 0, invalid("keep is %v; want at least a second, and rather a month", keep)
	}
	now, err := db.clock(ctx)
	if err != nil {
		return 0, err
	}
	before := now.Add(-keep).UnixMicro()
	if db.dialect != SQLite { // above that, MariaDB would lock the gaps between records
		sweeper := *db
		sweeper.cfg.Isolation = sql.LevelReadCommitted
		db = &sweeper
	}
	st := db.dialect.statements()
	// It waits for all transactions that have read the horizon. Those that read it later refuse what is older.
	err = db.patient(ctx, func(tx *Tx) error {
		rows, err := tx.conn.exec(ctx, st.lift, before)
		if err != nil {
			return tx.dialect.explain("sweep", err)
		}
		if rows == 0 {
			var born, within int64
			if err := tx.conn.scan(ctx, st.horizon, nil, []any{&born, &within}); isNoRows(err) {
				return noHorizon(tx.dialect, "sweep")
			}
		}
		return nil
	})
	for err == nil {
		var rows int64
		err = db.patient(ctx, func(tx *Tx) (err error) {
			if rows, err = tx.conn.exec(ctx, st.sweep, before); err != nil {
				return tx.dialect.explain("sweep", err)
			}
			return nil
		})
		if err == nil {
			deleted += rows
		}
		if rows < sweepBatch {
			break
		}
	}
	return deleted, err
}

// patient is InTx without a bound of its own on waits for locks.
func (db *DB) patient(ctx context.Context, fn func(tx *Tx) error) error {
	return replay(ctx, db.dialect, db.cfg.Tries, func() error { return db.once(ctx, db.beginPatient, fn) })
}

func timeOf(us int64) time.Time { return time.UnixMicro(us).UTC() }
