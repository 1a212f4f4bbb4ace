package web

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/inspect"
)

// redisText returns the page of Redis, where these are the servers, the error of asking them, and the memory of each queue. A nil m is not known.
func redisText(t *testing.T, s *state, servers []inspect.Server, err error, m *inspect.Memory) string {
	t.Helper()
	v := &visit{pages: &pages{looks: newReader()}, Request: httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/redis", nil), scope: Scope{All: true}, state: s}
	_, _ = read(t.Context(), v.looks, "servers", time.Hour, func(context.Context) ([]inspect.Server, error) { return servers, err })
	for _, q := range s.queues {
		_, _ = read(t.Context(), v.looks, "memory\x00"+q.Name, time.Hour, func(context.Context) (inspect.Memory, error) {
			if m == nil {
				return inspect.Memory{}, fmt.Errorf("%w: denied", inspect.ErrNotKnown)
			}
			one := *m
			one.Records += int64(len(q.Name)) << 20
			return one, nil
		})
	}
	a, err := v.redis()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := templates[a.name].ExecuteTemplate(&b, "shell", v.shell(&a)); err != nil {
		t.Fatal(err)
	}
	v.scope = Scope{Queue: func(string) bool { return true }}
	if _, err := v.redis(); err == nil {
		t.Error("a user of some queues sees it")
	}
	return b.String()
}

func has(t *testing.T, page string, all ...string) {
	t.Helper()
	for _, want := range all {
		if !strings.Contains(page, want) {
			t.Errorf("it lacks %q: %s", want, page)
		}
	}
}

// The page of Redis says how far its clock is, what it holds, and what is not known; and nothing to a user of some queues.
func TestRedisPage(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		at   time.Duration // when the clock of Redis was read, after the look began
		want string
	}{
		{10 * time.Millisecond, "as that of this process, to within 20 ms"}, {5 * time.Second, "at least 5 s ahead of this process, at most 5 s"}, {-time.Minute, "at least 1 m behind this process, at most 1 m"},
	} {
		s := &state{began: noon, took: 30 * time.Millisecond, at: noon.Add(x.at), clock: true, queues: []inspect.Queue{{Name: "a", Ready: 1200, Dead: 3}, {Name: "b", Ready: 34}}, missing: []string{"statistics of <b>"}, why: []error{errNoPage}}
		page := redisText(t, s, nil, fmt.Errorf("%w: denied", inspect.ErrNotKnown), nil)
		has(t, page, x.want, ">30 ms<", ">1,234<", ">3<", "are not known", "statistics of &lt;b&gt;", "answers, and some could not be read", "not known: Redis doesn&#39;t say, or its user may not call MEMORY USAGE")
		if strings.Contains(page, "<dt>Version") {
			t.Errorf("it knows a version: %s", page)
		}
	}
}

// What a server says of itself is on the page. What it doesn't say is not known.
func TestRedisPageOfServers(t *testing.T) {
	t.Parallel()
	s := &state{began: noon, at: noon, clock: true, queues: []inspect.Queue{{Name: "small", Ready: 1200}, {Name: "a-large-one", Ready: 34}}}
	full := inspect.Server{
		Addr: "10.0.0.1:6379", Took: 2 * time.Millisecond, Version: "7.0.15", Mode: "standalone", Role: "master", Uptime: 90 * time.Minute, Memory: 9 << 29, MemoryPeak: 5 << 30, MemoryResident: 3 << 30, MaxMemory: 6 << 30, Policy: "noeviction",
		AOF: "on", AOFStatus: "ok", LastSave: noon.Add(-time.Minute), Saves: 3, SaveStatus: "ok", SaveTook: 2 * time.Second, Unsaved: 1234, Clients: 53, BlockedClients: 2, MaxClients: 10_000, CallsPerSecond: 4321,
		ReplicasKnown: true, Replicas: []inspect.Replica{{Addr: "10.0.0.2:6379", State: "online", Behind: 2048, Lag: time.Second}},
	}
	page := redisText(t, s, []inspect.Server{full}, nil, &inspect.Memory{Records: 1 << 20, Places: 1 << 20})
	has(t, page, ">Redis 7.0.15<", ">standalone, master<", ">1 h 30 m<", ">2 ms<", ">4.5 GiB of 6 GiB, 75 %<", ">5 GiB<", ">3 GiB<", `<dd class="good">noeviction<`, ">on, the last write went well<", "took 2 s", ">1,234<",
		">53 of at most 10,000, 2 blocked<", ">4,321<", "1: 10.0.0.2:6379 online, behind by 2 KiB, heard of 1 s ago", `data-k="Memory">13 MiB</td>`, `data-k="Of it records">12 MiB</td>`, "<dt>Slow scripts</dt><dd>not known<", ">answers<")
	if strings.Index(page, "data-open><bdi>a-large-one<") > strings.Index(page, "data-open><bdi>small<") {
		t.Error("the largest queue isn't first")
	}
	if strings.Contains(page, "banner") || strings.Count(page, "not known") != 1 {
		t.Errorf("it warns, or doesn't know something: %s", page)
	}

	bad := full
	bad.Name, bad.Version, bad.Policy, bad.Memory, bad.EvictedKeys, bad.RejectedClients, bad.AOFStatus, bad.SaveStatus, bad.Wrong = "valkey", "8.0.1", "allkeys-lru", 6<<30, 12, 7, "err", "err", []string{"its maxmemory-policy is <allkeys-lru>"}
	bad.Replicas = []inspect.Replica{{Addr: "10.0.0.2:6379", State: "wait_bgsave", Behind: inspect.NotKnown, Lag: inspect.NotKnown}}
	has(t, redisText(t, s, []inspect.Server{bad}, nil, nil), ">valkey 8.0.1<", `<dd class="warn">allkeys-lru: it evicts<`, `<dd class="warn">6 GiB of 6 GiB, 100 %<`, `<dd class="warn">12<`, `<dd class="warn">7<`, `<dd class="bad">on, the last write failed<`, "; one failed since<",
		"It would lose jobs", "its maxmemory-policy is &lt;allkeys-lru&gt;", "not fit for jobs", `<dd class="warn">1: 10.0.0.2:6379 wait_bgsave, behind by not known, heard of not known ago<`)

	replica := full
	replica.Addr, replica.Role, replica.MasterLink, replica.MaxMemory, replica.AOF, replica.AOFStatus, replica.LastSave, replica.Saves, replica.Doubts = "10.0.0.3:6379", "slave", "down", 0, "off", "", time.Time{}, 0, []string{"a doubt"}
	has(t, redisText(t, s, []inspect.Server{full, replica}, nil, nil), ">The server at 10.0.0.1:6379<", ">The server at 10.0.0.3:6379<", "The server at 10.0.0.3:6379: a doubt", ">4.5 GiB, maxmemory is not set<", ">off<", ">none since it started<", `<dd class="warn">the link is down<`, "It should be set up otherwise")

	none := inspect.Server{
		Uptime: inspect.NotKnown, Memory: inspect.NotKnown, MemoryPeak: inspect.NotKnown, MemoryResident: inspect.NotKnown, MaxMemory: inspect.NotKnown, EvictedKeys: inspect.NotKnown, Saves: inspect.NotKnown, SaveTook: inspect.NotKnown, Unsaved: inspect.NotKnown,
		Clients: inspect.NotKnown, BlockedClients: inspect.NotKnown, MaxClients: inspect.NotKnown, RejectedClients: inspect.NotKnown, CallsPerSecond: inspect.NotKnown,
	}
	page = redisText(t, s, []inspect.Server{none}, nil, nil)
	for _, fact := range []string{"Version", "Runs for", "Memory", "Memory, most so far", "Memory, as the system counts", "maxmemory-policy", "Evicted keys", "Append-only file", "Last save", "Changes since the last save", "Clients", "Clients turned away", "Calls a second", "Replicas"} {
		has(t, page, "<dt>"+fact+"</dt><dd>not known<")
	}
	has(t, page, "<dt>Mode and role</dt><dd>not known, not known<")
}

// A Cluster of which some servers don't answer shows the others.
func TestRedisPageOfAPart(t *testing.T) {
	t.Parallel()
	s := &state{began: noon, at: noon}
	page := redisText(t, s, []inspect.Server{{Addr: "a:1", Version: "7.2.4"}, {Addr: "b:1"}}, fmt.Errorf("%w: the server at c:1: connection refused", inspect.ErrPartial), nil)
	has(t, page, ">Redis 7.2.4<", ">The server at b:1<", "Not all could be asked", "the server at c:1: connection refused", "answers, and some could not be read", "There is no queue.")
}
