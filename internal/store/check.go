package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/signalbox-go/signalbox/internal/wire"
)

// maxViolations bounds the violations in Check's error.
const maxViolations = 20

// Check reports what is wrong with the queue, as an error with a line for each violation:
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
// of the database: it is made for tests and for queues of up to some 100,000 jobs. Doctor has the
// same rules, and is for queues of any size.
func (q *Queue) Check(ctx context.Context) error {
	s, err := q.snapshot(ctx)
	if err != nil {
		return err
	}
	c := &checker{snapshot: s, jobs: make(map[string]*facts, len(s.jobs))}
	c.waiting()
	c.running()
	for _, state := range terminalStates {
		c.terminal(state)
	}
	c.lines()
	c.unique()
	c.countFlows()
	c.each()
	registered := func(session string) bool { return c.registered[session] }
	for _, address := range s.idle {
		if q.strayAddress(address, registered) {
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
		return fmt.Errorf("store: queue %q is inconsistent:\n%w", q.name, errors.Join(c.violations...))
	}
	return nil
}

// A checker collects violations.
type checker struct {
	*snapshot
	jobs       map[string]*facts // by ID
	registered map[string]bool   // sessions
	violations []error
}

func (c *checker) wrong(format string, args ...any) {
	c.violations = append(c.violations, fmt.Errorf(format, args...))
}

// of returns the facts about a job.
func (c *checker) of(id string) *facts {
	f := c.jobs[id]
	if f == nil {
		record, there := c.snapshot.jobs[id]
		mark, marked := c.cancels[id]
		f = &facts{id: id, there: there, head: record, size: int64(len(record)), marked: marked, mark: mark, searched: true, expiry: expiryOf(record)}
		c.jobs[id] = f
	}
	return f
}

// enter notes a place of a job.
func (c *checker) enter(id string, p place) {
	f := c.of(id)
	f.places = append(f.places, p)
}

func (c *checker) waiting() {
	for _, class := range slices.Sorted(maps.Keys(c.ready)) {
		for _, id := range c.ready[class] {
			c.enter(id, place{kind: "ready", class: class})
		}
	}
	for _, z := range c.due {
		member := z.Member.(string)
		if member == "" {
			c.wrong("an empty member is due")
			continue
		}
		c.enter(member[1:], place{kind: "due", class: member[:1], us: int64(z.Score)})
	}
}

func (c *checker) running() {
	if unreadableFence(c.fence) {
		c.wrong("the fence is %.40q, not a token", c.fence)
	}
	c.registered = make(map[string]bool)
	for _, z := range c.sessions {
		c.registered[z.Member.(string)] = true
	}
	for _, session := range slices.Sorted(maps.Keys(c.counted)) {
		if n := strconv.Itoa(len(c.inflight[session])); c.counted[session] != n {
			c.wrong("session %.200q is said to run %s jobs, it runs %s", session, c.counted[session], n)
		}
	}
	granted := make(map[int64]string)
	for _, session := range slices.Sorted(maps.Keys(c.inflight)) {
		if _, there := c.counted[session]; !there && c.limits.Running > 0 && len(c.inflight[session]) > 0 {
			c.wrong("session %.200q runs %d jobs that don't count for the queue's limit", session, len(c.inflight[session]))
		}
		if len(c.inflight[session]) > 0 && !c.registered[session] {
			c.wrong("session %.200q has %d deliveries and is not registered", session, len(c.inflight[session]))
		}
		var running []place
		for id, value := range c.inflight[session] {
			p := place{kind: "running", session: session, value: value, registered: c.registered[session]}
			c.enter(id, p)
			running = append(running, p)
			if _, token, ok := p.token(); ok {
				if other, twice := granted[token]; twice {
					c.wrong("jobs %.200q and %.200q have the same token %d", id, other, token)
				}
				granted[token] = id
			}
		}
		if suspects, alone, wrong := crowded(running); wrong {
			c.wrong("session %.200q has %d suspects, and %d of them run alone", session, suspects, alone)
		}
	}
}

// lines compares the lines of groups, their turns, and how many jobs hold each group.
func (c *checker) lines() {
	waits := make(map[string]int) // by class and key
	for _, member := range c.lined {
		class, key, id, ok := parseLine(member)
		if !ok {
			c.wrong("member %.500q of the lines names no job", member)
			continue
		}
		c.enter(id, place{kind: "lined", class: class})
		if record := c.snapshot.jobs[id]; record != "" && lineOf(record, id) != member {
			c.wrong("job %.200q waits in a line as %.500q, its record says %.500q", id, member, lineOf(record, id))
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
		key := groupOf(f.head)
		for _, p := range f.places {
			if p.kind == "running" && p.group() != key {
				c.wrong("job %.200q of group %.201q runs as one of %.201q", id, key, p.group())
			}
			if key != "" && (p.kind == "running" || p.kind == "ready" || p.kind == "due" && !p.later()) {
				holders[key]++
			}
			if key == "" && p.later() {
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
	g, ok := parseGroup(value)
	if !there {
		g, ok = group{states: "..."}, true
	}
	switch {
	case !ok:
		c.wrong("group %.201q has the state %.40q", key, value)
		return
	case there && g == group{states: "..."}:
		c.wrong("group %.201q is kept for nothing", key)
	}
	if g.holders != holders {
		c.wrong("group %.201q is said to be held by %d jobs, it is held by %d", key, g.holders, holders)
	}
	if key[0] == 's' && holders > 1 {
		c.wrong("serial group %.201q is held by %d jobs", key, holders)
	}
	for i, state := range g.states {
		line := strconv.Itoa(i) + key
		if waits[line] > 0 == (state == '.') || turns[line] != (state == 't') {
			c.wrong("line %.202q has state %c, %d jobs, and a turn: %v", line, state, waits[line], turns[line])
		}
		if state == 'b' && g.holders == 0 && !c.paused[key] {
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
		till, _, _ := strings.Cut(c.snapshot.unique[z.Member.(string)], " ")
		if int64(z.Score) > c.now && till != strconv.FormatInt(int64(z.Score), 10) {
			c.wrong("the window of unique key %.402q ends at %d, and the key has %.40q", z.Member, int64(z.Score), till)
		}
	}
	for id, record := range c.snapshot.jobs {
		if u := wire.UniqueOf([]byte(record)); u.Scope == wire.UntilEnded || u.Scope == wire.UntilStarted || u.Scope == wire.Throttled {
			f := c.of(id)
			f.scope, f.key, f.holder = string(u.Scope), u.Key, c.snapshot.unique[u.Key]
			for _, p := range f.places {
				if own := p.uniqueKey(); p.kind == "running" && (own != "") != (u.Scope == wire.UntilEnded) || own != "" && own != u.Key {
					c.wrong("job %.200q with the unique key %.402q runs with %.402q", id, u.Key, own)
				}
			}
		}
	}
	for key, value := range c.snapshot.unique {
		scope, id, _ := strings.Cut(value, " ")
		if till, err := strconv.ParseInt(scope, 10, 64); err == nil {
			if ends[key] != till {
				c.wrong("the window of unique key %.402q has no end", key)
			}
			continue
		}
		f := c.of(id)
		waits := len(f.places) > 0 && (f.places[0].kind == "ready" || f.places[0].kind == "due" || f.places[0].kind == "lined" || f.places[0].kind == "running" && scope == string(wire.UntilEnded))
		if !f.there || f.key != key || f.scope != scope || !waits {
			c.wrong("unique key %.402q has %.220q, and that job may not have it: %v", key, value, f.places)
		}
	}
}

func (c *checker) terminal(state terminalState) {
	var bytes int64
	for _, z := range c.ended[state.outcome] {
		id := z.Member.(string)
		c.enter(id, place{kind: string(state.outcome)})
		bytes += int64(len(c.snapshot.jobs[id]))
	}
	counted, _ := strconv.ParseInt(c.stats[state.bytes], 10, 64)
	if counted != bytes {
		c.wrong("%d bytes of %s jobs are counted, there are %d", counted, state.outcome, bytes)
	}
}

// each judges each job.
func (c *checker) each() {
	for id := range c.snapshot.jobs {
		c.of(id)
	}
	for _, id := range c.spans {
		c.of(id).noted = true
	}
	for id := range c.cancels {
		c.of(id)
	}
	for _, z := range c.expires {
		c.of(z.Member.(string)).expires = int64(z.Score)
	}
	a := around{now: c.now, fence: c.fence, largest: c.stats["largest"]}
	for _, id := range slices.Sorted(maps.Keys(c.jobs)) {
		for _, v := range c.jobs[id].judge(a) {
			c.violations = append(c.violations, errors.New(v.text))
		}
	}
}
