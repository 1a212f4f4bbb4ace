package etcdlock

import (
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/locktest"
)

// shortest is the shortest lease that etcd grants. A shorter TTL leaves no time to a slow machine.
var shortest = locktest.MinTTL(2 * time.Second)

func TestConformance(t *testing.T) {
	t.Parallel()
	addr := sharedEtcd(t).Addr()
	locktest.Run(t, func(t testing.TB, ttl time.Duration) lock.Locker { return lockerOn(t, ttl, addr) }, shortest, locktest.Processes(addr))
}

// The same on three members, with clients that use all of them. It isn't parallel to other tests: on a busy machine three
// members elect leaders again and again. Patient members help too, and make the shortest lease one of 3 s.
func TestConformanceOnThree(t *testing.T) {
	all := addrs(servertest.Etcd(t, 3, "--heartbeat-interval=200", "--election-timeout=2000"))
	locktest.Run(t, func(t testing.TB, ttl time.Duration) lock.Locker { return lockerOn(t, ttl, all...) }, locktest.MinTTL(3*time.Second))
}
