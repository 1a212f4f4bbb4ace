package main

import (
	"regexp"
	"testing"

	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

func TestRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t, "--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru")
	sh := newShell(t, srv)
	got := sh.ok("redis")
	for _, hide := range [][2]string{{srv.Addr(), "ADDR"}, {`version +\S.*`, "version VERSION"}, {`up for \S+, answered in \S+`, "up for D, answered in D"}, {`memory +[\d.]+ \S+B;`, "memory N;"}, {`(peak|resident) [\d.]+ \S+B`, "$1 N"}, {`(calls +|since: |clients +|of at most )\d+`, "$1 N"}, {` +`, " "}} {
		got = regexp.MustCompile(hide[0]).ReplaceAllString(got, hide[1])
	}
	same(t, got, `
		server ADDR
		version VERSION
		mode standalone, master, up for D, answered in D
		memory N; maxmemory 64 MiB, peak N, resident N
		policy allkeys-lru; keys evicted: 0
		aof off
		last save none since it started; changes since: N
		clients N of at most N, blocked: 0, turned away: 0
		calls N a second
		replicas none
		wrong its maxmemory-policy is allkeys-lru, so it deletes jobs and leases when memory is short; set maxmemory-policy noeviction`)

	var list struct{ Servers []serverJSON }
	sh.into(&list, "redis")
	if len(list.Servers) != 1 {
		t.Fatalf("%+v", list)
	}
	s := list.Servers[0]
	if s.Server != srv.Addr() || s.Version == "" || s.Memory == nil || *s.Memory < 100_000 || s.MaxMemory == nil || *s.MaxMemory != 64<<20 || s.LastSave != nil || s.SaveSeconds != nil || s.Replicas == nil || len(s.Wrong) != 1 || s.Doubts == nil {
		t.Errorf("%+v", s)
	}

	if err := srv.Client().Do(t.Context(), "ACL", "SETUSER", "default", "-info").Err(); err != nil {
		t.Fatal(err)
	}
	sh.fails(exitFailure, []string{"not known", "+info"}, "redis")
}

// What a server doesn't say is null for programs.
func TestRedisNotKnown(t *testing.T) {
	t.Parallel()
	s := serverOf(&inspect.Server{Memory: inspect.NotKnown, Uptime: inspect.NotKnown})
	if s.Memory != nil || s.UptimeSeconds != nil || s.Replicas != nil || s.MaxMemory == nil {
		t.Errorf("%+v", s)
	}
}
