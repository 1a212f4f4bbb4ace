package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// A copyWalk has jobs die in one queue, and copiers copy them to another one, in calls whose order is drawn at random. Some calls are lost, come late, or lose their
// replies, and their copiers die. Once, one of the queues fails over to what it was some calls before.
type copyWalk struct {
	*rig
	to     *rig
	rnd    *rand.Rand
	ids    []string
	effect map[string]string // by job: its key
	had    map[string]int    // by effect key: how often a copy ran
	log    []string
}

func (w *copyWalk) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *copyWalk) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s\n%s\nhere: %q\nthere: %q", fmt.Sprintf(format, args...), strings.Join(w.log, "\n"), w.dump(), w.to.dump())
}

// die has all jobs that the queue gives out die.
func (w *copyWalk) die() {
	w.t.Helper()
	for _, d := range w.claim(100) {
		w.note("job %s dies", d.Job.ID)
		if key := w.effect[d.Job.ID]; key != "" && key != d.Job.EffectKey() {
			w.fail("job %s has the effect key %s, and had %s", d.Job.ID, d.Job.EffectKey(), key)
		}
		w.effect[d.Job.ID] = d.Job.EffectKey()
		w.settled(w.fails(d, "no"))
	}
}

// work runs the copies that are there.
func (w *copyWalk) work() {
	w.t.Helper()
	for _, d := range w.to.claim(100) {
		w.note("copy of an effect %s runs", d.Job.EffectKey())
		w.had[d.Job.EffectKey()]++
		w.to.settled(settlement(d, Completed))
	}
}

// waits returns the IDs of the copies that are there.
func (w *copyWalk) waits() map[string]bool {
	w.t.Helper()
	there := make(map[string]bool)
	for id := range w.to.rdb.HGetAll(bg, w.to.keys.jobs).Val() {
		there[id] = true
	}
	return there
}

func (w *copyWalk) walk() {
	w.t.Helper()
	w.ids = numbered("j", 1+w.rnd.IntN(2))
	w.put(w.ids...)
	var copiers []*gated
	type call struct {
		key  string
		send func()
	}
	var late []call
	failing, at := []*rig{w.rig, w.to}[w.rnd.IntN(2)], 1+w.rnd.IntN(12)
	saveAt, doubt := w.rnd.IntN(at), false
	var saved memory
	for i := range 24 {
		if i == saveAt {
			w.note("what %s has is remembered", failing.Name())
			saved = failing.remember()
		}
		if i == at {
			before := w.waits()
			w.note("%s fails over", failing.Name())
			failing.failOver(saved)
			after := w.waits()
			for id := range before { // the queue forgets what it was given
				doubt = doubt || !after[id]
			}
			late = slices.DeleteFunc(late, func(c call) bool { return strings.HasPrefix(c.key, failing.keys.prefix) })
		}
		switch n := w.rnd.IntN(8); {
		case n == 0:
			w.die()
		case n == 1:
			w.work()
		case n == 2 && len(late) > 0:
			w.note("a late call to %s comes", late[0].key)
			late[0].send()
			late = late[1:]
		case n < 5 && len(copiers) < 2:
			ids, _, err := w.NewCopier().Noted(bg, 0)
			w.must(err)
			g := &gated{UniversalClient: w.rdb, turn: make(chan struct{}), here: make(chan struct{}), fails: 1 + w.rnd.IntN(5), lost: w.rnd.IntN(2) == 0}
			from := *w.Queue
			from.rdb = g
			w.note("a copier of %v begins; call %d fails, its reply is lost: %v", ids, g.fails, g.lost)
			go func() {
				defer close(g.here)
				_, _ = from.NewCopier().Copy(bg, ids) // its error is that it died
			}()
			if _, ok := <-g.here; ok {
				copiers = append(copiers, g)
			}
		case len(copiers) > 0:
			k := w.rnd.IntN(len(copiers))
			g := copiers[k]
			g.turn <- struct{}{}
			_, ok := <-g.here
			if g.late != nil {
				w.note("a copier dies, and its call to %s is late", g.key)
				late = append(late, call{g.key, g.late})
				g.late = nil
			}
			if !ok {
				copiers = slices.Delete(copiers, k, k+1)
			}
		}
	}
	for _, g := range copiers { // they end
		for ok := true; ok; _, ok = <-g.here {
			g.turn <- struct{}{}
		}
	}
	for _, c := range late {
		if !strings.HasPrefix(c.key, failing.keys.prefix) {
			c.send()
		}
	}
	for range 2 { // what a worker does each minute
		w.die()
		w.copyAll(w.NewCopier())
		w.work()
	}
	effects := make(map[string]bool)
	for _, id := range w.ids {
		effects[w.effect[id]] = true
		if w.rdb.ZScore(bg, w.Queue.keys.dead, id).Err() == redis.Nil {
			w.fail("the dead job %s is lost", id)
		}
		if w.had[w.effect[id]] == 0 && !doubt {
			w.fail("job %s is dead, and no copy of it ran", id)
		}
	}
	for key := range w.had {
		if !effects[key] {
			w.fail("a copy has the effect key %s, which no job has", key)
		}
	}
}

// TestCopyWalk: if one of two queues fails over while dead jobs are copied, no dead job is lost, each has a copy at last unless the other queue forgets one that it was given, and
// a job and all its copies have one effect. make walk is the long form.
func TestCopyWalk(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	needsDump(t)
	rdb := redistest.New(t).Client()
	warm := newQueue(t, rdb) // the scripts are known to the server
	warm.open()
	warm.copyTo()
	warm.put("first")
	warm.settled(warm.fails(warm.one(), "no"))
	warm.copyAll(warm.NewCopier())
	warm.reclaim("nobody")
	first := *walkSeed
	if first == 0 {
		first = time.Now().UnixNano() % 1e9
	}
	for i := range max(1, *walkSteps/50) {
		seed := first + int64(i)
		r := unchecked(t, rdb)
		r.open()
		w := &copyWalk{rig: r, to: r.copyTo(), rnd: rand.New(rand.NewPCG(uint64(seed), 1)), effect: make(map[string]string), had: make(map[string]int)}
		w.note("seed %d", seed)
		w.walk()
		w.check()
		w.to.check()
		w.remove()
		w.to.remove()
	}
}
