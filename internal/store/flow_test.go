package store

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/doctor"
	"github.com/signalbox-go/signalbox/internal/store/facts"
)

// A batch is a flow in a test, with its producer.
type batch struct {
	*rig
	ref   facts.FlowRef
	lane  *Lane
	given int64
}

// newBatch makes a flow with a callback for each of the roles. Their IDs are the roles.
func (r *rig) newBatch(name string, roles string) *batch {
	r.t.Helper()
	b := &batch{rig: r, ref: facts.FlowRef{Name: name, Mark: NewFlowMark()}, lane: r.NewLane()}
	var callbacks []Callback
	for _, role := range []byte(roles) {
		callbacks = append(callbacks, Callback{role, r.item(name+"-"+string(role), When{}, signalbox.PriorityNormal)})
	}
	_, anew, err := r.Flows().Create(bg, b.ref, FlowTerms{Within: time.Hour}, callbacks)
	r.must(err)
	same(r.t, "the flow is new", anew, true)
	return b
}

// add adds members, as the next call of the producer.
func (b *batch) add(ids ...string) string {
	b.t.Helper()
	items := make([]Item, len(ids))
	for i, id := range ids {
		items[i] = b.item(id, When{}, signalbox.PriorityNormal)
		items[i].Join(b.ref)
	}
	b.lane.Next()
	added, err := b.Flows().Add(bg, b.lane, &Addition{Flow: b.ref, Items: items, First: b.given, Digest: fmt.Sprint("d", b.given, strings.Join(ids, ""))})
	b.must(err)
	b.given += int64(len(items))
	return added.Word + " " + added.Fates.list
}

func (b *batch) seal() {
	b.t.Helper()
	_, err := b.Flows().Seal(bg, b.ref, Sealing{})
	b.must(err)
}

// flow returns what is counted: total, open, ok, dead, gone, waiters, lost, and flags.
func (b *batch) flow() string {
	b.t.Helper()
	f, found, err := b.Flows().Get(bg, b.ref.Name)
	b.must(err)
	if !found {
		return "none"
	}
	text := fmt.Sprint(f.Total, f.Open, f.OK, f.Dead, f.Gone, f.Waiters, f.Lost, " ")
	for _, flag := range []struct {
		set  bool
		name string
	}{{f.Unsealed, "u"}, {f.Failed, "n"}, {f.Over, "d"}, {f.Cancelled, "x"}} {
		if flag.set {
			text += flag.name
		}
	}
	return strings.TrimSpace(text)
}

// A batch whose members complete has its success and its end, and not before.
func TestFlowSucceeds(t *testing.T) {
	t.Parallel()
	r := newQueue(t, redistest.New(t).Client())
	r.open()
	b := r.newBatch("news", "sef")
	same(t, "the call", b.add("a", "b"), "in 11")
	same(t, "the flow", b.flow(), "2 2 0 0 0 3 0 u")
	d := r.claim(9)
	equal(t, "claimed", ids(d), []string{"a", "b"})
	r.settled(settlement(d[0], Completed), settlement(d[1], Completed))
	same(t, "the flow", b.flow(), "2 0 2 0 0 3 0 u")
	equal(t, "claimed before the seal", ids(r.claim(9)), nil)
	b.seal()
	same(t, "the flow", b.flow(), "2 0 2 0 0 2 0 d")
	d = r.claim(9)
	equal(t, "callbacks", ids(d), []string{"news-s", "news-e"})
	r.settled(settlement(d[0], Completed), settlement(d[1], Completed))
	same(t, "the flow", b.flow(), "2 0 2 0 0 0 0 d")
}

// The first member that is dead has the failure run, and cancels the success. Its retry has the success wait again.
func TestFlowFailsAndIsRepaired(t *testing.T) {
	t.Parallel()
	r := newQueue(t, redistest.New(t).Client())
	r.open()
	counts := func(when string, want FlowCounts) {
		t.Helper()
		got, err := r.Flows().Count(bg)
		r.must(err)
		same(t, "counts when "+when, got, want)
	}
	counts("there is none", FlowCounts{})
	b := r.newBatch("news", "sef")
	b.add("a", "b")
	b.seal()
	d := r.claim(1)
	r.settled(settlement(d[0], Dead))
	same(t, "the flow", b.flow(), "2 1 0 1 0 2 1 n")
	counts("a member is dead", FlowCounts{Open: 1, Failed: 1})
	d = r.claim(9)
	equal(t, "claimed", ids(d), []string{"b", "news-f"})
	r.settled(settlement(d[0], Completed), settlement(d[1], Completed))
	same(t, "the flow", b.flow(), "2 0 1 1 0 1 1 nd")
	counts("it is over", FlowCounts{Failed: 1})
	d = r.claim(9)
	equal(t, "claimed", ids(d), []string{"news-e"})
	r.settled(settlement(d[0], Completed))
	answers, err := r.Do(bg, RunJobs(time.Time{}), []string{"news-s", "a"})
	r.must(err)
	same(t, "answers", fmt.Sprint(answers), fmt.Sprint([]Answer{{InFlow, "cancelled"}, {Done, "dead"}}))
	same(t, "the flow", b.flow(), "2 1 1 0 0 1 0")
	r.check()
	counts("the failure is repaired", FlowCounts{Open: 1})
	d = r.claim(9)
	equal(t, "claimed", ids(d), []string{"a"})
	r.settled(settlement(d[0], Completed))
	d = r.claim(9)
	equal(t, "claimed", ids(d), []string{"news-s"})
	r.settled(settlement(d[0], Completed))
	same(t, "the flow", b.flow(), "2 0 2 0 0 0 0 d")
	counts("all have completed", FlowCounts{})

	for n := range 700 { // more than a page
		r.newBatch(fmt.Sprint("more", n), "")
	}
	counts("there are many", FlowCounts{Open: 700})
}

// The doctor finds wrong counts of a batch and jobs that wait in vain, and a repair has the callbacks go on. It does so, too, when Redis is out of memory.
func TestFlowDoctor(t *testing.T) {
	t.Parallel()
	r := unchecked(t, redistest.New(t).Client())
	r.open()
	b := r.newBatch("news", "se")
	b.add("a", "b")
	b.seal()
	d := r.claim(9)
	r.settled(settlement(d[0], Completed), settlement(d[1], Completed))
	got := ids(r.claim(9))
	equal(t, "callbacks", got, []string{"news-s", "news-e"})
	c := r.newBatch("mail", "se")
	c.add("c")
	c.seal()
	faults := func(repair bool) (all []string) {
		t.Helper()
		_, err := doctor.Run(bg, r.Site(), doctor.Checkup{Repair: repair, Pause: -1, Found: func(f doctor.Finding) {
			all = append(all, fmt.Sprint(f.Fault, " ", f.Job, " ", f.Mended))
		}})
		r.must(err)
		slices.Sort(all)
		return all
	}
	equal(t, "of a sound queue", faults(false), nil)
	r.must(r.rdb.ConfigSet(bg, "maxmemory", "1").Err())
	equal(t, "of a sound queue, out of memory", faults(false), nil)
	r.must(r.rdb.ConfigSet(bg, "maxmemory", "0").Err())
	text := r.rdb.HGet(bg, r.keys.Flows, "mail").Val()
	r.must(r.rdb.HDel(bg, r.keys.Jobs, "c").Err()) // another program has deleted it
	r.must(r.rdb.LRem(bg, r.keys.ReadyNormal, 0, "c").Err())
	r.must(r.rdb.ZAdd(bg, r.keys.Awaiting, z(0, "email{nobody"), z(0, "sgone{x"), z(0, "c{y"), z(0, "odd")).Err())
	r.must(r.rdb.HSet(bg, r.keys.Flows, "bad", "nothing").Err())
	want := []string{"bad_member  false", "bad_member  false", "bad_member nobody false", "bad_member x false", "batch  false", "batch  false"}
	equal(t, "found", faults(false), want)
	same(t, "the flow", r.rdb.HGet(bg, r.keys.Flows, "mail").Val(), text)
	r.must(r.rdb.ConfigSet(bg, "maxmemory", "1").Err())
	want = []string{"bad_member  true", "bad_member  true", "bad_member nobody true", "bad_member x true", "batch  false", "batch  true"}
	equal(t, "repaired", faults(true), want)
	r.must(r.rdb.ConfigSet(bg, "maxmemory", "0").Err())
	r.must(r.rdb.HDel(bg, r.keys.Flows, "bad").Err())
	r.must(r.Flows().Release(bg, "mail"))
	same(t, "the flow", c.flow(), "0 0 0 0 0 2 0 d")
	r.check()
	equal(t, "then", faults(false), nil)

	// What is no name of a flow keeps nobody from looking, and a note of a pass that nobody needs goes.
	r.newBatch("open", "")
	r.must(r.rdb.HSet(bg, r.keys.FlowNotes, "open{x", "odd").Err())
	r.must(r.rdb.ZAdd(bg, r.keys.FlowTimes, z(0, ""), z(0, "{"), z(0, "gone")).Err())
	equal(t, "found", faults(true), []string{"batch  true"})
	_, err := r.Flows().Tend(bg, "0")
	r.must(err)
	r.must(r.Flows().Release(bg, "open"))
	equal(t, "then", faults(false), nil)
	r.check()

	// A job whose flow has what it waits for, and which nobody has released.
	e := r.newBatch("late", "e")
	r.must(r.rdb.HSet(bg, r.keys.Flows, "late", strings.Replace(r.rdb.HGet(bg, r.keys.Flows, "late").Val(), ".u ", ".d ", 1)).Err())
	equal(t, "found", faults(true), []string{"callback late-e true"})
	r.must(r.Flows().Release(bg, "late"))
	same(t, "the flow", e.flow(), "0 0 0 0 0 1 0 d")

	// One that has left its place.
	f := r.newBatch("lost", "e")
	r.must(r.rdb.ZRem(bg, r.keys.Awaiting, "elost{lost-e").Err())
	equal(t, "found", faults(true), []string{"no_place lost-e true"})
	r.must(r.Flows().Release(bg, "lost"))
	f.seal()
	same(t, "the flow", f.flow(), "0 0 0 0 0 1 0 d")
	r.check()
}

// Many callbacks are released by several calls.
// Callbacks have IDs of their own: of two with the same one would be lost.
func TestFlowOfTwinCallbacks(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	twins := []Callback{{AwaitsSuccess, r.item("a", When{}, signalbox.PriorityNormal)}, {AwaitsEnd, r.item("b", When{}, signalbox.PriorityNormal)}, {AwaitsEnd, r.item("a", When{}, signalbox.PriorityNormal)}}
	_, _, err := r.Flows().Create(bg, facts.FlowRef{Name: "twins", Mark: NewFlowMark()}, FlowTerms{Within: time.Hour}, twins)
	if taken, ok := errors.AsType[*FlowTaken](err); !ok || taken.ID != "a" {
		t.Errorf("error %v", err)
	}
	same(t, "jobs", r.rdb.HLen(bg, r.keys.Jobs).Val(), 0)
	same(t, "flows", r.rdb.Exists(bg, r.keys.Flows).Val(), 0)
}

// A callback that is cancelled makes room, and producers that wait hear of it.
func TestFlowMakesRoom(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	b := r.newBatch("b", "se")
	r.maximum(2)
	sub := r.rdb.Subscribe(bg, r.keys.Settings)
	defer sub.Close()
	_, err := sub.Receive(bg)
	r.must(err)
	_, err = r.Flows().Cancel(bg, b.ref)
	r.must(err)
	message, err := sub.ReceiveTimeout(bg, 10*time.Second)
	if m, ok := message.(*redis.Message); !ok || m.Payload != "room" {
		t.Errorf("%v, %v", message, err)
	}
}

func TestFlowOfManyCallbacks(t *testing.T) {
	t.Parallel()
	r := newQueue(t, redistest.New(t).Client())
	r.open()
	b := r.newBatch("first", "")
	b.seal()
	many := &batch{rig: r, ref: facts.FlowRef{Name: "many", Mark: NewFlowMark()}, lane: r.NewLane()}
	var callbacks []Callback
	for i := range 120 {
		callbacks = append(callbacks, Callback{"se"[i%2], r.item(fmt.Sprint("c", i), When{}, signalbox.PriorityNormal)})
	}
	_, _, err := r.Flows().Create(bg, many.ref, FlowTerms{Within: time.Hour}, callbacks)
	r.must(err)
	many.add("a")
	many.seal()
	r.settled(settlement(r.one(), Dead))
	for n := 1; ; n++ {
		released, _, _, err := r.Flows().Notes(bg, 0)
		r.must(err)
		if len(released) == 0 {
			same(t, "calls", n, 3)
			break
		}
		r.check()
		r.must(r.Flows().Release(bg, released[0]))
	}
	same(t, "the flow", many.flow(), "1 0 0 1 0 60 60 nd")
	same(t, "claimed", len(r.claim(100)), 60)
}

// A cancelled flow ends all of its members, wherever they wait, and nobody else's jobs.
func TestFlowCancelled(t *testing.T) {
	t.Parallel()
	r := newQueue(t, redistest.New(t).Client())
	r.open()
	b := r.newBatch("news", "sef")
	other := func(job signalbox.Job, when When) Item {
		job.Kind, job.Payload = "k", []byte("1")
		it, err := NewItem(&job, when)
		r.must(err)
		return it
	}
	var items []Item
	for i := range 900 {
		job := signalbox.Job{ID: fmt.Sprint("m", i), Priority: signalbox.Priority(i % 3)}
		when := When{}
		switch i % 6 {
		case 1:
			when.After = time.Duration(i) * time.Minute
		case 2:
			job.Group, job.Serial = fmt.Sprint("g", i%7), i%2 == 0
		case 3:
			job.ExpireAfter = time.Hour
		case 4:
			job.Group, when.After = "x", time.Hour
		}
		it := other(job, when)
		it.Join(b.ref)
		items = append(items, it)
		if i%5 == 0 {
			job.ID = fmt.Sprint("other", i)
			r.enqueued(other(job, when))
		}
		if len(items) == 150 {
			b.lane.Next()
			_, err := b.Flows().Add(bg, b.lane, &Addition{Flow: b.ref, Items: items, First: b.given, Digest: "d"})
			r.must(err)
			b.given += int64(len(items))
			items = nil
		}
	}
	running := r.claim(20)
	_, err := r.Settings().Pause(bg)
	r.must(err)
	for range 2 {
		_, err = r.Flows().Cancel(bg, b.ref)
		r.must(err)
	}
	r.check()
	for n := 1; ; n++ {
		more, over, wait, err := r.Flows().Pass(bg, "news")
		r.must(err)
		if more {
			continue
		}
		if over || wait < 50*time.Second || wait > time.Hour || n < 8 {
			t.Errorf("after %d pages: over %v, the next pass in %v", n, over, wait)
		}
		break
	}
	r.check()
	f, _, err := r.Flows().Get(bg, "news")
	r.must(err)
	left := 0
	for _, d := range running {
		if _, ok := d.FlowOf(); ok {
			left++
		}
	}
	if f.Total != 900 || f.Open != int64(left) || !f.Cancelled || f.Over || f.Failed || f.Waiters != 2 {
		t.Errorf("%+v, and %d run", f, left)
	}
	same(t, "records", int(r.rdb.HLen(bg, r.keys.Jobs).Val()), 180+left+3) // the callbacks; that for success is cancelled
	var done []Settlement
	for _, d := range running {
		done = append(done, settlement(d, Completed))
	}
	r.settled(done...)
	_, over, _, err := r.Flows().Pass(bg, "news")
	r.must(err)
	same(t, "over", over, true)
	same(t, "the flow", b.flow(), "900 0 0 0 900 1 1 dx")
	_, err = r.Settings().Resume(bg)
	r.must(err)
	for got := r.claim(100); len(got) > 0; got = r.claim(100) {
		done = nil
		for _, d := range got {
			if _, ok := d.FlowOf(); ok || d.Job.ID == "news-s" || d.Job.ID == "news-f" {
				t.Errorf("job %s runs", d.Job.ID)
			}
			done = append(done, settlement(d, Completed))
		}
		r.settled(done...)
	}
	same(t, "the flow", b.flow(), "900 0 0 0 900 0 1 dx")
}

// A batch that is over is remembered for a day. While a job that waited for it can be run again that is 30 days: not once it was cancelled.
func TestFlowIsForgotten(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, c := range []struct {
		name  string
		ends  func(b *batch)
		flow  string
		after time.Duration
	}{
		{"completed", func(b *batch) { b.settled(settlement(b.claim(1)[0], Completed)) }, "1 0 1 0 0 1 0 d", day},
		{"failed", func(b *batch) { b.settled(settlement(b.claim(1)[0], Dead)) }, "1 0 0 1 0 0 1 nd", 30 * day},
		{"cancelled", func(b *batch) {
			_, err := b.Flows().Cancel(bg, b.ref)
			b.must(err)
			for more := true; more; {
				more, _, _, err = b.Flows().Pass(bg, b.ref.Name)
				b.must(err)
			}
		}, "1 0 0 0 1 0 1 dx", day},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newQueue(t, redistest.Start(t).Client())
			r.open()
			b := r.newBatch("news", "s")
			b.add("a")
			b.seal()
			c.ends(b)
			same(t, "the flow", b.flow(), c.flow)
			if c.name == "completed" {
				r.settled(settlement(r.claim(1)[0], Completed))
			}
			for _, left := range []time.Duration{time.Minute, -time.Minute} {
				words := strings.Fields(r.rdb.HGet(bg, r.keys.Flows, "news").Val())
				since, err := r.Now(bg)
				r.must(err)
				words[11] = strconv.FormatInt(since.Add(left-c.after).UnixMicro(), 10)
				r.must(r.rdb.HSet(bg, r.keys.Flows, "news", strings.Join(words, " ")).Err())
				for range 2 { // the first forgets those that could be run again
					r.must(r.rdb.ZAddXX(bg, r.keys.FlowTimes, redis.Z{Member: "news"}).Err())
					_, err = r.Flows().Tend(bg, "0")
					r.must(err)
				}
				same(t, fmt.Sprintf("it is there %v before its time", left), b.flow() != "none", left > 0)
			}
		})
	}
}

// Members that expire, and members that keep nothing, are counted; so is one whose record another program has deleted.
func TestFlowEnds(t *testing.T) {
	t.Parallel()
	r := newQueue(t, redistest.New(t).Client())
	r.open()
	b := r.newBatch("news", "sf")
	var items []Item
	for _, job := range []signalbox.Job{{ID: "late", ExpireAfter: time.Microsecond}, {ID: "unkept", Retain: signalbox.RetainNone}, {ID: "gone"}} {
		job.Kind, job.Payload = "k", []byte("1")
		it, err := NewItem(&job, When{})
		r.must(err)
		it.Join(b.ref)
		items = append(items, it)
	}
	b.given += int64(len(items))
	b.lane.Next()
	_, err := b.Flows().Add(bg, b.lane, &Addition{Flow: b.ref, Items: items, Digest: "d"})
	r.must(err)
	b.seal()
	r.later()
	d := r.claim(9)
	equal(t, "claimed", ids(d), []string{"unkept", "gone", "news-f"}) // by the call that found out
	same(t, "the flow", b.flow(), "3 2 0 1 0 1 1 n")
	r.must(r.rdb.HDel(bg, r.keys.Jobs, "gone").Err())
	r.settled(settlement(d[0], Dead), Settlement{ID: "gone", Token: d[1].Job.Token, Outcome: Retry})
	same(t, "the flow", b.flow(), "3 0 0 2 1 1 1 nd")
}

// Jobs of flows stay in their queue, and an export has them without their links.
func TestFlowStays(t *testing.T) {
	t.Parallel()
	r := newQueue(t, redistest.New(t).Client())
	r.open()
	b := r.newBatch("news", "e")
	b.add("a")
	b.seal()
	to := r.Sibling(r.Name() + "-to")
	answers, err := r.Transfer().Move(bg, to.Name(), []string{"a", "news-e"})
	r.must(err)
	same(t, "moves", fmt.Sprint(answers), fmt.Sprint([]Answer{{InFlow, "ready"}, {Wrong, "awaiting"}}))
	var stored []Stored
	for s, err := range r.Transfer().All(bg) {
		r.must(err)
		stored = append(stored, s)
	}
	if len(stored) != 1 || stored[0].ID != "a" || strings.Contains(string(stored[0].Record), "rnews") || !strings.Contains(string(stored[0].Record), "znews") {
		t.Errorf("%+v", stored)
	}
	r.settled(settlement(r.one(), Completed))
	r.settled(settlement(r.one(), Completed))
}

// A member with a unique key and a group gives both back when it ends, and keeps its links if another job of the key replaces what it has.
func TestFlowOfUniqueMembers(t *testing.T) {
	t.Parallel()
	r := newQueue(t, redistest.New(t).Client())
	r.open()
	b := r.newBatch("news", "e")
	member := func(id string, scope byte, when When) Item {
		it, err := NewItem(&signalbox.Job{ID: id, Kind: "k", Payload: []byte("1"), Group: "g", Serial: true}, when)
		r.must(err)
		it.Unique(Unique{Key: UniqueKey("k", id, false), Scope: scope})
		return it
	}
	var items []Item
	for id, scope := range map[string]byte{"a": UntilEnded, "b": UntilStarted} {
		it := member(id, scope, When{After: time.Hour})
		it.Join(b.ref)
		items = append(items, it)
	}
	b.lane.Next()
	added, err := b.Flows().Add(bg, b.lane, &Addition{Flow: b.ref, Items: items, Digest: "d"})
	r.must(err)
	same(t, "added", added.Fates.list, "11")
	again := r.item("b2", When{}, signalbox.PriorityHigh)
	again.Unique(Unique{Key: UniqueKey("k", "b", false), Scope: UntilStarted})
	again.Update(0)
	same(t, "an update", r.fates(again), "U")
	r.check()
	same(t, "the flow", b.flow(), "2 2 0 0 0 1 0 u")
	b.seal()
	_, err = r.Do(bg, RunJobs(time.Time{}), []string{"a", "b"})
	r.must(err)
	for range 2 {
		d := r.one()
		if ref, ok := d.FlowOf(); !ok || ref != b.ref {
			t.Errorf("job %s is of %v", d.Job.ID, ref)
		}
		r.check()
		r.settled(settlement(d, Completed))
	}
	same(t, "the flow", b.flow(), "2 0 2 0 0 1 0 d")
	same(t, "unique keys", r.rdb.HLen(bg, r.keys.Unique).Val(), 0)
	equal(t, "claimed", ids(r.claim(9)), []string{"news-e"})
}

// A member that has died, and is run again, adds nothing twice. What it adds behind that goes in. When it has completed nobody knows how many it has added.
func TestFlowMemberAddsAgain(t *testing.T) {
	t.Parallel()
	r := newQueue(t, redistest.New(t).Client())
	r.open()
	b := r.newBatch("news", "e")
	b.add("a")
	b.seal()
	adds := func(d Delivery, n int) string {
		t.Helper()
		var items []Item
		for i := range n {
			it := r.item(fmt.Sprint(d.Job.ID, "+", i+1), When{After: time.Hour}, signalbox.PriorityNormal)
			it.Join(b.ref)
			items = append(items, it)
		}
		lane := r.NewLane()
		lane.Next()
		added, err := r.Flows().Add(bg, lane, &Addition{Flow: b.ref, Items: items, Session: r.session, ID: d.Job.ID, Token: d.Job.Token})
		r.must(err)
		return added.Word + added.Fates.list
	}
	first := r.one()
	same(t, "the first delivery", adds(first, 2), "in11")
	r.settled(settlement(first, Dead))
	same(t, "one that is over", adds(first, 3), "superseded")
	_, err := r.Do(bg, RunJobs(time.Time{}), []string{"a"})
	r.must(err)
	second := r.one()
	same(t, "the second delivery", adds(second, 3), "inww1")
	same(t, "the flow", b.flow(), "4 4 0 0 0 1 0")
	r.settled(settlement(second, Completed))
	same(t, "counts of members", r.rdb.Exists(bg, r.keys.Added).Val(), 0)
	answers, err := r.Do(bg, DeleteJobs(), []string{"a+1", "a+2", "a+3"})
	r.must(err)
	same(t, "deleted", len(answers), 3)
	same(t, "the flow", b.flow(), "4 0 1 0 3 1 0 nd")
	r.settled(settlement(r.one(), Completed))
}
