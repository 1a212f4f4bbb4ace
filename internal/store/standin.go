package store

import (
	"cmp"
	"context"
	"encoding"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// A StandIn answers in the place of Redis what schedulers ask, from memory: for tests of those who enqueue. It reads the arguments
// of a call as enqueue.lua does, and makes the same records of them. Workers can't work on it. It is safe for concurrent use.
// Decision 43 says why it isn't an embedded Redis.
//
// Its clock is time.Now, so in a bubble of testing/synctest it is that of the bubble.
type StandIn struct {
	mu     sync.Mutex
	queues map[string]*standInQueue // by the prefix of their keys
	lanes  map[string]string        // what the keys of lanes have
	put    []*signalbox.Job         // all that were put in, in order
	turns  int
}

type standInQueue struct {
	namespace, name string
	jobs            map[string]*standInJob
	marks           map[string]int64      // the last tick of each cron entry, in us
	since           map[string]int64      // since when the plan of each cron entry counts, in us
	latest          map[string]string     // the ID of the newest job of each cron entry that has a policy for jobs that overlap
	keys            map[string]standInKey // by unique key
	call            int                   // number of the latest call
}

// A standInKey is the job that has a unique key.
type standInKey struct {
	id     string
	scope  byte
	window time.Duration
	until  time.Time // of a window that has begun
}

// holds reports whether the key keeps other jobs out.
func (q *standInQueue) holds(k standInKey, now time.Time) bool {
	if !k.until.IsZero() {
		return now.Before(k.until)
	}
	return k.id != "" && q.jobs[k.id] != nil && q.jobs[k.id].live()
}

// free frees the keys of a job that have one of these scopes.
func (q *standInQueue) free(id string, scopes ...byte) {
	maps.DeleteFunc(q.keys, func(_ string, k standInKey) bool { return k.id == id && slices.Contains(scopes, k.scope) })
}

// met is what a reply has of the job that has a unique key.
func (q *standInQueue) met(id string, now time.Time) string {
	j := q.jobs[id]
	fate := Fate('g')
	switch {
	case j == nil || j.over(now):
	case j.state == signalbox.StateDead:
		fate = MetDead
	case j.state == signalbox.StateCancelled:
		fate = MetCancelled
	case j.state == signalbox.StateCompleted:
		fate = MetCompleted
	case q.later(j, now):
		fate = MetScheduled
	default:
		fate = MetLive
	}
	return string(rune(fate)) + id
}

// A standInJob is a job that is there: live, or kept after it has ended.
type standInJob struct {
	job   *signalbox.Job // as the next delivery has it
	turn  int            // its place among those that are ready
	state signalbox.State
	ended time.Time // if it has
	begun bool      // Due has returned it
	call  int       // the latest call that asked whether it is due later
	later bool      // what that call was told
}

// later reports whether a job is due later than now. For the rest of a call a job that the call updates stays what it was, as in the script.
func (q *standInQueue) later(j *standInJob, now time.Time) bool {
	if j.call != q.call {
		j.call, j.later = q.call, j.job.ScheduledAt.After(now)
	}
	return j.later
}

// live reports whether the job has not ended.
func (j *standInJob) live() bool { return j.state.Live() }

// over reports whether the job has ended, and the time is over for which it says that it is kept.
func (j *standInJob) over(now time.Time) bool {
	return !j.live() && j.job.Retain > 0 && !now.Before(j.ended.Add(j.job.Retain))
}

// late reports whether the job hasn't started, and its time to start is over.
func (j *standInJob) late(now time.Time) bool {
	if !j.job.Deadline.IsZero() {
		return !j.begun && !now.Before(j.job.Deadline)
	}
	return j.job.ExpireAfter > 0 && !now.Before(j.job.ScheduledAt.Add(j.job.ExpireAfter))
}

// expire ends live jobs whose time to start is over. mu is held.
func (s *StandIn) expire(now time.Time) {
	for _, q := range s.queues {
		for id, j := range q.jobs {
			if !j.live() || !j.late(now) {
				continue
			}
			if j.job.Retain < 0 {
				delete(q.jobs, id)
				continue
			}
			j.state, j.ended, j.job.LastError = signalbox.StateDead, now, expiredError
		}
	}
}

// expiredError is the last error of a job that has expired. The function expire of the scripts has the same.
const expiredError = "expired: it had not started in time"

// NewStandIn returns a StandIn without jobs.
func NewStandIn() *StandIn {
	return &StandIn{queues: make(map[string]*standInQueue), lanes: make(map[string]string)}
}

// Clear forgets all jobs, and the ticks of cron entries.
func (s *StandIn) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.queues)
	s.put = nil
}

// Put returns the jobs that were put in, in order, as they were then.
func (s *StandIn) Put() []*signalbox.Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return copies(s.put)
}

// Waiting returns the live jobs as their next deliveries have them: first those that are due, in the order in which workers get
// them, then the others by their times.
func (s *StandIn) Waiting() []*signalbox.Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(time.Now())
	var all []*standInJob
	for _, q := range s.queues {
		for _, j := range q.jobs {
			if j.live() {
				all = append(all, j)
			}
		}
	}
	now := time.Now()
	slices.SortFunc(all, func(a, b *standInJob) int { return a.compare(b, now) })
	jobs := make([]*signalbox.Job, len(all))
	for i, j := range all {
		jobs[i] = j.job
	}
	return copies(jobs)
}

// Due returns the first of the jobs that are due and whose queue works accepts, or nil.
func (s *StandIn) Due(works func(namespace, queue string) bool) *signalbox.Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(time.Now())
	now := time.Now()
	var first *standInJob
	for _, q := range s.queues {
		if !works(q.namespace, q.name) {
			continue
		}
		for _, j := range q.jobs {
			if j.live() && !j.job.ScheduledAt.After(now) && (first == nil || j.compare(first, now) < 0) {
				first = j
			}
		}
	}
	if first == nil {
		return nil
	}
	first.job.ExpireAfter, first.begun = 0, true
	return copies([]*signalbox.Job{first.job})[0]
}

// compare orders jobs that wait: those that are due by priority and turn, and before others, which go by their times.
func (j *standInJob) compare(o *standInJob, now time.Time) int {
	later, otherLater := j.job.ScheduledAt.After(now), o.job.ScheduledAt.After(now)
	switch {
	case later && !otherLater:
		return 1
	case !later && otherLater:
		return -1
	case later:
		if c := j.job.ScheduledAt.Compare(o.job.ScheduledAt); c != 0 {
			return c
		}
	default:
		if c := cmp.Compare(wire.Class(j.job.Priority), wire.Class(o.job.Priority)); c != 0 {
			return c
		}
	}
	return cmp.Compare(j.turn, o.turn)
}

func copies(jobs []*signalbox.Job) []*signalbox.Job {
	all := make([]*signalbox.Job, len(jobs))
	for i, job := range jobs {
		c := *job
		c.Payload = slices.Clone(job.Payload)
		c.Headers = maps.Clone(job.Headers)
		all[i] = &c
	}
	return all
}

// Has reports whether a live job of that ID is in the queue.
func (s *StandIn) Has(namespace, queue, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(time.Now())
	q := s.queues[layout.KeysOf(namespace, queue).Prefix]
	return q != nil && q.jobs[id] != nil && q.jobs[id].live()
}

// Settle notes the outcome of a delivery. next is the job as its next delivery has it, or as it is kept; nil if it is done. A job that
// isn't in the queue stays so.
func (s *StandIn) Settle(namespace, queue, id string, outcome signalbox.Outcome, next *signalbox.Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[layout.KeysOf(namespace, queue).Prefix]
	if q == nil || q.jobs[id] == nil {
		return
	}
	j := q.jobs[id]
	if outcome == signalbox.OutcomeCompleted || outcome == signalbox.OutcomeDead || outcome == signalbox.OutcomeCancelled {
		q.free(id, wire.UntilStarted, wire.UntilEnded)
	}
	completed := next == nil
	retain := j.job.Retain
	if completed && retain <= 0 || retain < 0 && (outcome == signalbox.OutcomeDead || outcome == signalbox.OutcomeCancelled) {
		delete(q.jobs, id)
		return
	}
	j.ended = time.Now()
	if completed { // it says how long it is kept: see scheduler.Retain
		j.state = signalbox.StateCompleted
		return
	}
	j.job = copies([]*signalbox.Job{next})[0]
	switch outcome {
	case signalbox.OutcomeDead:
		j.state = signalbox.StateDead
	case signalbox.OutcomeCancelled:
		j.state = signalbox.StateCancelled
	case signalbox.OutcomeReturned: // stays before others
	default:
		s.turns++
		j.turn = s.turns
	}
}

// Start notes that a worker has got a job.
func (s *StandIn) Start(namespace, queue, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[layout.KeysOf(namespace, queue).Prefix]; q != nil {
		q.free(id, wire.UntilStarted)
		for key, k := range q.keys {
			if k.id == id && k.scope == wire.Throttled && k.until.IsZero() {
				k.until = time.Now().Add(k.window)
				q.keys[key] = k
			}
		}
	}
}

// ErrNotStoodIn is wrapped by the error of a command that a StandIn doesn't know.
var ErrNotStoodIn = errors.New("signalboxtest: this stand-in for Redis answers schedulers only")

// Process answers a command, as a hook of a client does.
func (s *StandIn) Process(_ context.Context, cmd redis.Cmder) error {
	err := s.answer(cmd)
	if err != nil {
		cmd.SetErr(err)
	}
	return err
}

// answer answers a command.
func (s *StandIn) answer(cmd redis.Cmder) error {
	switch c := cmd.(type) {
	case *redis.Cmd:
		return s.script(c)
	case *redis.TimeCmd:
		c.SetVal(time.Now())
		return nil
	case *redis.BoolCmd:
		if c.Name() == "pexpire" {
			c.SetVal(true)
			return nil
		}
	case *redis.IntSliceCmd:
		if c.Name() == "waitaof" { // all that is asked for is on disk
			local, _ := c.Args()[1].(int)
			replicas, _ := c.Args()[2].(int)
			c.SetVal([]int64{int64(local), int64(replicas)})
			return nil
		}
	case *redis.IntCmd:
		if c.Name() == "wait" {
			replicas, _ := c.Args()[1].(int)
			c.SetVal(int64(replicas))
			return nil
		}
		if n := c.Name(); n == "sadd" || n == "hlen" { // of the registry; of the jobs, so that nobody is warned of a queue without workers
			c.SetVal(0)
			return nil
		}
	case *redis.StringSliceCmd:
		if c.Name() == "zrange" { // the sessions: none
			c.SetVal(nil)
			return nil
		}
	case *redis.StringCmd:
		switch c.Name() {
		case "info":
			c.SetVal("redis_version:7.4.0\r\nredis_mode:standalone\r\nrole:master\r\naof_enabled:1\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n")
			return nil
		case "get":
			if last, ok := s.lastCall(fmt.Sprint(c.Args()[1])); ok {
				c.SetVal(last)
				return nil
			}
			return redis.Nil // the last token: none
		case "hget": // the jobs that a cron entry replaces: none
			return redis.Nil
		}
	}
	return fmt.Errorf("%w, and %s is none of their commands; package embedded is a Redis for tests of all else", ErrNotStoodIn, strings.ToUpper(cmd.Name()))
}

// script answers the call of a script.
func (s *StandIn) script(cmd *redis.Cmd) error {
	call := cmd.Args()
	if n := cmd.Name(); (n != "evalsha" && n != "eval") || len(call) < 3 {
		return fmt.Errorf("%w, and %s is none of their commands", ErrNotStoodIn, strings.ToUpper(n))
	}
	keys, _ := strconv.Atoi(fmt.Sprint(call[2]))
	args := call[3:]
	is := func(s *scripts.Script) bool { return call[1] == s.Lua().Hash() }
	switch {
	case is(scripts.Enqueue) && len(args) > keys && keys > 1:
		return s.enqueue(cmd, fmt.Sprint(args[0]), fmt.Sprint(args[1]), args[keys:])
	case is(scripts.Plan) && keys > 1 && len(args) > keys+2:
		return s.plan(cmd, fmt.Sprint(args[1]), args[keys+2:])
	case is(scripts.Announce): // of cron entries, for tools
		cmd.SetVal([]any{"ok", []any{}})
		return nil
	case is(scripts.Permits) && !slices.Contains(args, any("SSUBSCRIBE")):
		cmd.SetVal([]any{"unknown"})
		return nil
	case is(scripts.Permits): // a worker's; this error ends its Run
		return fmt.Errorf("%w: give jobs to the worker with Jobs.Work or Jobs.WorkAll, or run it on package embedded: %w", ErrNotStoodIn, redis.ErrClosed)
	}
	return fmt.Errorf("%w, and runs no other scripts than theirs; package embedded is a Redis for tests of all else", ErrNotStoodIn)
}

// plan is plan.lua, for schedulers that have one plan for each entry. cron is the key of the last ticks.
func (s *StandIn) plan(cmd *redis.Cmd, cron string, args []any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queue(strings.TrimSuffix(cron, "cron") + "jobs")
	var list []any
	for ; len(args) >= 3; args = args[3:] {
		name, last := fmt.Sprint(args[0]), ""
		if us, ok := q.marks[name]; ok {
			last = strconv.FormatInt(us, 10)
		}
		if q.since[name] == 0 {
			q.since[name] = time.Now().UnixMicro()
		}
		since := strconv.FormatInt(q.since[name], 10)
		list = append(list, last, since, "1", since)
	}
	cmd.SetVal([]any{"ok", list})
	return nil
}

// lastCall returns what the key of a lane has.
func (s *StandIn) lastCall(lane string) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, ok := s.lanes[lane]
	return last, ok
}

// enqueue is enqueue.lua. lane is the key of the lane, jobs that of the queue's jobs.
func (s *StandIn) enqueue(cmd *redis.Cmd, lane, jobs string, argv []any) error {
	call, ok := argv[0].(encoding.BinaryMarshaler)
	if !ok {
		return errors.New("ERR signalbox: the call has no number")
	}
	head, err := call.MarshalBinary() // as the client does before it sends
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queue(jobs)
	q.call++
	now := time.Now().Truncate(time.Microsecond)
	s.expire(now)
	reckoned := now.UnixMicro()
	parts := strings.Split(string(head), " ")
	s.lanes[lane] = parts[1] + " "
	known := len(parts) > 2
	if known {
		skew, _ := strconv.ParseInt(parts[2], 10, 64)
		reckoned += skew
	}
	var outcomes, met []any
	for args := argv[1:]; len(args) >= 4; args = args[4:] {
		envelope, _ := args[3].([]byte)
		fate, err := s.judge(q, now, reckoned, known, fmt.Sprint(args[0]), fmt.Sprint(args[1]), fmt.Sprint(args[2]), envelope)
		if err != nil {
			return err
		}
		outcomes = append(outcomes, string(rune(fate)))
		if fate == MetKey || fate == Updated {
			met = append(met, q.met(q.keys[uniqueOf(fmt.Sprint(args[1])).Key].id, now))
		}
	}
	reply := []any{"ok", now.UnixMicro(), outcomes}
	if met != nil {
		reply = append(reply, met)
	}
	cmd.SetVal(reply)
	return nil
}

// queue returns the queue that has that key for its jobs.
func (s *StandIn) queue(jobs string) *standInQueue {
	prefix := strings.TrimSuffix(jobs, "jobs")
	q := s.queues[prefix]
	if q == nil {
		tag := strings.TrimSuffix(strings.TrimPrefix(prefix, "signalbox:{"), "}:")
		q = &standInQueue{jobs: make(map[string]*standInJob), marks: make(map[string]int64), since: make(map[string]int64), latest: make(map[string]string), keys: make(map[string]standInKey)}
		q.namespace, q.name, _ = strings.Cut(tag, ":")
		if q.namespace == layout.DefaultNamespace {
			q.namespace = ""
		}
		s.queues[prefix] = q
	}
	return q
}

// judge puts a job in, or says why it stays out.
func (s *StandIn) judge(q *standInQueue, now time.Time, reckoned int64, known bool, id, class, when string, envelope []byte) (Fate, error) {
	due, entry, bound, overlap := now.UnixMicro(), "", TickGrace.Microseconds(), OverlapAllow
	if when != "" {
		t, err := parseTick(when[1:])
		us := t.At.UnixMicro()
		if err != nil {
			return 0, fmt.Errorf("ERR signalbox: the time of a job is not valid: %w", err)
		}
		switch when[0] {
		case '+':
			due += us
		case '@':
			due = max(us, due)
		case '=':
			due, entry, bound, overlap = us, t.Entry, max(t.Late, TickGrace).Microseconds(), t.Overlap
		}
	}
	fate := PutIn
	if entry != "" {
		last := q.marks[entry]
		ahead := known && last > reckoned+TickAhead.Microseconds()
		switch {
		case due > reckoned:
			return Early, nil
		case due <= last && !ahead:
			return Taken, nil
		case due < reckoned-bound:
			return Late, nil
		case ahead:
			fate = PutInAnew
		}
		q.marks[entry] = due
	}
	if overlap != OverlapAllow {
		other := q.jobs[q.latest[entry]]
		switch live := other != nil && other.live(); {
		case live && overlap != OverlapCancel: // a job that a test runs is taken for one that waits
			return Overlapped, nil
		case live: // it is cancelled at once
			other.state, other.ended = signalbox.StateCancelled, now
		}
		q.latest[entry] = id
	}
	marks, _, _ := strings.Cut(class, "+")
	cautious := strings.HasPrefix(marks[1:], "!")
	if met := q.jobs[id]; met != nil && !met.over(now) {
		switch {
		case entry != "":
			return Taken, nil
		case met.state == signalbox.StateDead && !cautious:
			fate = ReplacedDead
		case met.state == signalbox.StateCancelled && !cautious:
			fate = ReplacedCancelled
		case met.state == signalbox.StateCompleted && !cautious:
			fate = ReplacedCompleted
		case met.state == signalbox.StateDead:
			return MetDead, nil
		case met.state == signalbox.StateCancelled:
			return MetCancelled, nil
		case met.state == signalbox.StateCompleted:
			return MetCompleted, nil
		case q.later(met, now):
			return MetScheduled, nil
		default:
			return MetLive, nil
		}
	}
	unique := uniqueOf(class)
	if unique.Scope != 0 {
		switch k := q.keys[unique.Key]; {
		case !q.holds(k, now):
		case unique.Scope == wire.Throttled && !k.until.IsZero():
			due = k.until.UnixMicro()
		case strings.Contains(marks, "*") && k.until.IsZero() && k.scope == unique.Scope && k.scope != wire.UntilEnded:
			if k.scope == wire.Throttled {
				due = q.jobs[k.id].job.ScheduledAt.UnixMicro()
			}
			return Updated, q.update(q.jobs[k.id], now, due, class, envelope)
		default:
			return MetKey, nil
		}
		k := standInKey{id: id, scope: unique.Scope, window: unique.Window}
		if k.scope == wire.ForWindow {
			k.until = now.Add(k.window)
		}
		q.keys[unique.Key] = k
	}
	job := &signalbox.Job{ID: id, Namespace: q.namespace, Queue: q.name}
	if err := wire.Decode(newRecord(class, now.UnixMicro(), due, envelope), job); err != nil {
		return 0, err
	}
	s.put = append(s.put, job)
	s.turns++
	q.jobs[id] = &standInJob{job: job, turn: s.turns, state: signalbox.StateReady}
	return fate, nil
}

// uniqueOf returns the unique key of a job that goes in. class is that of the call.
func uniqueOf(class string) Unique { return wire.UniqueOf(newRecord(class, 0, 0, nil)) }

// update gives a job that waits what another one has: all if it is due later, and else only what is in the envelope.
func (q *standInQueue) update(j *standInJob, now time.Time, due int64, class string, envelope []byte) error {
	enqueued := j.job.EnqueuedAt.UnixMicro()
	digits, _, _ := strings.Cut(class[strings.IndexByte(class, '*')+1:], "+")
	if most, err := strconv.ParseInt(digits, 10, 64); err == nil {
		due = min(due, max(enqueued+most, now.UnixMicro()))
	}
	job := &signalbox.Job{ID: j.job.ID, Namespace: j.job.Namespace, Queue: j.job.Queue}
	if err := wire.Decode(newRecord(class, enqueued, due, envelope), job); err != nil {
		return err
	}
	if was := j.job; !q.later(j, now) { // it stays where it is, and what its header says
		job.Priority, job.ScheduledAt, job.Retain, job.ExpireAfter, job.Deadline = was.Priority, was.ScheduledAt, was.Retain, was.ExpireAfter, was.Deadline
		job.Group, job.Serial, job.YieldOnRetry = was.Group, was.Serial, was.YieldOnRetry
	}
	j.job = job
	return nil
}

// newRecord returns the record of a job that goes in. class is that of the call.
func newRecord(class string, enqueued, due int64, envelope []byte) []byte {
	marks, extras, _ := strings.Cut(class, "+")
	head := wire.Head{Encoded: strings.Contains(marks, "~"), Class: class[0], Enqueued: uint64(enqueued), Due: uint64(due)}
	if extras != "" {
		head.Flags, head.Extras = extras[0], []byte(extras[1:])
	}
	return append(head.Append(nil), envelope...)
}

// NewDelivery returns the delivery of a job as a claim returns it: what its record says. The job's Namespace, Queue, ID, Token and
// ClaimedAt are no part of the record, and stay.
func NewDelivery(job *signalbox.Job) Delivery {
	record := wire.AppendRecord(nil, job)
	claimed := &signalbox.Job{ID: job.ID, Namespace: job.Namespace, Queue: job.Queue, Token: job.Token, ClaimedAt: job.ClaimedAt}
	return Delivery{Job: claimed, Err: wire.Decode(record, claimed), record: record}
}

// Next returns the job after a delivery of it was settled: as its next delivery has it, or as it is kept. job is as it was claimed.
func (d *Delivery) Next(job signalbox.Job, r *Settlement, now time.Time) *signalbox.Job {
	record := d.latest()
	if r.Record != nil {
		record = r.Record
	}
	next := &signalbox.Job{ID: job.ID, Namespace: job.Namespace, Queue: job.Queue, Token: job.Token}
	_ = wire.Decode(record, next) // the header at least
	if r.Outcome == Retry || r.Outcome == Delay {
		next.ScheduledAt = now.Add(r.Delay).Truncate(time.Microsecond)
	}
	return next
}
