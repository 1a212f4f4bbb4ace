package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/wire"
	"github.com/signalbox-go/signalbox/lock/fence"
)

// A copyWalk has jobs die in one queue, and copiers copy them to another one. Operators retry dead jobs, and move jobs and copies to the other queue and back. All of that comes to
// Redis by calls in an order drawn at random. Some calls are lost, come late, or lose their replies, and their callers die. Once, one of the queues fails over to what it was some
// calls before. The handlers have effects by fence's Once, in a database that doesn't fail over. Its records may be swept.
type copyWalk struct {
	moveWalk
	jobs    []string
	effects effectTable
	keys    map[string]string // by job: its effect key
	had     map[string]int    // by job: how often it or a copy of it had the effect
	noted   map[string]string // by job: when it died, if that is noted
	copyOf  map[string]death  // by copy: its death
	made    map[string]bool   // copies that there are, or that have run
	lost    map[string]bool   // jobs and copies that a failover may have lost, as the table in docs/internals/reliability.md says
	excused map[string]bool   // copies that a failover has lost when nothing was left that says to make them
}

// A lateCall comes to Redis after its caller has given up.
type lateCall struct {
	key     string
	send    func()
	forgets []string // jobs whose notes it may remove, since their copies were made
	told    bool     // its mover was told that the queue which fails over has a receipt
}

// work has a worker of a queue run all that it finds. A job dies, whether it has had its effect or not. A copy has the effect, and completes.
func (w *copyWalk) work(q *rig) {
	w.t.Helper()
	for _, d := range q.claim(100) {
		w.note("%s runs in %s", d.Job.ID, q.Name())
		w.runs[d.Job.ID]++
		from, copied := d.Job.Headers[signalbox.HeaderDeadID]
		if !copied {
			from = d.Job.ID
		}
		if key := d.Job.EffectKey(); key != w.keys[from] {
			w.fail("%s has the effect key %s, want %s", d.Job.ID, key, w.keys[from])
		}
		if copied {
			w.effect(d.Job, from)
			q.settled(settlement(d, Completed))
			continue
		}
		if w.rnd.IntN(2) == 0 {
			w.effect(d.Job, from)
		}
		q.settled(q.fails(d, "no"))
	}
}

// effect has the effect of the job from, in a handler of it or of a copy of it.
func (w *copyWalk) effect(job *signalbox.Job, from string) {
	w.t.Helper()
	err := fence.Pgx(&w.effects).Once(signalbox.NewContext(bg, job), "debit", func() error {
		w.note("%s has its effect", job.ID)
		w.had[from]++
		return nil
	})
	switch forgotten := errors.Is(err, fence.ErrForgotten) && w.effects.horizon > 0; {
	case err != nil && !forgotten:
		w.fail("the effect of %s: %v", job.ID, err)
	case w.had[from] > 1 || w.had[from] == 0 && !forgotten:
		w.fail("job %s and its copies have had their effect %d times", from, w.had[from])
	}
}

// look finds out what a step has done. A note may go if its copy was made, or if its job isn't dead any more.
func (w *copyWalk) look() {
	w.t.Helper()
	for id := range w.to.rdb.HGetAll(bg, w.to.Queue.keys.Jobs).Val() {
		if _, copied := w.copyOf[id]; copied {
			w.made[id] = true
		}
	}
	before := w.noted
	w.reread()
	for id, at := range before {
		if id := w.copyID(id, at); w.noted[w.copyOf[id].id] == "" && w.isDead(w.copyOf[id].id) && !w.made[id] && !w.excused[id] {
			w.fail("job %s is dead, has no copy, and nothing says to make one", w.copyOf[id].id)
		}
	}
}

// reread reads the notes.
func (w *copyWalk) reread() {
	w.t.Helper()
	w.noted = w.rig.noted()
	for id, at := range w.noted {
		w.copyOf[w.copyID(id, at)] = death{id: id, at: at}
	}
}

// copyID returns the ID of the copy of a death.
func (w *copyWalk) copyID(id, at string) string {
	return w.Transfer().NewCopier().id(death{id: id, at: at})
}

// isDead reports whether a job is dead in the queue whose dead jobs are copied, or was so and is held.
func (w *copyWalk) isDead(id string) bool {
	record, _ := w.rdb.HGet(bg, w.Queue.keys.Jobs, id).Bytes()
	h, held := wire.HeldOf(record)
	return held && !h.Copy && h.State == string(Dead) || w.rdb.ZScore(bg, w.Queue.keys.Dead, id).Err() == nil
}

// failOver has a queue fail over to what it was. A mover may have been told before that the queue has a receipt. forgets are the jobs whose notes somebody may remove later,
// since he was told before that their copies are made.
func (w *copyWalk) failOver(q *rig, m memory, told bool, forgets []string) {
	w.t.Helper()
	w.ids = append(slices.Clone(w.jobs), slices.Sorted(maps.Keys(w.copyOf))...)
	doubts := w.moveWalk.failOver(q, m, map[string]int{}, told, nil, nil) // only of what may be lost
	w.reread()
	for id, doubt := range doubts {
		if !doubt.lost {
			continue
		}
		here, _ := w.kind(w.rig, id)
		there, _ := w.kind(w.to, id)
		w.note("%s may be lost", id)
		w.lost[id] = !slices.Contains([]string{here, there}, "") || here == "original" || there == "original" || w.copyOf[id].id == ""
		d, copied := w.copyOf[id]
		if !copied {
			continue
		}
		delete(w.made, id)
		w.excused[id] = w.noted[d.id] != d.at || slices.Contains(forgets, d.id)
	}
}

// any returns a job or a copy.
func (w *copyWalk) any() string {
	all := append(slices.Clone(w.jobs), slices.Sorted(maps.Keys(w.made))...)
	return all[w.rnd.IntN(len(all))]
}

// copier begins to copy what is noted.
func (w *copyWalk) copier() (g *gated, ids []string) {
	w.t.Helper()
	ids, _, err := w.Transfer().NewCopier().Noted(bg, 0)
	w.must(err)
	g = &gated{UniversalClient: w.rdb, turn: make(chan struct{}), here: make(chan struct{}), fails: 1 + w.rnd.IntN(5), lost: w.rnd.IntN(2) == 0}
	from := *w.Queue
	from.rdb = g
	w.note("a copier of %v begins; call %d fails, its reply is lost: %v", ids, g.fails, g.lost)
	go func() {
		defer close(g.here)
		_, _ = from.Transfer().NewCopier().Copy(bg, ids) // its error is that it died
	}()
	return g, ids
}

// mover begins to move some job or copy.
func (w *copyWalk) mover() *gated {
	g := &gated{
		UniversalClient: w.rdb, turn: make(chan struct{}), here: make(chan struct{}), told: make(map[string]bool),
		fails: 2 + w.rnd.IntN(20), lost: w.rnd.IntN(3) == 0, survives: w.rnd.IntN(2) == 0,
	}
	from, to, id := *w.Queue, w.to.Name(), w.any()
	if w.rnd.IntN(3) == 0 {
		from, to = *w.to.Queue, w.Name()
	}
	from.rdb, from.patience = g, 1+w.rnd.IntN(3)
	w.note("a mover of %s to %s begins; call %d fails, its reply is lost: %v; it goes on: %v", id, to, g.fails, g.lost, g.survives)
	go func() {
		defer close(g.here)
		_, _ = from.Transfer().Move(bg, to, []string{id}) // its error is that it died, or met too many others
	}()
	return g
}

func (w *copyWalk) walk() {
	w.t.Helper()
	w.jobs = numbered("j", 1+w.rnd.IntN(2))
	w.put(w.jobs...)
	for _, id := range w.jobs {
		job := w.stored(id)
		job.Queue, job.Namespace = w.Queue.name, w.Queue.namespace
		w.keys[id] = job.EffectKey()
	}
	callers := make(map[*gated][]string) // who makes calls; of copiers, what they copy
	var order []*gated
	var late []lateCall
	begin := func(g *gated, ids []string) {
		if _, ok := <-g.here; ok {
			callers[g], order = ids, append(order, g)
		}
	}
	failing := []*rig{w.rig, w.to}[w.rnd.IntN(2)]
	turn := func(k int) { // makes a call
		g := order[k]
		g.turn <- struct{}{}
		_, ok := <-g.here
		if g.late != nil {
			w.note("a call to %s is late", g.key)
			c := lateCall{key: g.key, send: g.late, told: g.told[failing.Queue.keys.Jobs]}
			if g.put {
				c.forgets = callers[g]
			}
			late, g.late = append(late, c), nil
		}
		if !ok {
			delete(callers, g)
			order = slices.Delete(order, k, k+1)
		}
	}
	const steps = 60
	at := 1 + w.rnd.IntN(steps-10)
	saveAt := max(0, at-1-w.rnd.IntN(20))
	sweepAt := w.rnd.IntN(4 * steps)
	var saved memory
	for i := range steps {
		if i == saveAt {
			w.note("what %s has is remembered", failing.Name())
			saved = failing.remember()
		}
		if i == at {
			late = slices.DeleteFunc(late, func(c lateCall) bool { return strings.HasPrefix(c.key, failing.Queue.keys.Prefix) })
			told := slices.ContainsFunc(order, func(g *gated) bool { return g.told[failing.Queue.keys.Jobs] }) || slices.ContainsFunc(late, func(c lateCall) bool { return c.told })
			var forgets []string
			for g, ids := range callers {
				if g.put {
					forgets = append(forgets, ids...)
				}
			}
			for _, c := range late {
				forgets = append(forgets, c.forgets...)
			}
			w.failOver(failing, saved, told, forgets)
		}
		if i == sweepAt {
			w.note("the records of effects are swept")
			w.effects.sweep(w.rdb.Time(bg).Val())
		}
		switch n := w.rnd.IntN(16); {
		case n < 2:
			w.work(w.rig)
		case n == 2:
			w.work(w.to)
		case n == 3 && len(late) > 0:
			w.note("a late call to %s comes", late[0].key)
			late[0].send()
			late = late[1:]
		case n == 4:
			id, q := w.jobs[w.rnd.IntN(len(w.jobs))], []*rig{w.rig, w.to}[w.rnd.IntN(2)]
			w.note("%s is retried in %s: %v", id, q.Name(), q.did(RunJobs(time.Time{}), id))
		case n < 7 && len(order) < 3:
			begin(w.copier())
		case n < 9 && len(order) < 3:
			begin(w.mover(), nil)
		case len(order) > 0:
			turn(w.rnd.IntN(len(order)))
		}
		w.look()
	}
	for len(order) > 0 { // they end
		turn(w.rnd.IntN(len(order)))
		w.look()
	}
	for _, c := range late {
		c.send()
		w.look()
	}
	w.end()
}

// end does what workers and operators do at last, and looks whether all is as it should be.
func (w *copyWalk) end() {
	w.t.Helper()
	for range 3 { // what workers do each minute
		w.work(w.rig)
		w.look()
		w.copyAll(w.Transfer().NewCopier())
		w.look()
		for _, id := range slices.Concat(w.jobs, slices.Sorted(maps.Keys(w.copyOf))) {
			w.to.moved(w.rig, id)
			w.look()
			w.moved(w.to, id)
			w.look()
		}
		w.work(w.to)
	}
	if len(w.noted) > 0 {
		w.fail("deaths are noted of %v", w.noted)
	}
	for _, id := range w.jobs {
		here, _ := w.kind(w.rig, id)
		there, _ := w.kind(w.to, id)
		if here != "waits" && there != "waits" && !w.lost[id] || here == "original" || here == "copy" || there == "original" || there == "copy" {
			w.fail("job %s is %q here and %q there", id, here, there)
		}
	}
	for id, d := range w.copyOf {
		if w.made[id] && w.runs[id] == 0 && !w.lost[id] {
			w.fail("%s, the copy of %s, is lost", id, d.id)
		}
	}
}

// An effectTable has the records of effects, as fence's tables in PostgreSQL have them.
type effectTable struct {
	born    map[string]int64 // in us
	horizon int64
}

func (e *effectTable) sweep(before time.Time) {
	e.horizon = before.UnixMicro()
	maps.DeleteFunc(e.born, func(_ string, born int64) bool { return born < e.horizon })
}

type (
	effectTag int64
	effectRow func(into []any) error
)

func (t effectTag) RowsAffected() int64           { return int64(t) }
func (r effectRow) Scan(into ...any) error        { return r(into) }
func (*effectTable) Commit(context.Context) error { return nil }

// Exec renews the record of an effect.
func (e *effectTable) Exec(_ context.Context, query string, args ...any) (effectTag, error) {
	if !strings.HasPrefix(query, "UPDATE signalbox_once SET born") {
		return 0, fmt.Errorf("the table doesn't know %q", query)
	}
	e.born[fmt.Sprint(args[1:4])] = args[0].(int64)
	return 1, nil
}

// QueryRow reads the horizon or a record, or writes a record.
func (e *effectTable) QueryRow(_ context.Context, query string, args ...any) effectRow {
	return func(into []any) error {
		if strings.Contains(query, "FROM signalbox_horizon") {
			*into[0].(*int64), *into[1].(*int64) = e.horizon, 1
			return nil
		}
		key := fmt.Sprint(args[:3])
		born, there := e.born[key]
		switch insert := strings.HasPrefix(query, "INSERT INTO signalbox_once"); {
		case insert && there || !insert && !there:
			return sql.ErrNoRows
		case insert:
			e.born[key] = args[3].(int64)
			*into[0].(*int64) = 1 // the transaction's number
		default:
			*into[0].(*int64) = born
		}
		return nil
	}
}

// TestCopyWalk: while dead jobs are copied, and jobs and copies are moved, and one of the two queues fails over, no dead job is lost, each death of a job that stays dead has a
// copy, except if the other queue has forgotten that very copy when its note was gone, and a job and all its copies have one effect. make walk is the long form.
func TestCopyWalk(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	needsDump(t)
	rdb := redistest.New(t).Client()
	warm := newQueue(t, rdb) // the scripts are known to the server
	warm.open()
	to := warm.copyTo()
	warm.put("first")
	warm.settled(warm.fails(warm.one(), "no"))
	warm.copyAll(warm.Transfer().NewCopier())
	warm.did(RunJobs(time.Time{}), "first")
	warm.moved(to, "first")
	warm.reclaim("nobody")
	first := *walkSeed
	if first == 0 {
		first = time.Now().UnixNano() % 1e9
	}
	for i := range max(1, *walkSteps/50) {
		seed := first + int64(i)
		r := unchecked(t, rdb)
		r.open()
		w := &copyWalk{
			moveWalk: moveWalk{rig: r, to: r.copyTo(), rnd: rand.New(rand.NewPCG(uint64(seed), 1)), runs: make(map[string]int)},
			effects:  effectTable{born: make(map[string]int64)}, keys: make(map[string]string), had: make(map[string]int), copyOf: make(map[string]death),
			made: make(map[string]bool), lost: make(map[string]bool), excused: make(map[string]bool),
		}
		w.note("seed %d", seed)
		w.walk()
		w.check()
		w.to.check()
		w.remove()
		w.to.remove()
	}
}
