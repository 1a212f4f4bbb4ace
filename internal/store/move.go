package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// A job is moved by steps, since two queues have no script in common: in a Cluster they are on two masters. The steps are:
//
//  1. hold: the job is held in its queue, so that no worker gets it. Its record says whereto, what it was, and a random name of this
//     try (Held.Move).
//  2. copy: the other queue gets a copy, held as well, with the same name.
//  3. commit: the job that is held says that the copy may be let go.
//  4. let go: the copy goes to the place that the job had. The same script leaves a receipt of that name in the other queue.
//  5. delete: the job that is held is deleted. The same script leaves a receipt of that name in its queue.
//
// A job that can't be moved is let go where it was instead. The same script leaves a receipt there that says so.
//
// Each step looks at the records of both queues, and changes one of them if that is still as it was. So Move may end after any step, and
// another Move goes on from there. Nothing is lost, and nothing runs twice, by these rules:
//
//   - A name is drawn each time a call holds a job or takes it over from another call, and never again. Only the call that drew it makes
//     copies of that name, and commits them.
//   - The other queue is read first. So a call that replaces a copy has seen afterwards that its own name holds the job: the name of the
//     copy is over, and nobody can commit it any more.
//   - The job that is held is deleted only if the other queue has the receipt of its name. That a copy is not there proves nothing: the
//     other queue's server may have failed over to a state before it had the copy.
//   - A job that is found committed, without a copy or a receipt of the name under which it was seen held before the other queue was read, has lost its copy to a failover: it
//     gets a new name, and is copied again. It may also have been copied and committed since the other queue was read. Then a new name does no harm: the receipt of the former one
//     is looked for, and the copy is replaced only if it is as it was read.
//   - A copy is let go if its original is committed. A copy without an original is let go if the queue of the original has the receipt of its
//     name: a failover has lost that it was let go. It is deleted if that queue has the receipt that says that the job was let go there, or goes on under another name: then the copy
//     came late. Nothing else ends a hold. So if there is neither, a failover of that queue has forgotten the hold, and perhaps the job: the copy is let go.
//   - A copy whose original isn't held is of no use, and is deleted.
//
// So a job that has gone on in the other queue is never put there a second time: not by a call that was made again, and not by another
// that is late. After a failover of one of the queues it may be, as decision 24 says. Receipts are kept for 30 days.

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
	seen      string // the name under which it was held in the round before: its receipt is looked for in the next one
	former    string // those before that, if calls have taken it over: the same
	looks     int    // in how many rounds it was held under the name that was seen
	kept      bool   // undo leaves it held: this call has committed it or taken it over, or tried to
	mine      bool   // this call has held it
	freed     bool   // it was let go here, since the ID or the unique key was taken there
	barred    bool   // the unique key was
	orphan    bool   // only its copy was left, and goes on
	committed bool   // it was seen committed, or gone on
	was       signalbox.State
	answer    *Answer // nil: it goes on
}

// look notes the names under which the job is held. It returns in how many rounds it was, with this one.
func (m *moving) look(h wire.Held) int {
	if h.Move != m.seen {
		m.looks = 0
	}
	m.seen, m.former = h.Move, h.Former
	m.looks++
	return m.looks
}

// draw draws a name under which this call is to hold the job, in place of former ones.
func (m *moving) draw(former string) string {
	m.name = NewID()
	m.seen, m.former, m.looks = m.name, former, 0
	return m.name
}

// adopt notes that the copy is let go. If it has no original, that ends the move of the job.
func (m *moving) adopt(c wire.Held, orphan bool) {
	if orphan && !m.committed {
		m.was = signalbox.State(c.State)
	}
	m.orphan = orphan
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
	// maxFormer is how many former names a job that is held has. A receipt of one of them says that the job has gone on.
	maxFormer = 8
	// A mover pauses before it looks at such a job again: for firstPause at first, then each time for twice as long, up to maxPause.
	firstPause = 200 * time.Microsecond
	maxPause   = 100 * time.Millisecond
)

// Move moves jobs to another queue of the namespace, of these states only if there are any. It returns what became of each: Occupied, if the other
// queue has a job of that ID. If it fails, it has moved those that it returns; others may be held, in either queue, until it is called again.
func (t *Transfer) Move(ctx context.Context, to string, ids []string, states ...signalbox.State) ([]Answer, error) {
	if to == t.q.name {
		return nil, fmt.Errorf("%w queue %q: the jobs are there", signalbox.ErrInvalid, to)
	}
	if len(states) == 0 {
		states = movable()
	}
	m := &mover{from: t.q, to: t.q.Sibling(to), states: states}
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
			p.Do(ctx, "HSTRLEN", m.from.keys.Jobs, id)
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
		found, err := m.read(ctx, left)
		if err != nil {
			return err
		}
		var p plan
		for i, job := range left {
			m.step(job, found[i], &p)
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

// A sight is what a round finds of a job.
type sight struct {
	here, there []byte // the records in both queues; nil where there is none
	went        string // of the names under which the job was held in the round before, the one whose receipt the other queue has; "": it has none
	left        bool   // the queue has the receipt of the name of the copy in the other: the job was deleted here
	stayed      bool   // it has one that says that the job doesn't go on by that copy, or by one of a former name
}

// copy returns what the record in the other queue says, if that is a copy of a job of this queue.
func (m *mover) copy(there []byte) (c wire.Held, copied bool) {
	c, copied = wire.HeldOf(there)
	return c, copied && c.Copy && c.Peer == m.from.name
}

// read looks at jobs in both queues, in the other queue first.
func (m *mover) read(ctx context.Context, jobs []*moving) ([]sight, error) {
	var names []string
	for _, job := range jobs {
		names = append(append(names, job.seen), strings.Fields(job.former)...)
	}
	there, went, err := m.to.Transfer().moving(ctx, jobs, names)
	if err != nil {
		return nil, err
	}
	names = names[:0]
	for i := range jobs {
		if c, copied := m.copy(there[i]); copied {
			names = append(append(names, c.Move), strings.Fields(stayed(c))...)
		}
	}
	here, left, err := m.from.Transfer().moving(ctx, jobs, names)
	if err != nil {
		return nil, err
	}
	found := make([]sight, len(jobs))
	for i, job := range jobs {
		s := sight{here: here[i], there: there[i]}
		if c, copied := m.copy(there[i]); copied {
			s.left = left[c.Move]
			s.stayed = slices.ContainsFunc(strings.Fields(stayed(c)), func(name string) bool { return left[name] })
		}
		for _, name := range append(strings.Fields(job.former), job.seen) {
			if went[name] {
				s.went = name
			}
		}
		found[i] = s
	}
	return found, nil
}

// moving returns the records of jobs, nil where there is none, and those of the names of moves that have a receipt. "" is no name.
func (t *Transfer) moving(ctx context.Context, jobs []*moving, names []string) (records [][]byte, receipts map[string]bool, err error) {
	args := scripts.Moving.Args(3*len(jobs), scripts.Arg("jobs", len(jobs)))
	for _, job := range jobs {
		args = append(args, job.id)
	}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == "" })
	for _, name := range names {
		args = append(args, name)
	}
	r, err := scripts.Moving.Run(ctx, t.q.rdb, scripts.Moving.Keys(&t.q.keys), args)
	if err != nil {
		return nil, nil, err
	}
	if err := r.Status("ok"); err != nil {
		return nil, nil, err
	}
	texts, marks := r.Strs(1), r.Strs(2)
	if r.Err == nil && (len(texts) != len(jobs) || len(marks) != len(names)) {
		r.Fail(1, fmt.Sprintf("%d records and %d receipts for %d jobs and %d moves", len(texts), len(marks), len(jobs), len(names)))
	}
	if r.Err != nil {
		return nil, nil, r.Err
	}
	records, receipts = make([][]byte, len(jobs)), make(map[string]bool)
	for i, text := range texts {
		if text != "" {
			records[i] = []byte(text[1:])
		}
	}
	for i, mark := range marks {
		receipts[names[i]] = mark != ""
	}
	return records, receipts, nil
}

// A plan is what one round does.
type plan struct {
	hold    []target // jobs that are held in their queue
	holding []*moving
	here    []placement        // in the queue that they leave
	commits []*moving          // jobs whose commits are in here
	there   []placement        // in the other
	copies  map[string]*moving // jobs whose copies are in there
	waits   bool               // for another mover
}

// step adds to the plan what is next for a job of which this was found, or ends it.
func (m *mover) step(job *moving, found sight, p *plan) {
	here, there := found.here, found.there
	h, held := wire.HeldOf(here)
	c, copied := m.copy(there)
	switch {
	case copied && found.left: // a failover there has forgotten that it was let go
		job.adopt(c, here == nil)
		p.there = append(p.there, m.free(job.id, there, c, namesOf(c)))
	case here == nil && copied && !found.stayed: // a failover here has forgotten that it was held, and maybe the job: only the copy is left
		job.adopt(c, true)
		p.there = append(p.there, m.free(job.id, there, c, namesOf(c)))
	case !held && copied: // left by a call that was late, or whose hold is forgotten: the job has gone on, or is here
		p.there = append(p.there, placement{id: job.id, digest: digestOf(there), state: gone})
	case here == nil && (job.committed || job.orphan || job.mine && !job.freed):
		job.end(Done, job.was)
	case here == nil:
		job.end(Gone, "")
	case !held && there != nil:
		job.end(Occupied, "")
	case !held && job.barred:
		job.end(KeyTaken, job.was)
	case !held:
		record, err := wire.Hold(here, wire.Held{Peer: m.to.name, Move: job.draw("")})
		if err != nil {
			job.end(Failed, "")
			return
		}
		p.hold = append(p.hold, target{id: job.id, digest: digestOf(here), record: record})
		p.holding = append(p.holding, job)
	case h.Copy || h.Peer != m.to.name:
		job.end(Wrong, StateHeld)
	default:
		m.carry(job, found, h, copied && c.Move == h.Move, copied, p)
	}
}

// carry is step for a job that is held. same says that the copy there has the same name; copied, that there is a copy.
func (m *mover) carry(job *moving, found sight, h wire.Held, same, copied bool, p *plan) {
	here, there := found.here, found.there
	asked := h.Move == job.seen && h.Former == job.former // found.went is about these names
	looks := job.look(h)
	went := asked && found.went != ""
	again := func(change func(h *wire.Held)) []byte { // the record that is held, with a change
		next := h
		change(&next)
		record, _ := wire.Hold(here, next) // it can be read
		return record
	}
	rename := func() { // nobody can commit the copy any more that was made under the old name
		job.kept = true
		former := strings.Fields(namesOf(h))
		kept := max(0, len(former)-maxFormer)
		name := job.draw(strings.Join(former[kept:], " "))
		p.here = append(p.here, placement{id: job.id, digest: digestOf(here), state: StateHeld, at: wire.HeldUntil, move: stay(former[:kept]...), record: again(func(h *wire.Held) {
			h.Move, h.Former, h.Committed = name, job.former, false
		})})
	}
	if !h.Committed && !went && !slices.Contains(m.states, signalbox.State(h.State)) {
		job.end(Wrong, signalbox.State(h.State))
		return
	}
	job.was, job.mine = signalbox.State(h.State), h.Move == job.name
	if h.Committed || went {
		job.committed = true
	}
	switch {
	case went: // also if a failover here has forgotten that it was committed
		names := strings.Fields(namesOf(h)) // up to the one that went: a failover there may bring back the copy of a former one
		later := slices.Index(names, found.went) + 1
		receipts := strings.TrimSpace(strings.Join(names[:later], " ") + " " + stay(names[later:]...))
		p.here = append(p.here, placement{id: job.id, digest: digestOf(here), state: gone, move: receipts})
	case !asked: // there may be a receipt
	case h.Committed && same:
		p.there = append(p.there, m.free(job.id, there, h, namesOf(h)))
	case h.Committed: // a failover there has lost the copy
		rename()
	case h.Move != job.name && looks < m.from.patience: // of another call, which may go on with it
		p.waits = true
	case h.Move != job.name: // of another call, which may have ended: this one takes it over
		rename()
	case same:
		p.here = append(p.here, placement{id: job.id, digest: digestOf(here), state: StateHeld, at: wire.HeldUntil, record: again(func(h *wire.Held) { h.Committed = true })})
		p.commits = append(p.commits, job)
	case job.barred: // another job has its unique key there
		job.freed = true
		p.here = append(p.here, m.free(job.id, here, h, stayed(h)))
	case there == nil || copied:
		next := placement{id: job.id, state: StateHeld, at: wire.HeldUntil, record: m.copyOf(job.id, here, h), move: forCopy + namesOf(h)}
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
		p.here = append(p.here, m.free(job.id, here, h, stayed(h)))
	}
}

// forCopy stands before the names of a copy that is put in.
const forCopy = "?"

// stay returns the receipts that say, in the queue of the original, that the job doesn't go on by copies of these names.
func stay(names ...string) string {
	receipts := make([]string, len(names))
	for i, name := range names {
		receipts[i] = "-" + name
	}
	return strings.Join(receipts, " ")
}

// stayed returns the receipts of a job that is let go where it was.
func stayed(h wire.Held) string { return stay(strings.Fields(namesOf(h))...) }

// namesOf returns the names under which a job is held and was held before. Each gets a receipt when the copy is let go: a failover may make a former one
// valid again.
func namesOf(h wire.Held) string { return strings.TrimSpace(h.Former + " " + h.Move) }

// free returns the placement that lets a job go which is held: to the place that it had. It leaves these receipts.
func (m *mover) free(id string, record []byte, h wire.Held, receipts string) placement {
	before, _ := wire.Unhold(record, h) // it can be read
	p := placement{id: id, digest: digestOf(record), state: signalbox.State(h.State), at: h.Due, record: before, move: receipts}
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
			case Wrong, Lost, Failed, InFlow:
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
		answers, err := m.to.Transfer().putRecords(ctx, p.there, false)
		for i, answer := range answers {
			if answer.Acted == KeyTaken {
				p.copies[p.there[i].id].barred = true
			}
		}
		if err != nil {
			return err
		}
	}
	for _, job := range p.commits {
		job.kept = true
	}
	if len(p.here) > 0 {
		if _, err := m.from.Transfer().putRecords(ctx, p.here, false); err != nil {
			return err
		}
	}
	return nil
}

// undoFor is how long a Move that fails tries to let the jobs go that it holds.
const undoFor = 2 * time.Second

// undo lets the jobs go that this call holds, if Redis answers. It leaves a job held that this call may have committed. It also leaves a job that another
// call has taken over, or may have. The copy of such a job may have been let go, also if a failover has forgotten that the job was committed or taken over.
// The other queue has a receipt then, or the copy of the other call. The next Move goes on with what is left.
func (m *mover) undo(ctx context.Context, jobs []*moving) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoFor)
	defer cancel()
	left := slices.DeleteFunc(open(jobs), func(m *moving) bool { return m.kept || m.committed })
	if len(left) == 0 {
		return
	}
	here, _, err := m.from.Transfer().moving(ctx, left, nil)
	if err != nil {
		return
	}
	names := make([]string, len(left))
	for i, job := range left {
		names[i] = job.name
	}
	// The other queue is looked at last. A failover may have gone back to the hold under this name. If a copy was committed since, that copy is there by now,
	// or its receipt.
	look, cancelLook := context.WithTimeout(ctx, undoFor/2)
	there, went, err := m.to.Transfer().moving(look, left, names)
	cancelLook()
	if err != nil { // they are let go all the same
		there = make([][]byte, len(left))
	}
	var free []placement
	var held []*moving // in the order of free
	for i, job := range left {
		if c, copied := m.copy(there[i]); went[job.name] || copied && c.Move != job.name {
			continue
		}
		if h, ok := wire.HeldOf(here[i]); ok && h.Move == job.name && !h.Committed {
			free, held = append(free, m.free(job.id, here[i], h, stayed(h))), append(held, job)
		}
	}
	acted, _ := m.from.Transfer().putRecords(ctx, free, false) // also if it fails, it says which it has let go
	let := held[:0]                                            // those that were let go: no copy of them can be committed any more
	for i, job := range held {
		if i < len(acted) && acted[i].Acted == Done {
			let = append(let, job)
		}
	}
	if len(let) == 0 {
		return
	}
	there, _, err = m.to.Transfer().moving(ctx, let, nil)
	if err != nil {
		return
	}
	var drop []placement
	for i, job := range let {
		if h, ok := wire.HeldOf(there[i]); ok && h.Copy && h.Move == job.name {
			drop = append(drop, placement{id: job.id, digest: digestOf(there[i]), state: gone})
		}
	}
	_, _ = m.to.Transfer().putRecords(ctx, drop, false) // a copy that stays runs nowhere, and the next Move replaces it
}

// Unmoved yields the jobs of the queue that are held since a Move of theirs to another queue wasn't finished: those that were in a state.
func (t *Transfer) Unmoved(ctx context.Context, to string, state signalbox.State, prefix string) iter.Seq2[looks.View, error] {
	return func(yield func(looks.View, error) bool) {
		for view, err := range t.q.Looks().Jobs(ctx, looks.Listing{State: signalbox.StateScheduled, Prefix: prefix, From: wire.HeldUntil, To: wire.HeldUntil}) {
			if err != nil {
				yield(looks.View{}, err)
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
