package zklock

import (
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/locktest"
)

// Leases don't depend on sessions, so the suite needs no other TTLs than with Redis.
func TestConformance(t *testing.T) {
	t.Parallel()
	locktest.Run(t, func(t testing.TB, ttl time.Duration) lock.Locker { return locker(t, Config{TTL: ttl}) }, locktest.Processes(server(t)))
}
