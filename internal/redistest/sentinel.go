package redistest

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// MasterName is the name of the master in [SentinelServers].
const MasterName = "signalbox"

// SentinelServers is a master with one replica, watched by three sentinels; two of them
// must agree. All are real processes.
type SentinelServers struct {
	t         testing.TB
	nodes     [2]*Server
	sentinels []*Server
}

// Sentinel starts a master, its replica and three sentinels for this test, and returns when
// they know each other and the replica follows. Like [New] it needs a real redis-server.
func Sentinel(t testing.TB) *SentinelServers {
	t.Helper()
	nodes := newServers(t, 2, []string{"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"})
	s := &SentinelServers{t: t, nodes: [2]*Server(nodes)}
	host, port, err := net.SplitHostPort(nodes[0].addr)
	if err != nil {
		t.Fatal(err)
	}
	nodes[1].admin("REPLICAOF", host, port)
	Eventually(t, func() bool { return nodes[1].says("INFO replication", "master_link_status:up") }, "the replica follows")
	for range 3 {
		s.sentinels = append(s.sentinels, startSentinel(t, host, port))
	}
	s.known(nodes[0].addr)
	return s
}

// startSentinel starts one sentinel. A sentinel writes what it learns into its configuration
// file, so it needs one.
func startSentinel(t testing.TB, host, port string) *Server {
	t.Helper()
	path, dir := needReal(t), t.TempDir()
	conf := filepath.Join(dir, "sentinel.conf")
	p, err := startConfigured(path, dir, conf, strings.Join([]string{
		"sentinel monitor " + MasterName + " " + host + " " + port + " 2",
		"sentinel down-after-milliseconds " + MasterName + " 500",
		"sentinel failover-timeout " + MasterName + " 2000",
		"sentinel parallel-syncs " + MasterName + " 1",
	}, "\n"), "--sentinel")
	if err != nil {
		t.Fatal(err)
	}
	return adopt(t, p)
}

// known waits until all sentinels know this master, its replica and each other.
func (s *SentinelServers) known(master string) {
	s.t.Helper()
	host, port, _ := net.SplitHostPort(master)
	Eventually(s.t, func() bool {
		for _, sentinel := range s.sentinels {
			if !sentinel.says("SENTINEL MASTER "+MasterName, "ip\n"+host, "port\n"+port, "flags\nmaster", "num-slaves\n1", "num-other-sentinels\n2") {
				return false
			}
			if !sentinel.says("SENTINEL REPLICAS "+MasterName, "flags\nslave", "role-reported\nslave") {
				return false
			}
		}
		return true
	}, "all sentinels know %s and its replica", master)
}

// Client returns a new failover client, which asks the sentinels for the master. It is
// closed when the test ends.
func (s *SentinelServers) Client() redis.UniversalClient { s.t.Helper(); return s.ClientWith(nil) }

// ClientWith is Client with other options.
func (s *SentinelServers) ClientWith(change func(*redis.UniversalOptions)) redis.UniversalClient {
	s.t.Helper()
	return newClient(s.t, redis.UniversalOptions{Addrs: s.Addrs(), MasterName: MasterName}, change)
}

// Addrs returns the addresses of the sentinels.
func (s *SentinelServers) Addrs() []string {
	var addrs []string
	for _, sentinel := range s.sentinels {
		addrs = append(addrs, sentinel.addr)
	}
	return addrs
}

// Master returns the current master.
func (s *SentinelServers) Master() *Server { s.t.Helper(); m, _ := s.pair(s.t); return m }

// Replica returns the other node.
func (s *SentinelServers) Replica() *Server { s.t.Helper(); _, r := s.pair(s.t); return r }

// Failover makes the replica the master (SENTINEL FAILOVER) and waits until all sentinels
// know, which takes some 2 s. Unlike CLUSTER FAILOVER it does not hold the clients back: a
// write that the old master answers meanwhile is lost. To keep that time short, Failover
// makes the old master a replica at once. A sentinel does that only after 8 s.
func (s *SentinelServers) Failover(t testing.TB) {
	t.Helper()
	old, next := s.pair(t)
	Eventually(t, func() bool { // it is refused while an earlier one goes on
		_, err := ask(s.sentinels[0].addr, "SENTINEL", "FAILOVER", MasterName)
		return err == nil
	}, "a sentinel begins the failover")
	Eventually(t, func() bool { return next.says("INFO replication", "role:master") }, "%s is master", next.addr)
	host, port, _ := net.SplitHostPort(next.addr)
	old.admin("REPLICAOF", host, port)
	s.switched(t, old, next)
	s.known(next.addr)
}

// KillMaster ends the master by SIGKILL. It waits until all sentinels know the replica as the
// new master, which takes some 2 s. It returns the old master. After Restart, the sentinels
// make that a replica some 10 s later.
func (s *SentinelServers) KillMaster(t testing.TB) *Server {
	t.Helper()
	old, next := s.pair(t)
	old.Kill()
	s.switched(t, old, next)
	return old
}

// switched waits until next is master, all sentinels report it, and old follows it if old
// runs.
func (s *SentinelServers) switched(t testing.TB, old, next *Server) {
	t.Helper()
	Eventually(t, func() bool { return next.says("INFO replication", "role:master") }, "%s is master", next.addr)
	_, port, _ := net.SplitHostPort(next.addr)
	for _, sentinel := range s.sentinels {
		Eventually(t, func() bool {
			return sentinel.says("SENTINEL GET-MASTER-ADDR-BY-NAME "+MasterName, port)
		}, "sentinel %s knows %s", sentinel.addr, next.addr)
	}
	if !old.process.ended() {
		Eventually(t, func() bool {
			return old.says("INFO replication", "role:slave", "master_link_status:up")
		}, "%s follows %s", old.addr, next.addr)
	}
}

func (s *SentinelServers) pair(t testing.TB) (master, replica *Server) {
	t.Helper()
	addr, err := ask(s.sentinels[0].addr, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName)
	if err != nil {
		t.Fatalf("redistest: the master's address: %v", err)
	}
	for i, n := range s.nodes {
		if strings.ReplaceAll(addr, "\n", ":") == n.addr {
			return n, s.nodes[1-i]
		}
	}
	t.Fatal(fmt.Errorf("redistest: the sentinel's master %q is none of ours", addr))
	return nil, nil
}
