package pglock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/pglock"
)

// What one release answers and remembers, by what the row has become, and by whether an earlier release may have freed the lock.
func TestReleaseByWhatTheRowHas(t *testing.T) {
	t.Parallel()
	direct := dial(t, sharedURL(t))
	p := locker(t, direct, pglock.Config{TTL: longTTL})
	readOnly := locker(t, dial(t, sharedURL(t), withSetting("default_transaction_read_only", "on")), pglock.Config{TTL: longTTL})
	const key = "what the row has"
	for name, c := range map[string]struct {
		row    string // what the row is set to
		refuse bool   // the server refuses the release
		asked  bool   // an earlier release may have freed the lock
		want   error
		again  bool // a later release has to know that this one, or an earlier one, may have freed the lock
	}{
		"it is held":                             {row: "until = until", again: true},
		"it was freed":                           {row: "until = 'epoch'", asked: true, again: true},
		"it has expired":                         {row: "until = now() - interval '1s'", want: lock.ErrExpired},
		"it has expired, maybe freed before":     {row: "until = now() - interval '1s'", asked: true, want: lock.ErrExpired, again: true},
		"another has it":                         {row: "holder = 'another'", want: lock.ErrTaken},
		"another has it, maybe freed before":     {row: "holder = 'another'", asked: true, again: true},
		"the row is gone":                        {row: "gone", want: lock.ErrExpired},
		"the server refuses":                     {row: "until = until", refuse: true},
		"the server refuses, maybe freed before": {row: "until = until", refuse: true, asked: true, again: true},
	} {
		l := acquire(t, p, key)
		if c.row == "gone" {
			exec(t, direct, "DELETE FROM signalbox_lock WHERE key = 'what the row has'::bytea")
		} else {
			exec(t, direct, "UPDATE signalbox_lock SET "+c.row+" WHERE key = 'what the row has'::bytea")
		}
		by := l
		if c.refuse {
			by = pglock.With(l, readOnly)
		}
		again, err := pglock.Send(t.Context(), by, c.asked)
		if c.refuse {
			if _, ok := errors.AsType[*pgconn.PgError](err); !ok {
				t.Errorf("%s: %v, want that the server refuses", name, err)
			}
		} else if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if again != c.again {
			t.Errorf("%s: a later release takes the lock for freed by this one: %v, want %v", name, again, c.again)
		}
		if c.row == "until = now() - interval '1s'" {
			if err := l.Extend(t.Context()); !errors.Is(err, lock.ErrExpired) || errors.Is(err, lock.ErrTaken) {
				t.Errorf("%s: extended: %v, want %v", name, err, lock.ErrExpired)
			}
		}
		exec(t, direct, "UPDATE signalbox_lock SET until = 'epoch' WHERE key = 'what the row has'::bytea")
	}
}

// A grant that comes when its TTL is over is no lock. It is given back.
func TestGrantedTooLate(t *testing.T) {
	t.Parallel()
	p := locker(t, dial(t, sharedURL(t)), pglock.Config{TTL: longTTL})
	l := acquire(t, p, "too late")
	if err := pglock.GrantedTooLate(t.Context(), l); !errors.Is(err, lock.ErrLost) {
		t.Errorf("granted: %v, want %v", err, lock.ErrLost)
	}
	heir, err := p.TryAcquire(t.Context(), "too late")
	if err != nil {
		t.Fatalf("it wasn't given back: %v", err)
	}
	if err := heir.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// Another process creates the row of a key while a caller asks for its lock: the caller's statement sees no row. It asks again, and learns that the lock is
// held.
func TestRowIsCreatedMeanwhile(t *testing.T) {
	t.Parallel()
	direct := dial(t, sharedURL(t))
	p := locker(t, dial(t, sharedURL(t)), pglock.Config{TTL: longTTL})
	warm(t, p)
	tx, err := direct.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }() // it was committed, unless the test has failed
	key := "meanwhile " + rand.Text()
	if _, err := tx.Exec(t.Context(), "INSERT INTO signalbox_lock (key, token, holder, owner, since, until, wanted) VALUES ($1, 1, 'another', '', now(), now() + interval '1h', false)", []byte(key)); err != nil {
		t.Fatal(err)
	}
	asked := make(chan error, 1)
	go func() {
		_, err := p.TryAcquire(t.Context(), key)
		asked <- err
	}()
	eventually(t, "the acquire waits for the other's row", func() bool {
		var n int
		err := direct.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted AND transactionid = (SELECT transactionid FROM pg_locks WHERE pid = $1 AND locktype = 'transactionid')", tx.Conn().PgConn().PID()).Scan(&n)
		return err == nil && n == 1
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-asked; !errors.Is(err, lock.ErrHeld) {
		t.Errorf("TryAcquire: %v, want %v", err, lock.ErrHeld)
	}
}
