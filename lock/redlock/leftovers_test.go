package redlock

import (
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// An acquire had no reply, and neither had the release after it. The next release finds no such lock. That settles
// nothing: the acquire may still arrive, and then the lock is given up by a later look.
func TestLeftoverWhoseAcquireMayStillArrive(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 3), redistest.Name(t)
	ps := proxies(t, servers)
	r := redlockOn(t, ps, Config{TTL: time.Minute, NodeTimeout: 100 * time.Millisecond})
	redistest.Eventually(t, func() bool { return r.Check(t.Context()) == nil }, "all nodes count")
	c := r.claim(key, fence(t, key))
	c.shares[0].state = shareUnsure
	release := redistest.Command("EVALSHA", releaseScript.hash.(string))
	cut := ps[0].CutReply(release, 1)
	rulings := make(chan ruling, 1)
	if asked, held, never := c.giveUp(time.Time{}, rulings); asked != 1 || held != 0 || never != 2 {
		t.Errorf("asked %d, of which %d have it, and %d never had it", asked, held, never)
	}
	<-cut
	if said := <-rulings; said.err == nil {
		t.Error("there was an answer")
	}
	before := ps[0].Count(release)
	redistest.Eventually(t, func() bool { return ps[0].Count(release) > before }, "it is released again")
	idle(t, r.nodes[0])
	do(t, servers[0].Client(), "SET", key, c.valueArg) // now the acquire arrives
	nothingLeft(t, servers, key)
}
