package store

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// A memory is what a queue had at one moment.
type memory map[string]string

// remember returns what the queue has.
func (r *rig) remember() memory {
	r.t.Helper()
	keys, err := r.Site().AllKeys(bg)
	r.must(err)
	values := make([]*redis.StringCmd, len(keys))
	_, err = r.rdb.Pipelined(bg, func(p redis.Pipeliner) error {
		for i, key := range keys {
			values[i] = p.Dump(bg, key)
		}
		return nil
	})
	r.must(err)
	m := make(memory, len(keys))
	for i, key := range keys {
		m[key] = values[i].Val()
	}
	return m
}

// failOver has the queue's server fail over to a replica that is behind: the queue has what it had then. Its worker gets another session, since
// what it was answered may be forgotten.
func (r *rig) failOver(m memory) {
	r.t.Helper()
	r.goBack(m)
	r.crash()
	r.lane = r.NewLane()
}

// goBack has the queue have what it had then.
func (r *rig) goBack(m memory) {
	r.t.Helper()
	keys, err := r.Site().AllKeys(bg)
	r.must(err)
	_, err = r.rdb.Pipelined(bg, func(p redis.Pipeliner) error {
		p.Del(bg, append(keys, r.keys.Prefix+"none")...)
		for key, value := range m {
			p.Restore(bg, key, 0, value)
		}
		return nil
	})
	r.must(err)
}

// needsDump skips a test that fails a queue over where the tests run on the embedded Redis, which dumps no hashes.
func needsDump(t *testing.T) {
	t.Helper()
	if !redistest.Start(t).Real() {
		t.Skip("the embedded Redis has no DUMP of hashes")
	}
}

// A tour is a call of Move of one job, round by round.
type tour struct {
	r *rig
	m *mover
	*moving
}

func (r *rig) tour(to *rig, id string) *tour {
	return &tour{r, &mover{from: r.Queue, to: to.Queue, states: movable()}, &moving{id: id}}
}

// The rounds of a move that nothing disturbs.
const (
	hasHeld = iota + 1
	hasCopied
	hasCommitted
	hasLetGo
	hasDeleted
)

// rounds makes so many rounds.
func (c *tour) rounds(n int) {
	c.r.t.Helper()
	for range n {
		left := open([]*moving{c.moving})
		if len(left) == 0 {
			return
		}
		found, err := c.m.read(bg, left)
		c.r.must(err)
		var p plan
		c.m.step(c.moving, found[0], &p)
		c.r.must(c.m.do(bg, &p))
	}
}

// end makes all rounds that are left.
func (c *tour) end() Answer {
	c.r.t.Helper()
	c.r.must(c.m.rounds(bg, []*moving{c.moving}))
	return *c.answer
}

// has reports where a job is, and whether it is held.
func (r *rig) has(id string) string {
	r.t.Helper()
	switch {
	case r.holds(id):
		return "held"
	case r.rdb.HExists(bg, r.keys.Jobs, id).Val():
		return "there"
	}
	return "gone"
}

// One of the queues fails over at any point of a move, to its state at any earlier one. The call goes on, or another one does, or the call fails and
// lets go what it may. The job is lost only if its original was deleted, and the other queue forgets that it had the copy. It runs
// again only if the queue forgets that it ran, or that it was held.
func testMoveFailsOver(t *testing.T, r *rig) {
	needsDump(t)
	r.open()
	to := r.other()
	r.put("first")
	r.moved(to, "first")
	same(t, "ran", to.runs(), 1)
	n := 0
	for home := range 2 {
		for at := hasHeld; at <= hasDeleted; at++ {
			for saved := range at + 1 {
				for _, ran := range []bool{false, true} {
					for how, goesOn := range []string{"goes on", "another call", "fails, then another call"} {
						n++
						id := fmt.Sprintf("j%d", n)
						what := fmt.Sprintf("%s: of the queue that it leaves: %v; fails over when it has done %d steps, to %d; ran: %v; it %s", id, home > 0, at, saved, ran, goesOn)
						r.put(id)
						c := r.tour(to, id)
						c.rounds(saved)
						q := []*rig{to, r}[home]
						before := q.remember()
						c.rounds(at - saved)
						runs := 0
						if ran {
							runs += to.runs()
						}
						q.failOver(before)
						switch how {
						case 0:
							c.end()
						case 2:
							c.m.undo(bg, []*moving{c.moving})
							fallthrough
						case 1:
							r.moved(to, id)
						}
						r.moved(to, id) // also one of which the other queue has a copy, and this one nothing
						for _, q := range []*rig{r, to} {
							same(t, what+": it is held", q.has(id) == "held", false)
							q.check()
						}
						runs += r.runs() + to.runs()
						want := 1
						switch {
						case home == 0 && at == hasDeleted && saved < hasCopied: // lost
							want = 0
							if ran {
								want = 1
							}
						case home == 0 && at >= hasLetGo && ran: // that it ran is forgotten
							want = 2
						case home == 1 && at >= hasLetGo && saved == 0: // that it was held is forgotten
							want = 2
						}
						same(t, what+": runs", runs, want)
					}
				}
			}
		}
	}
}

// A between is a client that does something before one of its calls of scripts.
type between struct {
	redis.UniversalClient
	calls int // that are left until that one
	do    func()
}

func (b *between) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if b.calls--; b.calls == 0 {
		b.do()
	}
	return b.UniversalClient.EvalSha(ctx, sha, keys, args...)
}

// The ways in which moves meet failovers. Each returns what it has seen, and what is right.
var moveFailovers = []struct {
	name string
	do   func(t *testing.T, r, to *rig)
}{
	{"the copy is lost", func(t *testing.T, r, to *rig) {
		r.put("a")
		empty := to.remember()
		r.tour(to, "a").rounds(hasCommitted)
		to.failOver(empty)
		same(t, "answer", r.moved(to, "a"), Answer{Done, signalbox.StateReady})
		same(t, "runs", to.runs(), 1)
		same(t, "here", r.has("a"), "gone")
	}},
	{"the queue that it leaves forgets it, while the other has the copy", func(t *testing.T, r, to *rig) {
		empty := r.remember()
		r.put("a")
		c := r.tour(to, "a")
		c.rounds(hasCopied)
		r.failOver(empty)
		same(t, "answer", c.end(), Answer{Done, signalbox.StateReady})
		same(t, "runs", to.runs(), 1)
	}},
	{"the queue that it leaves forgets it, when the mover has seen it committed", func(t *testing.T, r, to *rig) {
		empty := r.remember()
		r.put("a")
		c := r.tour(to, "a")
		c.rounds(hasCommitted)
		found, err := c.m.read(bg, []*moving{c.moving})
		r.must(err)
		var p plan
		c.m.step(c.moving, found[0], &p) // it lets the copy go, and that doesn't arrive
		r.failOver(empty)
		same(t, "answer", c.end(), Answer{Done, signalbox.StateReady})
		same(t, "runs", to.runs(), 1)
		same(t, "answer of another call", r.moved(to, "a"), Answer{Acted: Gone})
	}},
	{"the queue that it leaves forgets it, and another call finds the copy", func(t *testing.T, r, to *rig) {
		empty := r.remember()
		r.put("a")
		r.tour(to, "a").rounds(hasCopied)
		r.failOver(empty)
		same(t, "answer", r.moved(to, "a"), Answer{Done, signalbox.StateReady}) // it isn't here, and goes on there
		same(t, "runs", to.runs(), 1)
	}},
	{"the queue that it leaves forgets it, and two calls that knew it go on", func(t *testing.T, r, to *rig) {
		empty := r.remember()
		r.put("a")
		one, two := r.tour(to, "a"), r.tour(to, "a")
		one.rounds(hasCopied)
		two.rounds(takeOverAt + 1) // its copy stands in the place of the other's
		r.failOver(empty)
		for range 4 {
			one.rounds(1)
			two.rounds(1)
		}
		same(t, "answer of the second", two.end(), Answer{Done, signalbox.StateReady})
		one.end()
		same(t, "runs", to.runs()+r.runs(), 1)
	}},
	{"the queue that it leaves forgets it, and a copy of another call comes late", func(t *testing.T, r, to *rig) {
		empty := r.remember()
		r.put("a")
		one, two := r.tour(to, "a"), r.tour(to, "a")
		one.rounds(hasCopied)
		two.rounds(takeOverAt)
		found, err := two.m.read(bg, []*moving{two.moving})
		r.must(err)
		var late plan
		two.m.step(two.moving, found[0], &late) // its copy, in the place of the other's
		late.there[0].digest = ""               // as if there had been none
		r.failOver(empty)
		r.moved(to, "a")
		same(t, "runs", to.runs(), 1)
		r.must(two.m.do(bg, &late))
		same(t, "there", to.has("a"), "gone")
		two.end()
		same(t, "runs again", to.runs()+r.runs(), 0)
	}},
	{"the queue that it leaves forgets it, and the call fails", func(t *testing.T, r, to *rig) {
		empty := r.remember()
		r.put("a")
		c := r.tour(to, "a")
		c.rounds(hasCopied)
		r.failOver(empty)
		c.m.undo(bg, []*moving{c.moving})
		same(t, "there", to.has("a"), "held")
		r.moved(to, "a")
		same(t, "runs", to.runs(), 1)
	}},
	{"the queue that it leaves forgets it, and it is enqueued again", func(t *testing.T, r, to *rig) {
		empty := r.remember()
		r.put("a")
		c := r.tour(to, "a")
		c.rounds(hasCopied)
		r.failOver(empty)
		r.put("a")
		same(t, "answer", c.end(), Answer{Done, signalbox.StateReady})
		same(t, "runs", to.runs()+r.runs(), 1)
	}},
	{"both queues forget it, one after the other, and it is let go again", func(t *testing.T, r, to *rig) {
		empty := r.remember()
		r.put("a")
		c := r.tour(to, "a")
		c.rounds(hasCommitted)
		held := to.remember()
		r.failOver(empty)
		same(t, "answer", c.end(), Answer{Done, signalbox.StateReady})
		to.failOver(held)
		same(t, "there", to.has("a"), "held")
		r.moved(to, "a")
		same(t, "runs", to.runs()+r.runs(), 1)
	}},
	{"the copy is lost, and the mover goes on", func(t *testing.T, r, to *rig) {
		r.put("a")
		empty := to.remember()
		c := r.tour(to, "a")
		c.rounds(hasCommitted)
		first := c.name
		to.failOver(empty)
		same(t, "answer", c.end(), Answer{Done, signalbox.StateReady})
		same(t, "the same name", c.name == first, false)
		same(t, "receipts", r.rdb.ZCard(bg, to.keys.Receipts).Val(), 2)
		same(t, "runs", to.runs(), 1)
	}},
	{"the copy is lost, and the ID was taken there since", func(t *testing.T, r, to *rig) {
		r.put("a")
		empty := to.remember()
		r.tour(to, "a").rounds(hasCommitted)
		to.failOver(empty)
		to.put("a")
		same(t, "answer", r.moved(to, "a"), Answer{Acted: Occupied})
		same(t, "runs", to.runs()+r.runs(), 2) // it is here, as it was, and the new one there
	}},
	{"the copy is lost, and its unique key was taken there since", func(t *testing.T, r, to *rig) {
		same(t, "enqueued", r.fates(r.update("a", 0, 0, 0)), "1")
		empty := to.remember()
		r.tour(to, "a").rounds(hasCommitted)
		to.failOver(empty)
		same(t, "enqueued there", to.fates(to.update("b", 0, 0, 0)), "1")
		same(t, "answer", r.moved(to, "a"), Answer{KeyTaken, signalbox.StateReady})
		same(t, "here", r.has("a"), "there")
		same(t, "runs", to.runs()+r.runs(), 2)
	}},
	{"two movers find that the copy is lost", func(t *testing.T, r, to *rig) {
		r.put("a")
		empty := to.remember()
		r.tour(to, "a").rounds(hasCommitted)
		to.failOver(empty)
		one, two := r.tour(to, "a"), r.tour(to, "a")
		for range 20 {
			one.rounds(1)
			two.rounds(1)
		}
		same(t, "answer", one.end(), Answer{Done, signalbox.StateReady})
		same(t, "answer of the other", two.end(), Answer{Done, signalbox.StateReady})
		same(t, "runs", to.runs(), 1)
	}},
	{"a mover lets go late what was lost and copied again", func(t *testing.T, r, to *rig) {
		r.put("a")
		empty := to.remember()
		c := r.tour(to, "a")
		c.rounds(hasCommitted)
		found, err := c.m.read(bg, []*moving{c.moving})
		r.must(err)
		var late plan
		c.m.step(c.moving, found[0], &late)
		to.failOver(empty)
		same(t, "answer", r.moved(to, "a"), Answer{Done, signalbox.StateReady})
		r.must(c.m.do(bg, &late))
		same(t, "runs", to.runs(), 1)
		r.must(c.m.do(bg, &late))
		same(t, "answer", c.end(), Answer{Done, signalbox.StateReady})
		same(t, "runs again", to.runs()+r.runs(), 0)
	}},
	{"a commit comes late, after the job has another name", func(t *testing.T, r, to *rig) {
		r.put("a")
		empty := to.remember()
		c := r.tour(to, "a")
		c.rounds(hasCopied)
		found, err := c.m.read(bg, []*moving{c.moving})
		r.must(err)
		var late plan
		c.m.step(c.moving, found[0], &late)
		to.failOver(empty)
		other := r.tour(to, "a")
		other.rounds(takeOverAt + 1)
		r.must(c.m.do(bg, &late))
		same(t, "answer", other.end(), Answer{Done, signalbox.StateReady})
		same(t, "answer of the first", c.end().Acted, Done)
		same(t, "runs", to.runs()+r.runs(), 1)
	}},
	{"a copy comes late, after the job has run", func(t *testing.T, r, to *rig) {
		r.put("a")
		c := r.tour(to, "a")
		c.rounds(hasHeld)
		found, err := c.m.read(bg, []*moving{c.moving})
		r.must(err)
		var late plan
		c.m.step(c.moving, found[0], &late)
		r.must(c.m.do(bg, &late))
		same(t, "answer", c.end(), Answer{Done, signalbox.StateReady})
		same(t, "runs", to.runs(), 1)
		r.must(c.m.do(bg, &late))
		same(t, "there", to.has("a"), "gone")
	}},
	{"that it was let go is forgotten, after the original is deleted", func(t *testing.T, r, to *rig) {
		r.put("a")
		c := r.tour(to, "a")
		c.rounds(hasCommitted)
		held := to.remember()
		same(t, "answer", c.end(), Answer{Done, signalbox.StateReady})
		to.failOver(held)
		same(t, "there", to.has("a"), "held")
		same(t, "answer", r.moved(to, "a"), Answer{Done, signalbox.StateReady})
		same(t, "runs", to.runs(), 1)
		same(t, "answer when it has run", r.moved(to, "a"), Answer{Acted: Gone})
	}},
	{"the same, and the ID is in use again", func(t *testing.T, r, to *rig) {
		r.put("a")
		c := r.tour(to, "a")
		c.rounds(hasCommitted)
		held := to.remember()
		same(t, "answer", c.end(), Answer{Done, signalbox.StateReady})
		to.failOver(held)
		r.put("a") // another job
		same(t, "answer", r.moved(to, "a"), Answer{Acted: Occupied})
		same(t, "there", to.runs(), 1)
		same(t, "here", r.runs(), 1)
	}},
	{"that it was committed is forgotten, and the call fails", func(t *testing.T, r, to *rig) {
		r.put("a")
		c := r.tour(to, "a")
		c.rounds(hasCopied)
		held := r.remember()
		c.rounds(hasLetGo - hasCopied)
		r.failOver(held)
		c.m.undo(bg, []*moving{c.moving})
		same(t, "here", r.has("a"), "held")
		same(t, "runs", to.runs()+r.runs(), 1)
		same(t, "answer", r.moved(to, "a"), Answer{Done, signalbox.StateReady})
		same(t, "runs again", to.runs()+r.runs(), 0)
	}},
	{"that it was committed is forgotten, and the call fails, and can't reach the other queue", func(t *testing.T, r, to *rig) {
		r.put("a")
		c := r.tour(to, "a")
		c.rounds(hasCopied)
		held := r.remember()
		c.rounds(hasCommitted - hasCopied)
		r.tour(to, "a").rounds(hasLetGo - hasCommitted + 1) // another one lets the copy go
		r.failOver(held)
		c.m.to = r.Sibling("nowhere")
		c.m.undo(bg, []*moving{c.moving})
		same(t, "here", r.has("a"), "held")
		same(t, "runs", to.runs()+r.runs(), 1)
		same(t, "answer", r.moved(to, "a"), Answer{Done, signalbox.StateReady})
		same(t, "runs again", to.runs()+r.runs(), 0)
	}},
	{"that it was committed is forgotten, and a call for other states comes", func(t *testing.T, r, to *rig) {
		r.put("a")
		c := r.tour(to, "a")
		c.rounds(hasHeld)
		held := r.remember()
		c.rounds(hasLetGo - hasHeld)
		r.failOver(held)
		same(t, "answer", r.moved(to, "a", signalbox.StateDead), Answer{Wrong, signalbox.StateReady})
		same(t, "runs", to.runs()+r.runs(), 1)
		same(t, "answer", r.moved(to, "a"), Answer{Done, signalbox.StateReady})
		same(t, "runs again", to.runs()+r.runs(), 0)
	}},
	{"that it was committed is forgotten between the two looks of another mover", func(t *testing.T, r, to *rig) {
		r.put("a")
		c := r.tour(to, "a")
		c.rounds(hasHeld)
		held := r.remember()
		other := r.tour(to, "a")
		other.rounds(takeOverAt - 1)
		there, _, err := to.Transfer().moving(bg, []*moving{other.moving}, []string{other.seen}) // in the other queue, at first
		r.must(err)
		c.rounds(hasLetGo - hasHeld)
		r.failOver(held)
		here, _, err := r.Transfer().moving(bg, []*moving{other.moving}, nil)
		r.must(err)
		var p plan
		other.m.step(other.moving, sight{here: here[0], there: there[0]}, &p)
		r.must(other.m.do(bg, &p))
		same(t, "taken over", len(p.here), 1)
		other.m.undo(bg, []*moving{other.moving})
		same(t, "answer", r.moved(to, "a"), Answer{Done, signalbox.StateReady})
		same(t, "runs", to.runs()+r.runs(), 1)
	}},
	{"that it was taken over is forgotten", func(t *testing.T, r, to *rig) {
		r.put("a")
		first := r.tour(to, "a")
		first.rounds(hasHeld)
		held := r.remember()
		same(t, "answer", r.moved(to, "a"), Answer{Done, signalbox.StateReady}) // under another name
		same(t, "runs", to.runs(), 1)
		r.failOver(held)
		same(t, "answer of the first", first.end(), Answer{Done, signalbox.StateReady})
		same(t, "answer", r.moved(to, "a"), Answer{Acted: Gone})
		same(t, "runs again", to.runs()+r.runs(), 0)
	}},
	{"that it was taken over is forgotten, and the first call fails", func(t *testing.T, r, to *rig) {
		r.put("a")
		first := r.tour(to, "a")
		first.rounds(hasHeld)
		held := r.remember()
		same(t, "answer", r.moved(to, "a"), Answer{Done, signalbox.StateReady}) // under another name
		same(t, "runs", to.runs(), 1)
		r.failOver(held)
		first.m.undo(bg, []*moving{first.moving})
		same(t, "here", r.has("a"), "held")
		same(t, "answer", r.moved(to, "a"), Answer{Done, signalbox.StateReady})
		same(t, "runs again", to.runs()+r.runs(), 0)
	}},
	{"that it was taken over is forgotten, and the first call, which has seen it committed, can't reach the other queue", func(t *testing.T, r, to *rig) {
		r.put("a")
		first, second := r.tour(to, "a"), r.tour(to, "a")
		first.rounds(hasHeld)
		held := r.remember()
		second.rounds(takeOverAt + hasCommitted - hasHeld)
		first.rounds(2) // it lets the copy go
		same(t, "runs", to.runs(), 1)
		r.failOver(held)
		first.m.to = r.Sibling("nowhere")
		first.m.undo(bg, []*moving{first.moving})
		same(t, "here", r.has("a"), "held")
		same(t, "answer", r.moved(to, "a"), Answer{Done, signalbox.StateReady})
		same(t, "runs again", to.runs()+r.runs(), 0)
	}},
	{"that it was taken over is forgotten, between the two looks of the first call, which fails", func(t *testing.T, r, to *rig) {
		r.put("a")
		first, second := r.tour(to, "a"), r.tour(to, "a")
		first.rounds(hasHeld)
		held := r.remember()
		var late plan
		c := &between{UniversalClient: r.rdb, calls: 2, do: func() {
			second.rounds(takeOverAt + hasCommitted - hasHeld)
			found, err := second.m.read(bg, []*moving{second.moving})
			r.must(err)
			second.m.step(second.moving, found[0], &late) // it lets the copy go, and that comes late
			r.failOver(held)
		}}
		from, into := *r.Queue, *to.Queue
		from.rdb, into.rdb = c, c
		m := &mover{from: &from, to: &into, states: first.m.states}
		m.undo(bg, []*moving{first.moving})
		same(t, "here", r.has("a"), "held")
		r.must(second.m.do(bg, &late))
		same(t, "answer", r.moved(to, "a"), Answer{Done, signalbox.StateReady})
		same(t, "runs", to.runs()+r.runs(), 1)
	}},
	{"that it was taken over is forgotten, after both looks of the first call, which fails", func(t *testing.T, r, to *rig) {
		r.put("a")
		first, second := r.tour(to, "a"), r.tour(to, "a")
		first.rounds(hasHeld)
		held := r.remember()
		c := &between{UniversalClient: r.rdb, calls: 3, do: func() { // before it is let go
			second.rounds(takeOverAt + hasLetGo - hasHeld)
			r.failOver(held)
		}}
		from, into := *r.Queue, *to.Queue
		from.rdb, into.rdb = c, c
		m := &mover{from: &from, to: &into, states: first.m.states}
		m.undo(bg, []*moving{first.moving})
		here, there := r.one(), to.one() // nothing tells this hold from the former one
		same(t, "effect key", here.Job.EffectKey(), there.Job.EffectKey())
		r.settled(settlement(here, Completed))
		to.settled(settlement(there, Completed))
	}},
	{"that it was taken over is forgotten, the first call fails, and the copy of the other is left", func(t *testing.T, r, to *rig) {
		r.put("a")
		first := r.tour(to, "a")
		first.rounds(hasHeld)
		held := r.remember()
		r.tour(to, "a").rounds(takeOverAt + hasCopied - hasHeld)
		r.failOver(held)
		first.m.to = r.Sibling("nowhere") // where it would find that copy
		first.m.undo(bg, []*moving{first.moving})
		same(t, "there", to.has("a"), "held")
		same(t, "runs", r.runs(), 1)
		same(t, "answer", r.moved(to, "a"), Answer{Acted: Gone})
		same(t, "the copy", to.has("a"), "gone")
		same(t, "runs again", to.runs()+r.runs(), 0)
	}},
	{"the other queue goes back to the copy of a call whose job was taken over", func(t *testing.T, r, to *rig) {
		r.put("a")
		r.tour(to, "a").rounds(hasCopied)
		copied := to.remember()
		same(t, "answer", r.moved(to, "a"), Answer{Done, signalbox.StateReady}) // under another name
		to.failOver(copied)
		r.moved(to, "a")
		same(t, "there", to.has("a"), "there")
		same(t, "runs", to.runs()+r.runs(), 1)
	}},
	{"that it was held is forgotten", func(t *testing.T, r, to *rig) {
		r.put("a")
		before := r.remember()
		same(t, "answer", r.moved(to, "a"), Answer{Done, signalbox.StateReady})
		r.failOver(before)
		first, second := r.one(), to.one() // as after any failover that forgets the end of a job
		same(t, "effect key", first.Job.EffectKey(), second.Job.EffectKey())
		r.settled(settlement(first, Completed))
		to.settled(settlement(second, Completed))
	}},
	{"that it was held is forgotten, and it has run here", func(t *testing.T, r, to *rig) {
		r.put("a")
		before := r.remember()
		c := r.tour(to, "a")
		c.rounds(hasCopied)
		r.failOver(before)
		first := r.one()
		r.settled(settlement(first, Completed))
		same(t, "the copy", to.has("a"), "held")
		same(t, "answer", c.end().Acted, Done) // nobody knows that the queue has had it since: it may have forgotten the job
		second := to.one()
		same(t, "effect key", second.Job.EffectKey(), first.Job.EffectKey())
		to.settled(settlement(second, Completed))
	}},
	{"that it was held is forgotten, and it runs here", func(t *testing.T, r, to *rig) {
		r.put("a")
		before := r.remember()
		r.tour(to, "a").rounds(hasCopied)
		r.failOver(before)
		d := r.one()
		same(t, "answer", r.moved(to, "a"), Answer{Wrong, signalbox.StateRunning})
		same(t, "the copy", to.has("a"), "gone")
		r.settled(settlement(d, Completed))
		same(t, "answer", r.moved(to, "a"), Answer{Acted: Gone})
		same(t, "runs again", to.runs()+r.runs(), 0)
	}},
	{"no failover: it was let go where it was, has run, and its copy is left", func(t *testing.T, r, to *rig) {
		r.put("a")
		c := r.tour(to, "a")
		c.rounds(hasCopied)
		c.m.to = r.Sibling("nowhere") // it can't reach the other queue
		c.m.undo(bg, []*moving{c.moving})
		same(t, "the copy", to.has("a"), "held")
		same(t, "runs", r.runs(), 1)
		same(t, "answer", r.moved(to, "a"), Answer{Acted: Gone})
		same(t, "the copy", to.has("a"), "gone")
		same(t, "runs again", to.runs()+r.runs(), 0)
	}},
	{"no failover: it was let go where it was, has run, and its copy comes late", func(t *testing.T, r, to *rig) {
		same(t, "enqueued", r.fates(r.update("a", 0, 0, 0)), "1") // with a unique key
		c := r.tour(to, "a")
		c.rounds(hasHeld)
		found, err := c.m.read(bg, []*moving{c.moving})
		r.must(err)
		var late plan
		c.m.step(c.moving, found[0], &late)
		same(t, "enqueued there", to.fates(to.update("b", 0, 0, 0)), "1")
		same(t, "answer", c.end(), Answer{KeyTaken, signalbox.StateReady})
		same(t, "runs", r.runs()+to.runs(), 2)
		r.must(c.m.do(bg, &late))
		same(t, "the copy", to.has("a"), "held")
		same(t, "answer", r.moved(to, "a"), Answer{Acted: Gone})
		same(t, "the copy", to.has("a"), "gone")
		same(t, "runs again", to.runs()+r.runs(), 0)
	}},
	{"no failover: a copy with a unique key comes late, after the job has run", func(t *testing.T, r, to *rig) {
		same(t, "enqueued", r.fates(r.update("a", 0, 0, 0)), "1")
		c := r.tour(to, "a")
		c.rounds(hasHeld)
		found, err := c.m.read(bg, []*moving{c.moving})
		r.must(err)
		var late plan
		c.m.step(c.moving, found[0], &late)
		same(t, "answer", c.end(), Answer{Done, signalbox.StateReady})
		same(t, "runs", to.runs(), 1)
		r.must(c.m.do(bg, &late))
		same(t, "there", to.has("a"), "gone")
		same(t, "unique keys", to.rdb.HLen(bg, to.keys.Unique).Val(), 0)
	}},
	{"no failover: many calls take it over, and a copy of the first comes late", func(t *testing.T, r, to *rig) {
		r.put("a")
		c := r.tour(to, "a")
		c.rounds(hasHeld)
		found, err := c.m.read(bg, []*moving{c.moving})
		r.must(err)
		var late plan
		c.m.step(c.moving, found[0], &late)
		for range maxFormer + 1 {
			r.tour(to, "a").rounds(takeOverAt)
		}
		same(t, "answer", r.moved(to, "a"), Answer{Done, signalbox.StateReady})
		same(t, "runs", to.runs(), 1)
		r.must(c.m.do(bg, &late))
		r.moved(to, "a")
		same(t, "the copy", to.has("a"), "gone")
		same(t, "runs again", to.runs()+r.runs(), 0)
	}},
	{"no failover: it is taken over after its copy has gone on, and a copy of the new name comes late", func(t *testing.T, r, to *rig) {
		r.put("a")
		c := r.tour(to, "a")
		c.rounds(hasCommitted)
		other := r.tour(to, "a")
		seen, err := other.m.read(bg, []*moving{other.moving})
		r.must(err)
		c.rounds(hasLetGo - hasCommitted)
		other.moving.look(mustHeld(t, seen[0].here))
		var p plan
		other.m.step(other.moving, sight{here: seen[0].here}, &p) // as if it had found no copy
		r.must(other.m.do(bg, &p))
		same(t, "taken over", len(p.here), 1)
		h := mustHeld(t, r.rdb.HGet(bg, r.keys.Jobs, "a").Val())
		same(t, "runs", to.runs(), 1)
		same(t, "answer", r.moved(to, "a"), Answer{Done, signalbox.StateReady})
		same(t, "receipt of the new name", r.rdb.ZScore(bg, r.keys.Receipts, stay(h.Move)).Err(), nil)
	}},
	{"that it was deleted is forgotten", func(t *testing.T, r, to *rig) {
		r.put("a")
		c := r.tour(to, "a")
		c.rounds(hasLetGo)
		held := r.remember()
		same(t, "answer", c.end(), Answer{Done, signalbox.StateReady})
		same(t, "runs", to.runs(), 1)
		r.failOver(held)
		same(t, "here", r.has("a"), "held")
		same(t, "answer", r.moved(to, "a"), Answer{Done, signalbox.StateReady})
		same(t, "runs again", to.runs()+r.runs(), 0)
	}},
	{"a dead job whose copy is lost", func(t *testing.T, r, to *rig) {
		r.into("a", signalbox.StateDead)
		was := r.shown("a")
		empty := to.remember()
		r.tour(to, "a").rounds(hasCommitted)
		to.failOver(empty)
		same(t, "answer", r.moved(to, "a", signalbox.StateDead), Answer{Done, signalbox.StateDead})
		same(t, "state", to.shown("a").State, signalbox.StateDead)
		same(t, "end", to.shown("a").At.Equal(was.At), true)
	}},
	{"a scheduled job whose copy is lost", func(t *testing.T, r, to *rig) {
		r.into("a", signalbox.StateScheduled)
		was := r.shown("a")
		empty := to.remember()
		r.tour(to, "a").rounds(hasCommitted)
		to.failOver(empty)
		same(t, "answer", r.moved(to, "a"), Answer{Done, signalbox.StateScheduled})
		same(t, "state", to.shown("a").State, signalbox.StateScheduled)
		same(t, "time", to.shown("a").At.Equal(was.At), true)
	}},
	{"there and back, and the first queue forgets where it went", func(t *testing.T, r, to *rig) {
		r.put("a")
		c := r.tour(to, "a")
		c.rounds(hasCommitted)
		held := r.remember()
		same(t, "answer", c.end(), Answer{Done, signalbox.StateReady})
		same(t, "back", to.moved(r, "a"), Answer{Done, signalbox.StateReady})
		same(t, "runs", r.runs(), 1)
		r.failOver(held)
		same(t, "answer", r.moved(to, "a"), Answer{Done, signalbox.StateReady})
		same(t, "runs again", to.runs()+r.runs(), 0)
	}},
	{"a hundred jobs, half of whose copies are lost", func(t *testing.T, r, to *rig) {
		ids := numbered("j", 100)
		r.put(ids...)
		half := &mortal{calls: 3} // hold, copy, commit
		_, err := r.mover(half).Transfer().Move(bg, to.Name(), ids[:50])
		if !errors.Is(err, errDied) {
			t.Fatal(err)
		}
		some := to.remember()
		_, err = r.mover(&mortal{calls: 3}).Transfer().Move(bg, to.Name(), ids[50:])
		if !errors.Is(err, errDied) {
			t.Fatal(err)
		}
		to.failOver(some)
		answers, err := r.Transfer().Move(bg, to.Name(), ids)
		r.must(err)
		for i, a := range answers {
			same(t, ids[i], a, Answer{Done, signalbox.StateReady})
		}
		same(t, "runs", to.runs(), 100)
		same(t, "here", r.rdb.HLen(bg, r.keys.Jobs).Val(), 0)
	}},
	{"a move that is made again after its receipts are dropped", func(t *testing.T, r, to *rig) {
		r.put("a")
		r.tour(to, "a").rounds(hasLetGo)
		same(t, "runs", to.runs(), 1)
		to.age(to.keys.Receipts, r.only(to.keys.Receipts), 31*24*time.Hour)
		same(t, "dropped", to.sweep(), 1)
		same(t, "answer", r.moved(to, "a"), Answer{Done, signalbox.StateReady})
		d := to.one() // nobody knows any more that it has run: it may have been lost as well
		effect := signalbox.Job{ID: "a", Queue: r.Name()}
		same(t, "effect key", d.Job.EffectKey(), effect.EffectKey())
		to.settled(settlement(d, Completed))
	}},
	{"what is held is left by operators meanwhile", func(t *testing.T, r, to *rig) {
		r.put("a")
		empty := to.remember()
		r.tour(to, "a").rounds(hasCommitted)
		to.failOver(empty)
		for _, act := range []Act{DeleteJobs(), CancelJobs("why"), RunJobs(time.Time{}), PrioritiseJobs(signalbox.PriorityLow)} {
			same(t, act.verb, r.did(act, "a"), Answer{Wrong, StateHeld})
		}
		same(t, "answer", r.moved(to, "a"), Answer{Done, signalbox.StateReady})
		same(t, "runs", to.runs(), 1)
	}},
	{"a dead job is copied, and its queue forgets that it was", func(t *testing.T, r, to *rig) {
		r.must(r.Settings().SetCopies(bg, to.Name()))
		r.bury(Dead, "a")
		noted := r.remember()
		same(t, "copies", r.copyAll(r.Transfer().NewCopier()).Jobs, 1)
		r.failOver(noted)
		same(t, "copies again", r.copyAll(r.Transfer().NewCopier()).Jobs, 1)
		same(t, "there", to.runs(), 1)
		same(t, "notes", len(r.noted()), 0)
	}},
	{"a dead job is copied, and its queue forgets that it died", func(t *testing.T, r, to *rig) {
		r.must(r.Settings().SetCopies(bg, to.Name()))
		r.put("a")
		before := r.remember()
		r.settled(settlement(r.one(), Dead))
		same(t, "copies", r.copyAll(r.Transfer().NewCopier()).Jobs, 1)
		r.later()
		r.failOver(before)
		r.settled(settlement(r.one(), Dead)) // it runs and dies again: that is another death
		same(t, "copies again", r.copyAll(r.Transfer().NewCopier()).Jobs, 1)
		same(t, "there", to.runs(), 2)
	}},
	{"a dead job is copied, and the other queue forgets the copy", func(t *testing.T, r, to *rig) {
		r.must(r.Settings().SetCopies(bg, to.Name()))
		r.bury(Dead, "a", "b")
		empty := to.remember()
		_, err := r.mover(&mortal{calls: 2}).Transfer().NewCopier().Copy(bg, []string{"a"}) // its note is still there
		if !errors.Is(err, errDied) {
			t.Fatal(err)
		}
		done, err := r.Transfer().NewCopier().Copy(bg, []string{"b"})
		r.must(err)
		same(t, "copies", done.Jobs, 1)
		to.failOver(empty)
		same(t, "copies again", r.copyAll(r.Transfer().NewCopier()).Jobs, 1)
		same(t, "there", to.runs(), 1)
		equal(t, "dead jobs", r.buried(r.keys.Dead), []string{"a", "b"}) // b's copy is lost as any job of that queue; b isn't
	}},
	{"a dead job is moved while its copy waits to be made", func(t *testing.T, r, to *rig) {
		r.must(r.Settings().SetCopies(bg, to.Name()))
		third := r.other()
		r.bury(Dead, "a")
		empty := third.remember()
		r.tour(third, "a").rounds(hasCommitted)
		third.failOver(empty)
		same(t, "copies", r.copyAll(r.Transfer().NewCopier()).Jobs, 1) // it is held, and was dead: its move could still be undone
		same(t, "answer", r.moved(third, "a"), Answer{Done, signalbox.StateDead})
		same(t, "state", third.shown("a").State, signalbox.StateDead)
	}},
}

func testMoveFailovers(t *testing.T, r *rig) {
	needsDump(t)
	for _, c := range moveFailovers {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			from := newQueue(t, r.rdb)
			from.open()
			to := from.other()
			c.do(t, from, to)
			for _, q := range []*rig{from, to} {
				if found, _ := q.findings(false); len(found) > 0 {
					t.Errorf("queue %s: the doctor finds %+v", q.Name(), found)
				}
			}
		})
	}
}

// mustHeld returns what the record of a job says that is held.
func mustHeld[T string | []byte](t *testing.T, record T) wire.Held {
	t.Helper()
	h, held := wire.HeldOf([]byte(record))
	if !held {
		t.Fatal("it isn't held")
	}
	return h
}

// only returns the only member of a sorted set.
func (r *rig) only(key string) string {
	r.t.Helper()
	all := r.rdb.ZRange(bg, key, 0, -1).Val()
	if len(all) != 1 {
		r.t.Fatalf("%s has %v", key, all)
	}
	return all[0]
}

// Receipts go after 30 days, in small steps: by sweeps, and by moves.
func testReceipts(t *testing.T, r *rig) {
	r.open()
	to := r.other()
	old := make([]redis.Z, 1200)
	long := float64(r.rdb.Time(bg).Val().Add(-30*24*time.Hour - time.Minute).UnixMicro())
	for i := range old {
		old[i] = redis.Z{Score: long, Member: fmt.Sprint("old", i)}
	}
	r.must(to.rdb.ZAdd(bg, to.keys.Receipts, old...).Err())
	r.must(to.rdb.ZAdd(bg, to.keys.Receipts, redis.Z{Score: long + 120e6, Member: "young"}).Err())
	left := func() int64 { return to.rdb.ZCard(bg, to.keys.Receipts).Val() - 1 }
	r.put("a")
	r.moved(to, "a")
	same(t, "left by a move", left(), 1200+1-2)
	same(t, "swept", to.sweep(), 500)
	same(t, "swept", to.sweep(), 500)
	same(t, "swept", to.sweep(), 198)
	same(t, "swept", to.sweep(), 0)
	same(t, "left", left(), 1)
	same(t, "both queues have the receipt of the same move", to.rdb.ZRange(bg, to.keys.Receipts, -1, -1).Val()[0], r.only(r.keys.Receipts))
	same(t, "runs", to.runs(), 1)
}
