package etcdlock

import (
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/locktest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	addr := sharedEtcd(t).Addr()
	locktest.Run(t, func(t testing.TB, ttl time.Duration) lock.Locker { return lockerOn(t, ttl, addr) }, locktest.Processes(addr))
}

// The same on three members, with clients that use all of them.
func TestConformanceOnThree(t *testing.T) {
	t.Parallel()
	all := addrs(servertest.Etcd(t, 3))
	locktest.Run(t, func(t testing.TB, ttl time.Duration) lock.Locker { return lockerOn(t, ttl, all...) })
}
