package redistest_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	c := redistest.Cluster(t)
	rdb := c.Client()
	if _, ok := rdb.(*redis.ClusterClient); !ok {
		t.Fatalf("the client is a %T", rdb)
	}
	for i := range 50 {
		if err := rdb.Set(bg, fmt.Sprint("k", i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for i, m := range c.Masters() {
		if n := m.Client().DBSize(bg).Val(); n == 0 {
			t.Errorf("master %d has none of 50 keys", i)
		}
	}
}

func TestClusterFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	c := redistest.ClusterWithReplicas(t)
	rdb := c.Client()
	const key = "{queue}:n"
	count := func() {
		t.Helper()
		redistest.Eventually(t, func() bool { return rdb.Incr(bg, key).Err() == nil }, "INCR succeeds")
	}
	count()
	c.Failover(t, key)
	count()
	if got := rdb.Get(bg, key).Val(); got != "2" {
		t.Errorf("%s after a failover in good order, want 2", got)
	}
	old := c.KillMaster(t, key)
	rdb.(*redis.ClusterClient).ReloadState(bg) // otherwise it does so once a minute
	count()
	old.Restart()
	node := old.Client()
	redistest.Eventually(t, func() bool {
		role, err := node.Do(bg, "ROLE").Slice()
		return err == nil && role[0] == "slave"
	}, "the old master is a replica")
}
