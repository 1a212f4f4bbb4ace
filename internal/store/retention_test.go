package store

import (
	"cmp"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/settings"
)

var retentionTests = []storeTest{
	{"KeptByCount", testKeptByCount},
	{"KeptByBytes", testKeptByBytes},
	{"KeptByAge", testKeptByAge},
	{"KeptAfterCrashes", testKeptAfterCrashes},
	{"Sweep", testSweep},
	{"SweepByCountAndBytes", testSweepByCountAndBytes},
	{"RetentionOfTheSettings", testRetentionOfTheSettings},
	{"StrangeRetention", testStrangeRetention},
}

func (r *rig) sweep() (dropped int) {
	r.t.Helper()
	dropped, err := r.Sessions().Sweep(bg)
	r.must(err)
	return dropped
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
	r.kept.Jobs = 2
	r.bury(Dead, "a", "b", "c", "d")
	equal(t, "dead", r.buried(r.keys.Dead), []string{"c", "d"})
	r.bury(Cancelled, "e", "f", "g")
	equal(t, "cancelled", r.buried(r.keys.Cancelled), []string{"f", "g"})
	same(t, "records", r.rdb.HLen(bg, r.keys.Jobs).Val(), 4)
	equal(t, "new: its record is gone", r.put("a"), []bool{true})
	r.kept.Jobs = 0
	r.bury(Dead, "h")
	equal(t, "dead where none is kept", r.buried(r.keys.Dead), nil)
}

func testKeptByBytes(t *testing.T, r *rig) {
	r.open()
	r.bury(Dead, "a")
	size := r.rdb.HGet(bg, r.keys.Stats, "dead_bytes").Val()
	one, err := r.rdb.HStrLen(bg, r.keys.Jobs, "a").Result()
	r.must(err)
	same(t, "bytes", size, strconv.FormatInt(one, 10))
	r.kept.Bytes = 2 * one
	r.bury(Dead, "b", "c", "d")
	equal(t, "dead", r.buried(r.keys.Dead), []string{"c", "d"})
	same(t, "bytes", r.rdb.HGet(bg, r.keys.Stats, "dead_bytes").Val(), strconv.FormatInt(2*one, 10))
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
	r.age(r.keys.Dead, "a", r.kept.Age+time.Second)
	r.age(r.keys.Dead, "b", r.kept.Age-time.Minute)
	r.bury(Dead, "d")
	equal(t, "dead", r.buried(r.keys.Dead), []string{"b", "c", "d"})
}

func testKeptAfterCrashes(t *testing.T, r *rig) {
	r.open()
	r.kept.Jobs = 1
	r.bury(Dead, "a")
	r.put("b")
	for range CrashLimit {
		r.one()
		r.crash()
	}
	equal(t, "dead", r.buried(r.keys.Dead), []string{"b"})
}

func testSweep(t *testing.T, r *rig) {
	r.open()
	r.bury(Dead, "a", "b")
	r.bury(Cancelled, "c", "d")
	before := r.dump()
	r.sweep()
	r.unchanged("a sweep of nothing", before)
	r.age(r.keys.Dead, "a", r.kept.Age+time.Second)
	r.age(r.keys.Cancelled, "c", r.kept.Age+time.Second)
	r.sweep()
	equal(t, "dead", r.buried(r.keys.Dead), []string{"b"})
	equal(t, "cancelled", r.buried(r.keys.Cancelled), []string{"d"})
	same(t, "records", r.rdb.HLen(bg, r.keys.Jobs).Val(), 2)
}

func testSweepByCountAndBytes(t *testing.T, r *rig) {
	r.open()
	r.bury(Dead, "a", "b", "c", "d")
	r.bury(Cancelled, "e", "f", "g", "h")
	one, err := r.rdb.HStrLen(bg, r.keys.Jobs, "a").Result()
	r.must(err)
	r.kept.Jobs = 3
	same(t, "dropped", r.sweep(), 2)
	equal(t, "dead", r.buried(r.keys.Dead), []string{"b", "c", "d"})
	equal(t, "cancelled", r.buried(r.keys.Cancelled), []string{"f", "g", "h"})
	r.kept.Bytes = 2 * one
	same(t, "dropped", r.sweep(), 2)
	equal(t, "dead", r.buried(r.keys.Dead), []string{"c", "d"})
	equal(t, "cancelled", r.buried(r.keys.Cancelled), []string{"g", "h"})
	same(t, "bytes", r.rdb.HGet(bg, r.keys.Stats, "dead_bytes").Val(), strconv.FormatInt(2*one, 10))
	r.kept.Jobs = 0
	same(t, "dropped", r.sweep(), 4)
	same(t, "records", r.rdb.HLen(bg, r.keys.Jobs).Val(), 0)
}

// Wherever a job ends, the limits in the settings count. The caller's limits don't.
func testRetentionOfTheSettings(t *testing.T, r *rig) {
	r.open()
	set := func(want signalbox.Retention) {
		t.Helper()
		r.must(r.Settings().SetRetention(bg, want))
		want = signalbox.Retention{
			Jobs: cmp.Or(want.Jobs, 100_000), Bytes: cmp.Or(want.Bytes, 256<<20), Age: cmp.Or(want.Age, 30*24*time.Hour),
		}
		settings, err := r.Settings().Read(bg)
		r.must(err)
		same(t, "retention that is read", settings.Retention, want)
	}
	set(signalbox.Retention{Jobs: 2})
	r.bury(Dead, "a", "b", "c")
	equal(t, "dead", r.buried(r.keys.Dead), []string{"b", "c"})
	r.put("d")
	for range CrashLimit {
		r.one()
		r.crash()
	}
	equal(t, "dead after crashes", r.buried(r.keys.Dead), []string{"c", "d"})
	size := r.rdb.HStrLen(bg, r.keys.Jobs, "d").Val()
	set(signalbox.Retention{Bytes: size})
	same(t, "dropped by bytes", r.sweep(), 1)
	equal(t, "dead", r.buried(r.keys.Dead), []string{"d"})
	set(signalbox.Retention{Age: time.Hour})
	same(t, "dropped", r.sweep(), 0)
	r.age(r.keys.Dead, "d", time.Hour+time.Second)
	same(t, "dropped by age", r.sweep(), 1)
	set(signalbox.Retention{})
	r.bury(Dead, "e")
	r.age(r.keys.Dead, "e", time.Hour+time.Second)
	same(t, "dropped with the default", r.sweep(), 0)
	longest := signalbox.Retention{Jobs: 1e15 - 1, Bytes: 1e15 - 1, Age: 10_000 * 24 * time.Hour}
	r.must(settings.ValidateRetention(longest))
	set(longest)
	r.age(r.keys.Dead, "e", 9_999*24*time.Hour)
	same(t, "dropped with the longest", r.sweep(), 0)
	r.age(r.keys.Dead, "e", 10_001*24*time.Hour)
	same(t, "dropped after it", r.sweep(), 1)
}

// If another program wrote a value there that is no number, it counts as not set.
func testStrangeRetention(t *testing.T, r *rig) {
	r.open()
	r.kept.Jobs = 2
	for _, strange := range []string{"", "0", "01", "-1", "1e3", "1000000000000000", "one", " 1"} {
		r.must(r.rdb.HSet(bg, r.keys.Settings, "keep", strange+" "+strange+" "+strange).Err())
		settings, err := r.Settings().Read(bg)
		r.must(err)
		same(t, "retention for "+strange, settings.Retention, signalbox.Retention{})
		r.bury(Dead, "a", "b", "c")
		equal(t, "dead for "+strange, r.buried(r.keys.Dead), []string{"b", "c"})
		r.kept.Jobs = 0
		r.must(r.rdb.HDel(bg, r.keys.Settings, "keep").Err())
		r.sweep()
		r.kept.Jobs = 2
	}
}

func TestValidateRetention(t *testing.T) {
	t.Parallel()
	for _, r := range []signalbox.Retention{{}, {Jobs: 1, Bytes: 1, Age: time.Microsecond}, {Jobs: 1e15 - 1, Bytes: 1e15 - 1, Age: 10_000 * 24 * time.Hour}} {
		if err := settings.ValidateRetention(r); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
	err := settings.ValidateRetention(signalbox.Retention{Jobs: -1, Bytes: 1e15, Age: 1<<63 - 1})
	for _, part := range []string{"Retention.Jobs: -1", "Retention.Bytes: 1000000000000000", "Retention.Age: 2562047h47m16.854775807s"} {
		if !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), part) {
			t.Errorf("%v, want %s", err, part)
		}
	}
}
