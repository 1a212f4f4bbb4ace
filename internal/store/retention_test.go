package store

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var retentionTests = []storeTest{
	{"KeptByCount", testKeptByCount},
	{"KeptByBytes", testKeptByBytes},
	{"KeptByAge", testKeptByAge},
	{"KeptAfterCrashes", testKeptAfterCrashes},
	{"Sweep", testSweep},
}

func (r *rig) bury(o Outcome, ids ...string) {
	r.t.Helper()
	r.put(ids...)
	for range ids {
		r.settled(settlement(r.claim(1)[0], o))
	}
}

func (r *rig) buried(set string) []string { return r.rdb.ZRange(bg, set, 0, -1).Val() }

func testKeptByCount(t *testing.T, r *rig) {
	r.open()
	r.kept.count = 2
	r.bury(Dead, "a", "b", "c", "d")
	equal(t, "dead", r.buried(r.keys.dead), []string{"c", "d"})
	r.bury(Cancelled, "e", "f", "g")
	equal(t, "cancelled", r.buried(r.keys.cancelled), []string{"f", "g"})
	same(t, "records", r.rdb.HLen(bg, r.keys.jobs).Val(), 4)
	equal(t, "new: its record is gone", r.put("a"), []bool{true})
	r.kept.count = 0
	r.bury(Dead, "h")
	equal(t, "dead where none is kept", r.buried(r.keys.dead), nil)
}

func testKeptByBytes(t *testing.T, r *rig) {
	r.open()
	r.bury(Dead, "a")
	size := r.rdb.HGet(bg, r.keys.stats, "dead_bytes").Val()
	one, err := r.rdb.HStrLen(bg, r.keys.jobs, "a").Result()
	r.must(err)
	same(t, "bytes", size, strconv.FormatInt(one, 10))
	r.kept.bytes = 2 * one
	r.bury(Dead, "b", "c", "d")
	equal(t, "dead", r.buried(r.keys.dead), []string{"c", "d"})
	same(t, "bytes", r.rdb.HGet(bg, r.keys.stats, "dead_bytes").Val(), strconv.FormatInt(2*one, 10))
}

func (r *rig) age(set, id string, by time.Duration) {
	r.t.Helper()
	now, err := r.Now(bg)
	r.must(err)
	r.must(r.rdb.ZAdd(bg, set, redis.Z{Score: float64(now.Add(-by).UnixMicro()), Member: id}).Err())
}

func testKeptByAge(t *testing.T, r *rig) {
	r.open()
	r.bury(Dead, "a", "b", "c")
	r.age(r.keys.dead, "a", r.kept.age+time.Second)
	r.age(r.keys.dead, "b", r.kept.age-time.Minute)
	r.bury(Dead, "d")
	equal(t, "dead", r.buried(r.keys.dead), []string{"b", "c", "d"})
}

func testKeptAfterCrashes(t *testing.T, r *rig) {
	r.open()
	r.kept.count = 1
	r.bury(Dead, "a")
	r.put("b")
	for range CrashLimit {
		r.one()
		r.crash()
	}
	equal(t, "dead", r.buried(r.keys.dead), []string{"b"})
}

func testSweep(t *testing.T, r *rig) {
	r.open()
	r.bury(Dead, "a", "b")
	r.bury(Cancelled, "c", "d")
	before := r.dump()
	r.must(r.Sweep(bg))
	r.unchanged("a sweep of nothing", before)
	r.age(r.keys.dead, "a", r.kept.age+time.Second)
	r.age(r.keys.cancelled, "c", r.kept.age+time.Second)
	r.must(r.Sweep(bg))
	equal(t, "dead", r.buried(r.keys.dead), []string{"b"})
	equal(t, "cancelled", r.buried(r.keys.cancelled), []string{"d"})
	same(t, "records", r.rdb.HLen(bg, r.keys.jobs).Val(), 2)
}
