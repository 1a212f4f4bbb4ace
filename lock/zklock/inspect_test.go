package zklock

import (
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/lock"
)

func TestInspect(t *testing.T) {
	t.Parallel()
	l, key := locker(t, Config{Owner: "me", TTL: 20 * time.Second}), newKey()
	inspect := func() lock.Info {
		t.Helper()
		info, err := locker(t, Config{}).Inspect(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	if info := inspect(); info != (lock.Info{Key: key}) {
		t.Errorf("a key that nobody used: %+v", info)
	}
	k := acquire(t, l, key)
	info := inspect()
	if !info.Held || info.Owner != "me" || info.Token != k.Token() || info.For <= 0 || info.For > 20*time.Second {
		t.Errorf("a lock with token %d: %+v", k.Token(), info)
	}
	if ago := time.Since(info.Since); ago < -time.Second || ago > patience {
		t.Errorf("it was granted %v ago", ago)
	}
	release(t, k)
	if info := inspect(); info != (lock.Info{Key: key, Token: k.Token()}) {
		t.Errorf("a lock that was released: %+v; want the token %d", info, k.Token())
	}
	var origin lock.Origin = k
	next := acquire(t, l, key)
	if origin.Issuer() != "zookeeper" || origin.Holder() == "" || origin.Holder() == next.Holder() {
		t.Errorf("the origins are %q, %q and %q", origin.Issuer(), origin.Holder(), next.Holder())
	}
	release(t, next)
}
