package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// A moveWalk moves jobs between two queues by several calls, while workers run what they find. The calls come to Redis in an order drawn at
// random. Some fail and come late, some lose their replies, and their movers die or let go what they hold. Once, one of the queues fails over to
// what it was some calls before. What is called of it then, and wasn't answered, never comes.
type moveWalk struct {
	*rig
	to    *rig
	rnd   *rand.Rand
	ids   []string
	log   []string
	runs  map[string]int // how often each job ran
	back  bool           // some movers move the other way
	calls int
}

// A moveDoubt is what a failover has made of a job.
type moveDoubt struct {
	lost   bool // the queue that failed over had it, and forgets that. The other has nothing of it, or a mover was told before that it may delete it there
	again  bool // that queue has it as a job that waits, or is held by a call that has let it go since or is about to, though it had left that queue
	forgot int  // how many of its runs are forgotten
}

// A lateMove is a call of a mover that comes late.
type lateMove struct {
	key  string
	send func()
	told bool  // its mover was told that the queue which fails over has a receipt
	puts []any // the arguments, if it is one of put.lua
}

func (w *moveWalk) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *moveWalk) fail(format string, args ...any) {
	w.t.Helper()
	for _, line := range w.log {
		w.t.Log(line)
	}
	w.t.Logf("here: %q", w.dump())
	w.t.Logf("there: %q", w.to.dump())
	w.t.Fatalf(format, args...)
}

// run has a worker of a queue run all that it finds.
func (w *moveWalk) run(q *rig, since map[string]int) {
	w.t.Helper()
	for _, d := range q.claim(100) {
		w.note("job %s runs in %s", d.Job.ID, q.Name())
		w.runs[d.Job.ID]++
		since[q.Name()+" "+d.Job.ID]++
		q.settled(settlement(d, Completed))
	}
}

// kind says what a queue has of a job: "", "waits", "original" or "copy"; and the name of its move.
func (w *moveWalk) kind(q *rig, id string) (kind, move string) {
	record, err := q.rdb.HGet(bg, q.keys.Jobs, id).Bytes()
	h, held := wire.HeldOf(record)
	switch {
	case err != nil:
		return "", ""
	case !held:
		return "waits", ""
	case h.Copy:
		return "copy", h.Move
	}
	return "original", h.Move
}

// puts returns what movers are about to put into a queue of a job: the arguments of put.lua about it, six each.
func puts(q *rig, id string, movers []*gated, late []lateMove) (jobs [][]any) {
	add := func(into string, args []any) {
		if len(args) < 5 || !strings.HasPrefix(into, q.keys.Prefix) {
			return
		}
		for job := range slices.Chunk(args[5:], 6) { // as put.lua says
			if job[0] == id {
				jobs = append(jobs, job)
			}
		}
	}
	for _, g := range movers {
		add(g.into, g.puts)
	}
	for _, c := range late {
		add(c.key, c.puts)
	}
	return jobs
}

// letsGo reports whether one of the movers has decided to let a job go where it is, as it is there now.
func (w *moveWalk) letsGo(q *rig, id string, movers []*gated) bool {
	record, _ := q.rdb.HGet(bg, q.keys.Jobs, id).Bytes()
	return slices.ContainsFunc(puts(q, id, movers, nil), func(job []any) bool {
		state := job[2]
		return job[1] == digestOf(record) && state != string(StateHeld) && state != string(gone)
	})
}

// strays returns what the copies of a job say which a queue has, or that may still come there.
func (w *moveWalk) strays(q *rig, id string, movers []*gated, late []lateMove) (copies []wire.Held) {
	record, _ := q.rdb.HGet(bg, q.keys.Jobs, id).Bytes()
	records := [][]byte{record}
	for _, job := range puts(q, id, movers, late) {
		records = append(records, fmt.Appendf(nil, "%s", job[4]))
	}
	for _, record := range records {
		if h, held := wire.HeldOf(record); held && h.Copy {
			copies = append(copies, h)
		}
	}
	return copies
}

// failOver has a queue fail over to what it was. It returns what that makes of each job.
func (w *moveWalk) failOver(q *rig, m memory, since map[string]int, told bool, movers []*gated, late []lateMove) map[string]moveDoubt {
	peer := w.rig
	if q == w.rig {
		peer = w.to
	}
	before, held := make(map[string]string), make(map[string]wire.Held)
	for _, id := range w.ids {
		before[id], _ = w.kind(q, id)
		record, _ := q.rdb.HGet(bg, q.keys.Jobs, id).Bytes()
		held[id], _ = wire.HeldOf(record)
	}
	q.failOver(m)
	doubts := make(map[string]moveDoubt)
	for _, id := range w.ids {
		had := before[id]
		has, move := w.kind(q, id)
		other, name := w.kind(peer, id)
		d := moveDoubt{forgot: since[q.Name()+" "+id]}
		deleted := other == "original" && told // or it may be, by a mover that was told before that the job had gone on
		// A copy of another name than the original is dropped, if a receipt says so, or if the copy is given that name before a mover deletes the original.
		drops := has == "copy" && move != name && (deleted || peer.rdb.ZScore(bg, peer.keys.Receipts, stay(move)).Err() == nil)
		forgets := has == "" || has == "original" || drops
		spare := had == "waits" && other == "copy" // its move was given up, and the copy may be deleted by a mover that saw this before
		d.lost = had != "" && (other == "" || spare || deleted) && forgets
		// Only a job that has left the queue, or may leave it by a call that was told so, can go on in both.
		var left bool
		switch had {
		case "", "copy": // it is in the other, or has been
			left = true
		case "original":
			left = held[id].Committed || has == "waits" // that it was held is forgotten: it may run there, and then by its copy
		case "waits": // it came back, and the other hasn't deleted it yet; or it was let go here, and the other has, or gets, a copy that is of no use
			forgotten := func(receipts string) bool {
				return !slices.ContainsFunc(strings.Fields(receipts), func(r string) bool { return q.rdb.ZScore(bg, q.keys.Receipts, r).Err() == nil })
			}
			record, _ := peer.rdb.HGet(bg, peer.keys.Jobs, id).Bytes()
			h, _ := wire.HeldOf(record)
			left = other == "original" && forgotten(namesOf(h)) ||
				slices.ContainsFunc(w.strays(peer, id, movers, late), func(c wire.Held) bool { return forgotten(stayed(c)) })
		}
		// Held by a call that has let it go since: no receipt will name that call.
		astray := has == "original" && !slices.Contains(strings.Fields(namesOf(held[id])), move) && peer.rdb.ZScore(bg, peer.keys.Receipts, move).Err() != nil
		undone := has == "original" && w.letsGo(q, id, movers) // by a call that looked at both queues before another took the job over
		d.again = d.forgot == 0 && left && (has == "waits" || had != has && has == "copy" && other != "original" || astray || undone)
		w.note("%s fails over: job %s was %q there and %q in the other, it is %q", q.Name(), id, had, other, has)
		doubts[id] = d
	}
	return doubts
}

func (w *moveWalk) walk() (failedOver bool) {
	for i := range 1 + w.rnd.IntN(2) {
		w.ids = append(w.ids, fmt.Sprint("j", i))
	}
	failing := []*rig{w.rig, w.to}[w.rnd.IntN(2)]
	at := 5 + w.rnd.IntN(45)
	saveAt := max(0, at-w.rnd.IntN(20))
	var saved memory
	early := w.rnd.IntN(3) == 0 // what is remembered is from before the last job was enqueued
	if early {
		saveAt = -1
		w.put(w.ids[:len(w.ids)-1]...)
		saved = failing.remember()
		w.put(w.ids[len(w.ids)-1])
	} else {
		w.put(w.ids...)
	}
	var movers []*gated
	for range 1 + w.rnd.IntN(3) {
		g := &gated{
			UniversalClient: w.rdb, turn: make(chan struct{}), here: make(chan struct{}), told: make(map[string]bool),
			fails: 4 + w.rnd.IntN(40), lost: w.rnd.IntN(3) == 0, survives: w.rnd.IntN(2) == 0,
		}
		from, to := *w.Queue, w.to.Name()
		if w.back && w.rnd.IntN(3) == 0 {
			from, to = *w.to.Queue, w.Name()
		}
		from.rdb, from.patience = g, 1+w.rnd.IntN(3)
		some := w.ids[:1+w.rnd.IntN(len(w.ids))]
		go func() {
			defer close(g.here)
			_, _ = from.Transfer().Move(bg, to, some) // its error is that it died, or met too many others
		}()
		<-g.here
		movers = append(movers, g)
	}
	since := make(map[string]int) // runs since then
	doubts := make(map[string]moveDoubt)
	var late []lateMove
	for ; len(movers)+len(late) > 0; w.calls++ {
		if w.calls == saveAt {
			w.note("what %s has is remembered", failing.Name())
			saved = failing.remember()
			clear(since)
		}
		if w.calls == at {
			told := slices.ContainsFunc(movers, func(g *gated) bool { return g.told[failing.keys.Jobs] }) || slices.ContainsFunc(late, func(c lateMove) bool { return c.told })
			doubts, failedOver = w.failOver(failing, saved, since, told, movers, late), true
			late = slices.DeleteFunc(late, func(c lateMove) bool { return strings.HasPrefix(c.key, failing.keys.Prefix) })
		}
		switch n := w.rnd.IntN(len(movers) + len(late) + 1); {
		case n < len(movers):
			g := movers[n]
			g.turn <- struct{}{}
			_, ok := <-g.here
			if g.late != nil {
				late = append(late, lateMove{g.key, g.late, g.told[failing.keys.Jobs], g.latePuts})
				g.late = nil
			}
			if !ok {
				movers = slices.Delete(movers, n, n+1)
			}
		case n < len(movers)+len(late):
			n -= len(movers)
			late[n].send()
			late = slices.Delete(late, n, n+1)
		case w.rnd.IntN(5) == 0:
			w.run(w.rig, since)
			w.run(w.to, since)
		}
	}
	for range 2 {
		for _, id := range w.ids {
			w.to.moved(w.rig, id)
			w.moved(w.to, id)
		}
	}
	w.run(w.rig, since)
	w.run(w.to, since)
	for _, id := range w.ids {
		d, ran := doubts[id], w.runs[id]
		for _, q := range []*rig{w.rig, w.to} {
			if kind, _ := w.kind(q, id); kind != "" {
				w.fail("job %s is left in %s: %q", id, q.Name(), kind)
			}
		}
		if ran == 0 && !d.lost {
			w.fail("job %s is lost", id)
		}
		most := 1 + d.forgot
		if d.again {
			most++
		}
		if ran > most {
			w.fail("job %s ran %d times, %d are right", id, ran, most)
		}
	}
	return failedOver
}

// TestMoveWalk: if one of two queues fails over while jobs move between them, a job is lost only if that queue alone had it and forgets it, and runs
// again only if the queue forgets that it ran, or that it left. make walk is the long form.
func TestMoveWalk(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	rdb := redistest.New(t).Client()
	first := *walkSeed
	if first == 0 {
		first = time.Now().UnixNano() % 1e9
	}
	warm := newQueue(t, rdb) // the scripts are known to the server
	warm.open()
	other := warm.other()
	warm.put("first")
	warm.moved(other, "first")
	same(t, "ran", other.runs(), 1)
	warm.reclaim("nobody")
	var calls, failovers atomic.Int64
	begin := time.Now()
	t.Cleanup(func() {
		t.Logf("walk: %d calls, %d failovers in %v, seeds from %d", calls.Load(), failovers.Load(), time.Since(begin).Round(time.Second/10), first)
	})
	seeds := max(1, *walkSteps/10)
	for part := range 4 {
		t.Run(fmt.Sprint("part=", part), func(t *testing.T) {
			t.Parallel()
			for i := part; i < seeds && !t.Failed(); i += 4 {
				seed := first + int64(i)
				r := unchecked(t, rdb)
				r.open()
				w := &moveWalk{rig: r, to: r.other(), rnd: rand.New(rand.NewPCG(uint64(seed), 0)), runs: make(map[string]int), back: seed%2 == 1}
				w.note("seed %d", seed)
				if w.walk() {
					failovers.Add(1)
				}
				calls.Add(int64(w.calls))
				w.check()
				w.to.check()
				w.remove()
				w.to.remove()
			}
		})
	}
}
