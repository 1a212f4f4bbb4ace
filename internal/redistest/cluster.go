package redistest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const slots = 16384

// ClusterServers is a Redis Cluster of real processes: three masters that share the slots
// evenly, each with a replica if there are replicas.
type ClusterServers struct {
	t        testing.TB
	masters  []*Server // as at the start
	replicas []*Server // replicas[i] follows masters[i] at the start; none in a Cluster
	elected  map[*Server]time.Time
}

// electionPause is the time between two elections of a node. If a replica runs for master
// again within twice the node timeout (2 s at least), it counts the votes of its last
// election. Then it wins with an old epoch, and the others send its slots to the dead
// master forever (Redis 7.0).
const electionPause = 2500 * time.Millisecond

// Cluster starts three masters for this test. It returns when each of them reports that the
// cluster is healthy. Like [New] it needs a real redis-server.
func Cluster(t testing.TB) *ClusterServers {
	t.Helper()
	return newCluster(t, 0)
}

// ClusterWithReplicas is Cluster with one replica for each master. It returns when the
// replicas are in sync.
func ClusterWithReplicas(t testing.TB) *ClusterServers {
	t.Helper()
	return newCluster(t, 3)
}

func newCluster(t testing.TB, replicas int) *ClusterServers {
	t.Helper()
	timeout := "1000"
	if replicas == 0 {
		timeout = "20000" // nobody takes over, and on a busy machine masters are silent for a second
	}
	servers := newServers(t, 3+replicas, []string{
		"--cluster-enabled", "yes", "--cluster-node-timeout", timeout,
		"--cluster-allow-replica-migration", "no", "--cluster-replica-validity-factor", "0",
		"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1",
	})
	c := &ClusterServers{t: t, masters: servers[:3], replicas: servers[3:], elected: map[*Server]time.Time{}}
	for i, m := range c.masters {
		first, last := slots*i/3, slots*(i+1)/3-1
		m.admin("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last))
		m.admin("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
	}
	for _, s := range servers[1:] {
		host, port, _ := strings.Cut(c.masters[0].addr, ":")
		s.admin("CLUSTER", "MEET", host, port)
	}
	c.eventually(servers, func(s *Server) bool {
		return s.says("CLUSTER INFO", fmt.Sprintf("cluster_known_nodes:%d", len(servers)))
	}, "all nodes know each other")
	for i, r := range c.replicas {
		r.admin("CLUSTER", "REPLICATE", c.masters[i].admin("CLUSTER", "MYID"))
	}
	c.settled(servers)
	return c
}

// settled waits until every server reports a healthy cluster and the same masters, and
// every replica follows its master.
func (c *ClusterServers) settled(servers []*Server) {
	c.t.Helper()
	c.eventually(servers, func(s *Server) bool {
		return s.says("CLUSTER INFO", "cluster_state:ok", fmt.Sprint("cluster_slots_assigned:", slots), fmt.Sprint("cluster_slots_ok:", slots)) &&
			(s.says("INFO replication", "role:master") || s.says("INFO replication", "role:slave", "master_link_status:up")) &&
			s.owners() != "" && s.owners() == servers[0].owners()
	}, "the cluster is well")
}

// owners returns which node serves which slots and which node follows which, as this server
// sees it.
func (s *Server) owners() string {
	nodes, err := ask(s.addr, "CLUSTER", "NODES")
	if err != nil {
		return ""
	}
	var view []string
	for line := range strings.Lines(nodes) {
		f := strings.Fields(line)
		if len(f) < 8 {
			continue
		}
		flags := strings.TrimPrefix(f[2], "myself,")
		view = append(view, strings.Join(append([]string{f[0], flags, f[3]}, f[8:]...), " "))
	}
	slices.Sort(view)
	return strings.Join(view, "\n")
}

func (c *ClusterServers) eventually(servers []*Server, cond func(*Server) bool, msg string) {
	c.t.Helper()
	Eventually(c.t, func() bool {
		return !slices.ContainsFunc(servers, func(s *Server) bool { return !cond(s) })
	}, "%s", msg)
}

// Client returns a new *redis.ClusterClient. It is closed when the test ends.
func (c *ClusterServers) Client() redis.UniversalClient { c.t.Helper(); return c.ClientWith(nil) }

// ClientWith is Client with other options.
func (c *ClusterServers) ClientWith(change func(*redis.UniversalOptions)) redis.UniversalClient {
	c.t.Helper()
	return newClient(c.t, redis.UniversalOptions{Addrs: c.Addrs(), IsClusterMode: true}, change)
}

// Addrs returns the addresses of all nodes.
func (c *ClusterServers) Addrs() []string {
	var addrs []string
	for _, s := range c.servers() {
		addrs = append(addrs, s.addr)
	}
	return addrs
}

// Masters returns the nodes that were masters at the start, in the order of their slots.
func (c *ClusterServers) Masters() []*Server { return slices.Clone(c.masters) }

// Replicas returns the nodes that were replicas at the start. The i-th is the replica of
// the i-th master.
func (c *ClusterServers) Replicas() []*Server { return slices.Clone(c.replicas) }

func (c *ClusterServers) servers() []*Server { return slices.Concat(c.masters, c.replicas) }

// shard returns the index of the master that had this key's slot at the start.
func (c *ClusterServers) shard(key string) int {
	c.t.Helper()
	slot, err := strconv.Atoi(c.masters[0].admin("CLUSTER", "KEYSLOT", key))
	if err != nil {
		c.t.Fatalf("redistest: slot of %q: %v", key, err)
	}
	return min(slot*3/slots, 2)
}

// Failover promotes the replica of the master that serves the key. It uses CLUSTER
// FAILOVER: no write that was answered is lost. It returns when all nodes know the new
// master. It needs replicas. A node is not promoted twice within 2.5 s.
func (c *ClusterServers) Failover(t testing.TB, key string) {
	t.Helper()
	old, next := c.pair(t, key)
	next.admin("CLUSTER", "FAILOVER")
	c.promoted(t, next)
	Eventually(t, func() bool { return old.says("INFO replication", "role:slave") }, "%s is a replica", old.addr)
	c.settled(c.servers())
}

// KillMaster ends the master that serves the key by SIGKILL. It waits until the replica has
// taken over, which takes some 3 s. Writes that the replica had not received are lost. It
// needs replicas. It returns the old master, which can be started again with Restart.
//
// If the old master refuses connections, a go-redis cluster client doesn't look for the new
// one at once. It does so once a minute (ClusterStateReloadInterval), or on ReloadState.
func (c *ClusterServers) KillMaster(t testing.TB, key string) *Server {
	t.Helper()
	old, next := c.pair(t, key)
	old.Kill()
	c.promoted(t, next)
	alive := slices.DeleteFunc(c.servers(), func(s *Server) bool { return s.process.ended() })
	c.settled(alive)
	return old
}

func (c *ClusterServers) promoted(t testing.TB, next *Server) {
	t.Helper()
	Eventually(t, func() bool { return next.says("INFO replication", "role:master") }, "%s is master", next.addr)
	c.elected[next] = time.Now()
}

// pair returns the current master of the key's slot, and its replica when that can run for
// election.
func (c *ClusterServers) pair(t testing.TB, key string) (master, replica *Server) {
	t.Helper()
	if len(c.replicas) == 0 {
		t.Fatal("redistest: a failover needs replicas: ClusterWithReplicas")
	}
	i := c.shard(key)
	master, replica = c.masters[i], c.replicas[i]
	if master.process.ended() || !master.says("INFO replication", "role:master") {
		master, replica = replica, master
	}
	if replica.process.ended() {
		t.Fatalf("redistest: nobody can take over from %s: %s has ended", master.addr, replica.addr)
	}
	Eventually(t, func() bool { return time.Since(c.elected[replica]) > electionPause }, "%s may be elected again", replica.addr)
	return master, replica
}

// newServers starts n servers at the same time. A cluster has many processes, and each
// start takes time.
func newServers(t testing.TB, n int, args []string) []*Server {
	t.Helper()
	path := needReal(t)
	processes, errs := make([]*process, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		dir := t.TempDir()
		wg.Go(func() { processes[i], errs[i] = startProcess(path, dir, args) })
	}
	wg.Wait()
	servers := make([]*Server, 0, n)
	for _, p := range processes {
		if p != nil {
			servers = append(servers, adopt(t, p))
		}
	}
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	return servers
}
