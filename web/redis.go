package web

import (
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox/inspect"
)

// mostMemory is of how many queues the page reads the memory: those with the most jobs.
const mostMemory = 20

// unsaid says what isn't known without INFO.
const unsaid = "Version, memory, policy, persistence, clients and replicas are not known."

// notKnown is what Redis doesn't say.
const notKnown = "not known"

// A redisPage has what is known of Redis itself.
type redisPage struct {
	Arm, Word   string
	Servers     []serverPart
	Unsaid      string // why nothing, or not all, is known of the servers
	Holds       []fact // what a look at the queues shows: how it went, and what Redis has for the namespace
	Memory      []memoryRow
	MemorySays  string
	MemoryWrong string // why it isn't known
	Command     string
}

// A serverPart is what a server says of itself.
type serverPart struct {
	Title         string
	Wrong, Doubts []string
	Facts         []fact
}

// A memoryRow is how much memory a queue takes.
type memoryRow struct {
	Queue, To            string
	Jobs, Bytes, Records int64
}

// redis is the page of Redis: what its servers say of themselves, and what a look at the queues shows of them.
func (v *visit) redis() (answer, error) {
	if !v.scope.All {
		return answer{}, errNoPage
	}
	s := v.state
	p := &redisPage{Arm: "clear", Word: "answers", Command: shellWords("signalbox", "redis")}
	a := answer{name: "redis", title: "Redis", cur: "Redis", body: p}
	if v.away != nil {
		p.Arm, p.Word, p.Unsaid, p.MemoryWrong, a.status = "stop", "does not answer", "It does not answer. "+unsaid, notKnown, 503
	} else {
		v.servers(p)
		v.memories(p)
		if p.Arm == "clear" && len(s.missing) > 0 {
			p.Arm, p.Word = "caution", "answers, and some could not be read"
		}
	}
	took, clock := notKnown, notKnown
	if !s.began.IsZero() {
		took = span(s.took.Round(time.Millisecond))
	}
	if s.clock {
		clock = clockText(s)
	}
	p.Holds = []fact{{Name: "The last look at all queues took", Value: took}, {Name: "Its clock", Value: clock}}
	if len(s.missing) > 0 {
		p.Holds = append(p.Holds, fact{Name: "Could not be read", Value: clean(strings.Join(s.missing, ", "), 500), Class: "warn"})
	}
	sums := make([]int64, len(jobStates))
	for i := range s.queues {
		for k, t := range jobStates {
			sums[k] += t.count(&s.queues[i])
		}
	}
	p.Holds = append(p.Holds, []fact{{Name: "Queues", Value: commas(int64(len(s.queues)))}, {Name: "Workers", Value: commas(int64(len(s.workers)))}, {Name: "Cron entries", Value: commas(int64(len(s.entries)))}}...)
	for k, t := range jobStates {
		p.Holds = append(p.Holds, fact{Name: "Jobs " + string(t.state), Value: commas(sums[k])})
	}
	return a, nil
}

// servers asks the servers about themselves.
func (v *visit) servers(p *redisPage) {
	servers, err := read(v.Context(), v.looks, "servers", lookTTL, v.ins.Servers)
	switch {
	case errors.Is(err, inspect.ErrNotKnown) && len(servers) == 0:
		p.Unsaid = "It doesn't answer INFO. " + unsaid + " " + v.reason(err)
	case err != nil:
		p.Arm, p.Word, p.Unsaid = "caution", "answers, and some could not be read", "Not all could be asked. "+v.reason(err)
	}
	for i := range servers {
		one := &servers[i]
		part := serverPart{Title: "What it says of itself", Wrong: one.Wrong, Doubts: one.Doubts, Facts: serverFacts(one, v.now())}
		if len(servers) > 1 {
			part.Title = "The server at " + clean(cmp.Or(one.Addr, "an address that is not known"), 100)
		}
		p.Servers = append(p.Servers, part)
		switch {
		case len(one.Wrong) > 0:
			p.Arm, p.Word = "stop", "not fit for jobs"
		case len(one.Doubts) > 0 && p.Arm != "stop":
			p.Arm, p.Word = "caution", "answers, and should be set up otherwise"
		}
	}
}

// serverFacts writes what a server says. now is for times that have passed.
func serverFacts(s *inspect.Server, now time.Time) []fact {
	engine := cmp.Or(s.Name, "Redis")
	version := notKnown
	if s.Version != "" {
		version = engine + " " + s.Version
	}
	list := []fact{
		{Name: "Version", Value: clean(version, 100)},
		{Name: "Mode and role", Value: clean(said(s.Mode)+", "+said(s.Role), 100)},
		{Name: "Runs for", Value: spanOr(s.Uptime)},
		{Name: "Answered in", Value: span(s.Took)},
		memoryFact(s),
		{Name: "Memory, most so far", Value: sizeOr(s.MemoryPeak)},
		{Name: "Memory, as the system counts", Value: sizeOr(s.MemoryResident)},
		policyFact(s),
		{Name: "Evicted keys", Value: commasOr(s.EvictedKeys)},
		aofFact(s),
		saveFact(s, now),
		{Name: "Changes since the last save", Value: commasOr(s.Unsaved)},
		clientsFact(s),
		{Name: "Clients turned away", Value: commasOr(s.RejectedClients)},
		{Name: "Calls a second", Value: commasOr(s.CallsPerSecond)},
		replicasFact(s),
		{Name: "Slow scripts", Value: notKnown},
	}
	for i := range list {
		if f := &list[i]; (f.Name == "Evicted keys" && s.EvictedKeys > 0) || (f.Name == "Clients turned away" && s.RejectedClients > 0) {
			f.Class = "warn"
		}
	}
	return list
}

func memoryFact(s *inspect.Server) fact {
	f := fact{Name: "Memory", Value: sizeOr(s.Memory)}
	switch {
	case s.Memory < 0:
	case s.MaxMemory > 0:
		share := 100 * float64(s.Memory) / float64(s.MaxMemory)
		f.Value = fmt.Sprintf("%s of %s, %.0f %%", size(s.Memory), size(s.MaxMemory), share)
		if share >= 90 {
			f.Class = "warn"
		}
	case s.MaxMemory == 0:
		f.Value = size(s.Memory) + ", maxmemory is not set"
	default:
		f.Value = size(s.Memory) + ", maxmemory is " + notKnown
	}
	return f
}

func policyFact(s *inspect.Server) fact {
	f := fact{Name: "maxmemory-policy", Value: clean(said(s.Policy), 100)}
	switch s.Policy {
	case "":
	case "noeviction":
		f.Class = "good"
	default:
		f.Class, f.Value = "warn", clean(s.Policy, 100)+": it evicts"
	}
	return f
}

func aofFact(s *inspect.Server) fact {
	f := fact{Name: "Append-only file", Value: said(s.AOF)}
	switch {
	case s.AOF == "on" && s.AOFStatus == "ok":
		f.Value, f.Class = "on, the last write went well", "good"
	case s.AOF == "on" && s.AOFStatus != "":
		f.Value, f.Class = "on, the last write failed", "bad"
	}
	return f
}

func saveFact(s *inspect.Server, now time.Time) fact {
	f := fact{Name: "Last save", Value: notKnown}
	switch {
	case !s.LastSave.IsZero():
		text := ago(now, s.LastSave)
		if s.SaveTook >= 0 {
			text += template.HTML(", took " + escape(span(s.SaveTook))) //nolint:gosec // it is escaped
		}
		f.Value = text
	case s.Saves == 0:
		f.Value = "none since it started"
	}
	if s.SaveStatus != "" && s.SaveStatus != "ok" {
		f.Class = "bad"
		if text, ok := f.Value.(template.HTML); ok {
			f.Value = text + "; one failed since"
		} else {
			f.Value = fmt.Sprint(f.Value) + "; the last one failed"
		}
	}
	return f
}

func clientsFact(s *inspect.Server) fact {
	f := fact{Name: "Clients", Value: commasOr(s.Clients)}
	if s.Clients < 0 {
		return f
	}
	text := commas(s.Clients)
	if s.MaxClients > 0 {
		text += " of at most " + commas(s.MaxClients)
	}
	if s.BlockedClients >= 0 {
		text += ", " + commas(s.BlockedClients) + " blocked"
	}
	f.Value = text
	return f
}

func replicasFact(s *inspect.Server) fact {
	f := fact{Name: "Replicas", Value: notKnown}
	switch {
	case s.MasterLink != "":
		f.Name, f.Value = "Its master", "the link is "+clean(s.MasterLink, 20)
		if s.MasterLink != "up" {
			f.Class = "warn"
		}
	case s.ReplicasKnown && len(s.Replicas) == 0:
		f.Value = "none"
	case s.ReplicasKnown:
		texts := []string{commas(int64(len(s.Replicas)))}
		for i := range s.Replicas {
			r := &s.Replicas[i]
			texts = append(texts, fmt.Sprintf("%s %s, behind by %s, heard of %s ago", clean(said(r.Addr), 100), clean(said(r.State), 20), sizeOr(r.Behind), spanOr(r.Lag)))
			if r.State != "online" {
				f.Class = "warn"
			}
		}
		f.Value = texts[0] + ": " + strings.Join(texts[1:], "; ")
	}
	return f
}

// said returns a text of the server's.
func said(text string) string { return cmp.Or(text, notKnown) }

func commasOr(n int64) string {
	if n < 0 {
		return notKnown
	}
	return commas(n)
}

func sizeOr(n int64) string {
	if n < 0 {
		return notKnown
	}
	return size(n)
}

func spanOr(d time.Duration) string {
	if d < 0 {
		return notKnown
	}
	return span(d)
}

// memories reads how much memory the queues with the most jobs take.
func (v *visit) memories(p *redisPage) {
	queues := slices.Clone(v.state.queues)
	kept := func(q *inspect.Queue) int64 { return q.Length() + q.Dead + q.Cancelled + q.Completed }
	slices.SortStableFunc(queues, func(a, b inspect.Queue) int { return cmp.Compare(kept(&b), kept(&a)) })
	p.MemorySays = "estimates of Redis"
	if len(queues) > mostMemory {
		p.MemorySays = fmt.Sprintf("estimates of Redis, of the %d queues with the most jobs, of %s", mostMemory, commas(int64(len(queues))))
		queues = queues[:mostMemory]
	}
	for i := range queues {
		q := &queues[i]
		m, err := v.readMemory(q.Name)
		if errors.Is(err, inspect.ErrNoQueue) { // it was removed meanwhile
			continue
		}
		if err != nil {
			p.MemoryWrong = memoryUnknown(v, err)
			break
		}
		p.Memory = append(p.Memory, memoryRow{Queue: q.Name, To: link("queue", "name", q.Name), Jobs: kept(q), Bytes: m.Total(), Records: m.Records})
	}
	slices.SortStableFunc(p.Memory, func(a, b memoryRow) int { return cmp.Compare(b.Bytes, a.Bytes) })
}

// clockText says how far the clock of Redis is from that of this process. It was read at some moment of the look.
func clockText(s *state) string {
	early, late := s.at.Sub(s.began), s.began.Add(s.took).Sub(s.at)
	switch {
	case late < 0:
		return fmt.Sprintf("at least %s ahead of this process, at most %s", span(-late), span(early))
	case early < 0:
		return fmt.Sprintf("at least %s behind this process, at most %s", span(-early), span(late))
	}
	return "as that of this process, to within " + span(max(early, late))
}
