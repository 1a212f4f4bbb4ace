package pglock_test

import (
	"context"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock/pglock"
)

// A statement that is run again, since nobody knows whether it ran, gives the same answer. One that comes too late
// changes nothing.
func TestStatementsRunAgain(t *testing.T) {
	t.Parallel()
	pool := dial(t, sharedURL(t))
	acquireSQL, extendSQL, releaseSQL := pglock.Statements()
	key := []byte("again")
	ask := func(value string, ttl time.Duration) (token int64, granted bool) {
		t.Helper()
		var left int64
		if err := pool.QueryRow(context.Background(), acquireSQL, key, value, "owner", ttl.Microseconds(), false).Scan(&token, &granted, &left); err != nil {
			t.Fatal(err)
		}
		return token, granted
	}
	extend := func(value string) (extended, same bool) {
		t.Helper()
		if err := pool.QueryRow(context.Background(), extendSQL, key, value, time.Minute.Microseconds()).Scan(&extended, &same); err != nil {
			t.Fatal(err)
		}
		return extended, same
	}
	release := func(value string) (freed, same bool) {
		t.Helper()
		var told int64
		if err := pool.QueryRow(context.Background(), releaseSQL, key, value, "channel", "payload").Scan(&freed, &same, &told); err != nil {
			t.Fatal(err)
		}
		return freed, same
	}
	want := func(what string, a, b, wantA, wantB bool) {
		t.Helper()
		if a != wantA || b != wantB {
			t.Errorf("%s: %v, %v; want %v, %v", what, a, b, wantA, wantB)
		}
	}
	first, granted := ask("one", time.Minute)
	again, grantedAgain := ask("one", time.Minute)
	want("acquired twice", granted, grantedAgain, true, true)
	if first != again {
		t.Errorf("tokens %d and %d of one grant", first, again)
	}
	for range 2 {
		freed, same := release("one")
		want("released", freed, same, true, true)
	}
	extended, same := extend("one")
	want("extended after the release", extended, same, false, true)
	if _, granted := ask("one", time.Minute); granted {
		t.Error("a late copy of an acquire took the lock for nobody")
	}

	second, granted := ask("two", time.Minute)
	if !granted || second <= first {
		t.Errorf("the next: %v, token %d after %d", granted, second, first)
	}
	extended, same = extend("one")
	want("extended by the one before", extended, same, false, false)
	freed, same := release("one")
	want("released by the one before", freed, same, false, false)
	extended, same = extend("two")
	want("extended", extended, same, true, true)
	release("two")

	// That somebody waits is kept when the acquire is run again, so that the release notifies.
	if _, granted := ask("wanted", time.Minute); !granted {
		t.Error("it isn't free")
	}
	waits := func(value string) {
		t.Helper()
		var token, left int64
		var granted bool
		if err := pool.QueryRow(context.Background(), acquireSQL, key, value, "owner", time.Minute.Microseconds(), true).Scan(&token, &granted, &left); err != nil {
			t.Fatal(err)
		}
		if granted != (value == "wanted") {
			t.Errorf("granted to %q: %v", value, granted)
		}
	}
	told := func(want int64) {
		t.Helper()
		var freed, same bool
		var told int64
		if err := pool.QueryRow(context.Background(), releaseSQL, key, "wanted", "channel", "payload").Scan(&freed, &same, &told); err != nil || !freed || told != want {
			t.Errorf("released: %v, %d notifications, %v; want %d", freed, told, err, want)
		}
	}
	waits("a waiter")
	waits("a waiter")
	if _, granted := ask("wanted", time.Minute); !granted {
		t.Error("the acquire that is run again is refused")
	}
	told(1)
	told(0) // run again: it was freed before

	if _, granted := ask("three", time.Microsecond); !granted {
		t.Error("it isn't free")
	}
	extended, same = extend("three")
	want("extended when it had expired", extended, same, false, true)
	freed, same = release("three")
	want("released when it had expired", freed, same, false, true)
}

// The validity counts from when the call was sent, whenever the answer comes.
func TestValidityCountsFromTheSending(t *testing.T) {
	t.Parallel()
	direct := dial(t, sharedURL(t))
	link := servertest.NewLink(t, serverOf(t))
	const ttl, key = 10 * time.Second, "validity"
	a := locker(t, dial(t, url(link)), pglock.Config{TTL: ttl})
	warm(t, a)
	link.HoldReplies()
	ends := make(chan time.Time, 1)
	go func() {
		l, err := a.TryAcquire(t.Context(), key)
		if err != nil {
			t.Error(err)
			ends <- time.Time{}
			return
		}
		ends <- l.Until()
	}()
	eventually(t, "the server has granted the lock", func() bool {
		_, until, ok := state(t, direct, key)
		return ok && time.Until(until) > 0
	})
	at := time.Now()
	eventually(t, "some time has passed", func() bool { return time.Since(at) > 500*time.Millisecond })
	link.Heal()
	if (<-ends).After(at.Add(ttl)) { // it was sent before at
		t.Error("the validity counts from the answer")
	}
}
