package fence

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// A Config says how a [DB] works. Zero values are defaults.
type Config struct {
	// Isolation is the level of the transactions. The default is sql.LevelReadCommitted, which is enough for the guards. sql.LevelRepeatableRead
	// and sql.LevelSerializable work as well, and replay more often. SQLite has one level: leave it 0.
	Isolation sql.IsolationLevel
	// Tries bounds how often a transaction is run: 1 to 1000. The default is 10.
	Tries int
}

// A DB runs guarded transactions on a pool of the caller's. It is safe for concurrent use.
type DB struct {
	pool    *sql.DB
	dialect Dialect
	cfg     Config
	now     func() time.Time
	limits  *atomic.Int32 // whether the database bounds waits for locks: one of the limits below
}

// New returns a DB. It makes no call. The pool stays the caller's to close. The error names every mistake, and wraps [ErrInvalid].
//
// In SQLite give the pool a busy timeout, such as the pragma busy_timeout=5000.
func New(pool *sql.DB, d Dialect, c Config) (*DB, error) {
	var errs []error
	if pool == nil {
		errs = append(errs, invalid("New needs a *sql.DB, not nil"))
	}
	if err := d.check(); err != nil {
		errs = append(errs, err)
	}
	if d == SQLite && c.Isolation != 0 {
		errs = append(errs, invalid("Isolation is %v; SQLite has one level, so leave it 0", c.Isolation))
	}
	switch c.Isolation {
	case sql.LevelDefault, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable:
	default:
		errs = append(errs, invalid("Isolation is %v; want ReadCommitted, RepeatableRead or Serializable", c.Isolation))
	}
	c.Tries = cmp.Or(c.Tries, 10)
	if c.Tries < 1 || c.Tries > 1000 {
		errs = append(errs, invalid("Tries is %d; want 1 to 1000", c.Tries))
	}
	if d != SQLite {
		c.Isolation = cmp.Or(c.Isolation, sql.LevelReadCommitted)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &DB{pool: pool, dialect: d, cfg: c, now: time.Now, limits: new(atomic.Int32)}, nil
}

// InTx runs fn in a transaction and commits it. If fn or a guard returns an error, it rolls back. After a serialization failure, a deadlock or
// a busy database it rolls back and runs fn again, after a short random delay. So fn must change nothing outside of the transaction. The
// errors that are replayed: PostgreSQL 40001 and 40P01; MariaDB 1213, 1205 and 1020; SQLite BUSY, also with code 517.
//
// SQLite's transactions begin with BEGIN IMMEDIATE, always.
//
// No statement waits for another transaction's locks without a bound. In PostgreSQL InTx sets lock_timeout to 10 s for its transaction, if the database, the role and the connection string set
// none. It looks for that in its first transaction. In MariaDB innodb_lock_wait_timeout counts, which is 50 s by default, and in SQLite the busy timeout. A guard that has waited for longer fails with
// [ErrBlocked]. After 10 s InTx doesn't replay what has failed by waiting.
//
// If the transaction has ended before fn returns, InTx returns an [ErrNoTransaction]: the database has ended it and fn overlooked the error, or fn has run a COMMIT or ROLLBACK. In MariaDB nothing of fn lands
// after that: the transaction runs without autocommit. In PostgreSQL and SQLite what fn did after it has been committed by itself. PostgreSQL is asked if a guard has written something.
//
// When ctx ends, the transaction is rolled back. InTx waits 3 s for that, in case the server hangs.
//
// The error is that of fn, of a guard or of the database. After an error of the commit nobody knows whether it was done, unless the error
// is one of the above.
func (db *DB) InTx(ctx context.Context, fn func(tx *Tx) error) error {
	return replay(ctx, db.dialect, db.cfg.Tries, func() error { return db.once(ctx, db.begin, fn) })
}

// Replay runs a transaction of your own until it succeeds, or fails for another reason than those of [DB.InTx]. attempt begins, commits, and
// rolls back after any error. It is called at most 10 times. With pgx:
//
//	err := fence.Replay(ctx, fence.PostgreSQL, func() error {
//		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//			return fence.Pgx(tx).Enter(ctx)
//		})
//	})
func Replay(ctx context.Context, d Dialect, attempt func() error) error {
	if err := d.check(); err != nil {
		return err
	}
	return replay(ctx, d, 10, attempt)
}

// maxWait bounds the wait for a lock, where nobody else does.
const maxWait = 10 * time.Second

func replay(ctx context.Context, d Dialect, tries int, attempt func() error) error {
	start := time.Now()
	for n := 1; ; n++ {
		err := attempt()
		if err == nil {
			return nil
		}
		f := d.faultOf(err)
		if f != faultReplay && f != faultBusy || ctx.Err() != nil {
			return err
		}
		if n >= tries || f == faultBusy && time.Since(start) >= maxWait {
			if f == faultBusy {
				return fmt.Errorf("%w: tried %d times: %w", ErrBlocked, n, err)
			}
			return fmt.Errorf("fence: the transaction failed %d times: %w", n, err)
		}
		// Equal jitter: a random time between half of a bound and the bound. It starts at 4 ms and doubles up to 256 ms.
		bound := 4 * time.Millisecond << min(n-1, 6)
		pause := time.NewTimer(bound/2 + rand.N(bound/2))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
}

// once runs fn in one transaction.
func (db *DB) once(ctx context.Context, begin func(context.Context) (*Tx, error), fn func(tx *Tx) error) (err error) {
	tx, err := begin(ctx)
	if err != nil {
		return withCause(ctx, err)
	}
	done := false
	defer func() {
		if !done { // also if fn panics
			tx.rollback()
		}
	}()
	if err = fn(tx); err == nil {
		err = tx.Err()
	} else if tx.Err() != nil && !errors.Is(err, tx.Err()) {
		err = errors.Join(err, tx.Err()) // the reason may be one to replay
	}
	if errors.Is(err, sql.ErrTxDone) {
		return withCause(ctx, err)
	}
	if err != nil {
		return err
	}
	done = true
	if err := tx.commit(); err != nil {
		return withCause(ctx, fmt.Errorf("fence: commit: %w", err))
	}
	return nil
}

// withCause adds to an error why ctx has ended, such as lock.ErrLost. database/sql says only that it has, or that the transaction was
// rolled back.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}
