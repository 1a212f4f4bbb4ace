package pglock_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/locktest"
	"github.com/signalbox-go/signalbox/lock/pglock"
)

// The locker keeps the promises of all lockers. Each has a pool of its own, as each process has.
func TestConformance(t *testing.T) {
	t.Parallel()
	locktest.Run(t, maker(sharedURL(t)), locktest.Processes(sharedURL(t)), busy)
}

// It keeps them in any session: without prepared statements, as some poolers need it, and where transactions are
// SERIALIZABLE by default.
func TestConformanceOfSessions(t *testing.T) {
	t.Parallel()
	serializable := func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
	}
	simple := func(c *pgxpool.Config) {
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	}
	locktest.Run(t, maker(sharedURL(t), serializable, simple), busy)
}

// busy makes the shortest lease last longer than a commit takes, and a new connection, where many tests share the machine.
var busy = locktest.MinTTL(3 * time.Second)

func maker(url string, change ...func(*pgxpool.Config)) locktest.Maker {
	return func(t testing.TB, ttl time.Duration) lock.Locker {
		t.Helper()
		return locker(t, dial(t, url, change...), pglock.Config{TTL: ttl})
	}
}
