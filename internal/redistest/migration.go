package redistest

import (
	"strconv"
	"strings"
	"testing"
)

// A Migration moves one slot of a cluster to another master, step by step, as redis-cli --cluster reshard does.
type Migration struct {
	cluster  *ClusterServers
	slot     string
	from, to *Server
}

// BeginMigration begins to move the key's slot. It moves from the master that had it at the start to the next one.
// Until [Migration.End] the old master answers a command with ASK if it has none of the command's keys, and with
// TRYAGAIN if it lacks some.
func (c *ClusterServers) BeginMigration(t testing.TB, key string) *Migration {
	t.Helper()
	i := c.shard(key)
	m := &Migration{cluster: c, slot: c.masters[0].admin("CLUSTER", "KEYSLOT", key), from: c.masters[i], to: c.masters[(i+1)%3]}
	m.to.admin("CLUSTER", "SETSLOT", m.slot, "IMPORTING", m.from.admin("CLUSTER", "MYID"))
	m.from.admin("CLUSTER", "SETSLOT", m.slot, "MIGRATING", m.to.admin("CLUSTER", "MYID"))
	return m
}

// Move moves one key of the slot with its TTL. It does nothing if the key doesn't exist.
func (m *Migration) Move(t testing.TB, key string) {
	t.Helper()
	host, port, _ := strings.Cut(m.to.addr, ":")
	m.from.admin("MIGRATE", host, port, key, "0", "5000")
}

// End moves the remaining keys, and tells all masters who has the slot now.
func (m *Migration) End(t testing.TB) {
	t.Helper()
	for {
		keys := strings.Fields(m.from.admin("CLUSTER", "GETKEYSINSLOT", m.slot, "100"))
		for _, key := range keys {
			m.Move(t, key)
		}
		if len(keys) == 0 {
			break
		}
	}
	id := m.to.admin("CLUSTER", "MYID")
	for _, s := range []*Server{m.to, m.from} {
		s.admin("CLUSTER", "SETSLOT", m.slot, "NODE", id)
	}
	m.cluster.settled(m.cluster.servers())
}

// Answered returns how many errors with this prefix, such as "TRYAGAIN", the two masters have returned since their
// start.
func (m *Migration) Answered(t testing.TB, prefix string) int {
	t.Helper()
	total := 0
	for _, s := range []*Server{m.from, m.to} {
		_, rest, found := strings.Cut(s.admin("INFO", "errorstats"), "errorstat_"+prefix+":count=")
		if !found {
			continue
		}
		line, _, _ := strings.Cut(rest, "\n")
		n, err := strconv.Atoi(line)
		if err != nil {
			t.Fatalf("redistest: errors of %s: %v", s.addr, err)
		}
		total += n
	}
	return total
}
