package servertest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Etcd starts the n members of an etcd for this test alone: see [NewEtcd].
func Etcd(t testing.TB, n int, options ...string) []*Server {
	t.Helper()
	members, err := NewEtcd(n, options...)
	need(t, err)
	for _, m := range members {
		adopt(t, m)
	}
	return members
}

// NewEtcd starts the n members of an etcd, and waits until they have a leader. An option is one of the command line.
// Close them at the end.
func NewEtcd(n int, options ...string) ([]*Server, error) {
	path, err := find("etcd", "etcd-server")
	if err != nil {
		return nil, err
	}
	members := make([]*Server, n)
	peers := make([]*Port, n)
	var all []string
	for i := range members {
		dir, err := ownDir()
		if err != nil {
			return nil, err
		}
		members[i] = &Server{name: fmt.Sprintf("etcd member %d", i), port: ReservePort(), dir: dir}
		peers[i] = ReservePort()
		members[i].port.First.Close()
		peers[i].First.Close()
		members[i].free = []func(){peers[i].Release}
		all = append(all, fmt.Sprintf("m%d=http://%s", i, peers[i].Addr()))
	}
	for i, m := range members {
		m.line = func() []string {
			return append([]string{
				path, "--name", fmt.Sprintf("m%d", i), "--data-dir", filepath.Join(m.dir, "data"),
				"--listen-client-urls", "http://" + m.Addr(), "--advertise-client-urls", "http://" + m.Addr(),
				"--listen-peer-urls", "http://" + peers[i].Addr(), "--initial-advertise-peer-urls", "http://" + peers[i].Addr(),
				"--initial-cluster", strings.Join(all, ","), "--initial-cluster-state", "new",
			}, options...)
		}
		m.ready = func() (bool, error) { return etcdHealthy(m.Addr()) }
	}
	return members, startAll(members)
}

// startAll starts servers that wait for each other.
func startAll(servers []*Server) (err error) {
	for _, s := range servers {
		if err = s.launch(); err != nil {
			break
		}
	}
	for _, s := range servers {
		if err == nil {
			err = s.await()
		}
	}
	if err != nil {
		for _, s := range servers {
			s.Close()
		}
	}
	return err
}

// etcdHealthy reports whether a member has a leader and can write.
func etcdHealthy(addr string) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/health", nil)
	if err != nil {
		return false, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if err != nil {
		return false, err
	}
	if !strings.Contains(string(body), `"health":"true"`) {
		return false, fmt.Errorf("health: %s", body)
	}
	return true, nil
}
