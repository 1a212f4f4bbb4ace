package store

import (
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

var fenceTests = []storeTest{
	{"FenceOfTheFuture", testFutureFence},
	{"FenceIsLost", testLostFence},
}

// The fence is ahead of the clock, since the clock was set back. Tokens continue to grow.
func testFutureFence(t *testing.T, r *rig) {
	r.open()
	r.put("a", "b", "c")
	now, err := r.Now(bg)
	r.must(err)
	ahead := now.Add(24 * time.Hour).UnixMicro()
	r.must(r.rdb.Set(bg, r.keys.Fence, ahead, 0).Err())
	for i := range int64(3) {
		same(t, "token", r.claim(1)[0].Job.Token, ahead+1+i)
	}
	same(t, "fence", r.fence(), ahead+3)
}

// Without its fence, the queue grants tokens from the current time on. They are larger than the earlier ones.
func testLostFence(t *testing.T, r *rig) {
	r.open()
	r.put("a", "b")
	old := r.claim(1)[0].Job.Token
	r.must(r.rdb.Del(bg, r.keys.Fence).Err())
	redistest.Eventually(t, func() bool { return r.rdb.Time(bg).Val().UnixMicro() > old }, "the clock moves on")
	if token := r.claim(1)[0].Job.Token; token <= old {
		t.Errorf("token %d after %d", token, old)
	}
}

// A server that lost its memory grants larger tokens than before, and starts again without help.
func TestFlushAll(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	r := newQueue(t, srv.Client())
	r.open()
	r.put("a", "b")
	old := r.claim(2)
	r.must(r.rdb.FlushAll(bg).Err())
	reply := r.call(ClaimRequest{Settle: []Settlement{settlement(old[0], Completed)}, Want: 1})
	equal(t, "refused", reply.Refused, []int{0})
	same(t, "alive", reply.Alive, false)
	alive, _, err := r.Sessions().Renew(bg, r.session, time.Minute, "")
	r.must(err)
	same(t, "alive by Renew", alive, false)
	r.session = "s2"
	r.open()
	equal(t, "new", r.put("a"), []bool{true})
	if d := r.one(); d.Job.Token <= old[1].Job.Token {
		t.Errorf("token %d after %d", d.Job.Token, old[1].Job.Token)
	}
}
