package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// Who waits in another process is told by a holder that did not wait itself.
func TestFirstReleaseTells(t *testing.T) {
	t.Parallel()
	s, key := redistest.Start(t), redistest.Name(t)
	held := acquire(t, New(s.Client()), key).(*redisLock)
	held.token += time.Hour.Microseconds() // which its row counts from: no turn of others falls into this test
	next := waitFor(t, New(s.Client()), key)
	inLine(t, s.Client(), key, 1)
	release(t, held)
	l := (<-next).must(t)
	if l.row.n == 0 {
		t.Error("it found out by a look")
	}
	release(t, l)
}

// Who comes while the lock is freed is told.
func TestComesWhileFreed(t *testing.T) {
	t.Parallel()
	p := placeOf(t, "key")
	var locker *Redis
	var w *waiter
	locker = New(freeing{comes: func() { w = locker.join(p.lock); <-w.first }})
	if err := locker.give(t.Context(), p, "value", row{}, 0); err != nil {
		t.Fatal(err)
	}
	if len(w.turns) != 1 {
		t.Error("nobody told it")
	}
	locker.leave(p, w, false)
}

// freeing is a Redis on which somebody comes at the moment in which the lock is freed.
type freeing struct {
	Client
	comes func()
}

func (f freeing) EvalSha(_ context.Context, sha string, _ []string, _ ...any) *redis.Cmd {
	if sha != freeScript.Hash() {
		return redis.NewCmdResult(nil, fmt.Errorf("not free.lua"))
	}
	f.comes()
	return redis.NewCmdResult(int64(1), nil)
}

// The short way of acquire.lua is as strict as the long one, and a token never goes back on it.
func TestRecordsOfTheShortWay(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	for record, want := range map[string]int64{ // the next token; 0: none
		"9007199254740989 value owner":     9007199254740990,
		"9007199254740990 value owner":     9007199254740991,
		"9007199254740991 value owner":     0,
		"00000000000000000001 value owner": 0,
		"1 value ":                         0,
	} {
		key := redistest.Name(t)
		do(t, rdb, "SET", fence(t, key), record)
		l, err := New(rdb).TryAcquire(t.Context(), key)
		if want == 0 {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%q: %v", record, err)
			}
		} else if err != nil || l.Token() != want {
			t.Errorf("%q: %v, %v", record, l, err)
		}
	}
}

// A Redis that takes no writes can still tell that a lock is held.
func TestHeldUnderOOM(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t).Client()
	l := acquire(t, New(rdb), "held")
	do(t, rdb, "CONFIG", "SET", "maxmemory", "1")
	if _, err := New(rdb).TryAcquire(t.Context(), "held"); !errors.Is(err, ErrHeld) {
		t.Errorf("TryAcquire: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := New(rdb).Acquire(ctx, "held"); !errors.Is(err, ErrHeld) {
		t.Errorf("Acquire: %v", err)
	}
	if _, err := New(rdb).TryAcquire(t.Context(), "free"); err == nil || errors.Is(err, ErrHeld) {
		t.Errorf("a free lock: %v", err)
	}
	release(t, l)
}

// So can the nodes of a Redlock.
func TestRedlockHeldUnderOOM(t *testing.T) {
	t.Parallel()
	servers := masters(t, 3)
	r := redlockOn(t, servers, roomy)
	l, err := r.TryAcquire(t.Context(), "held")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range servers {
		do(t, s.Client(), "CONFIG", "SET", "maxmemory", "1")
	}
	if _, err := redlockOn(t, servers, roomy).TryAcquire(t.Context(), "held"); !errors.Is(err, ErrHeld) {
		t.Errorf("held: %v", err)
	}
	if _, err := r.TryAcquire(t.Context(), "free"); err == nil || errors.Is(err, ErrHeld) {
		t.Errorf("free: %v", err)
	}
	release(t, l)
}

// A grant that is repeated, since its reply was lost, is the same grant.
func TestRepeatUnderOOM(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t).Client()
	keys := []string{"key", fence(t, "key"), waitKey(fence(t, "key"))}
	var replies [2]string
	for i := range replies {
		reply, err := acquireScript.Run(t.Context(), rdb, keys, "value", 60_000, "me", "").Result()
		if err != nil {
			t.Fatal(err)
		}
		replies[i] = fmt.Sprint(reply)
		do(t, rdb, "CONFIG", "SET", "maxmemory", "1")
	}
	if replies[0] != replies[1] {
		t.Errorf("first %s, then %s", replies[0], replies[1])
	}
}

// A lock that is handed over to who has waited so long that it must confirm the offer.
func TestOfferUnderOOM(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t).Client()
	l := acquire(t, New(rdb), "key").(*redisLock)
	l.row = row{1, time.Now().Add(time.Hour).UnixMicro()} // no turn of others
	w := waitFor(t, New(rdb), "key")
	inLine(t, rdb, "key", 1)
	begin := time.Now()
	redistest.Eventually(t, func() bool { return time.Since(begin) > maxOffer/4+50*time.Millisecond }, "the offer is to be confirmed")
	do(t, rdb, "CONFIG", "SET", "maxmemory", "1")
	release(t, l)
	release(t, (<-w).must(t))
}

// A reservation doesn't run ahead of the server's clock: the tokens after a FLUSHALL begin at it.
func TestReservationKeepsToTheClock(t *testing.T) {
	t.Parallel()
	rdb, key := redistest.Start(t).Client(), redistest.Name(t)
	held := acquire(t, New(rdb), key).(*redisLock)
	channel := redistest.Name(t)
	sub := rdb.Subscribe(t.Context(), channel) // stands in line, and never answers
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Close() }()
	do(t, rdb, "ZADD", waitKey(fence(t, key)), 1, channel+" somebody")
	held.row = row{3, time.Now().Add(-time.Second).UnixMicro()} // others' turn, and the longest pause
	// A grant in the same moment would be one ahead, since tokens rise; the embedded clock stands still for 1 ms.
	redistest.Eventually(t, func() bool { return rdb.Time(t.Context()).Val().UnixMicro() > held.Token() }, "the clock stands")
	release(t, held)
	record := rdb.Get(t.Context(), fence(t, key)).Val()
	var token int64
	if n, err := fmt.Sscan(record, &token); n != 1 || err != nil || !strings.HasSuffix(record, " *") {
		t.Fatalf("the record is %q", record)
	}
	if now := rdb.Time(t.Context()).Val().UnixMicro(); token > now {
		t.Errorf("it is %d µs ahead", token-now)
	}
	if _, err := New(rdb).TryAcquire(t.Context(), key); !errors.Is(err, ErrHeld) {
		t.Errorf("another got it: %v", err)
	}
}
