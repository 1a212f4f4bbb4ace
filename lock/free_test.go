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
	"github.com/signalbox-go/signalbox/lock/internal/spec"
)

// Who waits in another process is told by a holder that did not wait itself.
func TestFirstReleaseTells(t *testing.T) {
	t.Parallel()
	s, key := redistest.Start(t), redistest.Name(t)
	held := acquire(t, newRedis(s.Client()), key).(*redisLock)
	held.Grant(held.Token() + time.Hour.Microseconds()) // which its row counts from: no turn of others falls into this test
	do(t, s.Client(), "SET", fence(t, key), fmt.Sprint(held.Token(), " ", held.value, " me"))
	next := waitFor(t, newRedis(s.Client()), key)
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
	locker = newRedis(freeing{comes: func() { w = locker.join(p.lock, false); <-w.first }})
	if err := locker.give(t.Context(), &handover{place: p, value: "value", ttl: time.Minute}); err != nil {
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
		l, err := newRedis(rdb).TryAcquire(t.Context(), key)
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
	l := acquire(t, newRedis(rdb), "held")
	do(t, rdb, "CONFIG", "SET", "maxmemory", "1")
	if _, err := newRedis(rdb).TryAcquire(t.Context(), "held"); !errors.Is(err, ErrHeld) {
		t.Errorf("TryAcquire: %v", err)
	}
	_, err := patiently(t, nil, saysHeld, func(ctx context.Context) error {
		_, err := newRedis(rdb).Acquire(ctx, "held")
		return err
	})
	if !errors.Is(err, ErrHeld) {
		t.Errorf("Acquire: %v", err)
	}
	if _, err := newRedis(rdb).TryAcquire(t.Context(), "free"); err == nil || errors.Is(err, ErrHeld) {
		t.Errorf("a free lock: %v", err)
	}
	release(t, l)
}

// A grant that is repeated, since its reply was lost, is the same grant.
func TestRepeatUnderOOM(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t).Client()
	keys := []string{"key", fence(t, "key"), spec.WaitKey(fence(t, "key"))}
	var replies [2]int64
	for i := range replies {
		reply, err := acquireScript.Run(t.Context(), rdb, keys, "value", 60_000, "me", "", 0).Result()
		if err != nil {
			t.Fatal(err)
		}
		g, err := parseGrant(reply, 1)
		if err != nil {
			t.Fatal(err)
		}
		replies[i] = g.token
		do(t, rdb, "CONFIG", "SET", "maxmemory", "1")
	}
	if replies[0] != replies[1] {
		t.Errorf("first %d, then %d", replies[0], replies[1])
	}
}

// A lock that is handed over to who has waited so long that it must confirm the offer.
func TestOfferUnderOOM(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t).Client()
	l := acquire(t, newRedis(rdb), "key").(*redisLock)
	l.row = row{1, time.Now().Add(time.Hour).UnixMicro()} // no turn of others
	w := waitFor(t, newRedis(rdb), "key")
	inLine(t, rdb, "key", 1)
	begin := time.Now()
	redistest.Eventually(t, func() bool { return time.Since(begin) > maxOffer/4+50*time.Millisecond }, "the offer is to be confirmed")
	do(t, rdb, "CONFIG", "SET", "maxmemory", "1")
	release(t, l)
	release(t, (<-w).must(t))
}

// A release hands the lock to the next waiter of the process on a Redis that is out of memory too, and the grant is whole.
func TestHandOverUnderOOM(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t).Client()
	locker := newRedis(rdb)
	l := acquire(t, locker, "key").(*redisLock)
	l.row = row{1, time.Now().Add(time.Hour).UnixMicro()} // no turn of others
	w := waitFor(t, locker, "key")
	inLocalLine(t, locker, "key", 1)
	do(t, rdb, "CONFIG", "SET", "maxmemory", "1")
	release(t, l)
	next := (<-w).must(t)
	if next.row.n != 2 || next.Token() <= l.Token() {
		t.Errorf("the next is number %d of its row, with token %d after %d", next.row.n, next.Token(), l.Token())
	}
	if record, want := rdb.Get(t.Context(), fence(t, "key")).Val(), fmt.Sprintf("%d %s ", next.Token(), next.value); !strings.HasPrefix(record, want) {
		t.Errorf("the record is %q, and not %q", record, want)
	}
	release(t, next)
}

// A reservation doesn't run ahead of the server's clock: the tokens after a FLUSHALL begin at it.
func TestReservationKeepsToTheClock(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	whileReserved(t, func(inTime func() bool) {
		key := redistest.Name(t)
		held := acquire(t, newRedis(rdb), key).(*redisLock)
		channel := redistest.Name(t)
		sub := rdb.Subscribe(t.Context(), channel) // stands in line, and never answers
		if _, err := sub.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sub.Close() }()
		do(t, rdb, "ZADD", spec.WaitKey(fence(t, key)), 1, channel+" somebody")
		held.row = row{3, time.Now().Add(-time.Second).UnixMicro()} // others' turn, and the longest pause
		// A grant in the same moment would be one ahead, since tokens rise; the embedded clock stands still for 1 ms.
		redistest.Eventually(t, func() bool { return rdb.Time(t.Context()).Val().UnixMicro() > held.Token() }, "the clock stands")
		_ = inTime()
		release(t, held)
		record := rdb.Get(t.Context(), fence(t, key)).Val()
		var token int64
		if n, err := fmt.Sscan(record, &token); n != 1 || err != nil || !strings.HasSuffix(record, " *") {
			t.Fatalf("the record is %q", record)
		}
		if now := rdb.Time(t.Context()).Val().UnixMicro(); token > now {
			t.Errorf("it is %d µs ahead", token-now)
		}
		if _, err := newRedis(rdb).TryAcquire(t.Context(), key); inTime() && !errors.Is(err, ErrHeld) {
			t.Errorf("another got it: %v", err)
		}
	})
}
