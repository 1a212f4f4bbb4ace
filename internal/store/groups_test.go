package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/doctor"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// grouped returns a job of a group of normal priority. A key that begins with 's' is serial.
func (r *rig) grouped(id, key string, when When, p signalbox.Priority) Item {
	r.t.Helper()
	return r.made(signalbox.Job{ID: id, Priority: p}, key, when)
}

// made returns an item with a payload for a job of a group, or of none if the key is "".
func (r *rig) made(job signalbox.Job, key string, when When) Item {
	r.t.Helper()
	job.Kind, job.Payload = "k", []byte(`"`+job.ID+`"`)
	if key != "" {
		job.Group, job.Serial = key[1:], key[0] == 's'
	}
	it, err := NewItem(&job, when)
	r.must(err)
	return it
}

// putIn enqueues jobs of one group that are ready.
func (r *rig) putIn(key string, ids ...string) {
	r.t.Helper()
	items := make([]Item, len(ids))
	for i, id := range ids {
		items[i] = r.grouped(id, key, When{}, signalbox.PriorityNormal)
	}
	r.enqueued(items...)
}

// Jobs that have nothing but a group, or nothing but a unique key, are put in by a short way. It writes what the long one does, on which a job is that never replaces
// another one. All come in one call, and their places pass multiples of 10 and of 1000.
func TestShortAndLongWay(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	place := uint64(9_000_000_000_000_998) // in the year 2255
	r.layout(layout.Protocol)
	r.must(r.rdb.HSet(bg, r.keys.Stats, "place", place).Err())
	name := strings.Repeat("x", 199)
	var items []Item
	var keys []string // of groups, or scopes of unique keys
	for _, p := range []signalbox.Priority{signalbox.PriorityHigh, signalbox.PriorityNormal, signalbox.PriorityLow} {
		for _, key := range []string{"ga", "sa", "g" + name, "s" + name, "", "e", "s", "e"} {
			for _, id := range []string{"short", "other"} {
				job := signalbox.Job{ID: fmt.Sprint(id, len(items)/2), Kind: "k", Payload: []byte("1"), Priority: p}
				if len(key) > 1 {
					job.Group, job.Serial = key[1:], key[0] == 's'
				}
				it, err := NewItem(&job, When{})
				r.must(err)
				if len(key) == 1 {
					it.Unique(Unique{Key: UniqueKey("k", job.ID+name[:len(items)], false), Scope: key[0]})
				}
				if id != "short" {
					it.IfAbsent()
				}
				items, keys = append(items, it), append(keys, key)
			}
		}
	}
	for n, in := range r.enqueued(items...) {
		same(t, items[n].id+" is in", in, true)
	}
	for n := 0; n < len(items); n += 2 {
		key := keys[n]
		var records [2][]byte
		for i := range records {
			id := items[n+i].id
			record, err := r.rdb.HGet(bg, r.keys.Jobs, id).Result()
			r.must(err)
			records[i] = []byte(strings.Replace(record, "other", "short", 1))
			switch len(key) {
			case 0:
			case 1:
				holder, err := r.rdb.HGet(bg, r.keys.Unique, UniqueKey("k", id+name[:n+i], false)).Result()
				r.must(err)
				same(t, "who has the key", holder, key+" "+id)
			default:
				place++
				same(t, id+": its place", binary.BigEndian.Uint64(records[i][12:20]), place)
				clear(records[i][12:20])
				r.must(r.rdb.ZScore(bg, r.keys.Lined, fmt.Sprintf("%c%s\x01%016d%s", records[i][1], key, place, id)).Err())
			}
		}
		if len(key) != 1 && !bytes.Equal(records[0], records[1]) { // the names of unique keys differ in length
			t.Errorf("%s: the records are\n%q\n%q", items[n].id, records[0], records[1])
		}
		if len(key) == 1 {
			u, other := wire.UniqueOf(records[0]), wire.UniqueOf(records[1])
			same(t, "the key", u.Key, UniqueKey("k", items[n].id+name[:n], false))
			same(t, "the scope", u.Scope, other.Scope)
			same(t, "what stands in front of the key", string(records[0][:20]), string(records[1][:20]))
			same(t, "what stands behind the key", string(records[0][len(records[0])-10:]), string(records[1][len(records[1])-10:]))
			same(t, "how long they are", len(records[1])-len(records[0]), 1)
			same(t, "again", r.fates(r.unique("again", items[n].id+name[:n], key[0])), "u")
		}
	}
	r.check()
	// A run of jobs that go the short way has places that differ in more than the last digit.
	var run []Item
	for n := range 12 {
		it, err := NewItem(&signalbox.Job{ID: fmt.Sprint("run", n), Kind: "k", Group: "a"}, When{})
		r.must(err)
		run = append(run, it)
	}
	r.enqueued(run...)
	for n := range run {
		place++
		r.must(r.rdb.ZScore(bg, r.keys.Lined, fmt.Sprintf("1ga\x01%016d%s", place, run[n].id)).Err())
	}
}

// Groups take turns.
func TestGroupsTakeTurns(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.putIn("ga", "a1", "a2", "a3", "a4")
	r.putIn("gb", "b1")
	r.putIn("gc", "c1", "c2")
	equal(t, "the first round", ids(r.claim(3)), []string{"a1", "b1", "c1"})
	r.putIn("gb", "b2")
	equal(t, "one at a time", ids(r.claim(1)), []string{"a2"})
	equal(t, "one at a time", ids(r.claim(1)), []string{"c2"})
	equal(t, "the rest", ids(r.claim(9)), []string{"b2", "a3", "a4"})
}

// One job of a serial group runs at a time, also while it waits for its retry.
func TestSerial(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.putIn("sa", "a1", "a2", "a3")
	a1 := r.one()
	same(t, "the first", a1.Job.ID, "a1")
	reply := r.call(ClaimRequest{Want: 5})
	if len(reply.Deliveries) > 0 || reply.More || reply.CutShort {
		t.Errorf("while it runs: %v, %+v", ids(reply.Deliveries), reply.Hints)
	}
	s := settlement(a1, Delay)
	s.Delay = time.Hour
	r.settled(s)
	equal(t, "while it waits", ids(r.claim(5)), []string{})
	r.check()
	r.must(r.rdb.ZAddXX(bg, r.keys.Due, z(1, "1a1")).Err())
	a1 = r.one()
	same(t, "again", a1.Job.ID, "a1")
	reply = r.call(ClaimRequest{Settle: []Settlement{settlement(a1, Completed)}, Want: 5})
	equal(t, "the next", ids(reply.Deliveries), []string{"a2"})
	r.crash()
	equal(t, "after a crash", ids(r.claim(5)), []string{"a2"})
}

// A job of a serial group that yields lets the next one run while it waits for its retry, and then stands in the line at the place of that time. No two run at a
// time, also after a crash and a call that is made again.
func TestSerialYields(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	var items []Item
	for _, id := range []string{"a1", "a2", "a3", "a4"} {
		items = append(items, r.made(signalbox.Job{ID: id, Priority: signalbox.PriorityNormal, YieldOnRetry: id < "a3"}, "sa", When{}))
	}
	r.enqueued(items...)
	a1 := r.one()
	same(t, "the first", a1.Job.ID, "a1")
	same(t, "it says so", a1.Job.YieldOnRetry, true)
	retry := settlement(a1, Retry)
	retry.Delay = time.Hour
	retry.Record, _ = a1.Failed(1, "x")
	req := ClaimRequest{Settle: []Settlement{retry}, Want: 5}
	reply := r.call(req)
	equal(t, "while it waits for its retry", ids(reply.Deliveries), []string{"a2"})
	equal(t, "none beside it", ids(r.claim(5)), []string{})
	r.check()
	r.must(r.rdb.ZAddXX(bg, r.keys.Due, z(1, "ba1")).Err()) // its time has come; its place is an hour ahead
	equal(t, "while another one runs", ids(r.claim(5)), []string{})
	r.check()
	r.crash()
	a2 := r.one()
	same(t, "after a crash", a2.Job.ID, "a2")
	snooze := settlement(a2, Delay) // for no time: it goes behind those that came before
	reply = r.call(ClaimRequest{Settle: []Settlement{snooze}, Want: 5})
	equal(t, "behind one that is snoozed", ids(reply.Deliveries), []string{"a3"})
	r.check()
	again := settlement(reply.Deliveries[0], Delay)
	again.Delay = time.Hour
	r.settled(again)
	equal(t, "a3 doesn't yield", ids(r.claim(5)), []string{})
	r.must(r.rdb.ZAddXX(bg, r.keys.Due, z(1, "1a3")).Err())
	order := []string{}
	for range 4 {
		d := r.one()
		order = append(order, d.Job.ID)
		equal(t, "none beside it", ids(r.claim(5)), []string{})
		r.settled(settlement(d, Completed))
	}
	equal(t, "the others by their times", order, []string{"a3", "a4", "a2", "a1"})
}

func z(us float64, member string) redis.Z { return redis.Z{Score: us, Member: member} }

// Jobs in lines are listed as ready, from any place on. Each is listed once.
func TestLinesAreListed(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.put("plain")
	r.putIn("ga", numbered("a", 3)...)
	r.putIn("sb", numbered("b", 2)...)
	want := []string{"plain", "a0000", "a0001", "a0002", "b0000", "b0001"}
	r.looked = 2 // in a page
	for from := range len(want) + 1 {
		cursor, got := "", []string{}
		for view, err := range r.Looks().Jobs(bg, looks.Listing{State: signalbox.StateReady}) {
			r.must(err)
			if len(got) == from {
				break
			}
			same(t, "state", view.State, signalbox.StateReady)
			got, cursor = append(got, view.Job.ID), view.Cursor
		}
		for view, err := range r.Looks().Jobs(bg, looks.Listing{State: signalbox.StateReady, After: cursor}) {
			r.must(err)
			got = append(got, view.Job.ID)
		}
		if cursor == "" {
			got = got[:len(want)] // from the begin
		}
		equal(t, fmt.Sprintf("behind %d", from), got, want)
	}
	d, err := r.Looks().Depths(bg)
	r.must(err)
	same(t, "ready", d.Ready, int64(len(want)))
}

// What an operator does to jobs of groups: the line and who holds the group go along.
func TestActOnGroups(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.putIn("sa", "a1", "a2", "a3", "a4")
	a1 := r.one()
	do := func(a Act, id string, want Acted) {
		t.Helper()
		answers, err := r.Do(bg, a, []string{id})
		r.must(err)
		same(t, a.verb+" of "+id, answers[0].Acted, want)
		r.check()
	}
	s := settlement(a1, Delay)
	s.Delay = time.Hour
	r.settled(s)
	do(CancelJobs("why"), "a2", Done)
	equal(t, "while the first waits for its retry", ids(r.claim(5)), []string{})
	do(RunJobs(time.Time{}), "a1", Done)
	a1 = r.one()
	same(t, "it runs first", a1.Job.ID, "a1")
	r.settled(func() Settlement { s := settlement(a1, Delay); s.Delay = time.Hour; return s }())
	r.listen()
	r.dropWake()
	do(CancelJobs("why"), "a1", Done)
	same(t, "wake-ups", r.wakes(), 1)
	a3 := r.one()
	same(t, "the next", a3.Job.ID, "a3")
	do(PrioritiseJobs(signalbox.PriorityHigh), "a4", Done)
	do(RunJobs(time.Now().Add(time.Hour)), "a4", Done)
	do(RunJobs(time.Time{}), "a2", Done) // it was cancelled
	do(DeleteJobs(), "a2", Done)
	do(CancelJobs("why"), "a3", Done)
	reply := r.call(ClaimRequest{Settle: []Settlement{settlement(a3, Completed)}, Want: 5})
	equal(t, "overruled", reply.Overruled, []int{0})
	r.check()
	do(DeleteJobs(), "a4", Done)
	r.putIn("gb", "b1")
	do(CancelJobs("why"), "b1", Done) // the last of a line that has a turn
	if n := r.rdb.Exists(bg, r.keys.Lined, r.keys.Turns, r.keys.Groups).Val(); n > 0 {
		t.Errorf("%d keys are left", n)
	}
}

// A queue that was plain gets a group.
func TestGroupsAfterPlain(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.put("plain")
	d := r.one()
	r.putIn("ga", "a1")
	reply := r.call(ClaimRequest{Want: 5, Settle: []Settlement{settlement(d, Completed)}})
	equal(t, "refused", reply.Refused, nil)
	equal(t, "claimed", ids(reply.Deliveries), []string{"a1"})
	r.settled(settlement(reply.Deliveries[0], Completed))
	same(t, "groups in use", r.rdb.Exists(bg, r.keys.Groups).Val(), 0)
}

// A job of a group that becomes due is the first that a queue has of groups: until then only its place among the scheduled ones says so.
func TestFirstOfGroupsIsDue(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.put("plain")
	r.claim(1)
	r.enqueued(r.grouped("a", "sa", When{After: time.Hour}, signalbox.PriorityNormal), r.grouped("b", "sa", When{After: time.Hour}, signalbox.PriorityNormal))
	r.makeDue("ba")
	r.makeDue("bb")
	equal(t, "claimed", ids(r.claim(5)), []string{"a"})
	same(t, "that hold the group", r.rdb.HGet(bg, r.keys.Groups, "sa").Val(), ".b.1")
}

// Jobs of groups and others get half of what is wanted each, and what the others leave.
func TestGroupsShareWithOthers(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.putIn("ga", numbered("a", 4)...)
	r.put(numbered("p", 8)...)
	equal(t, "half of each", ids(r.claim(4)), []string{"a0000", "a0001", "p0000", "p0001"})
	one, two := r.claim(1), r.claim(1)
	if (one[0].Job.ID[0] == 'a') == (two[0].Job.ID[0] == 'a') {
		t.Errorf("claimed %v, then %v", ids(one), ids(two))
	}
	equal(t, "the rest", ids(r.claim(20)), []string{"a0003", "p0003", "p0004", "p0005", "p0006", "p0007"})
}

// A job whose crashes kill it leaves its group, and the next one runs.
func TestDeathLeavesTheGroup(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.putIn("sa", "a1", "a2")
	for range CrashLimit {
		same(t, "while it lives", r.one().Job.ID, "a1")
		r.crash()
	}
	same(t, "dead", r.counts().Dead, 1)
	same(t, "the next", r.one().Job.ID, "a2")
}

// A job of a group that isn't serial leaves it when it is put off, and comes into its line again when it is due.
func TestRetryLeavesTheGroup(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.putIn("ga", "a1", "a2")
	s := settlement(r.claim(1)[0], Delay)
	s.Delay = time.Hour
	r.settled(s)
	same(t, "what is kept of the group", r.rdb.HGet(bg, r.keys.Groups, "ga").Val(), ".t.0")
	r.check()
	r.must(r.rdb.ZAddXX(bg, r.keys.Due, z(1, "ba1")).Err())
	equal(t, "in the order of the times when they are due", ids(r.claim(5)), []string{"a2", "a1"})
}

// Jobs of one call stand in its order, whatever their IDs.
func TestPlacesCountUp(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	want := []string{"c", "a", "d", "b"}
	r.putIn("ga", want...)
	equal(t, "claimed", ids(r.claim(5)), want)
	want = []string{"g", "e", "h", "f"} // these take the long way
	items := make([]Item, len(want))
	for i, id := range want {
		items[i] = r.grouped(id, "ga", When{}, signalbox.PriorityNormal)
		items[i].IfAbsent()
	}
	r.enqueued(items...)
	equal(t, "claimed of the others", ids(r.claim(5)), want)
}

// The doctor knows lines: it finds nothing where nothing is wrong, and puts a job of a group back into its line.
func TestDoctorKnowsLines(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.putIn("sa", "a1", "a2", "a3", "a4")
	r.enqueued(r.grouped("later", "ga", When{After: time.Hour}, signalbox.PriorityLow))
	a1 := r.one()
	look := func(repair bool) (found []string) {
		t.Helper()
		_, err := doctor.Run(bg, r.Site(), doctor.Checkup{Repair: repair, Pause: -1, Found: func(f doctor.Finding) {
			found = append(found, fmt.Sprintf("%s %s %v", f.Fault, f.Job, f.Mended))
		}})
		r.must(err)
		return found
	}
	equal(t, "of a queue that is well", look(true), nil)
	lost := facts.LineOf(r.rdb.HGet(bg, r.keys.Jobs, "a2").Val(), "a2")
	r.must(r.rdb.ZRem(bg, r.keys.Lined, lost).Err())
	r.must(r.rdb.RPush(bg, r.keys.ReadyNormal, "a4").Err())
	found := look(true)
	slices.Sort(found)
	equal(t, "findings", found, []string{"no_place a2 true", "two_places a4 true"})
	equal(t, "the line", r.rdb.ZRange(bg, r.keys.Lined, 0, 0).Val(), []string{lost})
	equal(t, "of the queue that was repaired", look(true), nil)
	// A delivery keeps its group when it gets a flag.
	r.must(r.rdb.HSet(bg, r.keys.Cancels, "a1", fmt.Sprintf("%d %s", a1.Job.Token, facts.MarkOf(""))).Err())
	equal(t, "of a mark without a flag", look(true), []string{"cancel_mark a1 true"})
	same(t, "what the session holds", r.rdb.HGet(bg, r.keys.Inflight(r.session), "a1").Val(), fmt.Sprintf("%d c sa", a1.Job.Token))
}

// A job of a group is moved without its hold: the group goes on in its queue. In the other one the job waits in the line of its group there.
func TestMoveOfGroups(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	to := newQueue(t, r.rdb)
	r.open()
	to.open()
	move := func(ids ...string) {
		t.Helper()
		answers, err := r.Transfer().Move(bg, to.Name(), ids)
		r.must(err)
		for i, answer := range answers {
			same(t, "move of "+ids[i], answer.Acted, Done)
		}
		r.check()
		to.check()
	}
	to.putIn("sa", "b1")
	b1 := to.one()
	r.putIn("sa", "a1", "a2", "a3")
	r.putIn("gb", "c1")
	s := settlement(r.claim(1)[0], Delay)
	s.Delay = time.Hour
	r.settled(s) // it holds the group until its retry
	equal(t, "others than those that wait", ids(r.claim(5)), []string{"c1"})
	move("a3", "a1")
	a2 := r.one()
	same(t, "the group goes on", a2.Job.ID, "a2")
	equal(t, "while one of the group runs there", ids(to.claim(5)), []string{})
	to.settled(settlement(b1, Completed))
	a3 := to.one()
	same(t, "the next there", a3.Job.ID, "a3")
	to.settled(settlement(a3, Completed))
	same(t, "in the line when it is due", to.rdb.ZScore(bg, to.keys.Due, "ba1").Val() > 0, true)
	same(t, "the layout there", to.rdb.HGet(bg, to.keys.Settings, "layout").Val(), "3")
}

// A suspect of a group that comes in from another queue waits for its turn, and then for a session that may have it.
func TestSuspectInALine(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	to := newQueue(t, r.rdb)
	r.open()
	to.open()
	r.putIn("sa", "a1")
	for range SuspectAt {
		r.one()
		r.crash()
	}
	same(t, "suspects", r.rdb.LLen(bg, r.keys.ReadySuspect).Val(), 1)
	to.putIn("sa", "b1", "b2")
	b1 := to.one()
	_, err := r.Transfer().Move(bg, to.Name(), []string{"a1"})
	r.must(err)
	r.check()
	same(t, "what is kept of the group that has gone", r.rdb.Exists(bg, r.keys.Groups).Val(), 0)
	equal(t, "while another runs", ids(to.claim(5)), []string{})
	reply := to.call(ClaimRequest{Want: 1, Settle: []Settlement{settlement(b1, Completed)}}) // a session that takes no suspects
	equal(t, "its turn comes", ids(reply.Deliveries), []string{})
	same(t, "there is more", reply.More, true)
	to.check()
	reply = to.call(ClaimRequest{Want: 5})
	equal(t, "it holds its group", ids(reply.Deliveries), []string{})
	same(t, "there is no more", reply.More, false)
	a1 := to.one()
	same(t, "it runs", a1.Job.ID, "a1")
	same(t, "what the session holds", to.rdb.HGet(bg, to.keys.Inflight(to.session), "a1").Val(), fmt.Sprintf("%d s2 sa", a1.Job.Token))
	to.settled(settlement(a1, Completed))
	same(t, "the next", to.one().Job.ID, "b2")
}

// A job that is drawn from its line and isn't there doesn't hold its group: the next one starts.
func TestNotThereInALine(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.putIn("sa", "a1", "a2")
	r.must(r.rdb.HDel(bg, r.keys.Jobs, "a1").Err())
	reply := r.call(ClaimRequest{Want: 5})
	equal(t, "in place of the one that isn't there", ids(reply.Deliveries), []string{})
	same(t, "there is more", reply.More, true)
	same(t, "the next", r.one().Job.ID, "a2")
	equal(t, "while it runs", ids(r.claim(5)), []string{})
}

// A job whose record is damaged while it waits in its line is given to a worker like any other, which can't read it.
func TestGarbageInALine(t *testing.T) {
	t.Parallel()
	for name, record := range map[string]string{"empty": "", "short": "\x011", "long": "not a record at all, but long enough"} {
		r := newQueue(t, onShared(t).rdb)
		r.open()
		r.putIn("ga", "a1", "a2")
		r.put("b")
		r.must(r.rdb.HSet(bg, r.keys.Jobs, "a1", record).Err())
		got := r.claim(2)
		equal(t, name+": claimed", ids(got), []string{"a1", "b"})
		if !errors.Is(got[0].Err, wire.ErrCorrupt) {
			t.Errorf("%s: %v", name, got[0].Err)
		}
		r.settled(settlement(got[0], Dead), settlement(got[1], Completed))
		equal(t, name+": then", ids(r.claim(2)), []string{"a2"})
	}
}

// A suspect that waits in a line for its turn has a priority there like any other job.
func TestPriorityOfASuspectInALine(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	to := newQueue(t, r.rdb)
	r.open()
	to.open()
	r.putIn("sa", "a1")
	for range SuspectAt {
		r.one()
		r.crash()
	}
	to.putIn("sa", "b1", "b2")
	b1 := to.one()
	_, err := r.Transfer().Move(bg, to.Name(), []string{"a1"})
	r.must(err)
	do := func(a Act) {
		t.Helper()
		answers, err := to.Do(bg, a, []string{"a1"})
		to.must(err)
		same(t, a.verb, answers[0].Acted, Done)
		to.check()
	}
	do(PrioritiseJobs(signalbox.PriorityHigh))
	do(RunJobs(time.Now().Add(time.Hour)))
	do(PrioritiseJobs(signalbox.PriorityLow))
	do(RunJobs(time.Time{}))
	do(PrioritiseJobs(signalbox.PriorityHigh))
	to.settled(settlement(b1, Completed))
	equal(t, "it leaves the line for the suspects", ids(to.claim(5)), []string{})
	a1 := to.one()
	same(t, "the first", a1.Job.ID, "a1")
	to.settled(settlement(a1, Completed))
	same(t, "the next", to.one().Job.ID, "b2")
}

// A job that completes and is kept leaves its group, and comes into its line when it is run again.
func TestKeptJobsLeaveTheGroup(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.must(r.Settings().SetCompleted(bg, signalbox.Retention{Jobs: 5, Bytes: 1 << 20, Age: time.Hour}))
	r.putIn("sa", "a1", "a2", "a3")
	s := settlement(r.one(), Completed)
	s.Keep = Kept(&Attempt{Number: 1}, nil)
	r.settled(s)
	same(t, "kept", r.counts().Completed, 1)
	a2 := r.one()
	same(t, "the next", a2.Job.ID, "a2")
	answers, err := r.Do(bg, RunJobs(time.Time{}), []string{"a1"})
	r.must(err)
	same(t, "run again", answers[0].Acted, Done)
	r.settled(settlement(a2, Completed))
	equal(t, "behind those that waited", ids(r.claim(5)), []string{"a3"})
}

// A job of two that hold their group leaves it once, also if it is to run again and its record is gone.
func TestGroupIsLeftOnce(t *testing.T) {
	t.Parallel()
	r := unchecked(t, onShared(t).rdb)
	r.open()
	r.putIn("ga", "a1", "a2")
	got := r.claim(2)
	r.must(r.rdb.HDel(bg, r.keys.Jobs, "a1").Err())
	s := settlement(got[0], Retry)
	s.Delay = time.Hour
	r.settled(s)
	same(t, "what is kept of the group", r.rdb.HGet(bg, r.keys.Groups, "ga").Val(), "...1")
}

// A claim of a queue with groups gives and settles a part of what it could otherwise: jobs of groups take Redis longer.
func TestClaimsOfGroupsAreBounded(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	for i := range 2 * MaxSpecial {
		r.putIn(fmt.Sprint("g", i), fmt.Sprint("j", i))
	}
	var all []Settlement
	for _, more := range []bool{true, false} {
		got := r.call(ClaimRequest{Want: MaxBatch})
		if len(got.Deliveries) != MaxSpecial || got.More != more || !got.CutShort {
			t.Fatalf("%d jobs, more %v, cut short %v", len(got.Deliveries), got.More, got.CutShort)
		}
		for i := range got.Deliveries {
			s := settlement(got.Deliveries[i], Completed)
			s.Special = got.Deliveries[i].Special()
			all = append(all, s)
		}
	}
	if n := Fit(all); n != MaxSpecial {
		t.Errorf("%d settlements go in one call, want %d", n, MaxSpecial)
	}
	for len(all) > 0 {
		n := Fit(all)
		r.call(ClaimRequest{Settle: all[:n]})
		all = all[n:]
	}
}
