// Package check looks for what is wrong with a queue, in one transaction. It is for tests.
package check

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// maxViolations bounds the violations in Check's error.
const maxViolations = 20

// Queue reports what is wrong with the queue, as an error with a line for each violation:
//
//   - each ID is in exactly one state: in one ready list, due, in flight in one session, dead,
//     cancelled or completed; it has a record, and each record has a state
//   - a job waits in the list of its class, and is due at the time in its record
//   - a session with deliveries is registered; a suspect that runs alone has no other beside it
//     beside it; no token is larger than the fence, none was granted twice
//   - the counted bytes of terminal jobs are those of their records, and no record of another job is larger than the largest that is
//     known
//   - a job that an attempt's span is kept of has a record, and is not terminal
//   - a job that waits for its start and expires has an entry with that time, and no other job has one
//   - a mark in cancels is of a running job with the flag, and has its token; each such job has one
//   - a job of a group waits in its line; a line has a turn, or waits for jobs that hold the group, or for the end of its pause; as many jobs hold a group as is counted
//   - a unique key is of a job that has it in its record and hasn't ended; a job that hasn't ended has its key until it has; each window is in both keys
//   - whoever waits for a wake-up has a session, and there is no key that a queue doesn't have
//
// It sees one moment, so it may run while the queue is in use. But it reads the whole queue in
// one transaction, which nothing else can interrupt, and looks through the names of all keys
// of the database: it is made for tests and for queues of up to some 100,000 jobs. The doctor has the
// same rules, and is for queues of any size.
func Queue(ctx context.Context, q *facts.Site) error {
	s, err := Read(ctx, q)
	if err != nil {
		return err
	}
	c := &checker{Snapshot: s, jobs: make(map[string]*facts.Job, len(s.Jobs))}
	c.waiting()
	c.running()
	for _, state := range facts.EndedStates {
		c.terminal(state)
	}
	c.lines()
	c.unique()
	c.countFlows()
	c.each()
	registered := func(session string) bool { return c.registered[session] }
	for _, address := range s.idle {
		if q.StrayAddress(address, registered) {
			c.wrong("address %.500q waits for a wake-up and is of no session", address)
		}
	}
	for _, key := range s.stray {
		c.wrong("key %.500q belongs to nothing", key)
	}
	if more := len(c.violations) - maxViolations; more > 0 {
		c.violations = append(c.violations[:maxViolations], fmt.Errorf("and %d more", more))
	}
	if len(c.violations) > 0 {
		return fmt.Errorf("store: queue %q is inconsistent:\n%w", q.Name, errors.Join(c.violations...))
	}
	return nil
}

// States returns where each job is, in words.
func States(ctx context.Context, q *facts.Site) (map[string]string, error) {
	s, err := Read(ctx, q)
	if err != nil {
		return nil, err
	}
	c := &checker{Snapshot: s, jobs: make(map[string]*facts.Job)}
	c.waiting()
	c.lines()
	c.running()
	for _, state := range facts.EndedStates {
		c.terminal(state)
	}
	states := make(map[string]string)
	for id, f := range c.jobs {
		for _, p := range f.Places {
			states[id] = p.String()
		}
	}
	return states, nil
}

// A checker collects violations.
type checker struct {
	*Snapshot
	jobs       map[string]*facts.Job // by ID
	registered map[string]bool       // sessions
	violations []error
}

func (c *checker) wrong(format string, args ...any) {
	c.violations = append(c.violations, fmt.Errorf(format, args...))
}

// of returns the facts about a job.
func (c *checker) of(id string) *facts.Job {
	f := c.jobs[id]
	if f == nil {
		record, there := c.Snapshot.Jobs[id]
		mark, marked := c.cancels[id]
		f = &facts.Job{ID: id, There: there, Head: record, Size: int64(len(record)), Marked: marked, Mark: mark, Searched: true, Expiry: facts.ExpiryOf(record)}
		c.jobs[id] = f
	}
	return f
}

// enter notes a place of a job.
func (c *checker) enter(id string, p facts.Place) {
	f := c.of(id)
	f.Places = append(f.Places, p)
}

func (c *checker) waiting() {
	for _, class := range slices.Sorted(maps.Keys(c.Ready)) {
		for _, id := range c.Ready[class] {
			c.enter(id, facts.Place{Kind: "ready", Class: class})
		}
	}
	for _, z := range c.Due {
		member := z.Member.(string)
		if member == "" {
			c.wrong("an empty member is due")
			continue
		}
		c.enter(member[1:], facts.Place{Kind: "due", Class: member[:1], Micros: int64(z.Score)})
	}
}

func (c *checker) running() {
	if facts.UnreadableFence(c.Fence) {
		c.wrong("the fence is %.40q, not a token", c.Fence)
	}
	c.registered = make(map[string]bool)
	for _, z := range c.Sessions {
		c.registered[z.Member.(string)] = true
	}
	for _, session := range slices.Sorted(maps.Keys(c.counted)) {
		if n := strconv.Itoa(len(c.Inflight[session])); c.counted[session] != n {
			c.wrong("session %.200q is said to run %s jobs, it runs %s", session, c.counted[session], n)
		}
	}
	granted := make(map[int64]string)
	for _, session := range slices.Sorted(maps.Keys(c.Inflight)) {
		if _, there := c.counted[session]; !there && c.limited && len(c.Inflight[session]) > 0 {
			c.wrong("session %.200q runs %d jobs that don't count for the queue's limit", session, len(c.Inflight[session]))
		}
		if len(c.Inflight[session]) > 0 && !c.registered[session] {
			c.wrong("session %.200q has %d deliveries and is not registered", session, len(c.Inflight[session]))
		}
		var running []facts.Place
		for id, value := range c.Inflight[session] {
			p := facts.Place{Kind: "running", Session: session, Value: value, Registered: c.registered[session]}
			c.enter(id, p)
			running = append(running, p)
			if _, token, ok := p.Token(); ok {
				if other, twice := granted[token]; twice {
					c.wrong("jobs %.200q and %.200q have the same token %d", id, other, token)
				}
				granted[token] = id
			}
		}
		if suspects, alone, wrong := facts.Crowded(running); wrong {
			c.wrong("session %.200q has %d suspects, and %d of them run alone", session, suspects, alone)
		}
	}
}

// lines compares the lines of groups, their turns, and how many jobs hold each group.
func (c *checker) lines() {
	waits := make(map[string]int) // by class and key
	for _, member := range c.Lined {
		class, key, id, ok := facts.ParseLine(member)
		if !ok {
			c.wrong("member %.500q of the lines names no job", member)
			continue
		}
		c.enter(id, facts.Place{Kind: "lined", Class: class})
		if record := c.Snapshot.Jobs[id]; record != "" && facts.LineOf(record, id) != member {
			c.wrong("job %.200q waits in a line as %.500q, its record says %.500q", id, member, facts.LineOf(record, id))
		}
		waits[class+key]++
	}
	parked := make(map[string]bool) // a line that has become empty may be among them
	for _, line := range c.parked {
		parked[line] = true
	}
	turns := make(map[string]bool)
	for _, z := range c.turns {
		line := z.Member.(string)
		turns[line] = true
		if class := strconv.Itoa(int(z.Score / (1 << 50))); !strings.HasPrefix(line, class) {
			c.wrong("the turn of line %.300q is among those of class %s", line, class)
		}
	}
	holders := make(map[string]int)
	for id, f := range c.jobs {
		key := facts.GroupOf(f.Head)
		for _, p := range f.Places {
			if p.Kind == "running" && p.Fields().Group != key {
				c.wrong("job %.200q of group %.201q runs as one of %.201q", id, key, p.Fields().Group)
			}
			if key != "" && (p.Kind == "running" || p.Kind == "ready" || p.Kind == "due" && !p.Later()) {
				holders[key]++
			}
			if key == "" && p.Later() {
				c.wrong("job %.200q is of no group, and is due for a line", id)
			}
		}
	}
	keys := make(map[string]bool)
	for line := range turns {
		keys[line[1:]] = true
	}
	for line := range waits {
		keys[line[1:]] = true
	}
	for key := range holders {
		keys[key] = true
	}
	for key := range c.groups {
		keys[key] = true
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		c.group(key, holders[key], waits, turns, parked)
	}
}

// group compares what is kept of a group with its lines.
func (c *checker) group(key string, holders int, waits map[string]int, turns, parked map[string]bool) {
	value, there := c.groups[key]
	g, ok := facts.ParseGroup(value)
	if !there {
		g, ok = facts.Group{States: "..."}, true
	}
	switch {
	case !ok:
		c.wrong("group %.201q has the state %.40q", key, value)
		return
	case there && g == facts.Group{States: "..."}:
		c.wrong("group %.201q is kept for nothing", key)
	}
	if g.Holders != holders {
		c.wrong("group %.201q is said to be held by %d jobs, it is held by %d", key, g.Holders, holders)
	}
	if key[0] == 's' && holders > 1 {
		c.wrong("serial group %.201q is held by %d jobs", key, holders)
	}
	for i, state := range g.States {
		line := strconv.Itoa(i) + key
		if waits[line] > 0 == (state == '.') || turns[line] != (state == 't') {
			c.wrong("line %.202q has state %c, %d jobs, and a turn: %v", line, state, waits[line], turns[line])
		}
		if state == 'b' && g.Holders == 0 && !c.paused[key] {
			c.wrong("line %.202q waits for nobody", line)
		}
		if state == 'w' && !parked[line] {
			c.wrong("line %.202q waits for its rate, and nobody knows until when", line)
		}
	}
}

// unique compares the unique keys with the records.
func (c *checker) unique() {
	ends := make(map[string]int64)
	for _, z := range c.windows {
		ends[z.Member.(string)] = int64(z.Score)
		till, _, _ := strings.Cut(c.Snapshot.unique[z.Member.(string)], " ")
		if int64(z.Score) > c.now && till != strconv.FormatInt(int64(z.Score), 10) {
			c.wrong("the window of unique key %.402q ends at %d, and the key has %.40q", z.Member, int64(z.Score), till)
		}
	}
	for id, record := range c.Snapshot.Jobs {
		if u := wire.UniqueOf([]byte(record)); u.Scope == wire.UntilEnded || u.Scope == wire.UntilStarted || u.Scope == wire.Throttled {
			f := c.of(id)
			f.Scope, f.Key, f.Holder = string(u.Scope), u.Key, c.Snapshot.unique[u.Key]
			for _, p := range f.Places {
				if own := p.Fields().Key; p.Kind == "running" && (own != "") != (u.Scope == wire.UntilEnded) || own != "" && own != u.Key {
					c.wrong("job %.200q with the unique key %.402q runs with %.402q", id, u.Key, own)
				}
			}
		}
	}
	for key, value := range c.Snapshot.unique {
		scope, id, _ := strings.Cut(value, " ")
		if till, err := strconv.ParseInt(scope, 10, 64); err == nil {
			if ends[key] != till {
				c.wrong("the window of unique key %.402q has no end", key)
			}
			continue
		}
		f := c.of(id)
		waits := len(f.Places) > 0 && (f.Places[0].Kind == "ready" || f.Places[0].Kind == "due" || f.Places[0].Kind == "lined" || f.Places[0].Kind == "running" && scope == string(wire.UntilEnded))
		if !f.There || f.Key != key || f.Scope != scope || !waits {
			c.wrong("unique key %.402q has %.220q, and that job may not have it: %v", key, value, f.Places)
		}
	}
}

func (c *checker) terminal(state signalbox.State) {
	var bytes int64
	for _, z := range c.Ended[state] {
		id := z.Member.(string)
		c.enter(id, facts.Place{Kind: string(state)})
		bytes += int64(len(c.Snapshot.Jobs[id]))
	}
	counted, _ := strconv.ParseInt(c.stats[facts.EndedBytes(state)], 10, 64)
	if counted != bytes {
		c.wrong("%d bytes of %s jobs are counted, there are %d", counted, state, bytes)
	}
}

// each judges each job.
func (c *checker) each() {
	for id := range c.Snapshot.Jobs {
		c.of(id)
	}
	for _, id := range c.spans {
		c.of(id).Noted = true
	}
	for id := range c.cancels {
		c.of(id)
	}
	for _, z := range c.expires {
		c.of(z.Member.(string)).Expires = int64(z.Score)
	}
	a := facts.Around{Now: c.now, Fence: c.Fence, Largest: c.stats["largest"]}
	for _, id := range slices.Sorted(maps.Keys(c.jobs)) {
		for _, v := range c.jobs[id].Judge(a) {
			c.violations = append(c.violations, errors.New(v.Text))
		}
	}
}
