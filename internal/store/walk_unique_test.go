package store

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// A keyWalk makes random calls to a queue with unique keys. Its model predicts the fate of each job, whom it meets, what a worker gets, which jobs
// expire, and who has each key after each call. Replies are lost and calls are repeated. Sessions end with jobs. The queue goes back to what it was
// before, as in a failover to a replica that is behind, while its workers and its producer know of what came later.
type keyWalk struct {
	*rig
	rnd     *rand.Rand
	m       *keyModel
	workers []*keyWorker
	n       int
	calls   int // transitions so far: calls of scripts that change the queue, or would
	log     []string
	last    []offer           // of the last enqueue
	saved   map[string]string // by key: what a failover goes back to
	before  *keyModel         // of what was saved
}

// A keyModel is what the queue must have.
type keyModel struct {
	jobs     map[string]*keyed
	keys     map[string]keyHeld
	sessions map[string]bool  // those that are open
	lanes    map[string]int64 // by the key of a worker's lane: its last call
	seq      int64            // of the producer's last call
	answer   keyAnswer        // to that
	most     int              // how many jobs that haven't ended the queue may have; 0: any number
}

// A keyAnswer is that to an enqueue.
type keyAnswer struct {
	fates string
	met   []Met
	full  Length
}

func (m *keyModel) clone() *keyModel {
	c := *m
	c.keys, c.sessions, c.lanes, c.jobs = maps.Clone(m.keys), maps.Clone(m.sessions), maps.Clone(m.lanes), make(map[string]*keyed, len(m.jobs))
	for id, j := range m.jobs {
		other := *j
		c.jobs[id] = &other
	}
	return &c
}

// length returns how many jobs haven't ended.
func (m *keyModel) length() (n int) {
	for _, j := range m.jobs {
		if j.live() {
			n++
		}
	}
	return n
}

// An offer is a job that is enqueued.
type offer struct {
	id     string
	job    keyed
	update bool
	item   Item
}

// keyed is a job of the walk that is there.
type keyed struct {
	key, payload string
	scope        byte
	state        string        // ready, scheduled, running, dead or cancelled
	life         time.Duration // how long after it is due it expires, if it hasn't started; 0: it never does
	cancelled    bool          // while it runs
	due          bool          // it is scheduled, and the next call of a worker makes it ready
	session      string        // in which it runs
	token        int64
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
	switch j := w.m.jobs[id]; {
	case j == nil:
		return Met{ID: id}
	case j.state == "ready" || j.state == "running":
		return Met{ID: id, Live: true}
	default:
		return Met{ID: id, State: signalbox.State(j.state)}
	}
}

// put predicts what becomes of a job that is enqueued. room says that the queue has room for it.
func (w *keyWalk) put(id string, j *keyed, update, room bool) (fate string, met []Met) {
	held := w.m.keys[j.key]
	other := w.m.jobs[held.id]
	switch {
	case held.open && j.scope == wire.Throttled:
		j.state = "scheduled"
	case held.open, other != nil && other.live():
		met = []Met{w.met(held.id)}
		if held.open || !update || other.scope != j.scope || j.scope != wire.UntilStarted && j.scope != wire.Throttled {
			return "u", met
		}
		other.payload = j.payload
		if other.state == "scheduled" {
			other.life = j.life
		}
		if j.scope == wire.UntilStarted {
			other.due = other.state == "scheduled" && j.state == "ready"
		}
		return "U", met
	}
	if !room {
		return "n", nil
	}
	w.m.jobs[id] = j
	w.m.keys[j.key] = keyHeld{id, j.scope == wire.ForWindow}
	return "1", nil
}

func (w *keyWalk) enqueue() {
	w.last = nil
	for range 1 + w.rnd.Intn(3) {
		w.n++
		o := offer{id: fmt.Sprint("j", w.n)}
		j := &o.job
		*j = keyed{key: string("xyz"[w.rnd.Intn(3)]), payload: strconv.Quote(o.id), scope: "sewt"[w.rnd.Intn(4)], state: "ready"}
		when := When{}
		if j.scope != wire.Throttled && w.rnd.Intn(3) == 0 {
			when.After, j.state = time.Hour, "scheduled"
		}
		j.life = []time.Duration{0, 0, 0, brief, time.Hour}[w.rnd.Intn(5)]
		o.item = w.made(signalbox.Job{ID: o.id, ExpireAfter: j.life}, "", when)
		o.item.Unique(Unique{Key: wire.UniqueKey("k", j.key, false), Scope: j.scope, Window: time.Hour})
		if o.update = j.scope == wire.Throttled || j.scope == wire.UntilStarted && w.rnd.Intn(2) == 0; o.update {
			o.item.Update(0)
		}
		w.last = append(w.last, o)
	}
	w.producer.Next()
	w.send()
	if w.rnd.Intn(4) == 0 { // as after a lost reply
		w.verify()
		w.send()
	}
}

// send makes the producer's last call, for the first time or again.
func (w *keyWalk) send() {
	w.t.Helper()
	var items []Item
	for _, o := range w.last {
		items = append(items, o.item)
	}
	if w.m.seq != w.producer.seq {
		w.m.seq, w.m.answer = w.producer.seq, w.judge()
	}
	want := w.m.answer
	w.calls++
	got, err := w.Enqueue(bg, w.producer, items)
	w.must(err)
	if got.list != want.fates || !slices.Equal(got.Met(), want.met) || got.Full() != want.full {
		w.fail("fates %q, meeting %v, %+v; want %q, %v, %+v", got.list, got.Met(), got.Full(), want.fates, want.met, want.full)
	}
}

// judge predicts what the producer's call is answered.
func (w *keyWalk) judge() (a keyAnswer) {
	length, n := w.m.length(), 0
	for _, o := range w.last {
		j := o.job
		fate, met := w.put(o.id, &j, o.update, w.m.most == 0 || length+n < w.m.most)
		if fate == "1" {
			n++
		}
		a.fates, a.met = a.fates+fate, append(a.met, met...)
		w.note("enqueue %s of %s, scope %c, %s, update %v, expires after %v: %s %v", o.id, j.key, j.scope, o.job.state, o.update, j.life, fate, met)
	}
	if strings.Contains(a.fates, "n") {
		a.full = Length{length + n, w.m.most}
	}
	return a
}

// over notes that a job has ended, or is gone: then the state is "".
func (w *keyWalk) over(id, state string) {
	j := w.m.jobs[id]
	if held := w.m.keys[j.key]; held.id == id && !held.open {
		delete(w.m.keys, j.key)
	}
	j.state = state
	if state == "" {
		delete(w.m.jobs, id)
	}
}

// claim settles some of what the worker runs, or all, and claims up to n jobs.
func (w *keyWalk) claim(x *keyWorker, n int, all bool) {
	req := &ClaimRequest{Session: x.session, Want: n, Suspects: true}
	w.later() // what has had a microsecond to start expires
	var rest []Delivery
	var refused []int
	for _, d := range x.running {
		if !all && w.rnd.Intn(2) == 0 {
			rest = append(rest, d)
			continue
		}
		outcome := []Outcome{Completed, Retry, Delay, Return, Dead}[w.rnd.Intn(5)]
		if all {
			outcome = Completed
		}
		s := settlement(d, outcome)
		if outcome == Retry || outcome == Delay {
			s.Delay = time.Hour
		}
		if !w.settle(x, &s) {
			refused = append(refused, len(req.Settle))
		}
		req.Settle = append(req.Settle, s)
	}
	w.promote()
	over := w.expired()
	x.running = rest
	x.lane.Next()
	known := x.lane.known(x.session)
	forgot := known > w.m.lanes[x.lane.key] // in a failover
	alive := w.m.sessions[x.session] && !forgot
	w.m.lanes[x.lane.key] = x.lane.seq
	w.calls++
	reply, err := w.Sessions().Claim(bg, x.lane, req)
	w.must(err)
	w.note("%s claims %d: %v; expired %v, alive %v", x.session, n, ids(reply.Deliveries), late(reply), reply.Alive)
	slices.Sort(reply.Refused)
	if got := slices.Sorted(slices.Values(late(reply))); !slices.Equal(reply.Refused, refused) || reply.Alive != alive || !slices.Equal(got, over) {
		w.fail("refused %v, alive %v, expired %v; want %v, %v, %v", reply.Refused, reply.Alive, got, refused, alive, over)
	}
	if !alive {
		w.verify()
		w.crash(x)
		return
	}
	for _, d := range reply.Deliveries {
		id, j := d.Job.ID, w.m.jobs[d.Job.ID]
		if j == nil || j.state != "ready" || string(d.Job.Payload) != j.payload {
			w.fail("claimed %s with %s; want %+v", id, d.Job.Payload, j)
		}
		j.state, j.session, j.token, j.life = "running", x.session, d.Job.Token, 0
		if held := w.m.keys[j.key]; held.id == id && j.scope == wire.UntilStarted {
			delete(w.m.keys, j.key)
		} else if held.id == id && j.scope == wire.Throttled {
			w.m.keys[j.key] = keyHeld{id, true}
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
	w.calls++
	again, err := w.Sessions().Claim(bg, x.lane, req)
	w.must(err)
	if got, want := ids(again.Deliveries), ids(reply.Deliveries); !slices.Equal(got, want) || len(again.Late) > 0 {
		w.fail("the repeated call claims %v and has %v expire; want %v and none", got, late(again), want)
	}
}

// settle predicts what a settlement does. It reports whether it is accepted.
func (w *keyWalk) settle(x *keyWorker, s *Settlement) bool {
	j := w.m.jobs[s.ID]
	if j == nil || j.state != "running" || j.session != x.session || j.token != s.Token {
		w.note("%s ends as %s, too late", s.ID, s.Outcome)
		return false
	}
	w.note("%s ends as %s, cancelled %v", s.ID, s.Outcome, j.cancelled)
	switch {
	case j.cancelled:
		w.over(s.ID, "cancelled")
	case s.Outcome == Completed:
		w.over(s.ID, "")
	case s.Outcome == Dead:
		w.over(s.ID, "dead")
	case s.Outcome == Return:
		j.state = "ready"
	default:
		j.state = "scheduled"
	}
	return true
}

// expired has jobs end that have not started in time. It returns their IDs in order.
func (w *keyWalk) expired() []string {
	var over []string
	for id, j := range w.m.jobs {
		if j.state == "ready" && j.life == brief {
			over = append(over, id)
		}
	}
	for _, id := range over {
		w.over(id, "dead")
	}
	slices.Sort(over)
	return over
}

// crash ends a worker's session, and takes its jobs back.
func (w *keyWalk) crash(x *keyWorker) {
	w.note("%s crashes with %v", x.session, ids(x.running))
	w.takeBack(x.session)
	x.running = nil
	if w.rnd.Intn(2) == 0 {
		x.lane = w.NewLane()
	}
	w.enter(x)
}

// takeBack ends a session, and takes its jobs back.
func (w *keyWalk) takeBack(session string) {
	w.t.Helper()
	w.rig.session = session
	w.rig.expire()
	delete(w.m.sessions, session)
	taken := func(id string) *keyed {
		j := w.m.jobs[id]
		if j == nil || j.state != "running" || j.session != session {
			w.fail("%s is taken back, and is %+v", id, j)
		}
		return j
	}
	for left := 1; left > 0; {
		w.calls++
		got := w.reclaim(session)
		for _, id := range got.Returned {
			taken(id).state = "ready"
		}
		for _, d := range got.Dead {
			taken(d.Job.ID)
			w.over(d.Job.ID, "dead")
		}
		for _, d := range got.Cancelled {
			taken(d.Job.ID)
			w.over(d.Job.ID, "cancelled")
		}
		left = got.Left
	}
	for id, j := range w.m.jobs {
		if j.state == "running" && j.session == session {
			w.fail("%s isn't taken back", id)
		}
	}
}

// failover saves what Redis has, or goes back to what was saved. Workers and the producer go on with what they know.
func (w *keyWalk) failover() {
	keys, err := w.Site().AllKeys(bg)
	w.must(err)
	p := w.rdb.Pipeline()
	if w.saved == nil {
		w.note("save")
		values := make([]*redis.StringCmd, len(keys))
		for i, key := range keys {
			values[i] = p.Dump(bg, key)
		}
		_, err := p.Exec(bg)
		w.must(err)
		w.saved, w.before = make(map[string]string), w.m.clone()
		for i, key := range keys {
			w.saved[key] = values[i].Val()
		}
		return
	}
	w.note("failover")
	p.Del(bg, keys...)
	for key, value := range w.saved {
		p.Restore(bg, key, 0, value)
	}
	_, err = p.Exec(bg)
	w.must(err)
	w.saved, w.m = nil, w.before
	for session := range w.m.sessions {
		if !slices.ContainsFunc(w.workers, func(x *keyWorker) bool { return x.session == session }) {
			w.takeBack(session)
		}
	}
	if w.rnd.Intn(2) == 0 {
		w.note("the last enqueue again")
		w.send()
	}
}

// maximum sets how many jobs the queue may have.
func (w *keyWalk) maximum(most int) {
	w.note("at most %d jobs", most)
	w.calls++
	_, err := w.Settings().SetMaxLength(bg, most)
	w.must(err)
	w.m.most = most
}

func (w *keyWalk) enter(x *keyWorker) {
	w.n++
	w.rig.session = fmt.Sprint("s", w.n)
	x.session = w.rig.session
	w.open()
	w.m.sessions[x.session] = true
}

// act does what an operator does to a job.
func (w *keyWalk) act() {
	all := slices.Sorted(maps.Keys(w.m.jobs))
	if len(all) == 0 {
		return
	}
	id := all[w.rnd.Intn(len(all))]
	j := w.m.jobs[id]
	held := w.m.keys[j.key]
	w.calls++
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
			delete(w.m.keys, j.key)
		}
		delete(w.m.jobs, id)
		if a := w.did(DeleteJobs(), id); a.Acted != Done {
			w.fail("deleted: %+v", a)
		}
	case k == 2 && !j.live():
		want := Done
		if j.scope == wire.UntilStarted || j.scope == wire.UntilEnded {
			if held.id != "" {
				want = KeyTaken
			} else {
				w.m.keys[j.key] = keyHeld{id: id}
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
	for _, j := range w.m.jobs {
		if j.due && j.state == "scheduled" {
			j.state = "ready"
		}
		j.due = false
	}
}

// bring makes all scheduled jobs due.
func (w *keyWalk) bring() {
	w.note("all are due")
	if members := w.rdb.ZRange(bg, w.Queue.keys.Due, 0, -1).Val(); len(members) > 0 {
		w.makeDue(members...)
	}
	for id, j := range w.m.jobs {
		if j.due = j.state == "scheduled"; j.due && j.life > 0 {
			at := w.stored(id).ScheduledAt.Add(j.life)
			w.must(w.rdb.ZAddXX(bg, w.Queue.keys.Expires, z(float64(at.UnixMicro()), id)).Err())
		}
	}
}

// pass has the window of a key end.
func (w *keyWalk) pass(key string) {
	if w.m.keys[key].open {
		w.note("the window of %s ends", key)
		w.shut(key)
		delete(w.m.keys, key)
	}
}

// at reports whether the job may be at a place, as states has it.
func (j *keyed) at(place string) bool {
	if j.state == "ready" && j.life > 0 {
		return place == "ready in the line of its group" // jobs that expire have one
	}
	return strings.HasPrefix(place, places[j.state])
}

// places is how the places of jobs in a state begin.
var places = map[string]string{"ready": "ready", "scheduled": "due", "running": "in flight", "dead": "dead", "cancelled": "cancelled"}

// verify compares the keys, and where jobs are, with the model.
func (w *keyWalk) verify() {
	w.t.Helper()
	now, err := w.Now(bg)
	w.must(err)
	got := make(map[string]string)
	for field, value := range w.rdb.HGetAll(bg, w.Queue.keys.Unique).Val() {
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
	for key, held := range w.m.keys {
		if want[key] = "window " + held.id; !held.open {
			want[key] = string(w.m.jobs[held.id].scope) + " " + held.id
		}
	}
	if !maps.Equal(got, want) {
		w.fail("keys %v, want %v", got, want)
	}
	states := w.states()
	for id, j := range w.m.jobs {
		if !j.at(states[id]) {
			w.fail("%s is %q, want %s", id, states[id], j.state)
		}
	}
	if len(states) != len(w.m.jobs) {
		w.fail("%d jobs, want %d", len(states), len(w.m.jobs))
	}
}

// TestUniqueWalk: whatever happens to jobs with unique keys, each enqueue has the fate that the model predicts, jobs expire in time, and in the end no
// key is left.
func TestUniqueWalk(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	rdb := redistest.New(t).Client()
	first := *walkSeed
	if first == 0 {
		first = time.Now().UnixNano() % 1e9
	}
	var total atomic.Int64
	begin := time.Now()
	t.Cleanup(func() {
		t.Logf("unique walk: %d transitions in %v, seeds from %d", total.Load(), time.Since(begin).Round(time.Second/10), first)
	})
	for i := range max(1, *walkSteps/walkCalls) {
		walks := t
		t.Run(fmt.Sprint("seed=", first+int64(i)), func(t *testing.T) {
			t.Parallel()
			if walks.Failed() {
				return // one bug is enough
			}
			m := &keyModel{jobs: make(map[string]*keyed), keys: make(map[string]keyHeld), sessions: make(map[string]bool), lanes: make(map[string]int64)}
			w := &keyWalk{rig: newQueue(t, rdb), rnd: rand.New(rand.NewSource(first + int64(i))), m: m}
			w.run()
			total.Add(int64(w.calls))
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
		switch k := w.rnd.Intn(22); {
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
		case k < 19:
			w.maximum(max(0, w.rnd.Intn(10)-3))
		case k < 20:
			w.failover()
		default:
			w.pass(string("xyz"[w.rnd.Intn(3)]))
		}
		w.verify()
		if len(w.log)%8 == 0 {
			w.check()
		}
	}
	w.maximum(0)
	for slices.ContainsFunc(slices.Collect(maps.Values(w.m.jobs)), (*keyed).live) {
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
	same(w.t, "keys that are left", w.rdb.Exists(bg, w.Queue.keys.Unique, w.Queue.keys.Windows).Val(), 0)
}
