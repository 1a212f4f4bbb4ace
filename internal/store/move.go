package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// A job is moved by steps, since two queues have no script in common: in a Cluster they are on two masters. The steps are:
//
//  1. hold: the job is held in its queue, so that no worker gets it. Its record says whereto, what it was, and a random name of this
//     try (Held.Move).
//  2. copy: the other queue gets a copy, held as well, with the same name.
//  3. commit: the job that is held says that the copy may be let go.
//  4. let go: the copy goes to the place that the job had.
//  5. delete: the job that is held is deleted.
//
// Each step looks at the records of both queues, and changes one of them if that is still as it was. So Move may end after any step, and
// another Move goes on from there. Nothing is lost, and nothing runs twice, by these rules:
//
//   - A name is drawn each time a call holds a job or takes it over from another call, and never again. Only the call that drew it makes
//     copies of that name, and commits them.
//   - The other queue is read first. So a call that replaces a copy has seen afterwards that its own name holds the job: the name of the
//     copy is over, and nobody can commit it any more.
//   - The job that is held is deleted only if the other queue was read after it was seen committed, and has no copy of that name: it was
//     let go.
//
// So a job that has gone on in the other queue is never put there a second time: not by a call that was made again, and not by another
// that is late.

// Sibling returns another queue of the same namespace and client.
func (q *Queue) Sibling(name string) *Queue { return New(q.rdb, q.namespace, name) }

// movable are the states of jobs that can be moved.
func movable() []signalbox.State {
	return append(slices.Clone(waiting), signalbox.StateDead, signalbox.StateCancelled)
}

// MoveStates returns the states of jobs that can be moved.
func MoveStates() []signalbox.State { return movable() }

// holdJobs has jobs held.
func holdJobs(states []signalbox.State) Act {
	return Act{verb: "hold", due: wire.HeldUntil, states: states}
}

// A moving is a job that a mover moves.
type moving struct {
	id        string
	name      string // under which this call holds it, or tries to
	other     string // the name under which another call holds it
	looks     int    // in how many rounds it did
	mine      bool   // this call has held it
	freed     bool   // it was let go here, since the ID or the unique key was taken there
	barred    bool   // the unique key was
	committed string // the name under which it was seen committed, in an earlier round
	was       signalbox.State
	answer    *Answer // nil: it goes on
}

// looked returns in how many rounds another call has held the job under a name, this one among them.
func (m *moving) looked(name string) int {
	if name != m.other {
		m.other, m.looks = name, 0
	}
	m.looks++
	return m.looks
}

// end sets the answer.
func (m *moving) end(acted Acted, state signalbox.State) {
	m.answer = &Answer{Acted: acted, State: state}
}

// A mover moves jobs from one queue to another.
type mover struct {
	from, to *Queue
	states   []signalbox.State
}

// maxRounds bounds the rounds of a mover: five are the rule, and more if others change the jobs.
const maxRounds = 40

const (
	// takeOverAt is in which round a mover takes over a job that another one holds and doesn't go on with. That one needs two rounds to commit it.
	// If movers were quicker, they could take a job from each other for ever.
	takeOverAt = 4
	// A mover pauses before it looks at such a job again: for firstPause at first, then each time for twice as long, up to maxPause.
	firstPause = 200 * time.Microsecond
	maxPause   = 100 * time.Millisecond
)

// Move moves jobs to another queue of the namespace, of these states only if there are any. It returns what became of each: Occupied, if the other
// queue has a job of that ID. If it fails, it has moved those that it returns; others may be held, in either queue, until it is called again.
func (q *Queue) Move(ctx context.Context, to string, ids []string, states ...signalbox.State) ([]Answer, error) {
	if to == q.name {
		return nil, fmt.Errorf("%w queue %q: the jobs are there", signalbox.ErrInvalid, to)
	}
	if len(states) == 0 {
		states = movable()
	}
	m := &mover{from: q, to: q.Sibling(to), states: states}
	answers := make([]Answer, 0, len(ids))
	for len(answers) < len(ids) {
		part, err := m.sized(ctx, ids[len(answers):])
		if err != nil {
			return answers, err
		}
		some, err := m.move(ctx, part)
		if err != nil {
			return answers, err
		}
		answers = append(answers, some...)
	}
	return answers, nil
}

// maxMoved is the most jobs that are moved at a time.
const maxMoved = 100

// sized returns the first ones of ids: as many as have records of a megabyte, or one.
func (m *mover) sized(ctx context.Context, ids []string) ([]string, error) {
	ids = ids[:min(len(ids), maxMoved)]
	sizes, err := m.from.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, id := range ids {
			p.Do(ctx, "HSTRLEN", m.from.keys.jobs, id)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	bytes := int64(0)
	for i, size := range sizes {
		n, err := size.(*redis.Cmd).Int64()
		if err != nil {
			return nil, err
		}
		if bytes += n; i > 0 && bytes > MaxBytes {
			return ids[:i], nil
		}
	}
	return ids, nil
}

// move moves some jobs.
func (m *mover) move(ctx context.Context, ids []string) ([]Answer, error) {
	jobs := make([]*moving, len(ids))
	for i, id := range ids {
		jobs[i] = &moving{id: id}
	}
	err := m.rounds(ctx, jobs)
	if err != nil {
		m.undo(ctx, jobs)
		return nil, err
	}
	answers := make([]Answer, len(jobs))
	for i, job := range jobs {
		answers[i] = *job.answer
	}
	return answers, nil
}

// open returns the jobs that go on.
func open(jobs []*moving) []*moving {
	return slices.DeleteFunc(slices.Clone(jobs), func(m *moving) bool { return m.answer != nil })
}

// errCrowded: other movers changed the jobs in each round.
var errCrowded = errors.New("store: others move the same jobs; do it again")

// rounds does a step for each job until all have an answer.
func (m *mover) rounds(ctx context.Context, jobs []*moving) error {
	pause := firstPause
	for range maxRounds {
		left := open(jobs)
		if len(left) == 0 {
			return nil
		}
		here, there, err := m.read(ctx, left)
		if err != nil {
			return err
		}
		var p plan
		for i, job := range left {
			m.step(job, here[i], there[i], &p)
		}
		if err := m.do(ctx, &p); err != nil {
			return err
		}
		if !p.waits {
			continue
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
		pause = min(2*pause, maxPause)
	}
	return errCrowded
}

// read returns the records of jobs in both queues, those of the other queue first; nil where there is none.
func (m *mover) read(ctx context.Context, jobs []*moving) (here, there [][]byte, err error) {
	if there, err = m.to.recordsOf(ctx, jobs); err != nil {
		return nil, nil, err
	}
	here, err = m.from.recordsOf(ctx, jobs)
	return here, there, err
}

func (q *Queue) recordsOf(ctx context.Context, jobs []*moving) ([][]byte, error) {
	ids := make([]string, len(jobs))
	for i, job := range jobs {
		ids[i] = job.id
	}
	found, err := q.rdb.HMGet(ctx, q.keys.jobs, ids...).Result()
	if err != nil {
		seekMaster(ctx, q.rdb, err)
		return nil, err
	}
	records := make([][]byte, len(jobs))
	for i := range records {
		if i >= len(found) {
			return nil, errors.New("store: too few records came back")
		}
		if text, ok := found[i].(string); ok {
			records[i] = []byte(text)
		}
	}
	return records, nil
}

// A plan is what one round does.
type plan struct {
	hold    []target // jobs that are held in their queue
	holding []*moving
	here    []placement        // in the queue that they leave
	there   []placement        // in the other
	copies  map[string]*moving // those of which there has copies
	waits   bool               // for another mover
}

// step adds to the plan what is next for a job with these records, or ends it.
func (m *mover) step(job *moving, here, there []byte, p *plan) {
	h, held := wire.HeldOf(here)
	c, copied := wire.HeldOf(there)
	copied = copied && c.Copy && c.Peer == m.from.name
	switch {
	case here == nil && copied: // left by a call that was late: the job has gone on, or was there no more
		p.there = append(p.there, placement{id: job.id, digest: digestOf(there), state: gone})
	case here == nil && (job.committed != "" || job.mine && !job.freed):
		job.end(Done, job.was)
	case here == nil:
		job.end(Gone, "")
	case !held && there != nil && !copied:
		job.end(Occupied, "")
	case !held && job.barred:
		job.end(KeyTaken, job.was)
	case !held:
		job.name = NewID()
		record, err := wire.Hold(here, wire.Held{Peer: m.to.name, Move: job.name})
		if err != nil {
			job.end(Failed, "")
			return
		}
		p.hold = append(p.hold, target{id: job.id, digest: digestOf(here), record: record})
		p.holding = append(p.holding, job)
	case h.Copy || h.Peer != m.to.name:
		job.end(Wrong, StateHeld)
	case !h.Committed && !slices.Contains(m.states, signalbox.State(h.State)):
		job.end(Wrong, signalbox.State(h.State))
	default:
		m.carry(job, here, there, h, copied && c.Move == h.Move, copied, p)
		job.was, job.mine = signalbox.State(h.State), h.Move == job.name
		if h.Committed {
			job.committed = h.Move
		}
	}
}

// carry is step for a job that is held. same says that the copy there has the same name; copied, that there is a copy.
func (m *mover) carry(job *moving, here, there []byte, h wire.Held, same, copied bool, p *plan) {
	again := func(change func(h *wire.Held)) []byte { // the record that is held, with a change
		next := h
		change(&next)
		record, _ := wire.Hold(here, next) // it can be read
		return record
	}
	switch {
	case h.Committed && same:
		p.there = append(p.there, m.free(job.id, there, h))
	case h.Committed && h.Move == job.committed:
		p.here = append(p.here, placement{id: job.id, digest: digestOf(here), state: gone})
	case h.Committed: // since the other queue was read, maybe
	case h.Move != job.name && job.looked(h.Move) < m.from.patience: // of another call, which may go on with it
		p.waits = true
	case h.Move != job.name: // of another call, which may have ended: this one takes it over
		job.name = NewID()
		p.here = append(p.here, placement{id: job.id, digest: digestOf(here), state: StateHeld, at: wire.HeldUntil, record: again(func(h *wire.Held) { h.Move = job.name })})
	case same:
		p.here = append(p.here, placement{id: job.id, digest: digestOf(here), state: StateHeld, at: wire.HeldUntil, record: again(func(h *wire.Held) { h.Committed = true })})
	case job.barred: // another job has its unique key there
		job.freed = true
		p.here = append(p.here, m.free(job.id, here, h))
	case there == nil || copied:
		next := placement{id: job.id, state: StateHeld, at: wire.HeldUntil, record: m.copyOf(job.id, here, h)}
		if signalbox.State(h.State).Live() {
			next.state = waits
		}
		if copied {
			next.digest = digestOf(there)
		}
		if p.copies == nil {
			p.copies = make(map[string]*moving)
		}
		p.there, p.copies[job.id] = append(p.there, next), job
	default: // the ID was taken meanwhile
		job.freed = true
		p.here = append(p.here, m.free(job.id, here, h))
	}
}

// free returns the placement that lets a job go which is held: to the place that it had.
func (m *mover) free(id string, record []byte, h wire.Held) placement {
	before, _ := wire.Unhold(record, h) // it can be read
	p := placement{id: id, digest: digestOf(record), state: signalbox.State(h.State), at: h.Due, record: before}
	if !p.state.Live() {
		p.at = h.Ended
	}
	return p
}

// copyOf returns the record of the copy. It has the effect key that the job has here.
func (m *mover) copyOf(id string, record []byte, h wire.Held) []byte {
	job := signalbox.Job{ID: id, Queue: m.from.name, Namespace: m.from.namespace}
	if err := wire.Decode(record, &job); err == nil && job.Effect == "" {
		record, _ = wire.WithEffect(record, job.EffectKey()) // it can be read
	}
	h.Peer, h.Copy = m.from.name, true
	record, _ = wire.Hold(record, h)
	return record
}

// do carries a plan out. What has moved meanwhile is seen in the next round.
func (m *mover) do(ctx context.Context, p *plan) error {
	if len(p.hold) > 0 {
		answers, err := m.from.do(ctx, holdJobs(m.states), p.hold)
		for i, answer := range answers {
			switch answer.Acted {
			case Wrong, Lost, Failed:
				if answer.State != StateHeld {
					p.holding[i].end(answer.Acted, answer.State)
				}
			case Done, Gone, Changed, Occupied:
			}
		}
		if err != nil {
			return err
		}
	}
	if len(p.there) > 0 {
		answers, err := m.to.putRecords(ctx, p.there, false)
		for i, answer := range answers {
			if answer.Acted == KeyTaken {
				p.copies[p.there[i].id].barred = true
			}
		}
		if err != nil {
			return err
		}
	}
	if len(p.here) > 0 {
		if _, err := m.from.putRecords(ctx, p.here, false); err != nil {
			return err
		}
	}
	return nil
}

// undoFor is how long a Move that fails tries to let the jobs go that it holds.
const undoFor = 2 * time.Second

// undo lets those jobs go that this call holds and hasn't committed, as far as Redis answers.
func (m *mover) undo(ctx context.Context, jobs []*moving) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoFor)
	defer cancel()
	left := open(jobs)
	here, err := m.from.recordsOf(ctx, left)
	if err != nil {
		return
	}
	var free []placement
	var held []*moving // in the order of free
	for i, job := range left {
		if h, ok := wire.HeldOf(here[i]); ok && h.Move == job.name && !h.Committed {
			free, held = append(free, m.free(job.id, here[i], h)), append(held, job)
		}
	}
	acted, _ := m.from.putRecords(ctx, free, false) // also if it fails, it says which it has let go
	let := held[:0]                                 // those that were let go: no copy of them can be committed any more
	for i, job := range held {
		if i < len(acted) && acted[i].Acted == Done {
			let = append(let, job)
		}
	}
	if len(let) == 0 {
		return
	}
	there, err := m.to.recordsOf(ctx, let)
	if err != nil {
		return
	}
	var drop []placement
	for i, job := range let {
		if h, ok := wire.HeldOf(there[i]); ok && h.Copy && h.Move == job.name {
			drop = append(drop, placement{id: job.id, digest: digestOf(there[i]), state: gone})
		}
	}
	_, _ = m.to.putRecords(ctx, drop, false) // a copy that stays runs nowhere, and the next Move replaces it
}

// Unmoved yields the jobs of the queue that are held since a Move of theirs to another queue wasn't finished: those that were in a state.
func (q *Queue) Unmoved(ctx context.Context, to string, state signalbox.State, prefix string) iter.Seq2[View, error] {
	return func(yield func(View, error) bool) {
		for view, err := range q.Jobs(ctx, Listing{State: signalbox.StateScheduled, Prefix: prefix, From: wire.HeldUntil, To: wire.HeldUntil}) {
			if err != nil {
				yield(View{}, err)
				return
			}
			if h := view.Held; h == nil || h.Copy || h.Peer != to || signalbox.State(h.State) != state {
				continue
			}
			view.State = state
			if !yield(view, nil) {
				return
			}
		}
	}
}

// A Held says what a job was that is being moved.
type Held = wire.Held
