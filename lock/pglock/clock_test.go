package pglock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/pglock"
)

// What steps of the server's clock do. A step forward by more than a TTL ends leases whose holders believe in them, and
// tokens grow. After a step back the lock of a dead holder stays held for longer. A live holder extends and releases it
// as before, and tokens grow.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	base := dial(t, sharedURL(t))
	// Sessions with this search path see a clock that can be moved.
	exec(t, base, `
		CREATE SCHEMA stepped;
		CREATE TABLE stepped.shift (by interval NOT NULL);
		INSERT INTO stepped.shift VALUES ('0');
		CREATE FUNCTION stepped.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql
		AS 'SELECT pg_catalog.clock_timestamp() + by FROM stepped.shift'`)
	stepped := func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["search_path"] = "stepped,pg_catalog,public" }
	shift := func(by string) { exec(t, base, "UPDATE stepped.shift SET by = $1::text::interval", by) }
	a := locker(t, dial(t, sharedURL(t), stepped), pglock.Config{TTL: time.Minute})
	b := locker(t, dial(t, sharedURL(t), stepped), pglock.Config{TTL: time.Minute})

	first := acquire(t, a, "clock")
	shift("1 hour")
	second := acquire(t, b, "clock")
	if second.Token() <= first.Token() {
		t.Errorf("after a step forward: token %d after %d", second.Token(), first.Token())
	}
	if err := first.Context().Err(); err != nil {
		t.Errorf("the first holder: %v; documentation says that it still believes", err)
	}
	if err := first.Extend(t.Context()); !errors.Is(err, lock.ErrTaken) {
		t.Errorf("the first holder extends: %v; want ErrTaken", err)
	}

	shift("0")
	if err := second.Extend(t.Context()); err != nil {
		t.Errorf("after a step back: extended: %v", err)
	}
	if info, err := b.Inspect(t.Context(), "clock"); err != nil || info.For < 59*time.Minute {
		t.Errorf("after a step back: %+v, %v; documentation says that it stays held for longer", info, err)
	}
	if err := second.Release(t.Context()); err != nil {
		t.Errorf("after a step back: released: %v", err)
	}
	if third := acquire(t, a, "clock"); third.Token() <= second.Token() {
		t.Errorf("after a step back: token %d after %d", third.Token(), second.Token())
	}
}
