package store

import (
	"fmt"
	"strings"
	"testing"
)

var spanTests = []storeTest{
	{"SpanOfARetry", testSpanOfARetry},
	{"SpanOfACrash", testSpanOfACrash},
	{"SpanOfAnUnheardCrash", testSpanOfAnUnheardCrash},
	{"SpanOfASuspectsCrash", testSpanOfASuspectsCrash},
	{"StrangeSpans", testStrangeSpans},
	{"SpansEndWithTheJob", testSpansEnd},
	{"SpanOfASuperseded", testSpanOfASuperseded},
}

func (r *rig) note(d Delivery, span string) {
	r.t.Helper()
	r.call(ClaimRequest{Notes: []Note{{d.Job.ID, d.Job.Token, span}}})
}

func testSpanOfARetry(t *testing.T, r *rig) {
	r.open()
	r.put("a", "b")
	ds := r.claim(2)
	same(t, "span of a first attempt", ds[0].Span, "")
	again := settlement(ds[0], Retry)
	again.Span = "first"
	reply := r.call(ClaimRequest{Settle: []Settlement{settlement(ds[1], Completed), again}, Want: 2})
	equal(t, "claimed", ids(reply.Deliveries), []string{"a"})
	same(t, "span", reply.Deliveries[0].Span, "first")
	r.check()
}

func testSpanOfACrash(t *testing.T, r *rig) {
	r.open()
	r.put("a", "b")
	ds := r.claim(2)
	r.note(ds[1], "lost")
	r.expire()
	res, err := r.Sessions().Reclaim(r.session, true).Next(bg)
	r.must(err)
	if len(res.Lost) != 2 || res.Lost[0].Job.ID != "a" && res.Lost[1].Job.ID != "a" {
		t.Fatalf("lost: %+v", res.Lost)
	}
	for _, d := range res.Lost {
		same(t, "kind of "+d.Job.ID, d.Job.Kind, "k")
		same(t, "span of "+d.Job.ID, d.Span, map[string]string{"a": "", "b": "lost"}[d.Job.ID])
	}
	r.session = "s2"
	r.open()
	for _, d := range r.claim(2) {
		same(t, "span of "+d.Job.ID, d.Span, map[string]string{"a": "", "b": "lost"}[d.Job.ID])
	}
}

// lost makes the only job crash. It returns what Reclaim reports about it, and its next delivery.
func (r *rig) lost() (lost, next Delivery) {
	r.t.Helper()
	r.expire()
	res, err := r.Sessions().Reclaim(r.session, true).Next(bg)
	r.must(err)
	if len(res.Lost) != 1 {
		r.t.Fatalf("lost: %+v", res)
	}
	r.session = "s" + NewID()
	r.open()
	return res.Lost[0], r.one()
}

// An attempt crashed before its span reached Redis. The span of the attempt before is not taken for it.
func testSpanOfAnUnheardCrash(t *testing.T, r *rig) {
	r.open()
	for what, before := range map[string]func(d Delivery){
		"failed": func(d Delivery) {
			again := settlement(d, Retry)
			again.Span = "first"
			r.settled(again)
		},
		"crashed": func(d Delivery) {
			r.note(d, "first")
			r.crash()
		},
	} {
		r.put(what)
		before(r.one())
		same(t, "span of the attempt that "+what, r.one().Span, "first")
		lost, next := r.lost()
		same(t, "span of the one that was lost after one that "+what, lost.Span, "")
		same(t, "span that the next one has after one that "+what, next.Span, "")
		same(t, "spans", r.rdb.HLen(bg, r.keys.Notes).Val(), 0)
		r.note(next, "third")
		lost, next = r.lost()
		same(t, "span that was heard of", lost.Span, "third")
		same(t, "span that the next one has", next.Span, "third")
		r.settled(settlement(next, Completed))
	}
	r.check()
}

func testSpanOfASuspectsCrash(t *testing.T, r *rig) {
	r.open()
	r.suspects("a")
	d := r.one()
	r.note(d, "lost")
	lost, next := r.lost()
	same(t, "span", lost.Span, "lost")
	same(t, "token", lost.Job.Token, d.Job.Token)
	same(t, "span that the next one has", next.Span, "lost")
	lost, next = r.lost()
	same(t, "token", lost.Job.Token > d.Job.Token, true)
	same(t, "span of one that wasn't heard of", lost.Span, "")
	same(t, "span that the next one has", next.Span, "")
}

// If another program wrote a value there, it counts as no span, and the job continues.
func testStrangeSpans(t *testing.T, r *rig) {
	r.open()
	for _, strange := range []string{"", " ", "00-ab-cd-01", "12", "-1 x", "1e3 x", "\x00 \xff", "x 1", strings.Repeat("9", 1000)} {
		r.put("a")
		d := r.one()
		r.must(r.rdb.HSet(bg, r.keys.Notes, "a", strange).Err())
		lost, next := r.lost()
		same(t, fmt.Sprintf("span as %.40q", strange), lost.Span, "")
		same(t, "token", lost.Job.Token, d.Job.Token)
		same(t, "span that the next one has", next.Span, "")
		r.must(r.rdb.HSet(bg, r.keys.Notes, "a", strange).Err())
		r.settled(settlement(next, Return))
		next = r.one()
		same(t, fmt.Sprintf("span as %.40q", strange), next.Span, "")
		r.settled(settlement(next, Completed))
	}
	// A token that isn't one.
	r.put("a")
	r.one()
	for _, strange := range []string{"", "x", "-1", strings.Repeat("9", 1000)} {
		r.must(r.rdb.HSet(bg, r.keys.Inflight(r.session), "a", strange).Err())
		lost, _ := r.lost()
		same(t, fmt.Sprintf("token as %.40q", strange), lost.Job.Token, 0)
		r.must(r.rdb.HSet(bg, r.keys.Jobs, "a", r.uncrashed("a")).Err())
	}
	r.check()
}

// uncrashed returns the record of a job without its crashes.
func (r *rig) uncrashed(id string) string {
	r.t.Helper()
	record := []byte(r.rdb.HGet(bg, r.keys.Jobs, id).Val())
	record[2] = 0
	return string(record)
}

func testSpansEnd(t *testing.T, r *rig) {
	r.open()
	for _, o := range []Outcome{Completed, Dead, Cancelled} {
		r.put(string(o))
		d := r.one()
		r.note(d, "running")
		same(t, "spans", r.rdb.HLen(bg, r.keys.Notes).Val(), 1)
		r.settled(settlement(d, o))
		same(t, "spans after "+string(o), r.rdb.HLen(bg, r.keys.Notes).Val(), 0)
	}
	// A job whose record another program deleted.
	r.put("gone")
	r.note(r.one(), "lost")
	r.must(r.rdb.HDel(bg, r.keys.Jobs, "gone").Err())
	r.crash()
	same(t, "spans of one that is gone", r.rdb.HLen(bg, r.keys.Notes).Val(), 0)
	// A job that crashed too often.
	r.put("poison")
	for range CrashLimit {
		r.note(r.one(), "lost")
		r.crash()
	}
	same(t, "dead", r.counts().Dead, 2)
	same(t, "spans", r.rdb.HLen(bg, r.keys.Notes).Val(), 0)
	r.check()
}

// A note that comes after the end of its delivery has no effect.
func testSpanOfASuperseded(t *testing.T, r *rig) {
	r.open()
	r.put("a")
	d := r.one()
	r.settled(settlement(d, Return))
	r.note(d, "late")
	same(t, "span", r.one().Span, "")
	r.check()
}
