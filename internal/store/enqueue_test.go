package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/wire"
)

var enqueueTests = []storeTest{
	{"FirstInFirstOut", testFIFO},
	{"Priorities", testPriorities},
	{"WhatGoesInComesOut", testRoundTrip},
	{"DuplicateIDs", testDuplicates},
	{"DeadAndCancelledAreReplaced", testReplace},
	{"IfAbsentReplacesNothing", testIfAbsent},
	{"FatesOfLiveJobs", testMetLive},
	{"ManyFates", testManyFates},
	{"DueJobs", testDue},
	{"DueIsLate", testLateness},
	{"DueInOrder", testDueOrder},
	{"LargestBatch", testLargestBatch},
	{"BatchLimits", testBatchLimits},
	{"AnyName", testNames},
}

func testFIFO(t *testing.T, r *rig) {
	r.open()
	want := numbered("j", 20)
	r.put(want[:10]...)
	r.put(want[10:]...)
	var got []string
	for range 4 {
		got = append(got, ids(r.claim(6))...)
	}
	equal(t, "claimed", got, want)
}

func testPriorities(t *testing.T, r *rig) {
	r.open()
	r.enqueued(
		r.item("low1", When{}, signalbox.PriorityLow), r.item("n1", When{}, signalbox.PriorityNormal),
		r.item("high1", When{}, signalbox.PriorityHigh), r.item("low2", When{}, signalbox.PriorityLow),
		r.item("n2", When{}, signalbox.PriorityNormal), r.item("high2", When{}, signalbox.PriorityHigh),
	)
	equal(t, "claimed first", ids(r.claim(3)), []string{"high1", "high2", "n1"})
	r.enqueued(r.item("high3", When{}, signalbox.PriorityHigh))
	got := r.claim(10)
	equal(t, "claimed then", ids(got), []string{"high3", "n2", "low1", "low2"})
	same(t, "priority", got[3].Job.Priority, signalbox.PriorityLow)
}

func testRoundTrip(t *testing.T, r *rig) {
	r.open()
	in := signalbox.Job{
		ID: "a", Kind: "mail", Payload: []byte("\x00\xff{}"), Headers: map[string]string{"h": "v", "g": ""},
		Priority: signalbox.PriorityHigh, MaxAttempts: 3, Timeout: time.Second,
	}
	item, err := NewItem(&in, When{})
	r.must(err)
	before, err := r.Now(bg)
	r.must(err)
	r.enqueued(item)
	d := r.one()
	r.must(d.Err)
	job := d.Job
	if job.EnqueuedAt.Before(before) || job.ClaimedAt.Before(job.EnqueuedAt) || !job.ScheduledAt.Equal(job.EnqueuedAt) {
		t.Errorf("times %v, %v, %v; it was enqueued at %v", job.EnqueuedAt, job.ScheduledAt, job.ClaimedAt, before)
	}
	same(t, "ID", job.ID, "a")
	same(t, "queue", job.Queue, r.Name())
	same(t, "kind", job.Kind, "mail")
	same(t, "payload", string(job.Payload), "\x00\xff{}")
	same(t, "headers", len(job.Headers), 2)
	same(t, "header", job.Headers["h"], "v")
	same(t, "attempt", job.Attempt, 1)
	same(t, "max attempts", job.MaxAttempts, 3)
	same(t, "timeout", job.Timeout, time.Second)
}

func testDuplicates(t *testing.T, r *rig) {
	r.open()
	equal(t, "new", r.put("a", "b", "a"), []bool{true, true, false})
	equal(t, "new", r.put("b", "c"), []bool{false, true})
	later := r.item("c", When{After: time.Hour}, signalbox.PriorityNormal)
	equal(t, "new", r.enqueued(later), []bool{false})
	got := r.claim(10)
	equal(t, "claimed", ids(got), []string{"a", "b", "c"})
	equal(t, "new while it runs", r.put("a"), []bool{false})
	r.settled(settlement(got[0], Completed))
	equal(t, "new when it is done", r.put("a"), []bool{true})
	same(t, "enqueued in all", r.counts().Total.Enqueued, 4)
}

// A new job replaces a dead or cancelled one with the same ID. Nothing of the old job is left.
func testReplace(t *testing.T, r *rig) {
	r.open()
	r.put("dead", "cancelled", "other")
	got := r.claim(3)
	r.settled(settlement(got[0], Dead), settlement(got[1], Cancelled), settlement(got[2], Dead))
	same(t, "fates", r.fates(r.item("dead", When{}, 0), r.item("cancelled", When{After: time.Hour}, 0), r.item("dead", When{}, 0)), "DC0")
	c := r.counts()
	same(t, "dead", c.Dead, 1)
	same(t, "cancelled", c.Cancelled, 0)
	same(t, "ready", c.Ready, 1)
	same(t, "due", c.Due, 1)
	same(t, "enqueued in all", c.Total.Enqueued, 5)
	r.check() // the bytes of kept jobs as well
	d := r.one()
	same(t, "claimed", d.Job.ID, "dead")
	same(t, "attempt", d.Job.Attempt, 1)
	r.settled(settlement(d, Completed))
	same(t, "fates", r.fates(r.item("dead", When{}, 0), r.item("other", When{}, 0)), "1D")
}

// With IfAbsent, any record with the ID keeps the job out, and nothing is changed.
func testIfAbsent(t *testing.T, r *rig) {
	r.open()
	r.put("dead", "cancelled", "running", "ready")
	got := r.claim(3)
	r.settled(settlement(got[0], Dead), settlement(got[1], Cancelled))
	var items []Item
	for _, id := range []string{"dead", "cancelled", "running", "ready"} {
		it := r.item(id, When{}, signalbox.PriorityLow)
		it.IfAbsent()
		items = append(items, it)
	}
	before := r.dump()
	same(t, "fates", r.fates(items...), "dc00")
	after := r.dump()
	for _, m := range []map[string]string{before, after} {
		delete(m, strings.TrimPrefix(r.producer.key, r.keys.Prefix))
	}
	for _, d := range differences(before, after) {
		t.Error("changed", d)
	}
	items[0].id = "new"
	same(t, "fates", r.fates(items...), "1c00")
	waiting := r.claim(3)
	equal(t, "claimed", ids(waiting), []string{"ready", "new"})
	same(t, "priority of the one that was there", waiting[0].Job.Priority, signalbox.PriorityNormal)
}

func testMetLive(t *testing.T, r *rig) {
	r.open()
	hour := When{After: time.Hour}
	r.enqueued(r.item("low", hour, signalbox.PriorityLow), r.item("normal", hour, 0), r.item("high", hour, signalbox.PriorityHigh), r.item("ready", When{}, 0))
	same(t, "fates", r.fates(r.item("low", When{}, 0), r.item("normal", When{}, 0), r.item("high", hour, 0), r.item("ready", hour, 0)), "sss0")
	same(t, "of two in a call", r.fates(r.item("twice", hour, 0), r.item("twice", When{}, 0), r.item("once", When{}, 0), r.item("once", hour, 0)), "1s10")
	same(t, "due", r.counts().Due, 4)
	r.put("suspect")
	r.claim(10)
	r.crash()
	r.claim(10)
	r.crash()
	var late []Settlement
	for range 4 {
		d := r.claim(1)[0]
		same(t, "fate while it runs", r.fates(r.item(d.Job.ID, When{}, 0)), "0")
		s := settlement(d, Retry)
		s.Delay = time.Hour
		late = append(late, s)
		r.settled(s)
		same(t, "fate of a suspect that waits", r.fates(r.item(d.Job.ID, When{}, 0)), "s")
		if len(late) == 3 {
			break
		}
	}
}

// If records may be large, the script finds out that they exist without reading them. The outcome is the same.
func testManyFates(t *testing.T, r *rig) {
	r.open()
	big := signalbox.Job{ID: "big", Kind: "k", Payload: make([]byte, 100_000)}
	item, err := NewItem(&big, When{})
	r.must(err)
	r.enqueued(item, r.item("dead", When{}, 0))
	r.settled(settlement(r.claim(2)[1], Dead))
	same(t, "fates", r.fates(r.item("big", When{}, 0), r.item("dead", When{}, 0), r.item("new", When{}, 0), r.item("new", When{}, 0)), "0D10")
	same(t, "fate of one", r.fates(r.item("big", When{}, 0)), "0")
}

// The size of the largest record is kept if it is 4 KiB or more. It only grows.
func TestLargestRecordIsKept(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	put := func(id string, size int) string {
		item, err := NewItem(&signalbox.Job{ID: id, Kind: "k", Payload: make([]byte, size)}, When{})
		r.must(err)
		r.enqueued(item, r.item(id+"-small", When{}, 0))
		v, err := r.rdb.HGet(bg, r.keys.Stats, "largest").Result()
		if !errors.Is(err, redis.Nil) {
			r.must(err)
			same(t, id+": a record's size", r.rdb.Do(bg, "HSTRLEN", r.keys.Jobs, id).Val().(int64) <= 1<<20+20, true)
		}
		return v
	}
	same(t, "largest of small ones", put("a", 4000), "4096")
	b := put("b", 5000)
	same(t, "largest", b, fmt.Sprint(r.rdb.Do(bg, "HSTRLEN", r.keys.Jobs, "b").Val()))
	same(t, "after a smaller one", put("c", 4500), b)
	d := put("d", 9000)
	same(t, "after a larger one", d, fmt.Sprint(r.rdb.Do(bg, "HSTRLEN", r.keys.Jobs, "d").Val()))
	r.must(r.rdb.HSet(bg, r.keys.Stats, "largest", "nonsense").Err())
	same(t, "after nonsense, of records that may be of any size", put("e", 9000), fmt.Sprint(wire.MaxRecord))
	same(t, "largest of all", d, "9026")
}

func testDue(t *testing.T, r *rig) {
	r.open()
	now, err := r.Now(bg)
	r.must(err)
	r.enqueued(
		r.item("hour", When{After: time.Hour}, signalbox.PriorityHigh),
		r.item("at", When{At: now.Add(2 * time.Hour)}, signalbox.PriorityNormal),
		r.item("past", When{At: now.Add(-time.Hour)}, signalbox.PriorityNormal),
		r.item("negative", When{After: -time.Hour}, signalbox.PriorityNormal),
	)
	reply := r.call(ClaimRequest{Want: 10})
	equal(t, "claimed", ids(reply.Deliveries), []string{"past", "negative"})
	if past := reply.Deliveries[0].Job; !past.ScheduledAt.Equal(past.EnqueuedAt) {
		t.Errorf("a time that has passed is %v, want the time it was enqueued: %v", past.ScheduledAt, past.EnqueuedAt)
	}
	same(t, "due", r.counts().Due, 2)
	var job signalbox.Job
	r.must(wire.Decode([]byte(r.rdb.HGet(bg, r.keys.Jobs, "hour").Val()), &job))
	same(t, "delay in the record", job.ScheduledAt.Sub(job.EnqueuedAt), time.Hour)
	r.must(wire.Decode([]byte(r.rdb.HGet(bg, r.keys.Jobs, "at").Val()), &job))
	same(t, "time in the record", job.ScheduledAt.UnixMicro(), now.Add(2*time.Hour).UnixMicro())
}

// A job is not claimed before it is due, and the reply says when to ask again.
func testLateness(t *testing.T, r *rig) {
	r.open()
	r.enqueued(r.item("soon", When{After: 30 * time.Millisecond}, signalbox.PriorityNormal))
	reply := r.call(ClaimRequest{Want: 1})
	for len(reply.Deliveries) == 0 {
		if reply.Next < 0 || reply.Next > 30*time.Millisecond {
			t.Fatalf("next in %v, want at most 30 ms", reply.Next)
		}
		<-time.After(reply.Next)
		reply = r.call(ClaimRequest{Want: 1})
	}
	job := reply.Deliveries[0].Job
	if late := job.ClaimedAt.Sub(job.ScheduledAt); late < 0 {
		t.Errorf("claimed %v before it was due", -late)
	}
	same(t, "delay", job.ScheduledAt.Sub(job.EnqueuedAt), 30*time.Millisecond)
}

// makeDue makes jobs due since a while ago. The first job is due longest.
func (r *rig) makeDue(members ...string) {
	r.t.Helper()
	now, err := r.Now(bg)
	r.must(err)
	for i, member := range members {
		at := now.Add(time.Duration(i-len(members)) * time.Second).UnixMicro()
		record, err := r.rdb.HGet(bg, r.keys.Jobs, member[1:]).Bytes()
		r.must(err)
		for b := range 8 {
			record[19-b] = byte(at >> (8 * b))
		}
		r.must(r.rdb.HSet(bg, r.keys.Jobs, member[1:], record).Err())
		r.must(r.rdb.Do(bg, "ZADD", r.keys.Due, at, member).Err())
	}
}

func testDueOrder(t *testing.T, r *rig) {
	r.open()
	hour := When{After: time.Hour}
	r.enqueued(r.item("c", hour, signalbox.PriorityNormal), r.item("a", hour, signalbox.PriorityNormal),
		r.item("b", hour, signalbox.PriorityNormal), r.item("h", hour, signalbox.PriorityHigh))
	r.put("first")
	r.makeDue("1b", "1a", "0h", "1c")
	equal(t, "claimed", ids(r.claim(10)), []string{"h", "first", "b", "a", "c"})
}

// Settlements, promotions and wanted jobs are all at their maximum in one call.
func testLargestBatch(t *testing.T, r *rig) {
	r.open()
	r.put(numbered("a", MaxBatch)...)
	got := r.claim(MaxBatch)
	same(t, "claimed", len(got), MaxBatch)
	items := make([]Item, 600)
	members := make([]string, len(items))
	for i, id := range numbered("d", len(items)) {
		items[i], members[i] = r.item(id, When{After: time.Hour}, signalbox.PriorityNormal), "1"+id
	}
	r.enqueued(items...)
	r.makeDue(members...)
	var all []Settlement
	for _, d := range got {
		s := settlement(d, Retry)
		s.Record = d.record
		all = append(all, s)
	}
	n := Fit(all)
	if n < len(all)/2 {
		t.Errorf("%d settlements go in one call", n)
	}
	r.settled(all[n:]...)
	reply := r.call(ClaimRequest{Settle: all[:n], Want: MaxBatch})
	same(t, "refused", len(reply.Refused), 0)
	same(t, "claimed", len(reply.Deliveries), MaxBatch)
	same(t, "more", reply.More, true)
	r.check()
	for _, d := range reply.Deliveries {
		r.must(d.Err)
	}
	all = all[:0]
	for _, d := range reply.Deliveries {
		all = append(all, settlement(d, Completed))
	}
	reply = r.call(ClaimRequest{Settle: all, Want: MaxBatch})
	same(t, "claimed at last", len(reply.Deliveries), 600)
}

func testBatchLimits(t *testing.T, r *rig) {
	if _, err := r.Enqueue(bg, r.producer, make([]Item, MaxBatch+1)); !errors.Is(err, signalbox.ErrInvalid) {
		t.Errorf("too many items: %v", err)
	}
	if fresh, err := r.Enqueue(bg, r.producer, nil); fresh.Len() > 0 || err != nil {
		t.Errorf("no items: %v, %v", fresh, err)
	}
	for _, req := range []ClaimRequest{{Want: MaxBatch + 1}, {Want: -1}, {Settle: make([]Settlement, MaxBatch+1)}} {
		if _, err := r.Sessions().Claim(bg, r.lane, &req); !errors.Is(err, signalbox.ErrInvalid) {
			t.Errorf("%d wanted, %d settled: %v", req.Want, len(req.Settle), err)
		}
	}
	big := signalbox.Job{ID: "a", Kind: "k", Payload: make([]byte, wire.MaxEnvelope)}
	if _, err := NewItem(&big, When{}); !errors.Is(err, signalbox.ErrInvalid) {
		t.Errorf("an envelope that is too large: %v", err)
	}
	for _, job := range []signalbox.Job{{Kind: "k"}, {ID: "a"}, {ID: "a b", Kind: "k"}, {ID: strings.Repeat("a", layout.MaxName+1), Kind: "k"}} {
		if _, err := NewItem(&job, When{}); !errors.Is(err, signalbox.ErrInvalid) {
			t.Errorf("ID %.20q, kind %q: %v", job.ID, job.Kind, err)
		}
	}
}

// Every character that a name may contain is safe in a key, a pattern and a script.
func testNames(t *testing.T, r *rig) {
	name := `*?[a]\^$"'%d(.+)` + redistest.Name(t)
	q := &rig{Queue: New(r.rdb, "", name), t: t, producer: r.producer, lane: r.lane, session: "s1"}
	q.producer, q.lane = q.NewLane(), q.NewLane()
	q.open()
	id := strings.Repeat(`s%1$s\"*`, layout.MaxName/8)
	q.put(id, "s", "0", "-1", "nil")
	got := q.claim(10)
	equal(t, "claimed", ids(got), []string{id, "s", "0", "-1", "nil"})
	q.check()
	q.settled(settlement(got[0], Completed), settlement(got[1], Dead), settlement(got[2], Return))
	q.check()
	left, err := q.Site().AllKeys(bg)
	q.must(err)
	if !slices.Contains(left, q.keys.Jobs) {
		t.Errorf("the queue's keys are not found: %v", left)
	}
}
