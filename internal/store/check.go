package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// maxViolations bounds the violations in Check's error.
const maxViolations = 20

// Check reports what is wrong with the queue, as an error with a line for each violation:
//
//   - each ID is in exactly one state: in one ready list, due, in flight in one session, dead or
//     cancelled; it has a record, and each record has a state
//   - a job waits in the list of its class, and is due at the time in its record
//   - a session with deliveries is registered; a suspect that a single crash is left to has no other
//     beside it; no token is larger than the fence, none was granted twice
//   - the counted bytes of terminal jobs are those of their records
//   - a job that an attempt's span is kept of has a record, and is not terminal
//   - a mark in cancels is of a running job with the flag, and has its token; each such job has one
//   - whoever waits for a wake-up has a session, and there is no key that a queue doesn't have
//
// It sees one moment, so it may run while the queue is in use. But it reads the whole queue in
// one transaction, which nothing else can interrupt, and looks through the names of all keys
// of the database: it is made for tests and for queues of up to some 100,000 jobs.
func (q *Queue) Check(ctx context.Context) error {
	s, err := q.snapshot(ctx)
	if err != nil {
		return err
	}
	c := &checker{snapshot: s, states: make(map[string]string, len(s.jobs))}
	c.waiting()
	c.running()
	for _, state := range terminalStates {
		c.terminal(state)
	}
	c.stateless()
	for _, id := range s.spans {
		if state := c.states[id]; state == "" || terminal(state) {
			c.wrong("a span of job %q is kept, which is %q", id, state)
		}
	}
	c.cancelled()
	for _, address := range s.idle {
		known := func(z redis.Z) bool { return address[1:] == q.keys.channel(fmt.Sprint(z.Member)) }
		if len(address) < 2 || !slices.ContainsFunc(s.sessions, known) {
			c.wrong("address %q waits for a wake-up and is of no session", address)
		}
	}
	for _, key := range s.stray {
		c.wrong("key %q belongs to nothing", key)
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
	states     map[string]string // id -> where it was seen
	violations []error
}

func (c *checker) wrong(format string, args ...any) {
	c.violations = append(c.violations, fmt.Errorf(format, args...))
}

// enter notes the state of an id. It returns its record, and false if that can't be read: then
// there is nothing to be compared.
func (c *checker) enter(id, state string) (signalbox.Job, bool) {
	if other, twice := c.states[id]; twice {
		c.wrong("job %q is %s and %s", id, other, state)
	}
	c.states[id] = state
	record, ok := c.jobs[id]
	if !ok {
		c.wrong("job %q is %s and has no record", id, state)
		return signalbox.Job{}, false
	}
	var job signalbox.Job
	err := wire.Decode([]byte(record), &job)
	return job, err == nil
}

func (c *checker) waiting() {
	for _, class := range slices.Sorted(maps.Keys(c.ready)) {
		for _, id := range c.ready[class] {
			if job, ok := c.enter(id, "ready in list "+class); ok && classOf(&job) != class {
				c.wrong("job %q of class %s waits in the list of class %s", id, classOf(&job), class)
			}
		}
	}
	for _, z := range c.due {
		member := z.Member.(string)
		if member == "" {
			c.wrong("an empty member is due")
			continue
		}
		class, id := member[:1], member[1:]
		job, ok := c.enter(id, "due")
		if ok && classOf(&job) != class {
			c.wrong("job %q of class %s is due in class %s", id, classOf(&job), class)
		}
		if ok && job.ScheduledAt.UnixMicro() != int64(z.Score) {
			c.wrong("job %q is due at %d us, its record says %d", id, int64(z.Score), job.ScheduledAt.UnixMicro())
		}
	}
}

// classOf returns the class of the list in which the job waits.
func classOf(job *signalbox.Job) string {
	return (&Settlement{Suspect: job.Crashes >= SuspectAt, Prio: job.Priority}).class()
}

func (c *checker) running() {
	fence, err := strconv.ParseInt(c.fence, 10, 64)
	if c.fence != "" && err != nil {
		c.wrong("the fence is %q, not a token", c.fence)
	}
	registered := make(map[string]bool)
	for _, z := range c.sessions {
		registered[z.Member.(string)] = true
	}
	granted := make(map[int64]string)
	for _, session := range slices.Sorted(maps.Keys(c.inflight)) {
		if len(c.inflight[session]) > 0 && !registered[session] {
			c.wrong("session %q has %d deliveries and is not registered", session, len(c.inflight[session]))
		}
		suspects, last := 0, 0
		for id, value := range c.inflight[session] {
			c.enter(id, "in flight in "+session)
			digits, flags, _ := strings.Cut(value, " ")
			crashes, suspect := strings.CutPrefix(strings.TrimSuffix(flags, "c"), "s")
			if suspect {
				suspects++
				if crashes == strconv.Itoa(CrashLimit-1) {
					last++
				}
			}
			token, err := strconv.ParseInt(digits, 10, 64)
			if err != nil {
				c.wrong("job %q has the token %q", id, value)
				continue
			}
			if token > fence {
				c.wrong("job %q has token %d, beyond the fence at %d", id, token, fence)
			}
			if other, twice := granted[token]; twice {
				c.wrong("jobs %q and %q have the same token %d", id, other, token)
			}
			granted[token] = id
		}
		if last > 0 && suspects > 1 {
			c.wrong("session %q has %d suspects, and to %d of them a single crash is left", session, suspects, last)
		}
	}
}

// cancelled compares the marks of running jobs with the flags of their deliveries.
func (c *checker) cancelled() {
	flagged := make(map[string]string) // what stands before the mark's length
	for _, deliveries := range c.inflight {
		for id, value := range deliveries {
			if digits, flags, _ := strings.Cut(value, " "); strings.HasSuffix(flags, "c") {
				flagged[id] = digits
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.cancels)) {
		if digits, _, _ := strings.Cut(c.cancels[id], " "); flagged[id] != digits {
			c.wrong("job %q is marked as cancelled with token %q, and no delivery has that and the flag", id, digits)
		}
		delete(flagged, id)
	}
	for _, id := range slices.Sorted(maps.Keys(flagged)) {
		c.wrong("job %q runs with the flag of a cancelled one, and has no mark", id)
	}
}

func (c *checker) terminal(state terminalState) {
	var bytes int64
	for _, z := range c.ended[state.outcome] {
		id := z.Member.(string)
		c.enter(id, string(state.outcome))
		bytes += int64(len(c.jobs[id]))
	}
	counted, _ := strconv.ParseInt(c.stats[state.bytes], 10, 64)
	if counted != bytes {
		c.wrong("%d bytes of %s jobs are counted, there are %d", counted, state.outcome, bytes)
	}
}

func (c *checker) stateless() {
	for id := range c.jobs {
		if c.states[id] == "" {
			c.wrong("job %q has a record and no state", id)
		}
	}
}
