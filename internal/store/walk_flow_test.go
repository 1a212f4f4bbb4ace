package store

import (
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/check"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// A flowWalk makes random calls to a queue with flows. A model knows what each call must answer and change. Requests and replies are lost, calls are made again, from other lanes too, and come late. Workers
// and producers die; operators cancel, delete and run jobs and flows; the queue goes back to what it was before.
type flowWalk struct {
	*rig
	rnd       *rand.Rand
	m         *flowModel
	n         int // jobs so far
	calls     int
	workers   []*walker
	producers []*flowProducer
	past      []func() // calls that come once more, late
	log       []string
	saved     map[string]string // by key: what a failover goes back to
	before    *flowModel
	seen      map[string]int // how often each thing has happened
}

// A flowProducer adds to a flow. It gives the same items again when it begins anew.
type flowProducer struct {
	ref   facts.FlowRef
	lane  *Lane
	given int      // how many it has given
	plan  []string // what it gives
	roles string
	brief bool
	fast  bool
}

func (w *flowWalk) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *flowWalk) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Errorf(format, args...)
	for _, line := range w.log[max(0, len(w.log)-2**walkLog):] {
		w.t.Log(line)
	}
	w.t.FailNow()
}

// TestFlowWalk: whatever happens to members of flows, to their producers and to jobs that wait for them, each end is counted once, each job that waits goes on when it may and not before, and in the end nothing is left.
func TestFlowWalk(t *testing.T) {
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
	seen := make(chan map[string]int, 10000)
	t.Cleanup(func() {
		all := make(map[string]int)
		close(seen)
		for some := range seen {
			for what, n := range some {
				all[what] += n
			}
		}
		t.Logf("flow walk: %d transitions in %v, seeds from %d, %v", total.Load(), time.Since(begin).Round(time.Second/10), first, all)
	})
	for i := range max(1, *walkSteps/walkCalls) {
		walks := t
		t.Run(fmt.Sprint("seed=", first+int64(i)), func(t *testing.T) {
			t.Parallel()
			if walks.Failed() {
				return // one bug is enough
			}
			w := &flowWalk{rig: unchecked(t, rdb), m: newFlowModel(), rnd: rand.New(rand.NewSource(first + int64(i))), seen: make(map[string]int)}
			w.run()
			total.Add(int64(w.calls))
			seen <- w.seen
		})
	}
}

func (w *flowWalk) run() {
	for range 3 {
		x := &walker{lane: w.NewLane()}
		w.enter(x)
		w.workers = append(w.workers, x)
	}
	w.producer = w.NewLane()
	for step := range walkLength {
		switch k := w.rnd.Intn(60); {
		case k < 3:
			w.create()
		case k < 13:
			w.produce()
		case k < 16:
			w.seal()
		case k < 34:
			w.claim(w.workers[w.rnd.Intn(len(w.workers))], w.rnd.Intn(6), 2)
		case k < 38:
			w.addFromMember(w.workers[w.rnd.Intn(len(w.workers))])
		case k < 40:
			w.complete(w.workers[w.rnd.Intn(len(w.workers))])
		case k < 42:
			w.crash(w.workers[w.rnd.Intn(len(w.workers))])
		case k < 47:
			w.act()
		case k < 48:
			w.cancelFlow()
		case k < 50:
			w.pass()
		case k < 51:
			w.tend()
		case k < 53:
			w.due()
		case k < 58:
			if n := len(w.past); n > 0 {
				w.note("a late copy")
				w.past[w.rnd.Intn(n)]()
			}
		default:
			w.failover()
		}
		if step%*walkEvery == 0 {
			w.compare()
		}
	}
	w.finish()
}

// compare compares the queue with the model.
func (w *flowWalk) compare() {
	w.t.Helper()
	s, err := check.Read(bg, w.Site())
	w.must(err)
	got, want := snapshotPlaces(s), w.m.places()
	for _, id := range slices.Sorted(maps.Keys(want)) {
		if got[id] != want[id] {
			w.fail("job %s is %q, and should be %q", id, got[id], want[id])
		}
	}
	for id := range got {
		if want[id] == "" {
			w.fail("job %s is %q, and should not be there", id, got[id])
		}
	}
	for name, text := range s.Flows {
		f, _ := facts.ParseFlow(name, text)
		if w.m.flows[name] == nil {
			w.fail("flow %s is there: %s", name, text)
		}
		if got, want := flowText(f), w.m.text(w.m.flows[name]); got != want {
			w.fail("flow %s has %s, and should have %s", name, got, want)
		}
	}
	for name := range w.m.flows {
		if s.Flows[name] == "" {
			w.fail("flow %s is gone", name)
		}
	}
	if err := check.Queue(bg, w.Site()); err != nil {
		w.fail("%v", err)
	}
}

// lossy makes a call: its request or its reply may be lost, then it is made again, and it may come once more later. call is told whether it is made for the first time; it changes the model then, and answers what is to be had from a repeated call.
func (w *flowWalk) lossy(call func(first bool)) {
	made := false
	try := func() {
		w.calls++
		call(!made)
		made = true
	}
	for range 1 + w.rnd.Intn(12)/11 {
		try()
	}
	if w.rnd.Intn(5) == 0 {
		if w.past = append(w.past, try); len(w.past) > 12 {
			w.past = w.past[1:]
		}
	}
}

// forgetPast has no call before a failover come late: a connection doesn't outlive one.
func (w *flowWalk) forgetPast() { w.past = nil }

func (w *flowWalk) create() {
	name := fmt.Sprint("f", w.rnd.Intn(5))
	p := &flowProducer{ref: facts.FlowRef{Name: name, Mark: NewFlowMark()}, lane: w.NewLane(), brief: w.rnd.Intn(4) == 0, fast: w.rnd.Intn(4) == 0}
	for _, role := range "sef" {
		if w.rnd.Intn(3) > 0 {
			p.roles += string(role)
		}
	}
	w.make(p)
}

// make makes the flow of a producer, or finds the one that is there: then the producer begins anew with what that one has got.
func (w *flowWalk) make(p *flowProducer) {
	var callbacks []Callback
	mark := p.ref.Mark
	for _, role := range []byte(p.roles) {
		callbacks = append(callbacks, Callback{role, w.job(p.ref.Name+mark+string(role), When{})})
	}
	timeout := time.Duration(0)
	if p.brief {
		timeout = time.Hour
	}
	begun := false
	w.lossy(func(bool) {
		if begun && w.m.flows[p.ref.Name] == nil {
			return // a call that comes a day late makes it again
		}
		was := w.m.flows[p.ref.Name]
		f, anew, err := w.Flows().Create(bg, facts.FlowRef{Name: p.ref.Name, Mark: mark}, FlowTerms{Within: time.Hour, Timeout: timeout, FailFast: p.fast}, callbacks)
		w.must(err)
		if anew != (was == nil) {
			w.fail("flow %s is new: %v", p.ref.Name, anew)
		}
		if begun = true; was == nil {
			w.note("create %s with %s", p.ref, p.roles)
			w.seen["created"]++
			was = &flowFact{ref: facts.FlowRef{Name: p.ref.Name, Mark: mark}, open: make(map[string]bool), digest: "-", timeout: p.brief, fast: p.fast}
			w.m.flows[p.ref.Name] = was
			for _, c := range callbacks {
				w.m.jobs[c.Item.id] = &linked{where: "awaiting", role: c.Role, flow: was}
			}
		}
		p.ref = was.ref
		if f.FlowRef != was.ref || flowText(f) != w.m.text(was) {
			w.fail("a call that makes flow %s is answered with %+v, and should be with %s", p.ref, f, w.m.text(was))
		}
	})
	was := w.m.flows[p.ref.Name]
	if was == nil {
		return
	}
	p.given, p.plan = 0, slices.Clone(was.items) // it begins anew, with the same items, by other calls
	if !slices.ContainsFunc(w.producers, func(o *flowProducer) bool { return o.ref == p.ref }) {
		w.producers = append(w.producers, p)
	}
}

// job returns a new job: some have groups, may expire, or are kept when they have completed.
func (w *flowWalk) job(id string, when When) Item {
	job := &signalbox.Job{ID: id, Kind: "k", Payload: []byte("1"), Priority: signalbox.Priority(w.rnd.Intn(3))}
	if w.rnd.Intn(4) == 0 {
		job.Group, job.Serial = fmt.Sprint("g", w.rnd.Intn(3)), w.rnd.Intn(2) == 0
	}
	if w.rnd.Intn(5) == 0 {
		job.ExpireAfter = 100 * time.Hour
	}
	if w.rnd.Intn(4) == 0 {
		job.Retain = time.Hour
	}
	it, err := NewItem(job, when)
	w.must(err)
	return it
}

// member returns a new member of a flow with this ID.
func (w *flowWalk) member(id string, ref facts.FlowRef) Item {
	when := When{}
	if w.rnd.Intn(6) == 0 {
		when.After = time.Hour
	}
	it := w.job(id, when)
	it.Join(ref)
	return it
}

// produce has a producer make its next call, or begin anew.
func (w *flowWalk) produce() {
	if len(w.producers) == 0 {
		return
	}
	i := w.rnd.Intn(len(w.producers))
	p := w.producers[i]
	if w.rnd.Intn(12) == 0 { // it dies, and another one goes on, or nobody
		w.producers = slices.Delete(w.producers, i, i+1)
		if w.rnd.Intn(3) > 0 {
			w.make(&flowProducer{ref: facts.FlowRef{Name: p.ref.Name, Mark: NewFlowMark()}, lane: w.NewLane(), roles: p.roles})
		}
		return
	}
	first, last := p.given, p.given+1+w.rnd.Intn(4)
	for len(p.plan) < last {
		w.n++
		id := w.n
		if w.rnd.Intn(12) == 0 {
			id = 1 + w.rnd.Intn(w.n)
		}
		p.plan = append(p.plan, fmt.Sprint("m", id))
	}
	digest := sumOf(p.plan[:last])
	if w.rnd.Intn(30) == 0 {
		digest += "other"
	}
	var items []Item
	for _, id := range p.plan[first:last] {
		items = append(items, w.member(id, p.ref))
	}
	p.given = last
	lane := p.lane
	if w.rnd.Intn(4) == 0 {
		lane = w.NewLane()
	}
	lane.Next()
	seq, newest, word := lane.seq, lane, ""
	var part Added
	ref := p.ref
	w.lossy(func(begins bool) {
		if !begins && w.rnd.Intn(2) == 0 { // in another lane
			lane = w.NewLane()
			lane.Next()
		} else {
			lane = newest
		}
		again := lane == newest && !begins
		stale := lane == newest && lane.seq > seq
		was := lane.seq
		if lane == newest {
			lane.seq = seq
		}
		got, err := w.Flows().Add(bg, lane, &Addition{Flow: ref, Items: items, First: int64(first), Digest: digest})
		lane.seq = was
		if stale {
			if !errors.Is(err, scripts.ErrStale) {
				w.fail("a call that comes after a later one of its lane returns %v", err)
			}
			return
		}
		w.must(err)
		want, fates := w.add(ref, first, digest, items, begins || !again)
		if f := w.m.flows[ref.Name]; want == "part" && !again && (got.Given != f.given || got.Digest != f.digest) {
			w.fail("flow %s has got %d, %s: %+v", ref, f.given, f.digest, got)
		}
		if again { // the lane has the answer
			want, fates = word, got.Fates.list
		}
		if begins {
			word, part = want, got
		}
		w.note("add %d to %d of %s: %s %s: %s", first, last, ref, p.plan[first:last], digest, got.Word)
		w.seen["add "+got.Word]++
		if got.Word != want || got.Fates.list != fates {
			w.fail("the call that adds from %d on to %s is answered %s %s, and should be %s %s", first, ref, got.Word, got.Fates.list, want, fates)
		}
	})
	if word == "part" && part.Digest == sumOf(p.plan[:part.Given]) {
		p.given = int(part.Given) // it goes on from there
		return
	}
	switch word {
	case "part", "gap", "none", "over", "cancelled", "sealed", "other":
		w.producers = slices.DeleteFunc(w.producers, func(o *flowProducer) bool { return o == p })
	}
}

// add has the model add what a call of a producer adds. It returns what the call must be answered.
func (w *flowWalk) add(ref facts.FlowRef, first int, digest string, items []Item, changes bool) (word, fates string) {
	f, last := w.m.flows[ref.Name], int64(first+len(items))
	switch {
	case f == nil || f.ref != ref:
		return "none", ""
	case last < f.given:
		return "was", ""
	case last == f.given && digest == f.digest:
		return "was", ""
	case last == f.given:
		return "other", ""
	case int64(first) < f.given:
		return "part", ""
	case int64(first) > f.given:
		return "gap", ""
	case f.over:
		return "over", ""
	case f.cancelled:
		return "cancelled", ""
	case f.sealed:
		return "sealed", ""
	}
	if !changes {
		return "was", ""
	}
	fates = w.put(f, items)
	f.given, f.digest = last, digest
	for i := range items {
		f.items = append(f.items[:first+i:first+i], items[i].id)
	}
	return "in", fates
}

// sumOf returns the digest of what a producer has given.
func sumOf(ids []string) string {
	return fmt.Sprint("d", len(ids), "x", crc32.ChecksumIEEE([]byte(strings.Join(ids, ","))))
}

// put puts members in, and returns their fates.
func (w *flowWalk) put(f *flowFact, items []Item) (fates string) {
	mine := make(map[string]Fate)
	for i := range items {
		it := &items[i]
		fate, again := mine[it.id]
		if old := w.m.jobs[it.id]; !again {
			fate = PutIn
			if old != nil {
				fate = map[string]Fate{"ready": MetLive, "running": MetLive, "awaiting": MetLive, "due": MetScheduled, "dead": ReplacedDead, "cancelled": ReplacedCancelled, "completed": ReplacedCompleted}[old.where]
			}
		}
		if !again && fate.In() {
			where := "ready"
			mine[it.id] = MetLive
			if it.when != "" {
				where, mine[it.id] = "due", MetScheduled
			}
			if fate != PutIn {
				delete(w.m.added, it.id)
			}
			w.m.jobs[it.id] = &linked{where: where, role: 'r', flow: f}
			f.total++
			f.open[it.id] = true
		}
		fates += string(rune(fate))
	}
	return fates
}

func (w *flowWalk) some() *flowFact {
	names := slices.Sorted(maps.Keys(w.m.flows))
	if len(names) == 0 {
		return nil
	}
	return w.m.flows[names[w.rnd.Intn(len(names))]]
}

func (w *flowWalk) seal() {
	if f := w.some(); f != nil {
		ref := f.ref
		s := Sealing{Given: f.given, Again: w.rnd.Intn(2) == 0}
		if w.rnd.Intn(4) == 0 {
			s.Given = max(0, f.given-1+2*w.rnd.Int63n(2))
		}
		w.lossy(func(bool) { w.endFlow(ref, &s) })
	}
}

func (w *flowWalk) cancelFlow() {
	if f := w.some(); f != nil && w.rnd.Intn(2) == 0 {
		ref := f.ref
		w.lossy(func(bool) { w.endFlow(ref, nil) })
	}
}

// endFlow seals a flow, or cancels it if there is no s.
func (w *flowWalk) endFlow(ref facts.FlowRef, s *Sealing) {
	var got facts.Flow
	var err, want error
	if s == nil {
		got, err = w.Flows().Cancel(bg, ref)
	} else {
		got, err = w.Flows().Seal(bg, ref, *s)
	}
	f := w.m.flows[ref.Name]
	w.note("seal %+v or cancel %s: %v", s, ref, err)
	if f == nil || f.ref != ref {
		if !errors.Is(err, ErrNoFlow) {
			w.fail("a call for flow %s, which isn't there, returns %v", ref, err)
		}
		return
	}
	switch {
	case s == nil:
		w.m.cancel(f)
		w.seen["cancelled"]++
	case s.Given > f.given:
		want = ErrFlowGap
		w.seen["seal gap"]++
	case s.Again && s.Given > 0 && s.Given < f.given && !f.sealed:
		want = ErrFlowFewer
		w.seen["seal fewer"]++
	default:
		f.sealed = true
		w.m.turn(f)
	}
	if !errors.Is(err, want) {
		w.fail("a call that ends flow %s is answered %v, and should be %v", ref, err, want)
	}
	if flowText(got) != w.m.text(f) {
		w.fail("flow %s is said to be %s, and should be %s", ref, flowText(got), w.m.text(f))
	}
}

func (w *flowWalk) enter(x *walker) {
	w.t.Helper()
	x.session, x.running, x.lost = "s"+NewID(), nil, nil
	alive, _, err := w.Sessions().Open(bg, x.session, time.Hour)
	w.must(err)
	if !alive {
		w.fail("a session is over when it is opened")
	}
	w.m.sessions[x.session] = true
}

// claim settles some deliveries, each with a probability of 1 in odds, and claims up to want jobs.
func (w *flowWalk) claim(x *walker, want, odds int) {
	w.t.Helper()
	var settle, others []Settlement
	var kept []Delivery
	for _, d := range x.running {
		if w.rnd.Intn(odds) > 0 {
			kept = append(kept, d)
			continue
		}
		o := Completed
		if w.rnd.Intn(2) == 0 {
			o = outcomes[w.rnd.Intn(len(outcomes))]
		}
		s := settlement(d, o)
		if o == Retry || o == Delay {
			s.Delay = []time.Duration{0, time.Hour}[w.rnd.Intn(2)]
		}
		if o == Retry {
			s.Record, _ = d.Failed(1, "x")
		}
		if w.rnd.Intn(30) == 0 { // superseded
			old := s
			old.Token--
			others = append(others, old)
		}
		if o == Completed && d.Job.Retain == 0 {
			settle = append(settle, s)
			continue
		}
		if o == Completed {
			s.Keep = Kept(&Attempt{Number: 1}, nil)
		}
		others = append(others, s)
	}
	req := &ClaimRequest{Session: x.session, Settle: append(settle, others...), Want: want, Suspects: true}
	lane := x.lane
	lane.Next()
	seq := lane.seq
	x.running = kept
	session := x.session
	w.lossy(func(first bool) {
		if !first && lane.seq > seq {
			was := lane.seq
			lane.seq = seq
			_, err := w.Sessions().Claim(bg, lane, req)
			if lane.seq = was; !errors.Is(err, scripts.ErrStale) {
				w.fail("a claim that comes after a later one returns %v", err)
			}
			return
		}
		reply, err := w.Sessions().Claim(bg, lane, req)
		w.must(err)
		if !first {
			return
		}
		w.note("claim of %s, settles %v, gets %v, refused %v", session, told(req.Settle), ids(reply.Deliveries), reply.Refused)
		w.settled(req, reply)
		w.drawn(session, reply)
		x.running = append(x.running, reply.Deliveries...)
	})
}

func told(settle []Settlement) (all []string) {
	for i := range settle {
		all = append(all, settle[i].ID+":"+string(settle[i].Outcome))
	}
	return all
}

// settled has the model follow what a claim has settled.
func (w *flowWalk) settled(req *ClaimRequest, reply *ClaimReply) {
	w.t.Helper()
	var refused []int
	for i := range req.Settle {
		s := &req.Settle[i]
		j := w.m.jobs[s.ID]
		if j == nil || j.where != "running" || j.session != req.Session || j.token != s.Token {
			refused = append(refused, i)
			continue
		}
		switch {
		case j.marked:
			w.m.end(s.ID, "cancelled", true)
		case s.Outcome == Completed:
			w.m.end(s.ID, "completed", s.Keep != nil)
		case s.Outcome == Dead || s.Outcome == Cancelled:
			w.m.end(s.ID, string(s.Outcome), true)
		case s.Outcome == Return:
			j.where = "ready"
		case s.Delay == 0:
			j.where = "ready"
		default:
			j.where = "due"
		}
	}
	slices.Sort(reply.Refused)
	if !slices.Equal(reply.Refused, refused) {
		w.fail("of what a claim settles %v are refused, and %v should be", reply.Refused, refused)
	}
}

// drawn has the model follow what a claim has given, and which members of cancelled flows it has ended.
func (w *flowWalk) drawn(session string, reply *ClaimReply) {
	w.t.Helper()
	records, err := w.rdb.HKeys(bg, w.keys.Jobs).Result()
	w.must(err)
	there := make(map[string]bool)
	for _, id := range records {
		there[id] = true
	}
	for _, id := range slices.Sorted(maps.Keys(w.m.jobs)) {
		j := w.m.jobs[id]
		if j != nil && j.where == "ready" && !there[id] && j.role == 'r' && w.m.known(j.flow) && j.flow.cancelled {
			w.seen["ended by a claim"]++
			w.m.end(id, "cancelled", false)
		}
	}
	for _, d := range reply.Deliveries {
		j := w.m.jobs[d.Job.ID]
		if j == nil || j.where != "ready" {
			w.fail("job %s was given, it is %+v", d.Job.ID, j)
		}
		if j.role == 'r' && w.m.known(j.flow) && j.flow.cancelled {
			w.fail("job %s was given, and its flow was cancelled", d.Job.ID)
		}
		if j.went {
			w.seen["ran after "+string(j.role)]++
		}
		j.where, j.session, j.token, j.marked = "running", session, d.Job.Token, false
	}
}

// complete completes a delivery with a follow-up.
func (w *flowWalk) complete(x *walker) {
	if len(x.running) == 0 {
		return
	}
	d := x.running[0]
	s := settlement(d, Completed)
	if w.rnd.Intn(8) == 0 {
		s.Token--
	} else {
		x.running = slices.Clone(x.running[1:])
	}
	w.n++
	follow := fmt.Sprint("t", w.n)
	if d.Job.Retain > 0 {
		s.Keep = Kept(&Attempt{Number: 1}, nil)
	}
	c := &Completion{Session: x.session, Settle: s, FollowUps: []Item{w.job(follow, When{})}}
	lane := x.lane
	lane.Next()
	seq := lane.seq
	w.lossy(func(first bool) {
		if !first && lane.seq > seq {
			was := lane.seq
			lane.seq = seq
			_, err := w.Sessions().Complete(bg, lane, c)
			if lane.seq = was; !errors.Is(err, scripts.ErrStale) {
				w.fail("a completion that comes after a later call returns %v", err)
			}
			return
		}
		_, err := w.Sessions().Complete(bg, lane, c)
		w.must(err)
		if !first {
			return
		}
		j := w.m.jobs[s.ID]
		w.note("complete %s", s.ID)
		switch {
		case j == nil || j.where != "running" || j.session != c.Session || j.token != s.Token:
		case j.marked:
			w.m.end(s.ID, "cancelled", true)
		default:
			w.m.end(s.ID, "completed", s.Keep != nil)
			w.m.jobs[follow] = &linked{where: "ready"}
		}
	})
}

// addFromMember has a member that runs add to its flow, from the first of its items on, as its handler does each time.
func (w *flowWalk) addFromMember(x *walker) {
	if len(x.running) == 0 {
		return
	}
	d := x.running[w.rnd.Intn(len(x.running))]
	for _, other := range x.running { // one that runs again adds the same jobs again
		if w.m.added[other.Job.ID] > 0 && w.rnd.Intn(2) == 0 {
			d = other
		}
	}
	ref, ok := d.FlowOf()
	if !ok {
		return
	}
	token := d.Job.Token
	if w.rnd.Intn(8) == 0 {
		token--
	}
	n := 1 + w.rnd.Intn(3)
	before := w.rnd.Intn(2) // a later call of the delivery, or one whose earlier calls were lost
	var items []Item
	for i := range n {
		items = append(items, w.member(fmt.Sprintf("%s+%d", d.Job.ID, before+i+1), ref))
	}
	a := &Addition{Flow: ref, Items: items, Session: x.session, ID: d.Job.ID, Token: token, Before: before}
	w.lossy(func(bool) {
		lane := w.NewLane()
		lane.Next()
		got, err := w.Flows().Add(bg, lane, a)
		w.must(err)
		word, fates := "in", ""
		f, j := w.m.flows[ref.Name], w.m.jobs[a.ID]
		switch {
		case j == nil || j.where != "running" || j.session != a.Session || j.token != token:
			word = "superseded"
		case f == nil || f.ref != ref:
			word = "none"
		case f.over:
			word = "over"
		case f.cancelled:
			word = "cancelled"
		case w.m.added[a.ID] < before:
			word = "gap"
		default:
			skip := min(max(w.m.added[a.ID]-before, 0), n)
			fates = strings.Repeat("w", skip) + w.put(f, items[skip:])
			w.m.added[a.ID] = max(w.m.added[a.ID], before+n)
		}
		w.note("member %s of %s adds %d after %d: %s %s", a.ID, ref, n, before, got.Word, got.Fates.list)
		w.seen["member adds "+got.Word]++
		if got.Word != word || got.Fates.list != fates {
			w.fail("an addition of member %s is answered %s %q, and should be %s %q", a.ID, got.Word, got.Fates.list, word, fates)
		}
	})
}

// crash ends a worker's session, and has its jobs taken back. Some of them die.
func (w *flowWalk) crash(x *walker) {
	w.note("crash of %s", x.session)
	_, hints, err := w.Sessions().Renew(bg, x.session, 0, "")
	w.must(err)
	redistest.Eventually(w.t, func() bool { return !w.rdb.Time(bg).Val().Before(hints.At) }, "the server's clock has not gone back")
	session := x.session
	x.lane = w.NewLane()
	w.enter(x)
	w.takeBack(session)
}

func (w *flowWalk) takeBack(session string) {
	var running []string
	for id, j := range w.m.jobs {
		if j.where == "running" && j.session == session {
			running = append(running, id)
		}
	}
	slices.Sort(running)
	for _, id := range running {
		if record := []byte(w.rdb.HGet(bg, w.keys.Jobs, id).Val()); w.rnd.Intn(3) == 0 && record[2] < SuspectAt {
			record[2] = CrashLimit - 1
			w.must(w.rdb.HSet(bg, w.keys.Jobs, id, record).Err())
		}
	}
	w.lossy(func(first bool) {
		if !first && len(w.m.sessions) == 0 {
			return
		}
		res := w.reclaim(session)
		var dead []string
		for _, d := range res.Dead {
			dead = append(dead, d.Job.ID)
		}
		w.note("take back %s: again %v, dead %v, cancelled %v", session, res.Returned, dead, ids(res.Cancelled))
		for _, id := range res.Returned {
			w.m.jobs[id].where = "ready"
		}
		for _, id := range dead {
			w.seen["died in a crash"]++
			w.m.end(id, "dead", true)
		}
		for _, id := range ids(res.Cancelled) {
			w.m.end(id, "cancelled", true)
		}
		if !first && len(res.Returned)+len(res.Dead)+len(res.Cancelled) > 0 {
			w.fail("a session is taken back twice: %+v", res)
		}
	})
	delete(w.m.sessions, session)
}

// act does something to a few jobs.
func (w *flowWalk) act() {
	all := slices.Sorted(maps.Keys(w.m.jobs))
	if len(all) == 0 {
		return
	}
	w.rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	some := all[:min(len(all), 1+w.rnd.Intn(3))]
	a := []Act{CancelJobs("why"), ArchiveJobs("why"), DeleteJobs(), RunJobs(time.Time{}), RunJobs(time.Time{}), RunJobs(time.Time{}), PrioritiseJobs(signalbox.PriorityLow)}[w.rnd.Intn(7)]
	if k := w.rnd.Intn(4); k < 3 { // those that have ended are few, and members that have failed are fewer
		var ended []string
		for _, id := range all {
			if j := w.m.jobs[id]; k < 2 && (!j.live() || j.where == "awaiting") || k == 2 && !j.live() && j.role == 'r' && j.where != string(Completed) {
				ended = append(ended, id)
			}
		}
		some = ended[:min(len(ended), 1+w.rnd.Intn(4))]
		if k == 2 {
			a = RunJobs(time.Time{})
		}
	}
	w.calls++
	answers, err := w.Do(bg, a, some)
	w.must(err)
	w.note("%s %v: %v", a.verb, some, answers)
	w.m.at(func() {
		for i, answer := range answers {
			w.follow(some[i], a, answer)
		}
	})
}

// follow has the model follow what was done to a job.
func (w *flowWalk) follow(id string, a Act, answer Answer) {
	j := w.m.jobs[id]
	if j == nil {
		if answer.Acted != Gone {
			w.fail("%s of job %s, which isn't there any more: %v", a.verb, id, answer)
		}
		return
	}
	if state := strings.Replace(j.where, "due", "scheduled", 1); string(answer.State) != state {
		w.fail("job %s is said to be %s, and should be %s", id, answer.State, j.where)
	}
	if answer.Acted == Wrong {
		return
	}
	want := Done
	switch a.verb {
	case "cancel":
		switch {
		case j.where == "running":
			j.marked = true
		case j.live():
			w.m.end(id, "cancelled", true)
		}
	case "archive":
		if j.live() {
			w.m.end(id, "dead", true)
		}
	case "delete":
		if j.live() {
			w.m.end(id, "deleted", false)
		} else {
			delete(w.m.jobs, id)
		}
	case "run":
		if j.live() {
			j.where = "ready"
		} else if may := w.m.rerun(id); !may {
			want = InFlow
			w.seen["not run again"]++
		} else {
			w.seen["run again"]++
		}
	}
	if answer.Acted != want {
		w.fail("%s of job %s is answered %v, and should be %v", a.verb, id, answer, want)
	}
}

// pass does some pages of the pass over a cancelled flow.
func (w *flowWalk) pass() {
	f := w.some()
	if f == nil {
		return
	}
	if w.rnd.Intn(2) == 0 { // the next pass may begin
		if note, err := w.rdb.HGet(bg, w.keys.FlowNotes, f.ref.Name+"{x").Result(); err == nil {
			words := strings.Fields(note)
			words[3] = "0"
			w.must(w.rdb.HSet(bg, w.keys.FlowNotes, f.ref.Name+"{x", strings.Join(words, " ")).Err())
		}
	}
	for range 1 + w.rnd.Intn(8) {
		w.calls++
		more, over, _, err := w.Flows().Pass(bg, f.ref.Name)
		w.must(err)
		w.swept(f)
		if !f.cancelled || f.over {
			if !over {
				w.fail("a pass over flow %s isn't said to be over", f.ref)
			}
			return
		}
		if over {
			w.fail("a pass over flow %s is said to be over: %s", f.ref, w.m.text(f))
		}
		if !more {
			return
		}
	}
}

// swept has the model follow what a page of a pass has ended.
func (w *flowWalk) swept(f *flowFact) {
	s, err := check.Read(bg, w.Site())
	w.must(err)
	places := snapshotPlaces(s)
	for _, id := range slices.Sorted(maps.Keys(w.m.jobs)) {
		j := w.m.jobs[id]
		if j == nil || j.flow != f || j.role != 'r' || !f.cancelled {
			continue
		}
		if place, there := places[id]; !there && (j.where == "ready" || j.where == "due") {
			w.seen["ended by a pass"]++
			w.m.end(id, "cancelled", false)
		} else if j.where == "running" && strings.HasSuffix(place, " true") {
			j.marked = true
		}
	}
}

// tend has an hour or a month pass for a flow, and looks at it.
func (w *flowWalk) tend() {
	f := w.some()
	if f == nil {
		return
	}
	w.age(f, []time.Duration{2 * time.Hour, 25 * time.Hour, 31 * 24 * time.Hour}[w.rnd.Intn(3)])
}

// age has a time pass for a flow that is to be looked at.
func (w *flowWalk) age(f *flowFact, by time.Duration) {
	got, found, err := w.Flows().Get(bg, f.ref.Name)
	w.must(err)
	if !found {
		w.fail("flow %s is gone", f.ref)
	}
	us := by.Microseconds()
	text := strings.Fields(w.rdb.HGet(bg, w.keys.Flows, f.ref.Name).Val())
	text[10], text[11] = fmt.Sprint(got.Created.UnixMicro()-us), fmt.Sprint(got.Since.UnixMicro()-us)
	w.must(w.rdb.HSet(bg, w.keys.Flows, f.ref.Name, strings.Join(text, " ")).Err())
	w.must(w.rdb.ZAddXX(bg, w.keys.FlowTimes, redis.Z{Score: 1, Member: f.ref.Name}).Err())
	waiters, age := w.m.waiters(f), w.rdb.Time(bg).Val().Sub(got.Since)+by
	w.note("%v pass for %s, which is %s", by, f.ref, w.m.text(f))
	for round := range 3 { // what is to wait again is forgotten before the flow is
		w.calls++
		_, err := w.Flows().Tend(bg, "0")
		w.must(err)
		switch {
		case f.over && waiters == 0 && ((f.lost == 0 || f.cancelled) && age > 24*time.Hour || age > 30*24*time.Hour):
			if w.m.known(f) && round == 0 {
				for _, j := range w.m.jobs {
					if j.flow == f && j.again {
						j.again, f.cancelled = false, true
					}
				}
			}
			if _, found, _ := w.Flows().Get(bg, f.ref.Name); !found && w.m.known(f) {
				w.seen["forgotten"]++
				w.m.forget(f)
				for id, n := range w.m.added {
					_ = n
					if !w.rdb.HExists(bg, w.keys.Added, id).Val() {
						delete(w.m.added, id)
					}
				}
			}
		case !f.over && !f.sealed, !f.over && f.timeout && !f.cancelled:
			w.seen["timed out"]++
			w.m.cancel(f)
		}
		if round == 0 && w.m.known(f) {
			w.rdb.ZAddXX(bg, w.keys.FlowTimes, redis.Z{Score: 1, Member: f.ref.Name})
		}
		waiters = w.m.waiters(f)
	}
}

// due has all jobs become due that are due later.
func (w *flowWalk) due() {
	for _, id := range slices.Sorted(maps.Keys(w.m.jobs)) {
		if w.m.jobs[id].where == "due" && w.rnd.Intn(2) == 0 {
			answers, err := w.Do(bg, RunJobs(time.Time{}), []string{id})
			w.must(err)
			if answers[0].Acted != Done {
				w.fail("job %s is due, and can't be run: %v", id, answers[0])
			}
			w.m.jobs[id].where = "ready"
		}
	}
}

// failover saves what Redis has, or goes back to what was saved. Workers die with it, and producers go on with what they know.
func (w *flowWalk) failover() {
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
	w.seen["failover"]++
	p.Del(bg, keys...)
	for key, value := range w.saved {
		p.Restore(bg, key, 0, value)
	}
	_, err = p.Exec(bg)
	w.must(err)
	w.saved, w.m = nil, w.before
	w.forgetPast()
	sessions := slices.Sorted(maps.Keys(w.m.sessions))
	for _, x := range w.workers {
		x.lane = w.NewLane()
		w.enter(x)
	}
	for _, session := range sessions {
		_, hints, err := w.Sessions().Renew(bg, session, 0, "")
		w.must(err)
		redistest.Eventually(w.t, func() bool { return !w.rdb.Time(bg).Val().Before(hints.At) }, "the server's clock has not gone back")
		w.takeBack(session)
	}
	for _, p := range w.producers {
		p.lane = w.NewLane()
	}
}

// finish has all flows end, and checks that nothing is left.
func (w *flowWalk) finish() {
	w.note("the end")
	w.past, w.saved = nil, nil
	for _, name := range slices.Sorted(maps.Keys(w.m.flows)) {
		w.endFlow(w.m.flows[name].ref, &Sealing{})
	}
	for round := 0; ; round++ {
		live := 0
		for _, j := range w.m.jobs {
			if j.live() {
				live++
			}
		}
		if live == 0 {
			break
		}
		if round > 300 {
			w.fail("jobs are left: %v", w.m.places())
		}
		w.due()
		for _, x := range w.workers {
			w.claim(x, 8, 1)
		}
		for _, name := range slices.Sorted(maps.Keys(w.m.flows)) {
			if f := w.m.flows[name]; f.cancelled && !f.over && round%20 == 19 {
				w.rdb.HSet(bg, w.keys.FlowNotes, name+"{x", "run 0 0 0")
				for more := true; more; {
					var err error
					more, _, _, err = w.Flows().Pass(bg, name)
					w.must(err)
					w.swept(f)
				}
			}
		}
	}
	w.compare()
	for _, name := range slices.Sorted(maps.Keys(w.m.flows)) {
		f := w.m.flows[name]
		if !f.over {
			w.fail("flow %s isn't over: %s", name, w.m.text(f))
		}
		w.age(f, 31*24*time.Hour)
		if w.m.known(f) {
			w.fail("flow %s isn't forgotten", name)
		}
	}
	for cursor := "0"; ; {
		tended, err := w.Flows().Tend(bg, cursor)
		w.must(err)
		if cursor = tended.Cursor; cursor == "0" {
			break
		}
	}
	for key, value := range w.dump() {
		if slices.Contains([]string{"flows", "awaiting", "flownotes", "flowtimes", "added"}, key) {
			w.fail("key %s is left: %s", key, value)
		}
	}
}
