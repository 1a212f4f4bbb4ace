package store

import "testing"

var spanTests = []storeTest{
	{"SpanOfARetry", testSpanOfARetry},
	{"SpanOfACrash", testSpanOfACrash},
	{"SpansEndWithTheJob", testSpansEnd},
	{"SpanOfASuperseded", testSpanOfASuperseded},
}

func (r *rig) mark(d Delivery, span string) {
	r.t.Helper()
	r.call(ClaimRequest{Marks: []Mark{{d.Job.ID, d.Job.Token, span}}})
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
	r.mark(ds[1], "lost")
	r.expire()
	res, err := r.Reclaim(bg, r.session, true)
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

func testSpansEnd(t *testing.T, r *rig) {
	r.open()
	for _, o := range []Outcome{Completed, Dead, Cancelled} {
		r.put(string(o))
		d := r.one()
		r.mark(d, "running")
		same(t, "spans", r.rdb.HLen(bg, r.keys.spans).Val(), 1)
		r.settled(settlement(d, o))
		same(t, "spans after "+string(o), r.rdb.HLen(bg, r.keys.spans).Val(), 0)
	}
	// One that crashed too often.
	r.put("poison")
	for range CrashLimit {
		r.mark(r.one(), "lost")
		r.crash()
	}
	same(t, "dead", r.counts().Dead, 2)
	same(t, "spans", r.rdb.HLen(bg, r.keys.spans).Val(), 0)
	r.check()
}

// A mark that comes after the end of its delivery is nobody's.
func testSpanOfASuperseded(t *testing.T, r *rig) {
	r.open()
	r.put("a")
	d := r.one()
	r.settled(settlement(d, Return))
	r.mark(d, "late")
	same(t, "span", r.one().Span, "")
	r.check()
}
