package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/wire"
)

var moveTests = []storeTest{
	{"MoveEachState", testMoveEachState},
	{"MoveInVain", testMoveInVain},
	{"MoveStops", testMoveStops},
	{"MoveTellsEnds", testMoveTellsEnds},
	{"MoveMeetsAnother", testMoveMeetsAnother},
	{"MoveByMany", testMoveByMany},
	{"MoveInAnyOrder", testMoveInAnyOrder},
	{"MoveInTurns", testMoveInTurns},
	{"MoveFails", testMoveFails},
	{"HeldIsLeft", testHeldIsLeft},
	{"MoveOfMany", testMoveOfMany},
	{"MoveWakes", testMoveWakes},
	{"MoveFailsOver", testMoveFailsOver},
	{"MoveFailovers", testMoveFailovers},
	{"Receipts", testReceipts},
}

// A mortal is a client that dies: it makes some calls of scripts, and then none. With lost set, the last of them has no answer.
type mortal struct {
	redis.UniversalClient
	mu     sync.Mutex
	calls  int
	lost   bool
	before func(call int) // called before each call of a script, from 0
	made   int
}

var errDied = errors.New("died")

func (m *mortal) dead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.made >= m.calls
}

func (m *mortal) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	failed := redis.NewCmd(ctx)
	failed.SetErr(errDied)
	if m.dead() {
		return failed
	}
	if sha == scripts.Moving.Lua().Hash() { // it only reads
		return m.UniversalClient.EvalSha(ctx, sha, keys, args...)
	}
	if m.before != nil {
		m.before(m.made)
	}
	cmd := m.UniversalClient.EvalSha(ctx, sha, keys, args...)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		return cmd
	}
	m.mu.Lock()
	m.made++
	m.mu.Unlock()
	if m.lost && m.dead() {
		return failed
	}
	return cmd
}

func (m *mortal) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	cmd := m.UniversalClient.Eval(ctx, script, keys, args...)
	if script == scripts.Sources()["moving"] {
		return cmd
	}
	m.mu.Lock()
	m.made++
	m.mu.Unlock()
	if m.lost && m.dead() {
		cmd.SetErr(errDied)
	}
	return cmd
}

func (m *mortal) Pipelined(ctx context.Context, f func(redis.Pipeliner) error) ([]redis.Cmder, error) {
	if m.dead() {
		return nil, errDied
	}
	return m.UniversalClient.Pipelined(ctx, f)
}

// mover returns the queue for a mover that dies.
func (r *rig) mover(m *mortal) *Queue {
	m.UniversalClient = r.rdb
	q := *r.Queue
	q.rdb = m
	return &q
}

// other returns another queue, with a session.
func (r *rig) other() *rig {
	to := newQueue(r.t, r.rdb)
	to.session = "s-other"
	to.open()
	return to
}

// moved moves one job.
func (r *rig) moved(to *rig, id string, states ...signalbox.State) Answer {
	r.t.Helper()
	answers, err := r.Transfer().Move(bg, to.Name(), []string{id}, states...)
	r.must(err)
	if len(answers) != 1 {
		r.t.Fatalf("%d answers for a job", len(answers))
	}
	return answers[0]
}

// holds reports whether the queue has a job as one that is held.
func (r *rig) holds(id string) bool {
	r.t.Helper()
	record, err := r.rdb.HGet(bg, r.keys.Jobs, id).Bytes()
	if errors.Is(err, redis.Nil) {
		return false
	}
	r.must(err)
	_, held := wire.HeldOf(record)
	return held
}

// runs claims all jobs that are ready, completes them, and returns how many there were.
func (r *rig) runs() (n int) {
	r.t.Helper()
	for _, d := range r.claim(100) {
		r.settled(settlement(d, Completed))
		n++
	}
	return n
}

// A job that is moved keeps its state, and all that its record says but for the effect key, which becomes that of its first queue.
func testMoveEachState(t *testing.T, r *rig) {
	r.open()
	to := r.other()
	for _, state := range []signalbox.State{signalbox.StateScheduled, signalbox.StateReady, signalbox.StateDead, signalbox.StateCancelled} {
		id := "j-" + string(state)
		r.into(id, state)
		was, want := r.shown(id), r.stored(id)
		enqueued := to.counts().Total.Enqueued
		same(t, id, r.moved(to, id), Answer{Done, state})
		got, after := to.shown(id), to.stored(id)
		if got.State != state || !got.At.Equal(was.At) {
			t.Errorf("%s: it is %s, %v; it was %s, %v", id, got.State, got.At, was.State, was.At)
		}
		effect := signalbox.Job{ID: id, Queue: r.Name()}
		want.Effect = effect.EffectKey()
		if !reflect.DeepEqual(after, want) {
			t.Errorf("%s: got  %+v\nwant %+v", id, after, want)
		}
		same(t, id+" there", r.rdb.HExists(bg, r.keys.Jobs, id).Val(), false)
		same(t, id+" again", r.moved(to, id), Answer{Acted: Gone})
		same(t, "enqueued", to.counts().Total.Enqueued, enqueued+1)
		r.check()
		to.check()
	}
	same(t, "deleted", r.counts().Total.Deleted, 4)
	same(t, "revived", r.counts().Total.Revived, 0)

	// A second way keeps the key of the first. A suspect stays one.
	r.into("far", signalbox.StateReady)
	r.moved(to, "far")
	third := to.other()
	to.moved(third, "far")
	effect := signalbox.Job{ID: "far", Queue: r.Name()}
	same(t, "the effect key", third.stored("far").Effect, effect.EffectKey())
	r.put("crashed")
	for range SuspectAt {
		r.one()
		r.crash()
	}
	same(t, "a suspect", r.moved(to, "crashed"), Answer{Done, signalbox.StateReady})
	same(t, "a suspect", to.states()["crashed"], "ready in list s")
}

func testMoveInVain(t *testing.T, r *rig) {
	r.open()
	to := r.other()
	r.into("runs", signalbox.StateRunning)
	r.into("dead", signalbox.StateDead)
	r.put("here", "odd", "both")
	to.put("both", "there")
	r.must(r.rdb.HSet(bg, r.keys.Jobs, "odd", "no record").Err())
	before, beforeThere := r.dump(), to.dump()
	for _, c := range []struct {
		id     string
		states []signalbox.State
		want   Answer
	}{
		{"runs", nil, Answer{Wrong, signalbox.StateRunning}},
		{"dead", []signalbox.State{signalbox.StateReady}, Answer{Wrong, signalbox.StateDead}},
		{"nobody", nil, Answer{Acted: Gone}},
		{"there", nil, Answer{Acted: Gone}},
		{"both", nil, Answer{Acted: Occupied}},
		{"odd", nil, Answer{Acted: Failed}},
	} {
		same(t, c.id, r.moved(to, c.id, c.states...), c.want)
	}
	if _, err := r.Transfer().Move(bg, r.Name(), []string{"here"}); !errors.Is(err, signalbox.ErrInvalid) {
		t.Errorf("to the same queue: %v", err)
	}
	r.unchanged("a move in vain", before)
	to.unchanged("a move in vain", beforeThere)
	r.rdb.HDel(bg, r.keys.Jobs, "odd")
	r.rdb.LRem(bg, r.keys.ReadyNormal, 0, "odd")
}

// A job that is being moved may have ended: who waits for its end waits on, and is told when it is where it stays, also if that is where it was.
func testMoveTellsEnds(t *testing.T, r *rig) {
	r.open()
	to := r.other()
	r.into("a", signalbox.StateDead)
	if _, err := r.mover(&mortal{calls: 1}).Transfer().Move(bg, to.Name(), []string{"a"}); !errors.Is(err, errDied) || !r.holds("a") {
		t.Fatal(err)
	}
	ends, err := r.Looks().Ended(bg, []string{"a"})
	r.must(err)
	if ends[0].State != looks.Live {
		t.Errorf("while it is held: %+v", ends[0])
	}
	_, rdb, err := r.Channels().Server(bg, false)
	r.must(err)
	sub := Subscribe(bg, rdb, rdb.PubSubShardChannels(bg, "*").Err() == nil) // the embedded Redis has no sharded channels
	defer sub.Close()
	defer time.AfterFunc(20*time.Second, sub.Close).Stop()
	to.put("a")
	r.must(sub.Follow(bg, []string{r.Channels().End("a")}))
	for _, want := range []Kind{Subscribed, Look} {
		if want == Look {
			same(t, "a", r.moved(to, "a"), Answer{Acted: Occupied})
		}
		m, err := sub.Next(bg, func(string) bool { return true })
		if err != nil || m.Kind != want {
			t.Fatalf("%+v, %v; want %v", m, err, want)
		}
	}
}

// A mover that dies after any of its calls, answered or not, leaves a job that can run in one queue at most. The next one ends the move.
func testMoveStops(t *testing.T, r *rig) {
	r.open()
	to := r.other()
	for _, state := range []signalbox.State{signalbox.StateReady, signalbox.StateScheduled, signalbox.StateDead} {
		left := 0 // how often the job was left held
		for calls := range 7 {
			for _, lost := range []bool{false, true} {
				id := fmt.Sprintf("%s-%d-%v", state, calls, lost)
				r.into(id, state)
				mover := r.mover(&mortal{calls: calls, lost: lost})
				_, err := mover.Transfer().Move(bg, to.Name(), []string{id})
				if died := calls <= 5; died != errors.Is(err, errDied) {
					t.Fatalf("%s: %v", id, err)
				}
				free := 0
				for _, q := range []*rig{r, to} {
					if q.rdb.HExists(bg, q.keys.Jobs, id).Val() && !q.holds(id) {
						free++
					}
					if q.holds(id) {
						left++
						same(t, id+" can be deleted", q.did(DeleteJobs(), id), Answer{Wrong, StateHeld})
						same(t, id+" can be retried", q.did(RunJobs(time.Time{}), id), Answer{Wrong, StateHeld})
					}
					q.check()
				}
				if free > 1 {
					t.Errorf("%s can run twice", id)
				}
				if calls%2 == 1 && state == signalbox.StateReady { // workers are there
					ran := r.runs() + to.runs()
					answer := r.moved(to, id)
					ran += r.runs() + to.runs()
					same(t, id+" ran", ran, 1)
					if answer.Acted != Done && answer.Acted != Gone {
						t.Errorf("%s: %+v", id, answer)
					}
				} else {
					answer := r.moved(to, id)
					if answer != (Answer{Done, state}) && answer.Acted != Gone {
						t.Errorf("%s: %+v", id, answer)
					}
					same(t, id+" afterwards", to.shown(id).State, state)
				}
				same(t, id+" is held", r.holds(id) || to.holds(id), false)
				same(t, id+" is there still", r.rdb.HExists(bg, r.keys.Jobs, id).Val(), false)
				r.check()
				to.check()
				if state == signalbox.StateReady {
					to.runs()
				}
			}
		}
		if left < 8 {
			t.Errorf("%s: it was left held %d times; did the mover not die?", state, left)
		}
	}
}

// Before any call of a mover another one does all of it, and the job runs. The first one, which is late now, may die after its next call. The
// job never runs again.
func testMoveMeetsAnother(t *testing.T, r *rig) {
	r.open()
	to := r.other()
	for call := range 5 {
		for _, more := range []int{0, 1, 2, 50} {
			id := fmt.Sprintf("j-%d-%d", call, more)
			r.put(id)
			ran := 0
			late := &mortal{calls: call + more}
			if more == 50 {
				late.calls = 50
			}
			late.before = func(n int) {
				if n != call {
					return
				}
				r.moved(to, id)
				ran += to.runs()
			}
			late.calls = max(late.calls, 1)
			_, err := r.mover(late).Transfer().Move(bg, to.Name(), []string{id})
			if err != nil && !errors.Is(err, errDied) {
				t.Fatal(err)
			}
			r.moved(to, id)
			ran += r.runs() + to.runs()
			same(t, id+" ran", ran, 1)
			same(t, id+" is left", r.rdb.HExists(bg, r.keys.Jobs, id).Val() || to.rdb.HExists(bg, to.keys.Jobs, id).Val(), false)
		}
	}
}

// Movers die at random beside each other, while the jobs run in both queues. Each job runs once.
func testMoveByMany(t *testing.T, r *rig) {
	r.open()
	to := r.other()
	ids := numbered("j", 30)
	r.put(ids...)
	ran := make(map[string]int)
	take := func() {
		for _, q := range []*rig{r, to} {
			for _, d := range q.claim(3) {
				ran[d.Job.ID]++
				q.settled(settlement(d, Completed))
			}
		}
	}
	const movers = 4
	ended := make(chan error, movers)
	for range movers {
		go func() {
			for range 25 {
				q := r.mover(&mortal{calls: 1 + rand.IntN(6), lost: rand.IntN(2) == 0})
				some := []string{ids[rand.IntN(len(ids))], ids[rand.IntN(len(ids))]}
				if _, err := q.Transfer().Move(bg, to.Name(), some); err != nil && !errors.Is(err, errDied) && !errors.Is(err, errCrowded) {
					ended <- err
					return
				}
			}
			ended <- nil
		}()
	}
	for n := 0; n < movers; {
		select {
		case err := <-ended:
			r.must(err)
			n++
		default:
			take()
		}
	}
	for _, id := range ids {
		r.moved(to, id)
		same(t, id+" is held", r.holds(id) || to.holds(id), false)
	}
	for range 20 {
		take()
	}
	for _, id := range ids {
		same(t, id+" ran", ran[id], 1)
	}
}

// A gated is a client of a mover that makes each call when it is told to. One call fails, and comes to Redis later, or its reply is lost. The
// mover dies then, or goes on.
type gated struct {
	redis.UniversalClient
	turn     chan struct{} // a token is one call
	here     chan struct{} // it wants to make a call, or is at its end
	fails    int           // how many calls are left until that one
	lost     bool          // it is made, and its reply is lost
	survives bool
	late     func()          // the call that failed
	key      string          // one of its keys
	told     map[string]bool // by the key of a queue's jobs: when it was last read, it had the receipt of a job that has gone on
	put      bool            // it knows that jobs were put in: the call was answered
	puts     []any           // the arguments of the call of put.lua that it wants to make; else nil
	into     string          // the first key of that call
	latePuts []any           // puts, of the call that failed
}

// may waits for the mover's turn to make a call. If the call fails, send makes it later.
func (g *gated) may(key string, send func()) bool {
	if g.fails == 0 && !g.survives {
		return false
	}
	g.here <- struct{}{}
	<-g.turn
	if g.fails--; g.fails == 0 {
		if g.lost {
			send()
		} else {
			g.late, g.key, g.latePuts = send, key, g.puts
		}
		return false
	}
	return true
}

func (g *gated) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if g.puts, g.into = nil, ""; sha == scripts.Put.Lua().Hash() {
		g.puts, g.into = args, keys[0]
	}
	if !g.may(keys[0], func() { g.UniversalClient.EvalSha(bg, sha, keys, args...) }) {
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(errDied)
		return cmd
	}
	cmd := g.UniversalClient.EvalSha(ctx, sha, keys, args...)
	if reply, ok := cmd.Val().([]any); ok && sha == scripts.Moving.Lua().Hash() && g.told != nil {
		marks := reply[2].([]any)
		g.told[keys[0]] = false
		for i, name := range args[len(args)-len(marks):] { // those with a '-' say that the job stayed where it was
			g.told[keys[0]] = g.told[keys[0]] || marks[i] == "r" && !strings.HasPrefix(name.(string), "-")
		}
	}
	g.put = g.put || sha == scripts.Enqueue.Lua().Hash() && cmd.Err() == nil
	return cmd
}

// Movers move one job, there and back, while workers run what they find. All calls come to Redis in an order drawn at random, and those of movers that died
// come late. The job runs once. If it has a unique key, updates of it come as well.
func testMoveInAnyOrder(t *testing.T, r *rig) {
	r.open()
	to := r.other()
	r.put("first") // the scripts are known to all servers
	r.moved(to, "first")
	same(t, "ran", r.runs()+to.runs(), 1)
	for seed := range uint64(150) {
		draw := rand.New(rand.NewPCG(seed, 0))
		id := fmt.Sprintf("j%d", seed)
		unique := seed%2 == 1
		if unique {
			same(t, id, r.fates(r.update(id, 0, 0, 0)), "1")
		} else {
			r.put(id)
		}
		waiting := make([]*gated, 2+draw.IntN(2))
		for i := range waiting {
			g := &gated{UniversalClient: r.rdb, turn: make(chan struct{}), here: make(chan struct{}), fails: 4 + draw.IntN(30), survives: draw.IntN(2) == 0}
			waiting[i] = g
			from, into := *r.Queue, to.Name()
			if draw.IntN(4) == 0 { // the other way
				from, into = *to.Queue, r.Name()
			}
			from.rdb, from.patience = g, 1 // at once: that is where jobs could be lost
			go func() {
				defer close(g.here)
				_, _ = from.Transfer().Move(bg, into, []string{id}) // its error is that it died, or met too many others
			}()
			<-g.here
		}
		var late []func()
		ran, want := 0, 1
		for len(waiting)+len(late) > 0 {
			switch n := draw.IntN(len(waiting) + len(late) + 1); {
			case n < len(waiting):
				g := waiting[n]
				g.turn <- struct{}{}
				_, ok := <-g.here
				if g.late != nil {
					late = append(late, g.late)
					g.late = nil
				}
				if !ok {
					waiting = slices.Delete(waiting, n, n+1)
				}
			case n < len(waiting)+len(late):
				n -= len(waiting)
				late[n]()
				late = slices.Delete(late, n, n+1)
			case draw.IntN(4) == 0:
				ran += r.runs() + to.runs()
			case unique: // it is to update the job, or waits as well if that has no key there
				q := []*rig{r, to}[draw.IntN(2)]
				want += strings.Count(q.fates(q.update(fmt.Sprintf("%s-%d", id, want), 0, 0, 0)), "1")
			}
		}
		to.moved(r, id)
		r.moved(to, id)
		ran += r.runs() + to.runs()
		same(t, fmt.Sprintf("%s ran, and those that came", id), ran, want)
		same(t, id+" is left", r.rdb.HExists(bg, r.keys.Jobs, id).Val() || to.rdb.HExists(bg, to.keys.Jobs, id).Val(), false)
	}
}

// Two movers of the same jobs that make their calls in turns don't take the jobs from each other for ever.
func testMoveInTurns(t *testing.T, r *rig) {
	r.open()
	to := r.other()
	r.put("first") // the scripts are known to all servers
	r.moved(to, "first")
	ids := numbered("j", 5)
	r.put(ids...)
	var waiting []*gated
	ended := make(chan error, 2)
	for range 2 {
		g := &gated{UniversalClient: r.rdb, turn: make(chan struct{}), here: make(chan struct{}), fails: -1}
		q := *r.Queue
		q.rdb = g
		go func() {
			defer close(g.here)
			_, err := q.Transfer().Move(bg, to.Name(), ids)
			ended <- err
		}()
		<-g.here
		waiting = append(waiting, g)
	}
	for len(waiting) > 0 {
		waiting = slices.DeleteFunc(waiting, func(g *gated) bool {
			g.turn <- struct{}{}
			_, ok := <-g.here
			return !ok
		})
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	there := to.rdb.LRange(bg, to.keys.ReadyNormal, 1, -1).Val()
	slices.Sort(there)
	equal(t, "there", there, ids)
}

// A move that can't put a job into the other queue lets it go.
func testMoveFails(t *testing.T, r *rig) {
	r.open()
	to := r.other()
	r.put("a")
	before := r.stored("a")
	r.must(to.rdb.SAdd(bg, to.keys.Due, "of another type").Err())
	if _, err := r.Transfer().Move(bg, to.Name(), []string{"a"}); err == nil {
		t.Error("it has moved")
	}
	r.must(to.rdb.Del(bg, to.keys.Due).Err())
	same(t, "it is", r.states()["a"], "ready in list 1")
	if after := r.stored("a"); !reflect.DeepEqual(after, before) {
		t.Errorf("got  %+v\nwant %+v", after, before)
	}
	r.must(r.rdb.HSet(bg, to.keys.Settings, "layout", layout.Protocol+1).Err())
	if _, err := r.Transfer().Move(bg, to.Name(), []string{"a"}); !errors.Is(err, signalbox.ErrOutdated) {
		t.Errorf("into a queue of a newer layout: %v", err)
	}
	r.must(r.rdb.HDel(bg, to.keys.Settings, "layout").Err())
	same(t, "it is", r.states()["a"], "ready in list 1")
	// The ID is taken there while the job is held here.
	late := &mortal{calls: 50}
	late.before = func(call int) {
		if call == 1 {
			to.put("a")
		}
	}
	answers, err := r.mover(late).Transfer().Move(bg, to.Name(), []string{"a"})
	r.must(err)
	same(t, "the ID is taken meanwhile", answers[0], Answer{Acted: Occupied})
	same(t, "it is", r.states()["a"], "ready in list 1")
	same(t, "there", to.runs(), 1)
	same(t, "it is", r.moved(to, "a"), Answer{Done, signalbox.StateReady})
}

// A job that is held isn't taken, replaced, or moved elsewhere. It is found.
func testHeldIsLeft(t *testing.T, r *rig) {
	r.open()
	to := r.other()
	third := r.other()
	r.into("a", signalbox.StateDead)
	_, err := r.mover(&mortal{calls: 2}).Transfer().Move(bg, to.Name(), []string{"a"})
	if !errors.Is(err, errDied) || !r.holds("a") || !to.holds("a") {
		t.Fatalf("%v", err)
	}
	same(t, "elsewhere", r.moved(third, "a"), Answer{Wrong, StateHeld})
	same(t, "the copy", to.moved(third, "a"), Answer{Wrong, StateHeld})
	same(t, "the copy, back", to.moved(r, "a"), Answer{Wrong, StateHeld})
	same(t, "of another state", r.moved(to, "a", signalbox.StateReady), Answer{Wrong, signalbox.StateDead})
	same(t, "enqueued", r.fates(r.item("a", When{}, 0)), "s")
	same(t, "enqueued there", to.fates(to.item("a", When{}, 0)), "s")
	same(t, "claimed", len(r.claim(10))+len(to.claim(10)), 0)
	for q, want := range map[*rig]int{r: 1, to: 0} {
		n := 0
		for v, err := range q.Transfer().Unmoved(bg, to.Name(), signalbox.StateDead, "") {
			r.must(err)
			same(t, "found", v.Job.ID, "a")
			n++
		}
		same(t, "found", n, want)
	}
	same(t, "at last", r.moved(to, "a"), Answer{Done, signalbox.StateDead})
	same(t, "at last", to.states()["a"], "dead")
}

// Many jobs are moved in calls of bounded size, in their order.
func testMoveOfMany(t *testing.T, r *rig) {
	r.open()
	to := r.other()
	ids := numbered("j", 230)
	r.put(ids...)
	big, err := NewItem(&signalbox.Job{ID: "big", Kind: "k", Payload: make([]byte, 900<<10)}, When{})
	r.must(err)
	r.enqueued(big)
	ids = append(ids, "big")
	answers, err := r.Transfer().Move(bg, to.Name(), ids)
	r.must(err)
	for i, a := range answers {
		same(t, ids[i], a, Answer{Done, signalbox.StateReady})
	}
	same(t, "moved", len(answers), len(ids))
	equal(t, "there", r.rdb.LRange(bg, to.keys.ReadyNormal, 0, -1).Val(), ids)
}

// A worker that waits in the other queue is woken.
func testMoveWakes(t *testing.T, r *rig) {
	r.open()
	to := r.other()
	r.put("a")
	r.into("later", signalbox.StateScheduled)
	for _, id := range []string{"a", "later"} {
		to.must(to.rdb.ZAdd(bg, to.keys.Idle, redis.Z{Score: 1, Member: to.address()}).Err())
		r.moved(to, id)
		same(t, id+": those that wait", to.rdb.ZCard(bg, to.keys.Idle).Val(), 0)
	}
}
