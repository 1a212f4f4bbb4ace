package inspect_test

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
)

// The locks that are held are found by a pattern, on all masters, and nothing else is taken for one.
func TestLocks(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func() redis.UniversalClient{
		"one server": func() redis.UniversalClient { return redistest.Start(t).Client() },
		"cluster":    func() redis.UniversalClient { return redistest.Cluster(t).Client() },
	} {
		rdb, ctx, prefix := start(), t.Context(), redistest.Name(t)+":"
		locker, err := lock.New(rdb, lock.Config{Owner: "me", TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		want := make(map[string]int64)
		for _, key := range numbered(prefix+"a", 12) { // in a Cluster on all masters
			held, err := locker.Acquire(ctx, key)
			if err != nil {
				t.Fatal(err)
			}
			want[key] = held.Token()
		}
		for _, key := range []string{prefix + "b1", prefix + "a-released"} {
			held, err := locker.Acquire(ctx, key)
			if err != nil {
				t.Fatal(err)
			}
			if key == prefix+"a-released" {
				if err := held.Release(ctx); err != nil {
					t.Fatal(err)
				}
			}
		}
		for key, value := range map[string]string{prefix + "a-text": "x", prefix + "a{": "x", prefix + "a-other": "their value", prefix + "a-bad": "x", prefix + "a-bad{" + prefix + "a-bad}:fence": "x"} {
			if err := rdb.Set(ctx, key, value, 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if err := rdb.HSet(ctx, prefix+"a-hash", "f", "v").Err(); err != nil {
			t.Fatal(err)
		}
		got := make(map[string]int64)
		for l, err := range inspector(t, rdb, "").Locks(ctx, prefix+"a*") {
			if err != nil {
				t.Fatal(err)
			}
			if l.Owner != "me" || l.Left <= 0 || l.Left > time.Hour || l.Since.IsZero() {
				t.Errorf("%s: %+v", name, l)
			}
			got[l.Key] = l.Token
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
		for _, err := range inspector(t, rdb, "").Locks(ctx, "") {
			if !errors.Is(err, signalbox.ErrInvalid) {
				t.Errorf("%s: no pattern: %v", name, err)
			}
		}
		n := 0
		for range inspector(t, rdb, "").Locks(ctx, prefix+"*") {
			n++
			break
		}
		if n != 1 {
			t.Errorf("%s: %d locks before the loop ends", name, n)
		}
	}
}

// A lock that a client of another library has taken over has no owner that is known.
func TestLockOfAnotherLibrary(t *testing.T) {
	t.Parallel()
	rdb, ctx, key := redistest.Start(t).Client(), t.Context(), redistest.Name(t)
	locker, err := lock.New(rdb, lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	held, err := locker.Acquire(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := rdb.Set(ctx, key, "theirs", 0).Err(); err != nil {
		t.Fatal(err)
	}
	var got []inspect.Lock
	for l, err := range inspector(t, rdb, "").Locks(ctx, key) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, l)
	}
	if len(got) != 1 || got[0].Owner != "" || !got[0].Since.IsZero() || got[0].Left >= 0 {
		t.Errorf("%+v", got)
	}
}
