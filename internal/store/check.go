package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// maxViolations bounds the violations in Check's error.
const maxViolations = 20

// Check reports what is wrong with the queue, as an error with a line for each violation:
//
//   - each ID is in exactly one state: in one ready list, due, in flight in one session, dead,
//     cancelled or completed; it has a record, and each record has a state
//   - a job waits in the list of its class, and is due at the time in its record
//   - a session with deliveries is registered; a suspect that a single crash is left to has no other
//     beside it; no token is larger than the fence, none was granted twice
//   - the counted bytes of terminal jobs are those of their records, and no record of another job is larger than the largest that is
//     known
//   - a job that an attempt's span is kept of has a record, and is not terminal
//   - a mark in cancels is of a running job with the flag, and has its token; each such job has one
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
		f = &facts{id: id, there: there, head: record, size: int64(len(record)), marked: marked, mark: mark, searched: true}
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
	granted := make(map[int64]string)
	for _, session := range slices.Sorted(maps.Keys(c.inflight)) {
		if len(c.inflight[session]) > 0 && !c.registered[session] {
			c.wrong("session %.200q has %d deliveries and is not registered", session, len(c.inflight[session]))
		}
		var held []place
		for id, value := range c.inflight[session] {
			p := place{kind: "running", session: session, value: value, registered: c.registered[session]}
			c.enter(id, p)
			held = append(held, p)
			if _, token, ok := p.token(); ok {
				if other, twice := granted[token]; twice {
					c.wrong("jobs %.200q and %.200q have the same token %d", id, other, token)
				}
				granted[token] = id
			}
		}
		if suspects, last, wrong := crowded(held); wrong {
			c.wrong("session %.200q has %d suspects, and to %d of them a single crash is left", session, suspects, last)
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
	a := around{now: c.now, fence: c.fence, largest: c.stats["largest"]}
	for _, id := range slices.Sorted(maps.Keys(c.jobs)) {
		for _, v := range c.jobs[id].judge(a) {
			c.violations = append(c.violations, errors.New(v.text))
		}
	}
}
