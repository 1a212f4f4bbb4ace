package etcdlock

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/lock"
)

func TestInspect(t *testing.T) {
	t.Parallel()
	client, key := dial(t, nil, sharedEtcd(t).Addr()), newKey()
	r := newLocker(t, client, Config{TTL: 10 * time.Second, Owner: "billing on host-7"})
	inspect := func() lock.Info {
		t.Helper()
		info, err := r.Inspect(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	if got := inspect(); got != (lock.Info{Key: key}) {
		t.Errorf("a lock that never was: %+v", got)
	}
	l := acquire(t, r, key)
	waiter := waiting(t.Context(), t, newLocker(t, client, Config{Owner: "another"}), client, key, 1)
	got := inspect()
	if !got.Held || got.Owner != "billing on host-7" || got.Token != l.Token() || !got.Since.IsZero() || got.For <= 0 || got.For > 10*time.Second {
		t.Errorf("held: %+v", got)
	}
	release(t, l)
	next := granted(t, waiter)
	if got := inspect(); !got.Held || got.Owner != "another" || got.Token != next.Token() || got.For <= 10*time.Second {
		t.Errorf("held by another: %+v", got)
	}
	release(t, next)
	if got := inspect(); got != (lock.Info{Key: key}) {
		t.Errorf("released: %+v", got)
	}
	// A key without a lease, which somebody else has written, holds the lock, and for ever.
	queue, err := queueOf(defaultPrefix, key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(t.Context(), queue+"foreign", strings.Repeat("x", 1000)); err != nil {
		t.Fatal(err)
	}
	refused(t, r, key)
	if got := inspect(); !got.Held || got.For >= 0 || got.Owner != strings.Repeat("x", maxOwner) || got.Token == 0 {
		t.Errorf("held by a key without a lease: %+v", got)
	}
	if _, err := client.Delete(t.Context(), queue+"foreign"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Inspect(t.Context(), ""); !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("no key: %v", err)
	}
}
