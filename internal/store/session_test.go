package store

import (
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
)

var sessionTests = []storeTest{
	{"UnknownSession", testUnknownSession},
	{"ExpiredSession", testExpiredSession},
	{"RenewRevivesNothing", testRenewRevivesNothing},
	{"RenewExtends", testRenewExtends},
	{"Close", testClose},
	{"CloseWithDeliveries", testCloseBusy},
	{"ClosePassesOnWhatIsDue", testCloseDue},
	{"NextBeyondTheExpired", testNextBeyondExpired},
}

func testUnknownSession(t *testing.T, r *rig) {
	r.put("a")
	reply := r.call(ClaimRequest{Want: 1})
	same(t, "alive", reply.Alive, false)
	same(t, "claimed", len(reply.Deliveries), 0)
	same(t, "ready", r.counts().Ready, 1)
}

func testExpiredSession(t *testing.T, r *rig) {
	r.open()
	r.put("a", "b")
	r.claim(1)
	r.expire()
	reply := r.call(ClaimRequest{Want: 1})
	same(t, "alive", reply.Alive, false)
	same(t, "claimed", len(reply.Deliveries), 0)
	equal(t, "expired", reply.Expired, []string{r.session})
	same(t, "running", r.counts().Running, 1) // until it is reclaimed
}

func testRenewRevivesNothing(t *testing.T, r *rig) {
	r.open()
	r.put("a")
	r.claim(1)
	r.expire()
	before := r.dump()
	alive, _, err := r.Sessions().Renew(bg, r.session, time.Minute, "")
	r.must(err)
	same(t, "alive by Renew", alive, false)
	alive, _, err = r.Sessions().Open(bg, r.session, time.Minute)
	r.must(err)
	same(t, "alive by Open", alive, false)
	alive, _, err = r.Sessions().Renew(bg, "unknown", time.Minute, "")
	r.must(err)
	same(t, "unknown alive by Renew", alive, false)
	r.unchanged("renewing what is over", before)
	same(t, "reclaimed", len(r.reclaim(r.session).Returned), 1)
	alive, _, err = r.Sessions().Renew(bg, r.session, time.Minute, "")
	r.must(err)
	same(t, "alive by Renew after it was reclaimed", alive, false)
}

func testRenewExtends(t *testing.T, r *rig) {
	r.open()
	alive, _, err := r.Sessions().Renew(bg, r.session, time.Hour, "")
	r.must(err)
	same(t, "alive", alive, true)
	now, err := r.Now(bg)
	r.must(err)
	until := int64(r.rdb.ZScore(bg, r.keys.Sessions, r.session).Val())
	if left := until - now.UnixMicro(); left < (59*time.Minute).Microseconds() || left > time.Hour.Microseconds() {
		t.Errorf("it lives for %d us, want an hour", left)
	}
	res := r.reclaim(r.session)
	same(t, "reclaimed of a session that lives", len(res.Returned)+len(res.Dead)+res.Left, 0)
}

func testClose(t *testing.T, r *rig) {
	r.listen()
	r.open()
	r.put("a")
	d := r.one()
	r.settled(settlement(d, Return))
	r.takeWake()
	for range 2 { // the second time as after a lost reply
		left, err := r.Sessions().Close(bg, r.session, false, r.lane)
		r.must(err)
		same(t, "left", left, 0)
	}
	equal(t, "sessions", r.rdb.ZRange(bg, r.keys.Sessions, 0, -1).Val(), []string{"idle"})
	same(t, "lane", r.rdb.Exists(bg, r.lane.key).Val(), 0)
	same(t, "wake-ups, with a job ready", r.wakes(), 1)
}

func testCloseBusy(t *testing.T, r *rig) {
	r.open()
	r.put("a", "b")
	d := r.claim(1)[0]
	left, err := r.Sessions().Close(bg, r.session, false, r.lane)
	r.must(err)
	same(t, "left", left, 1)
	r.renewed() // the session continues
	r.settled(settlement(d, Completed))
	left, err = r.Sessions().Close(bg, r.session, false)
	r.must(err)
	same(t, "left", left, 0)
}

// A worker that ends may be the only one that has set its timer for the job.
func testCloseDue(t *testing.T, r *rig) {
	r.open()
	item, err := NewItem(&signalbox.Job{ID: "later", Kind: "k"}, When{After: time.Hour})
	r.must(err)
	r.lane.Next()
	_, err = r.Enqueue(bg, r.lane, []Item{item})
	r.must(err)
	r.listen()
	_, err = r.Sessions().Close(bg, r.session, false)
	r.must(err)
	same(t, "wake-ups", r.wakes(), 1)
}

func testNextBeyondExpired(t *testing.T, r *rig) {
	r.open()
	r.put("a")
	r.claim(1)
	r.expire()
	_, hints, err := r.Sessions().Open(bg, "other", time.Minute)
	r.must(err)
	equal(t, "expired", hints.Expired, []string{r.session})
	if hints.Next <= 50*time.Second || hints.Next > time.Minute {
		t.Errorf("next in %v, want a minute: the other session's end", hints.Next)
	}
	_, err = r.Sessions().Close(bg, "other", false)
	r.must(err)
}
