package store

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/check"
	"github.com/signalbox-go/signalbox/internal/store/looks"
)

var countsTests = []storeTest{
	{"Counts", testCounts},
}

func testCounts(t *testing.T, r *rig) {
	same(t, "an empty queue", r.counts(), looks.Counts{})
	r.open()
	r.put("a", "b", "c")
	r.enqueued(r.item("h", When{}, signalbox.PriorityHigh), r.item("l", When{}, signalbox.PriorityLow),
		r.item("d", When{After: time.Hour}, signalbox.PriorityLow))
	r.claim(2)
	same(t, "counts", r.counts(), looks.Counts{Ready: 3, Due: 1, Running: 2, Total: looks.Totals{Enqueued: 6}})
}

// Check finds each kind of disorder and names it.
func TestCheck(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	other := redis.Z{Score: 4e15, Member: "s2"}
	for want, spoil := range map[string]func(r *rig) error{
		`job "ready" is ready in list 1 and dead`: func(r *rig) error {
			return rdb.ZAdd(bg, r.keys.Dead, redis.Z{Score: 1, Member: "ready"}).Err()
		},
		`job "run" is ready in list 1 and in flight in s1`: func(r *rig) error {
			return rdb.RPush(bg, r.keys.ReadyNormal, "run").Err()
		},
		`job "ready" is ready in list 1 and ready in list 1`: func(r *rig) error {
			return rdb.RPush(bg, r.keys.ReadyNormal, "ready").Err()
		},
		`job "x" is due and has no record`: func(r *rig) error {
			return rdb.ZAdd(bg, r.keys.Due, redis.Z{Score: 1, Member: "1x"}).Err()
		},
		`job "x" has a record and no state`: func(r *rig) error {
			return rdb.HSet(bg, r.keys.Jobs, "x", "y").Err()
		},
		`job "ready" of class 1 waits in the list of class s`: func(r *rig) error {
			return errors.Join(rdb.LRem(bg, r.keys.ReadyNormal, 0, "ready").Err(), rdb.RPush(bg, r.keys.ReadySuspect, "ready").Err())
		},
		`job "due" of class 1 is due in class 0`: func(r *rig) error {
			return errors.Join(rdb.ZRem(bg, r.keys.Due, "1due").Err(), rdb.ZAdd(bg, r.keys.Due, redis.Z{Score: 1, Member: "0due"}).Err())
		},
		`job "due" is due at 1 us`: func(r *rig) error {
			return rdb.ZAdd(bg, r.keys.Due, redis.Z{Score: 1, Member: "1due"}).Err()
		},
		`an empty member is due`: func(r *rig) error {
			return rdb.ZAdd(bg, r.keys.Due, redis.Z{Score: 1, Member: ""}).Err()
		},
		`session "s1" has 2 deliveries and is not registered`: func(r *rig) error {
			return rdb.Del(bg, r.keys.Sessions).Err()
		},
		`session "s1" has 2 suspects, and 1 of them run alone`: func(r *rig) error {
			return rdb.HSet(bg, r.keys.Inflight("s1"), "run", "1 s4", "run2", "2 s2").Err()
		},
		`session "s1" has 2 suspects, and 2 of them run alone`: func(r *rig) error {
			return rdb.HSet(bg, r.keys.Inflight("s1"), "run", "1 s5", "run2", "2 s130").Err()
		},
		`job "run" has the token "x"`: func(r *rig) error {
			return rdb.HSet(bg, r.keys.Inflight("s1"), "run", "x").Err()
		},
		`have the same token 1`: func(r *rig) error {
			return rdb.HSet(bg, r.keys.Inflight("s1"), "run", "1", "run2", "1").Err()
		},
		`in flight in s1 and in flight in s2`: func(r *rig) error {
			return errors.Join(rdb.ZAdd(bg, r.keys.Sessions, other).Err(), rdb.HSet(bg, r.keys.Inflight("s2"), "run", "2").Err())
		},
		`beyond the fence at 0`: func(r *rig) error { return rdb.Del(bg, r.keys.Fence).Err() },
		`the fence is "x"`:      func(r *rig) error { return rdb.Set(bg, r.keys.Fence, "x", 0).Err() },
		`7 bytes of cancelled jobs are counted, there are 0`: func(r *rig) error {
			return rdb.HSet(bg, r.keys.Stats, "cancelled_bytes", 7).Err()
		},
		`waits for a wake-up and is of no session`: func(r *rig) error {
			return rdb.ZAdd(bg, r.keys.Idle, redis.Z{Score: 1, Member: r.Channels().Address("other", false)}).Err()
		},
		`odd" belongs to nothing`: func(r *rig) error { return rdb.Set(bg, r.keys.Prefix+"odd", "1", 0).Err() },
		`inflight:" belongs to`:   func(r *rig) error { return rdb.Set(bg, r.keys.Inflight(""), "1", 0).Err() },
		`WRONGTYPE`: func(r *rig) error {
			return errors.Join(rdb.Del(bg, r.keys.Dead).Err(), rdb.Set(bg, r.keys.Dead, "1", 0).Err())
		},
		`and 5 more`:                   func(r *rig) error { return rdb.RPush(bg, r.keys.ReadyLow, toAny(numbered("x", 25))...).Err() },
		`is inconsistent:`:             func(r *rig) error { return rdb.ZAdd(bg, r.keys.Idle, redis.Z{Score: 1, Member: "x"}).Err() },
		`is ready in list 2 and has n`: func(r *rig) error { return rdb.RPush(bg, r.keys.ReadyLow, "x").Err() },
	} {
		r := unchecked(t, rdb)
		r.open()
		r.bury(Dead, "dead")
		r.put("run", "run2", "ready")
		r.enqueued(r.item("due", When{After: time.Hour}, signalbox.PriorityNormal))
		r.claim(2)
		r.check()
		r.must(spoil(r))
		if err := check.Queue(bg, r.Site()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func toAny(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}
