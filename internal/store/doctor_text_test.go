package store

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/check"
	"github.com/signalbox-go/signalbox/internal/store/doctor"
)

// What others wrote doesn't make a text long.
func TestDoctorsTextIsShort(t *testing.T) {
	t.Parallel()
	r := unchecked(t, redistest.Start(t).Client())
	r.sound()
	long := strings.Repeat("x", 100_000)
	r.must(r.rdb.HSet(bg, r.keys.Inflight("s1"), "run", long, "run2", long+" c", long, long).Err())
	r.must(r.rdb.HSet(bg, r.keys.Inflight(long), "ready", "7").Err())
	r.must(r.rdb.HSet(bg, r.keys.Settings, "quiet:"+long, long).Err())
	r.must(r.rdb.HSet(bg, r.keys.Cancels, "first", long).Err())
	r.must(r.rdb.HSet(bg, r.keys.Stats, "dead_bytes", long).Err())
	r.must(r.rdb.Set(bg, r.keys.Prefix+long, 1, 0).Err())
	r.must(r.rdb.Set(bg, r.keys.Fence, long, 0).Err())
	r.must(r.rdb.ZAdd(bg, r.keys.Due, redis.Z{Member: long}, redis.Z{Member: "1" + long}).Err())
	r.must(r.rdb.ZAdd(bg, r.keys.Idle, redis.Z{Member: long}).Err())
	r.must(r.rdb.RPush(bg, r.keys.ReadyLow, long, long).Err())
	found, _ := r.findings(false)
	if len(found) < 12 {
		t.Errorf("%d findings", len(found))
	}
	for _, f := range found {
		if len(f.Text) > 1000 {
			t.Errorf("%s: a text of %d bytes, %.300s", f.Fault, len(f.Text), f.Text)
		}
	}
	if err := check.Queue(bg, r.Site()); err == nil || len(err.Error()) > 30_000 {
		t.Errorf("Check has %.300v", err)
	}
}

// Of very many addresses that wait for wake-ups, the first are checked, and the doctor says so.
func TestDoctorOfManyAddresses(t *testing.T) {
	t.Parallel()
	r := unchecked(t, redistest.Start(t).Client())
	var all []redis.Z
	for _, address := range numbered("x", doctor.MaxAddresses+1) {
		all = append(all, redis.Z{Member: address})
	}
	r.must(r.rdb.ZAdd(bg, r.keys.Idle, all...).Err())
	c, err := doctor.Run(bg, r.Site(), doctor.Checkup{Pause: -1})
	if err != nil || c.Found != doctor.MaxAddresses || len(c.Unproved) != 1 || !strings.Contains(c.Unproved[0], "4001") {
		t.Errorf("%+v, %v", c, err)
	}
	r.must(r.rdb.ZRem(bg, r.keys.Idle, "x0000", "x0001").Err())
	if _, c := r.findings(false); c.Found == 0 {
		t.Errorf("%+v", c)
	}
}
