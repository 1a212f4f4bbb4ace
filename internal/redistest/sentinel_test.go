package redistest_test

import (
	"testing"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

func TestSentinelFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	s := redistest.Sentinel(t)
	rdb := s.Client()
	count := func() {
		t.Helper()
		redistest.Eventually(t, func() bool { return rdb.Incr(bg, "n").Err() == nil }, "INCR succeeds")
	}
	count()
	first := s.Master()
	s.Failover(t)
	if s.Master().Addr() == first.Addr() {
		t.Error("the same master after a failover")
	}
	count()
	if old := s.KillMaster(t); old.Addr() == first.Addr() || s.Master().Addr() != first.Addr() {
		t.Error("the second failover did not bring the first master back")
	}
	count()
}
