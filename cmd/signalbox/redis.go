package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox/inspect"
)

func (a *app) redisCommand() *cobra.Command {
	c := a.command("redis", "Show what Redis says of itself: memory, persistence, clients", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		ins, err := a.inspector(ctx)
		if err != nil {
			return err
		}
		servers, failed := ins.Servers(ctx) // those that can't be asked are in the error
		if failed != nil && len(servers) == 0 {
			return failed
		}
		if a.json() {
			list := make([]serverJSON, len(servers))
			for i := range servers {
				list[i] = serverOf(&servers[i])
			}
			return errors.Join(a.document(map[string]any{"servers": list}), failed)
		}
		now := a.clock(ctx)
		for i := range servers {
			if i > 0 {
				fmt.Fprintln(a.out)
			}
			a.printServer(&servers[i], now)
		}
		return failed
	})
	c.Long = `Show what Redis says of itself, by one call of INFO: the server that the command
is connected to, or each master of a Cluster. What isn't as it should be is at
the end. What a server doesn't say is "not known".`
	return c
}

// serverJSON is a server for programs. docs/cli/json.md has its fields. A number that isn't known is null.
type serverJSON struct {
	Server         string        `json:"server"`
	Name           string        `json:"name"`
	Version        string        `json:"version"`
	Mode           string        `json:"mode"`
	Role           string        `json:"role"`
	TookSeconds    float64       `json:"took_seconds"`
	UptimeSeconds  *float64      `json:"uptime_seconds"`
	Memory         *int64        `json:"memory"`
	MemoryPeak     *int64        `json:"memory_peak"`
	MemoryResident *int64        `json:"memory_resident"`
	MaxMemory      *int64        `json:"max_memory"`
	Policy         string        `json:"policy"`
	EvictedKeys    *int64        `json:"evicted_keys"`
	AOF            string        `json:"aof"`
	AOFStatus      string        `json:"aof_status"`
	LastSave       *string       `json:"last_save"`
	Saves          *int64        `json:"saves"`
	SaveStatus     string        `json:"save_status"`
	SaveSeconds    *float64      `json:"save_seconds"`
	Unsaved        *int64        `json:"unsaved"`
	Clients        *int64        `json:"clients"`
	Blocked        *int64        `json:"blocked_clients"`
	MaxClients     *int64        `json:"max_clients"`
	Rejected       *int64        `json:"rejected_clients"`
	Calls          *int64        `json:"calls_per_second"`
	Replicas       []replicaJSON `json:"replicas"`
	MasterLink     string        `json:"master_link"`
	Wrong          []string      `json:"wrong"`
	Doubts         []string      `json:"doubts"`
}

type replicaJSON struct {
	Replica    string   `json:"replica"`
	State      string   `json:"state"`
	Behind     *int64   `json:"behind"`
	LagSeconds *float64 `json:"lag_seconds"`
}

func serverOf(s *inspect.Server) serverJSON {
	known := func(n int64) *int64 {
		if n < 0 {
			return nil
		}
		return &n
	}
	took := func(d time.Duration) *float64 {
		if d < 0 {
			return nil
		}
		n := seconds(d)
		return &n
	}
	one := serverJSON{
		Server: s.Addr, Name: s.Name, Version: s.Version, Mode: s.Mode, Role: s.Role, TookSeconds: seconds(s.Took), UptimeSeconds: took(s.Uptime),
		Memory: known(s.Memory), MemoryPeak: known(s.MemoryPeak), MemoryResident: known(s.MemoryResident), MaxMemory: known(s.MaxMemory), Policy: s.Policy, EvictedKeys: known(s.EvictedKeys),
		AOF: s.AOF, AOFStatus: s.AOFStatus, LastSave: timestamp(s.LastSave), Saves: known(s.Saves), SaveStatus: s.SaveStatus, SaveSeconds: took(s.SaveTook), Unsaved: known(s.Unsaved),
		Clients: known(s.Clients), Blocked: known(s.BlockedClients), MaxClients: known(s.MaxClients), Rejected: known(s.RejectedClients), Calls: known(s.CallsPerSecond),
		MasterLink: s.MasterLink, Wrong: nonNil(s.Wrong), Doubts: nonNil(s.Doubts),
	}
	if s.ReplicasKnown {
		one.Replicas = make([]replicaJSON, len(s.Replicas))
		for i, r := range s.Replicas {
			one.Replicas[i] = replicaJSON{r.Addr, r.State, known(r.Behind), took(r.Lag)}
		}
	}
	return one
}

// notKnown is what a server doesn't say.
const notKnown = "not known"

// orNotKnown returns a number as text, by what writes it, if it is known.
func orNotKnown[N int64 | time.Duration](n N, write func(N) string) string {
	if n < 0 {
		return notKnown
	}
	return write(n)
}

// printServer prints a server for people.
func (a *app) printServer(s *inspect.Server, now time.Time) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(a.out, "%-12s %s\n", name, clean(fmt.Sprintf(format, args...)))
	}
	said := func(text string) string { return cmp.Or(text, notKnown) }
	line("server", "%s", said(s.Addr))
	version := notKnown
	if s.Version != "" {
		version = cmp.Or(s.Name, "Redis") + " " + s.Version
	}
	line("version", "%s", version)
	line("mode", "%s, %s, up for %s, answered in %s", said(s.Mode), said(s.Role), orNotKnown(s.Uptime, span), span(s.Took))
	most := orNotKnown(s.MaxMemory, size)
	if s.MaxMemory == 0 {
		most = "no limit"
	}
	line("memory", "%s; maxmemory %s, peak %s, resident %s", orNotKnown(s.Memory, size), most, orNotKnown(s.MemoryPeak, size), orNotKnown(s.MemoryResident, size))
	line("policy", "%s; keys evicted: %s", said(s.Policy), orNotKnown(s.EvictedKeys, number))
	aof := said(s.AOF)
	if s.AOFStatus != "" {
		aof += ", last write " + s.AOFStatus
	}
	line("aof", "%s", aof)
	save := notKnown
	switch {
	case !s.LastSave.IsZero():
		save = stamp(s.LastSave) + " (" + span(max(0, now.Sub(s.LastSave))) + " ago), took " + orNotKnown(s.SaveTook, span)
	case s.Saves == 0:
		save = "none since it started"
	}
	if s.SaveStatus != "" && s.SaveStatus != "ok" {
		save += "; the last one failed"
	}
	line("last save", "%s; changes since: %s", save, orNotKnown(s.Unsaved, number))
	line("clients", "%s of at most %s, blocked: %s, turned away: %s", orNotKnown(s.Clients, number), orNotKnown(s.MaxClients, number), orNotKnown(s.BlockedClients, number), orNotKnown(s.RejectedClients, number))
	line("calls", "%s a second", orNotKnown(s.CallsPerSecond, number))
	switch {
	case s.MasterLink != "":
		line("its master", "the link is %s", s.MasterLink)
	case !s.ReplicasKnown:
		line("replicas", "%s", notKnown)
	case len(s.Replicas) == 0:
		line("replicas", "none")
	default:
		texts := make([]string, len(s.Replicas))
		for i, r := range s.Replicas {
			texts[i] = fmt.Sprintf("%s %s, behind by %s, heard of %s ago", said(r.Addr), said(r.State), orNotKnown(r.Behind, size), orNotKnown(r.Lag, span))
		}
		line("replicas", "%s", strings.Join(texts, "; "))
	}
	for _, text := range s.Wrong {
		line("wrong", "%s", text)
	}
	for _, text := range s.Doubts {
		line("doubt", "%s", text)
	}
}
