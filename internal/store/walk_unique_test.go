package store

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// A keyWalk makes random calls to a queue with unique keys. Its model predicts the fate of each job, whom it meets, what a worker gets, and who has
// each key after each call. Replies are lost and calls are repeated. Sessions end with jobs.
type keyWalk struct {
	*rig
	rnd     *rand.Rand
	jobs    map[string]*keyed
	keys    map[string]keyHeld
	workers []*keyWorker
	n       int
	log     []string
}

// keyed is a job of the walk that is there.
type keyed struct {
	key, payload string
	scope        byte
	state        string // ready, scheduled, running, dead or cancelled
	cancelled    bool   // while it runs
	due          bool   // it is scheduled, and the next call of a worker makes it ready
}

func (j *keyed) live() bool { return j.state != "dead" && j.state != "cancelled" }

// keyHeld is the job that has a key. Without an ID nobody has it.
type keyHeld struct {
	id   string
	open bool // its window is open
}

// A keyWorker is a worker of the walk.
type keyWorker struct {
	session string
	lane    *Lane
	running []Delivery
}

func (w *keyWalk) fail(format string, args ...any) {
	w.t.Helper()
	for _, line := range w.log[max(0, len(w.log)-12):] {
		w.t.Log(line)
	}
	w.t.Fatalf(format, args...)
}

func (w *keyWalk) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

// met is what a reply says of a job.
func (w *keyWalk) met(id string) Met {
	switch j := w.jobs[id]; {
	case j == nil:
		return Met{ID: id}
	case j.state == "ready" || j.state == "running":
		return Met{ID: id, Live: true}
	default:
		return Met{ID: id, State: signalbox.State(j.state)}
	}
}

// put predicts what becomes of a job that is enqueued.
func (w *keyWalk) put(id string, j *keyed, update bool) (fate string, met []Met) {
	held := w.keys[j.key]
	other := w.jobs[held.id]
	switch {
	case held.open && j.scope == wire.Throttled:
		j.state = "scheduled"
	case held.open, other != nil && other.live():
		met = []Met{w.met(held.id)}
		if held.open || !update || other.scope != j.scope || j.scope != wire.UntilStarted && j.scope != wire.Throttled {
			return "u", met
		}
		other.payload = j.payload
		if j.scope == wire.UntilStarted {
			other.due = other.state == "scheduled" && j.state == "ready"
		}
		return "U", met
	}
	w.jobs[id] = j
	w.keys[j.key] = keyHeld{id, j.scope == wire.ForWindow}
	return "1", nil
}

func (w *keyWalk) enqueue() {
	var items []Item
	fates, met := "", []Met(nil)
	for range 1 + w.rnd.Intn(3) {
		w.n++
		id := fmt.Sprint("j", w.n)
		j := &keyed{key: string("xyz"[w.rnd.Intn(3)]), payload: strconv.Quote(id), scope: "sewt"[w.rnd.Intn(4)], state: "ready"}
		when := When{}
		if j.scope != wire.Throttled && w.rnd.Intn(3) == 0 {
			when.After, j.state = time.Hour, "scheduled"
		}
		it := w.item(id, when, signalbox.PriorityNormal)
		it.Unique(Unique{Key: wire.UniqueKey("k", j.key, false), Scope: j.scope, Window: time.Hour})
		update := j.scope == wire.Throttled || j.scope == wire.UntilStarted && w.rnd.Intn(2) == 0
		if update {
			it.Update(0)
		}
		items = append(items, it)
		was := *j
		fate, others := w.put(id, j, update)
		fates, met = fates+fate, append(met, others...)
		w.note("enqueue %s of %s, scope %c, %s, update %v: %s %v", id, j.key, j.scope, was.state, update, fate, others)
	}
	w.producer.Next()
	for again := w.rnd.Intn(4) == 0; ; again = false { // the second time as after a lost reply
		got, err := w.Enqueue(bg, w.producer, items)
		w.must(err)
		if got.list != fates || !slices.Equal(got.Met(), met) {
			w.fail("fates %q, meeting %v; want %q, %v", got.list, got.Met(), fates, met)
		}
		if !again {
			return
		}
		w.verify()
	}
}

// over notes that a job has ended, or is gone: then the state is "".
func (w *keyWalk) over(id, state string) {
	j := w.jobs[id]
	if held := w.keys[j.key]; held.id == id && !held.open {
		delete(w.keys, j.key)
	}
	j.state = state
	if state == "" {
		delete(w.jobs, id)
	}
}

// claim settles some of what the worker runs, or all, and claims up to n jobs.
func (w *keyWalk) claim(x *keyWorker, n int, all bool) {
	req := &ClaimRequest{Session: x.session, Want: n, Suspects: true}
	w.promote()
	var rest []Delivery
	for _, d := range x.running {
		if !all && w.rnd.Intn(2) == 0 {
			rest = append(rest, d)
			continue
		}
		outcome := []Outcome{Completed, Retry, Delay, Return, Dead}[w.rnd.Intn(5)]
		if all {
			outcome = Completed
		}
		id, j := d.Job.ID, w.jobs[d.Job.ID]
		w.note("%s ends as %s, cancelled %v", id, outcome, j.cancelled)
		s := settlement(d, outcome)
		switch {
		case j.cancelled:
			w.over(id, "cancelled")
		case outcome == Completed:
			w.over(id, "")
		case outcome == Dead:
			w.over(id, "dead")
		case outcome == Return:
			j.state = "ready"
		default:
			j.state, s.Delay = "scheduled", time.Hour
		}
		req.Settle = append(req.Settle, s)
	}
	x.running = rest
	x.lane.Next()
	reply, err := w.Claim(bg, x.lane, req)
	w.must(err)
	w.note("%s claims %d: %v", x.session, n, ids(reply.Deliveries))
	if len(reply.Refused) > 0 || !reply.Alive {
		w.fail("refused %v, alive %v", reply.Refused, reply.Alive)
	}
	for _, d := range reply.Deliveries {
		id, j := d.Job.ID, w.jobs[d.Job.ID]
		if j == nil || j.state != "ready" || string(d.Job.Payload) != j.payload {
			w.fail("claimed %s with %s; want %+v", id, d.Job.Payload, j)
		}
		j.state = "running"
		if held := w.keys[j.key]; held.id == id && j.scope == wire.UntilStarted {
			delete(w.keys, j.key)
		} else if held.id == id && j.scope == wire.Throttled {
			w.keys[j.key] = keyHeld{id, true}
		}
	}
	x.running = append(x.running, reply.Deliveries...)
	if w.rnd.Intn(4) > 0 {
		return
	}
	w.verify()
	if !all && w.rnd.Intn(2) == 0 { // somebody else calls between
		w.enqueue()
		w.verify()
	}
	again, err := w.Claim(bg, x.lane, req)
	w.must(err)
	if got, want := ids(again.Deliveries), ids(reply.Deliveries); !slices.Equal(got, want) {
		w.fail("the repeated call claims %v, want %v", got, want)
	}
}

// crash ends a worker's session, and takes its jobs back.
func (w *keyWalk) crash(x *keyWorker) {
	w.note("%s crashes with %v", x.session, ids(x.running))
	w.rig.session = x.session
	w.rig.expire()
	for left := 1; left > 0; {
		got := w.reclaim(x.session)
		for _, id := range got.Returned {
			w.jobs[id].state = "ready"
		}
		for _, d := range got.Dead {
			w.over(d.Job.ID, "dead")
		}
		for _, d := range got.Cancelled {
			w.over(d.Job.ID, "cancelled")
		}
		left = got.Left
	}
	x.running = nil
	w.enter(x)
}

func (w *keyWalk) enter(x *keyWorker) {
	w.n++
	w.rig.session = fmt.Sprint("s", w.n)
	x.session = w.rig.session
	w.open()
}

// act does what an operator does to a job.
func (w *keyWalk) act() {
	all := slices.Sorted(maps.Keys(w.jobs))
	if len(all) == 0 {
		return
	}
	id := all[w.rnd.Intn(len(all))]
	j := w.jobs[id]
	held := w.keys[j.key]
	switch k := w.rnd.Intn(3); {
	case k == 0 && j.live():
		w.note("cancel %s", id)
		if j.state == "running" {
			j.cancelled = true
			w.did(CancelJobs("why"), id)
			return
		}
		w.over(id, "cancelled")
		w.cancel(id)
	case k == 1 && j.state != "running":
		w.note("delete %s", id)
		if held.id == id {
			delete(w.keys, j.key)
		}
		delete(w.jobs, id)
		if a := w.did(DeleteJobs(), id); a.Acted != Done {
			w.fail("deleted: %+v", a)
		}
	case k == 2 && !j.live():
		want := Done
		if j.scope == wire.UntilStarted || j.scope == wire.UntilEnded {
			if held.id != "" {
				want = KeyTaken
			} else {
				w.keys[j.key] = keyHeld{id: id}
			}
		}
		w.note("run %s: %v", id, want)
		if want == Done {
			j.state, j.cancelled = "ready", false
		}
		if a := w.did(RunJobs(time.Time{}), id); a.Acted != want {
			w.fail("run: %+v, want %v", a, want)
		}
	}
}

// promote notes that jobs which are due are ready.
func (w *keyWalk) promote() {
	for _, j := range w.jobs {
		if j.due && j.state == "scheduled" {
			j.state = "ready"
		}
		j.due = false
	}
}

// bring makes all scheduled jobs due.
func (w *keyWalk) bring() {
	w.note("all are due")
	if members := w.rdb.ZRange(bg, w.Queue.keys.due, 0, -1).Val(); len(members) > 0 {
		w.makeDue(members...)
	}
	for _, j := range w.jobs {
		j.due = j.state == "scheduled"
	}
}

// pass has the window of a key end.
func (w *keyWalk) pass(key string) {
	if w.keys[key].open {
		w.note("the window of %s ends", key)
		w.shut(key)
		delete(w.keys, key)
	}
}

// places is how the places of jobs in a state begin, as states has them.
var places = map[string]string{"ready": "ready", "scheduled": "due", "running": "in flight", "dead": "dead", "cancelled": "cancelled"}

// verify compares the keys, and where jobs are, with the model.
func (w *keyWalk) verify() {
	w.t.Helper()
	now, err := w.Now(bg)
	w.must(err)
	got := make(map[string]string)
	for field, value := range w.rdb.HGetAll(bg, w.Queue.keys.unique).Val() {
		scope, id, _ := strings.Cut(value, " ")
		if till, err := strconv.ParseInt(scope, 10, 64); err == nil {
			if till <= now.UnixMicro() {
				continue
			}
			scope = "window"
		}
		got[strings.TrimPrefix(field, "k k")] = scope + " " + id
	}
	want := make(map[string]string)
	for key, held := range w.keys {
		if want[key] = "window " + held.id; !held.open {
			want[key] = string(w.jobs[held.id].scope) + " " + held.id
		}
	}
	if !maps.Equal(got, want) {
		w.fail("keys %v, want %v", got, want)
	}
	states := w.states()
	for id, j := range w.jobs {
		if !strings.HasPrefix(states[id], places[j.state]) {
			w.fail("%s is %q, want %s", id, states[id], j.state)
		}
	}
	if len(states) != len(w.jobs) {
		w.fail("%d jobs, want %d", len(states), len(w.jobs))
	}
}

// TestUniqueWalk: whatever happens to jobs with unique keys, each enqueue has the fate that the model predicts, and in the end no key is left.
func TestUniqueWalk(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t).Client()
	first := *walkSeed
	if first == 0 {
		first = time.Now().UnixNano() % 1e9
	}
	for i := range max(1, *walkSteps/walkCalls) {
		t.Run(fmt.Sprint("seed=", first+int64(i)), func(t *testing.T) {
			t.Parallel()
			w := &keyWalk{rig: newQueue(t, rdb), rnd: rand.New(rand.NewSource(first + int64(i))), jobs: make(map[string]*keyed), keys: make(map[string]keyHeld)}
			w.run()
		})
	}
}

func (w *keyWalk) run() {
	for range 2 {
		x := &keyWorker{lane: w.NewLane()}
		w.enter(x)
		w.workers = append(w.workers, x)
	}
	for range walkLength {
		switch k := w.rnd.Intn(20); {
		case k < 8:
			w.enqueue()
		case k < 13:
			w.claim(w.workers[w.rnd.Intn(2)], w.rnd.Intn(3), false)
		case k < 14:
			w.crash(w.workers[w.rnd.Intn(2)])
		case k < 17:
			w.act()
		case k < 18:
			w.bring()
		default:
			w.pass(string("xyz"[w.rnd.Intn(3)]))
		}
		w.verify()
		if len(w.log)%8 == 0 {
			w.check()
		}
	}
	for slices.ContainsFunc(slices.Collect(maps.Values(w.jobs)), (*keyed).live) {
		w.bring()
		for _, x := range w.workers {
			w.claim(x, 50, true)
		}
	}
	for _, key := range []string{"x", "y", "z"} {
		w.pass(key)
	}
	w.verify()
	w.sweep()
	same(w.t, "keys that are left", w.rdb.Exists(bg, w.Queue.keys.unique, w.Queue.keys.windows).Val(), 0)
}
