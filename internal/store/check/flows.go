package check

import (
	"maps"
	"slices"
	"strings"

	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// countFlows compares what is counted of flows with the links of jobs.
func (c *checker) countFlows() {
	flows := make(map[string]*facts.Flow)
	for name, text := range c.Flows {
		f, ok := facts.ParseFlow(name, text)
		if !ok {
			c.wrong("flow %.64q is %.300q, which can't be read", name, text)
			continue
		}
		flows[name] = &f
	}
	c.awaiting(flows)
	open, waiters := make(map[string]int64), make(map[string]int64)
	for _, id := range slices.Sorted(maps.Keys(c.Snapshot.Jobs)) {
		f := c.of(id)
		links := wire.LinksOf([]byte(c.Snapshot.Jobs[id]))
		live := len(f.Places) == 0 || !slices.ContainsFunc(f.Places, facts.Place.Ended)
		for link := range strings.FieldsSeq(links) {
			name, mark, _ := strings.Cut(link[1:], "{")
			flow := flows[name]
			if flow == nil || flow.Mark != mark {
				continue
			}
			for _, p := range f.Places {
				if p.Kind == "running" && p.Fields().Links != links {
					c.wrong("job %.200q with the links %.600q runs with %.600q", id, links, p.Fields().Links)
				}
			}
			switch role := link[0]; {
			case role == wire.LinkMember && !live:
				c.wrong("job %.200q has ended, and is still a member of flow %.64q", id, name)
			case role == wire.LinkMember:
				open[name]++
			case role == wire.LinkOver || role == 'R':
			case live:
				waiters[name]++
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(flows)) {
		c.flow(flows[name], open[name], waiters[name])
	}
	for _, field := range slices.Sorted(maps.Keys(c.flownotes)) {
		if name, _, _ := strings.Cut(field, "{"); flows[name] == nil {
			c.wrong("there is a note %.70q, and no such flow", field)
		}
	}
}

// flow compares one flow with how many jobs have live links to it.
func (c *checker) flow(f *facts.Flow, open, waiters int64) {
	name := f.Name
	if f.Open != open || f.Waiters != waiters {
		c.wrong("flow %.64q has %d open members and %d jobs that wait, %d and %d are counted", name, open, waiters, f.Open, f.Waiters)
	}
	if f.Total != f.Open+f.OK+f.Dead+f.Gone || f.Bad != f.Dead+f.Gone {
		c.wrong("flow %.64q is counted wrong: %+v", name, *f)
	}
	if f.Failed != (f.Bad > 0) && !f.Cancelled {
		c.wrong("flow %.64q has failed: %v, and %d of its members haven't completed", name, f.Failed, f.Bad)
	}
	if f.Over != (f.Open == 0 && !f.Unsealed) || f.Cancelled && f.Unsealed {
		c.wrong("flow %.64q is over: %v, with %d open members; unsealed: %v", name, f.Over, f.Open, f.Unsealed)
	}
	timed := f.Over || f.Unsealed || f.Timeout > 0 && !f.Cancelled
	if timed != slices.Contains(c.flowtimes, name) {
		c.wrong("flow %.64q is to be looked at: %v, it should: %v", name, !timed, timed)
	}
	if _, passes := c.flownotes[name+"{x"]; passes != (f.Cancelled && !f.Over) {
		c.wrong("passes end the members of flow %.64q: %v; it was cancelled: %v, and is over: %v", name, passes, f.Cancelled, f.Over)
	}
}

// awaiting compares the places of jobs that wait with their records and flows.
func (c *checker) awaiting(flows map[string]*facts.Flow) {
	for _, member := range c.Snapshot.Awaiting {
		name, id, _ := strings.Cut(member, "{")
		if len(name) < 2 || id == "" {
			c.wrong("%.300q waits for a flow, and names no job", member)
			continue
		}
		role, name := name[0], name[1:]
		f, record := flows[name], c.Snapshot.Jobs[id]
		_, noted := c.flownotes[name+"{"]
		if role == 'c' {
			if f == nil || !noted && !f.Failed && !f.Cancelled {
				c.wrong("job %.200q is to wait again for flow %.64q, which hasn't failed", id, name)
			}
			continue
		}
		c.enter(id, facts.Place{Kind: "awaiting", Waits: string(role) + name + "{"})
		if f == nil {
			c.wrong("job %.200q waits for flow %.64q, which isn't there", id, name)
			continue
		}
		if link := string(role) + f.Text(); !slices.Contains(strings.Fields(wire.LinksOf([]byte(record))), link) {
			c.wrong("job %.200q waits by %.70q, its record has %.600q", id, link, wire.LinksOf([]byte(record)))
		}
		if f.Verdict(role) && !noted {
			c.wrong("job %.200q waits by %c for flow %.64q, which is %+v", id, role, name, *f)
		}
	}
}
