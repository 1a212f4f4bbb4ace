package inspect_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/embedded"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

func oneServer(t *testing.T, rdb redis.UniversalClient) inspect.Server {
	t.Helper()
	servers, err := inspector(t, rdb, redistest.Name(t)).Servers(t.Context())
	if err != nil || len(servers) != 1 {
		t.Fatalf("Servers = %+v, %v", servers, err)
	}
	return servers[0]
}

// A server says what it is, how much memory it has, what it keeps, and who is connected.
func TestServers(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t, "--maxmemory", "100mb", "--appendonly", "yes")
	rdb := srv.Client()
	s := oneServer(t, rdb)
	if s.Addr != srv.Addr() || s.Took <= 0 || s.Version == "" || s.Mode != "standalone" || s.Role != "master" || s.Uptime < 0 {
		t.Errorf("it is %+v", s)
	}
	if s.Memory < 100_000 || s.MemoryPeak < s.Memory || s.MemoryResident < 100_000 || s.MaxMemory != 100<<20 || s.Policy != "noeviction" || s.EvictedKeys != 0 {
		t.Errorf("its memory: %+v", s)
	}
	if s.AOF != "on" || s.AOFStatus != "ok" || s.Saves != 0 || !s.LastSave.IsZero() || s.SaveStatus != "" {
		t.Errorf("before a save: %+v", s)
	}
	if s.Clients < 1 || s.BlockedClients != 0 || s.MaxClients < 1 || s.RejectedClients != 0 || s.CallsPerSecond < 0 {
		t.Errorf("its clients: %+v", s)
	}
	if !s.ReplicasKnown || len(s.Replicas) != 0 || s.MasterLink != "" || len(s.Wrong)+len(s.Doubts) != 0 {
		t.Errorf("its replicas, and what is wrong: %+v", s)
	}

	began := time.Now().Add(-time.Second) // it says whole seconds
	if err := rdb.Save(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	if s = oneServer(t, rdb); s.Saves != 1 || s.LastSave.Before(began) || s.SaveStatus != "ok" || s.Unsaved != 0 {
		t.Errorf("after a save: %+v", s)
	}
	if s.Policy != "allkeys-lru" || len(s.Wrong) != 1 || !strings.Contains(s.Wrong[0], "allkeys-lru") {
		t.Errorf("with a policy that evicts: %+v", s)
	}
}

// Each master of a Cluster says what it is, and which replicas it has.
func TestServersOfACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.ClusterWithReplicas(t)
	servers, err := inspector(t, cluster.Client(), redistest.Name(t)).Servers(t.Context())
	if err != nil || len(servers) != len(cluster.Masters()) {
		t.Fatalf("Servers = %+v, %v", servers, err)
	}
	for i, s := range servers {
		if i > 0 && servers[i-1].Addr >= s.Addr {
			t.Errorf("%s is behind %s", s.Addr, servers[i-1].Addr)
		}
		if s.Mode != "cluster" || s.Role != "master" || !s.ReplicasKnown || len(s.Replicas) != 1 || s.Replicas[0].Addr == "" || s.Replicas[0].State == "" {
			t.Errorf("%+v", s)
		}
	}
}

// Nothing is made up: what the server doesn't say is not known.
func TestServersNotKnown(t *testing.T) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		srv, err := embedded.Start(embedded.Logger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { srv.Close() })
		rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
		t.Cleanup(func() { rdb.Close() })
		s := oneServer(t, rdb)
		if s.Name != "signalbox-embedded" || s.Version == "" || s.MaxMemory != 0 || s.Policy != "noeviction" || s.AOF != "off" || s.AOFStatus != "" || !s.ReplicasKnown || s.Clients < 1 {
			t.Errorf("what it says: %+v", s)
		}
		for name, n := range map[string]int64{
			"Memory": s.Memory, "MemoryPeak": s.MemoryPeak, "MemoryResident": s.MemoryResident, "EvictedKeys": s.EvictedKeys, "Saves": s.Saves, "SaveTook": int64(s.SaveTook), "Unsaved": s.Unsaved,
			"BlockedClients": s.BlockedClients, "MaxClients": s.MaxClients, "RejectedClients": s.RejectedClients, "CallsPerSecond": s.CallsPerSecond,
		} {
			if n != inspect.NotKnown {
				t.Errorf("%s is %d, and it doesn't say it", name, n)
			}
		}
		if !s.LastSave.IsZero() || s.SaveStatus != "" {
			t.Errorf("it never saves: %+v", s)
		}
	})
	t.Run("ACL", func(t *testing.T) {
		t.Parallel()
		srv := redistest.New(t)
		if err := srv.Client().Do(t.Context(), append(viewerRule(t), "-info")...).Err(); err != nil {
			t.Fatal(err)
		}
		rdb := srv.ClientWith(func(o *redis.UniversalOptions) { o.Username, o.Password = "viewer", "CHANGE-ME" })
		servers, err := inspector(t, rdb, redistest.Name(t)).Servers(t.Context())
		if !errors.Is(err, inspect.ErrNotKnown) || errors.Is(err, inspect.ErrPartial) || !strings.Contains(err.Error(), "ACL SETUSER viewer +info") || len(servers) != 0 {
			t.Errorf("Servers = %+v, %v", servers, err)
		}
	})
}
