package servertest

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ZooKeeper starts the n servers of a ZooKeeper for this test alone: see [NewZooKeeper].
func ZooKeeper(t testing.TB, n int, settings ...string) []*Server {
	t.Helper()
	servers, err := NewZooKeeper(n, settings...)
	need(t, err)
	for _, s := range servers {
		adopt(t, s)
	}
	return servers
}

// NewZooKeeper starts the n servers of a ZooKeeper, and waits until they have a leader. A setting is name=value, as in
// zoo.cfg; tickTime is 2000 (ms) unless set: sessions last 2 to 20 ticks. Close them at the end.
func NewZooKeeper(n int, settings ...string) ([]*Server, error) {
	java, err := find("java", "default-jre-headless")
	if err != nil {
		return nil, err
	}
	jar, err := find("zookeeper.jar", "zookeeper", "/usr/share/java/zookeeper.jar")
	if err != nil {
		return nil, err
	}
	servers := make([]*Server, n)
	var ensemble []string
	for i := range servers {
		dir, err := ownDir()
		if err != nil {
			return nil, err
		}
		servers[i] = &Server{name: fmt.Sprintf("ZooKeeper %d", i+1), port: ReservePort(), dir: dir}
		servers[i].port.First.Close()
		if n == 1 {
			continue
		}
		quorum, election := ReservePort(), ReservePort()
		quorum.First.Close()
		election.First.Close()
		servers[i].free = []func(){quorum.Release, election.Release}
		ensemble = append(ensemble, fmt.Sprintf("server.%d=127.0.0.1:%d:%d", i+1, quorum.Number, election.Number))
	}
	for i, s := range servers {
		lines := []string{
			"tickTime=2000", "initLimit=30", "syncLimit=10", "dataDir=" + filepath.Join(s.dir, "data"),
			"clientPortAddress=127.0.0.1", "clientPort=" + strconv.Itoa(s.Port()),
			"admin.enableServer=false", "4lw.commands.whitelist=*", "maxClientCnxns=0",
		}
		lines = append(append(lines, ensemble...), settings...) // the last of a name counts
		config := filepath.Join(s.dir, "zoo.cfg")
		if err := os.Mkdir(filepath.Join(s.dir, "data"), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(s.dir, "data", "myid"), []byte(strconv.Itoa(i+1)), 0o644); err != nil {
			return nil, err
		}
		if err := os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			return nil, err
		}
		s.line = func() []string {
			return []string{
				java, "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no", "-Djava.net.preferIPv4Stack=true",
				"-cp", jar, "org.apache.zookeeper.server.quorum.QuorumPeerMain", config,
			}
		}
		s.ready = func() (bool, error) { return zooKeeperServes(s.Addr()) }
	}
	return servers, startAll(servers)
}

// zooKeeperServes reports whether a server serves clients: alone, as the leader or as a follower.
func zooKeeperServes(addr string) (bool, error) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return false, err
	}
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return false, err
	}
	reply, err := io.ReadAll(io.LimitReader(conn, 4096))
	if err != nil {
		return false, err
	}
	if !strings.Contains(string(reply), "\nMode: ") {
		return false, fmt.Errorf("srvr: %s", reply)
	}
	return true, nil
}

// ZooKeeperMode returns "standalone", "leader" or "follower", or "" if the server doesn't serve.
func ZooKeeperMode(s *Server) string {
	conn, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	_, _ = io.WriteString(conn, "srvr")
	reply, _ := io.ReadAll(io.LimitReader(conn, 4096))
	_, mode, _ := strings.Cut(string(reply), "\nMode: ")
	mode, _, _ = strings.Cut(mode, "\n")
	return mode
}
