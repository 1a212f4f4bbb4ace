package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/internal/wire"
)

var settleTests = []storeTest{
	{"ExtrasAreKept", testExtras},
	{"Completed", testCompleted},
	{"WithoutARecord", testWithoutARecord},
	{"Retry", testRetry},
	{"Delay", testDelay},
	{"Return", testReturn},
	{"Dead", testDead},
	{"Cancelled", testCancelled},
	{"MixedBatch", testMixedBatch},
	{"StaleTokens", testStaleTokens},
	{"SettledTwiceInOneCall", testSettledTwice},
	{"CompletedLast", testCompletedLast},
	{"SettleAndClaim", testSettleAndClaim},
	{"SettleAfterTheEnd", testLateSettle},
}

var outcomes = []Outcome{Completed, Retry, Delay, Return, Dead, Cancelled}

func testCompleted(t *testing.T, r *rig) {
	r.open()
	r.put("a")
	r.settled(settlement(r.one(), Completed))
	c := r.counts()
	same(t, "counts", c, looks.Counts{Total: looks.Totals{Enqueued: 1, Completed: 1}})
	same(t, "records", r.rdb.HLen(bg, r.keys.Jobs).Val(), 0)
}

// Another program deleted the record of a job. The job ends with any settlement. It isn't counted.
func testWithoutARecord(t *testing.T, r *rig) {
	r.open()
	all := append(slices.Clone(outcomes), Completed) // together with other jobs
	var names []string
	for i := range all {
		names = append(names, fmt.Sprint("job", i))
	}
	r.put(names...)
	req := ClaimRequest{}
	for i, d := range r.claim(len(all)) {
		s := settlement(d, all[i])
		s.Record = nil
		req.Settle = append(req.Settle, s)
		r.must(r.rdb.HDel(bg, r.keys.Jobs, d.Job.ID).Err())
	}
	r.must(r.rdb.HSet(bg, r.keys.Notes, "job0", "1 span", "job1", "1 span", "job2", "1 span").Err())
	equal(t, "refused", r.call(req).Refused, nil)
	c := r.counts()
	same(t, "running", c.Running, 0)
	same(t, "due", c.Due, 0)
	same(t, "total", c.Total, looks.Totals{Enqueued: int64(len(all))})
	same(t, "spans", r.rdb.HLen(bg, r.keys.Notes).Val(), 0)
}

func testRetry(t *testing.T, r *rig) {
	r.open()
	r.enqueued(r.item("a", When{}, signalbox.PriorityHigh))
	d := r.one()
	s := settlement(d, Retry)
	var err error
	s.Record, err = d.Failed(1, "boom")
	r.must(err)
	s.Delay = time.Hour
	r.settled(s)
	same(t, "counts", r.counts(), looks.Counts{Due: 1, Total: looks.Totals{Enqueued: 1, Retried: 1}})
	r.check()

	r.makeDue("0a")
	d = r.one()
	same(t, "attempt", d.Job.Attempt, 2)
	same(t, "last error", d.Job.LastError, "boom")
	same(t, "priority", d.Job.Priority, signalbox.PriorityHigh)
	s = settlement(d, Retry)
	s.Record, err = d.Failed(2, "bang")
	r.must(err)
	reply := r.call(ClaimRequest{Settle: []Settlement{s}, Want: 1}) // no delay: at once
	equal(t, "claimed", ids(reply.Deliveries), []string{"a"})
	same(t, "attempt", reply.Deliveries[0].Job.Attempt, 3)
}

func testDelay(t *testing.T, r *rig) {
	r.open()
	r.put("a")
	d := r.one()
	s := settlement(d, Delay)
	s.Delay = time.Minute
	r.settled(s)
	now, err := r.Now(bg)
	r.must(err)
	var job signalbox.Job
	r.must(wire.Decode([]byte(r.rdb.HGet(bg, r.keys.Jobs, "a").Val()), &job))
	same(t, "attempt", job.Attempt, 1)
	if in := job.ScheduledAt.Sub(now); in > time.Minute || in < 50*time.Second {
		t.Errorf("due in %v, want a minute", in)
	}
	same(t, "counts", r.counts(), looks.Counts{Due: 1, Total: looks.Totals{Enqueued: 1, Delayed: 1}})
}

func testReturn(t *testing.T, r *rig) {
	r.open()
	r.put("a", "b", "c")
	got := r.claim(1)
	r.settled(settlement(got[0], Return))
	same(t, "counts", r.counts(), looks.Counts{Ready: 3, Total: looks.Totals{Enqueued: 3, Returned: 1}})
	got = r.claim(3)
	equal(t, "claimed", ids(got), []string{"a", "b", "c"})
	same(t, "attempt", got[0].Job.Attempt, 1)
	same(t, "crashes", got[0].Job.Crashes, 0)
}

func testDead(t *testing.T, r *rig) {
	r.open()
	r.put("a")
	d := r.one()
	s := settlement(d, Dead)
	var err error
	s.Record, err = d.Failed(25, "the end")
	r.must(err)
	r.settled(s)
	same(t, "counts", r.counts(), looks.Counts{Dead: 1, Total: looks.Totals{Enqueued: 1, Dead: 1}})
	same(t, "record", r.rdb.HGet(bg, r.keys.Jobs, "a").Val(), string(s.Record))
}

func testCancelled(t *testing.T, r *rig) {
	r.open()
	r.put("a")
	r.settled(settlement(r.one(), Cancelled))
	same(t, "counts", r.counts(), looks.Counts{Cancelled: 1, Total: looks.Totals{Enqueued: 1, Cancelled: 1}})
}

func testMixedBatch(t *testing.T, r *rig) {
	r.open()
	var names []string
	for _, o := range outcomes {
		names = append(names, string(o)+"1", string(o)+"2")
	}
	r.put(names...)
	var all []Settlement
	for i, d := range r.claim(20) {
		s := settlement(d, outcomes[i/2])
		s.Delay = time.Hour
		if i%2 == 1 {
			s.Token++ // the token of another delivery
		}
		all = append(all, s)
	}
	equal(t, "refused", r.settle(all...), []int{1, 3, 5, 7, 9, 11})
	same(t, "counts", r.counts(), looks.Counts{Ready: 1, Due: 2, Running: 6, Dead: 1, Cancelled: 1, Total: looks.Totals{
		Enqueued: 12, Completed: 1, Retried: 1, Delayed: 1, Returned: 1, Dead: 1, Cancelled: 1,
	}})
}

// A superseded delivery changes nothing, whichever transition its worker tries. The job was given to another session, or again to the same
// one; or it is done; or it never existed.
func testStaleTokens(t *testing.T, r *rig) {
	r.open()
	r.put("a", "b", "c")
	old := r.claim(3)
	r.settled(settlement(old[0], Return), settlement(old[2], Completed))
	r.claim(1) // claims a again, with another token
	for _, o := range outcomes {
		for what, s := range map[string]Settlement{
			"granted again":   settlement(old[0], o),
			"never granted":   {ID: "a", Token: 1, Outcome: o},
			"an unknown job":  {ID: "x", Token: old[1].Job.Token, Outcome: o},
			"done":            settlement(old[2], o),
			"another's token": {ID: "b", Token: old[0].Job.Token, Outcome: o},
		} {
			s.Record = []byte("forged")
			before := r.dump()
			r.lane.Next()
			reply, err := r.Sessions().Claim(bg, r.lane, &ClaimRequest{Session: r.session, Settle: []Settlement{s}})
			r.must(err)
			equal(t, fmt.Sprintf("%s of %s: refused", o, what), reply.Refused, []int{0})
			r.unchangedBut(fmt.Sprintf("%s of %s", o, what), before, r.lane)
		}
	}
	// The token is right, but the session is wrong.
	r.session = "s2"
	r.open()
	for _, o := range outcomes {
		before := r.dump()
		equal(t, fmt.Sprintf("%s of another session: refused", o), r.settle(settlement(old[1], o)), []int{0})
		r.unchangedBut(string(o)+" of another session", before, r.lane)
	}
}

// unchangedBut is like unchanged, for calls that change their lane.
func (r *rig) unchangedBut(what string, before map[string]string, lane *Lane) {
	r.t.Helper()
	after := r.dump()
	key := lane.key[len(r.keys.Prefix):]
	before[key] = after[key]
	for _, d := range differences(before, after) {
		r.t.Errorf("%s changed %s", what, d)
	}
}

// A delivery ends once, even if a call has two settlements for it.
func testSettledTwice(t *testing.T, r *rig) {
	r.open()
	r.put("a", "b", "c")
	got := r.claim(3)
	refused := r.settle(
		settlement(got[0], Completed), settlement(got[0], Retry),
		settlement(got[1], Dead), settlement(got[1], Return),
		settlement(got[2], Delay), settlement(got[2], Delay))
	equal(t, "refused", refused, []int{1, 3, 5})
	r.check()
	c := r.counts()
	same(t, "completed", c.Total.Completed, 1)
	same(t, "dead", c.Dead, 1)
}

func testCompletedLast(t *testing.T, r *rig) {
	r.open()
	r.put("a", "b")
	got := r.claim(2)
	r.settled(settlement(got[0], Return), settlement(got[1], Completed))
	same(t, "counts", r.counts(), looks.Counts{Ready: 1, Total: looks.Totals{Enqueued: 2, Completed: 1, Returned: 1}})
}

func testSettleAndClaim(t *testing.T, r *rig) {
	r.open()
	r.put("a", "b")
	d := r.claim(1)[0]
	reply := r.call(ClaimRequest{Settle: []Settlement{settlement(d, Completed)}, Want: 1})
	equal(t, "claimed", ids(reply.Deliveries), []string{"b"})
	equal(t, "refused", reply.Refused, nil)
}

// A session that is over may still settle its jobs until another worker takes them. It gets no more jobs.
func testLateSettle(t *testing.T, r *rig) {
	r.open()
	r.put("a", "b")
	d := r.claim(1)[0]
	r.expire()
	reply := r.call(ClaimRequest{Settle: []Settlement{settlement(d, Completed)}, Want: 1})
	equal(t, "refused", reply.Refused, nil)
	same(t, "alive", reply.Alive, false)
	same(t, "claimed", len(reply.Deliveries), 0)
	same(t, "completed", r.counts().Total.Completed, 1)
}

// A job's record may have extras that this release doesn't know. They stay in the record, whatever happens to the job. The rest of the
// record can still be read.
func testExtras(t *testing.T, r *rig) {
	r.open()
	const extras = "group:1\x00\xff"
	special := func(id, class string, when When) Item {
		it := r.item(id, when, signalbox.PriorityNormal)
		it.class = class
		return it
	}
	record := func() string { return r.rdb.HGet(bg, r.keys.Jobs, "a").Val() }
	whole := func(what string) {
		t.Helper()
		got := record()
		flags, before := "\x50", "\x00\x09"
		if got[2] > 0 { // the part about its crashes comes first, since its flag is lower
			flags, before = "\x70", "\x00\x0e"+got[22:27]
		}
		if len(got) < 27 || got[3:4] != flags || !strings.HasPrefix(got[20:], before+extras) {
			t.Errorf("%s the record is %q", what, got)
		}
	}
	most := strings.Repeat("\xff", wire.MaxExtras)
	same(t, "fates", r.fates(special("a", "1+\x50"+extras, When{}), special("later", "0!+\xf0"+most, When{After: time.Hour}), special("plain", "1", When{})), "111")
	whole("when it is new,")
	d := r.claim(1)[0]
	r.must(d.Err)
	same(t, "kind", d.Job.Kind, "k")
	same(t, "payload", string(d.Job.Payload), `"a"`)
	same(t, "due", d.Job.ScheduledAt.Equal(d.Job.EnqueuedAt), true)
	failed, err := d.Failed(3, "boom")
	r.must(err)
	s := settlement(d, Retry)
	s.Record = failed
	r.settled(s)
	whole("after a failed attempt")
	var again Delivery
	for _, d := range r.claim(5) {
		if d.Job.ID == "a" {
			again = d
		}
	}
	same(t, "attempt", again.Job.Attempt, 4)
	same(t, "last error", again.Job.LastError, "boom")
	r.crash()
	r.claim(5)
	r.crash() // now it is a suspect
	whole("after two crashes")
	d = r.claim(1)[0]
	same(t, "crashes", d.Job.Crashes, 2)
	s = settlement(d, Delay)
	s.Delay = time.Hour
	r.settled(s)
	whole("when it was put off,")
	r.makeDue("0later")
	for _, d := range r.claim(5) {
		r.must(d.Err)
		if d.Job.ID == "later" {
			same(t, "payload of the largest extras", string(d.Job.Payload), `"later"`)
			r.settled(settlement(d, Dead))
		}
	}
	same(t, "bytes of the dead", r.counts().Dead, 1)
}
