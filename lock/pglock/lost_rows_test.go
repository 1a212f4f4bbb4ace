package pglock_test

import (
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/lock/pglock"
)

// What breaks a lock: its row is gone, or an old copy of it comes back, as after a backup was restored. A second holder
// gets in. The order of the tokens then rests on the server's clock: it breaks if that was ahead before.
func TestRowsAreLost(t *testing.T) {
	t.Parallel()
	pool := dial(t, sharedURL(t))
	a, b := locker(t, pool, pglock.Config{TTL: time.Minute}), locker(t, pool, pglock.Config{TTL: time.Minute})
	for name, forget := range map[string]string{
		"without a row":   "DELETE FROM signalbox_lock WHERE key = $1",
		"with an old row": "UPDATE signalbox_lock l SET token = o.token, holder = o.holder, since = o.since, until = o.until FROM old_rows o WHERE l.key = $1 AND o.key = l.key",
	} {
		for _, ahead := range []bool{false, true} {
			key := name
			if ahead {
				key += ", after a clock that was ahead"
			}
			if err := acquire(t, a, key).Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			exec(t, pool, "CREATE TABLE IF NOT EXISTS old_rows AS SELECT * FROM signalbox_lock WHERE false")
			exec(t, pool, "INSERT INTO old_rows SELECT * FROM signalbox_lock WHERE key = $1", []byte(key))
			if ahead {
				exec(t, pool, "UPDATE signalbox_lock SET token = token + 3600000000 WHERE key = $1", []byte(key))
			}
			first := acquire(t, a, key)
			exec(t, pool, forget, []byte(key))
			second := acquire(t, b, key)
			if err := first.Context().Err(); err != nil {
				t.Fatalf("%s: the first holder's lease has ended: %v; is the machine too slow?", key, err)
			}
			if back := second.Token() <= first.Token(); back != ahead {
				t.Errorf("%s: token %d after %d", key, second.Token(), first.Token())
			}
			if err := second.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}
