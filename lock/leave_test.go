package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock/internal/spec"
)

// released answers every script as a release that nobody waited for, and notes of which values.
func released(values *[]string) fakeRedis {
	return fakeRedis{run: func(_ *redis.Script, args []any) (any, error) {
		*values = append(*values, args[0].(string))
		return []any{int64(1), int64(0)}, nil
	}}
}

func placeOf(t *testing.T, key string) place {
	t.Helper()
	places, err := placesOf([]string{key})
	if err != nil {
		t.Fatal(err)
	}
	return places[0]
}

// Who is told of its turn again and again, and hears nothing any more, blocks nobody: there is
// a mutex of all lines around the telling. What it doesn't get is passed on.
func TestTellingBlocksNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var passedOn []string
		locker := newRedis(released(&passedOn))
		p := placeOf(t, "key")
		w := locker.join(p.lock, false) // and never receives
		for _, value := range []string{"a", "", "b", "", "c"} {
			locker.tell(p, turn{value: value, row: row{n: 1}})
			locker.lookAll()
			locker.caller.Wait()
		}
		other := locker.join("other", false)
		if first := <-other.first; first || len(other.turns) != 0 {
			t.Errorf("the line of another key: the holder tells: %v, %d turns", first, len(other.turns))
		}
		locker.leave(placeOf(t, "other"), other, false)
		locker.leave(p, w, false)
		locker.caller.Wait()
		if !slices.Equal(passedOn, []string{"a", "b", "c"}) {
			t.Errorf("what it didn't use and was passed on: %q", passedOn)
		}
	})
}

// An offer or a reservation that gets to a process whose waiter has left goes to the next
// process in line, not to nobody until its time is over.
func TestOfferToOneWhoLeft(t *testing.T) {
	t.Parallel()
	future := time.Now().Add(time.Hour).UnixMicro() // no turn of others falls into this test
	for name, c := range map[string]struct {
		row  row
		want int // in the row when the next gets it: who looks begins a row
	}{
		"offer":       {row{1, future}, 3},
		"reservation": {row{15, future}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, key := redistest.Start(t), redistest.Name(t)
			rdb := s.Client()
			left := newRedis(s.Client())
			channel := listening(t, left)
			held := acquire(t, newRedis(rdb), key).(*redisLock)
			held.row = c.row
			do(t, rdb, "ZADD", spec.WaitKey(fence(t, key)), 1, channel+" left")
			next := waitFor(t, newRedis(s.Client()), key)
			inLine(t, rdb, key, 2)
			release(t, held)
			l := (<-next).must(t)
			if l.row.n != c.want {
				t.Errorf("it was not passed on, but found by a look: %+v", l.row)
			}
			if n := left.missed.Load(); n != 1 {
				t.Errorf("%d offers to the one who left", n)
			}
			release(t, l)
		})
	}
}

// listening has a locker listen until the test ends, and returns its channel.
func listening(t *testing.T, r *Redis) string {
	t.Helper()
	r.bell.enter()
	t.Cleanup(r.bell.leave)
	redistest.Eventually(t, func() bool { return r.bell.listening() != "" }, "it listens")
	return r.bell.listening()
}

// The same where the next in line is of the process whose waiter has left.
func TestOfferToOneWhoLeavesOthers(t *testing.T) {
	t.Parallel()
	s, key := redistest.Start(t), redistest.Name(t)
	rdb, p := s.Client(), placeOf(t, key)
	locker := newRedis(s.Client())
	channel := listening(t, locker)
	held := acquire(t, newRedis(rdb), key).(*redisLock)
	held.row = row{1, time.Now().Add(time.Hour).UnixMicro()}
	do(t, rdb, "ZADD", p.line, 1, channel+" ours")
	w := locker.join(key, false)
	next := waitFor(t, locker, key)
	inLocalLine(t, locker, key, 2)
	<-w.turns // the one who came had it look
	release(t, held)
	redistest.Eventually(t, func() bool { return len(w.turns) == 1 }, "the offer is there")
	locker.leave(p, w, false)
	l := (<-next).must(t)
	if l.row.n != 3 {
		t.Errorf("it was not passed on, but found by a look: %+v", l.row)
	}
	release(t, l)
}

// An offer that comes after a process was put in line in Redis, and before its waiter stands
// in the line here, is passed on, and the waiter stands in line again at once: nobody
// would tell it of the next.
func TestOfferBeforeItStandsInLine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var locker *Redis
		asked, passedOn := 0, false
		locker = newRedis(fakeRedis{run: func(script *redis.Script, args []any) (any, error) {
			if script != acquireScript {
				passedOn = passedOn || args[0] == "offered"
				return []any{int64(1), int64(0)}, nil
			}
			if asked++; asked > 1 {
				return []any{int64(1), "7"}, nil
			}
			const at = 5
			locker.heard(fmt.Sprintf("offered 2 0 0 %d 6 1000 key", at))
			synctest.Wait() // all that comes of it has happened
			return []any{int64(0), int64(1), int64(-1), int64(1), int64(at), int64(0)}, nil
		}})
		locker.bell.channel = "here" // it listens, and so counts on being told
		start := time.Now()
		l := acquire(t, locker, "key")
		if took := time.Since(start); took != 0 {
			t.Errorf("it relied on a place in line that it had no more, for %v", took)
		}
		if !passedOn {
			t.Error("the offer was not passed on")
		}
		release(t, l)
	})
}

// Of those who wait in a process only the first looks. When it leaves, the next does.
func TestLookIsHandedOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var looks []time.Time
		free := time.Now().Add(10 * time.Second)
		locker := newRedis(heldUntil(free, func() int64 { return -1 }, &looks))
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := locker.Acquire(ctx, "key")
			left <- err
		}()
		synctest.Wait()
		next := waitFor(t, locker, "key")
		synctest.Wait()
		leave()
		if err := <-left; !errors.Is(err, ErrHeld) || !errors.Is(err, context.Canceled) {
			t.Errorf("who left: %v", err)
		}
		l := (<-next).must(t)
		if late := time.Since(free); late > 260*time.Millisecond {
			t.Errorf("the next got in %v after the lock was free", late)
		}
		release(t, l)
	})
}

// Who leaves when it has just been told to look leaves that to the next, who need not wait for
// the time of its own look.
func TestLookOfOneWhoLeaves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var looks []time.Time
		locker := newRedis(heldUntil(time.Now(), nil, &looks))
		p := placeOf(t, "key")
		w := locker.join(p.lock, false)
		next := waitFor(t, locker, "key")
		synctest.Wait()
		start := time.Now()
		locker.tell(p, turn{}) // it is free
		locker.leave(p, w, false)
		l := (<-next).must(t)
		if took := time.Since(start); took != 0 {
			t.Errorf("the next found out after %v", took)
		}
		release(t, l)
	})
}

// A waiter that gives up takes its process out of the line in Redis. Another that comes at that moment relies on the
// same place: it looks at once, and so the process is in line again.
func TestLeaverTakesNobodysPlace(t *testing.T) {
	for name, answered := range map[string]bool{"it waits already": true, "its call is under way": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				q := &queueing{left: make(chan struct{}), reply: make(chan struct{})}
				locker := newRedis(q)
				locker.bell.channel = "here" // it listens, and so counts on being told
				ctx, leave := context.WithCancel(t.Context())
				gaveUp := make(chan error, 1)
				go func() {
					_, err := locker.Acquire(ctx, "key")
					gaveUp <- err
				}()
				synctest.Wait()
				leave()
				if err := <-gaveUp; !errors.Is(err, ErrHeld) { // what it sent to Redis is still on its way
					t.Fatal(err)
				}
				q.slow.Store(!answered)
				next := waitFor(t, locker, "key")
				synctest.Wait()
				q.slow.Store(false)
				close(q.left)
				synctest.Wait()
				close(q.reply)
				synctest.Wait()
				if !q.inLine.Load() {
					t.Error("it waits to be told, and nobody will")
				}
				q.free.Store(true)
				release(t, (<-next).must(t))
			})
		})
	}
}

// queueing is a Redis whose lock is held until free is set.
type queueing struct {
	fakeRedis
	inLine, free, slow atomic.Bool
	left               chan struct{} // leave.lua is run when it is closed
	reply              chan struct{} // the replies to acquires that came while slow was set are sent when it is closed
}

func (q *queueing) EvalSha(_ context.Context, sha string, _ []string, args ...any) *redis.Cmd {
	switch sha {
	case acquireScript.Hash():
		if q.free.Load() {
			return redis.NewCmdResult([]any{int64(1), "7"}, nil)
		}
		q.inLine.Store(args[3] != "")
		if q.slow.Load() {
			<-q.reply
		}
		return redis.NewCmdResult([]any{int64(0), int64(1), int64(-1), int64(1), int64(5), int64(5)}, nil)
	case leaveScript.Hash():
		<-q.left
		q.inLine.Store(false)
		return redis.NewCmdResult(int64(1), nil)
	case releaseScript.Hash():
		return redis.NewCmdResult([]any{int64(1), int64(0)}, nil)
	}
	return redis.NewCmdResult("", nil)
}

// A waiter that gave up is told nothing, and keeps nobody out: it has left the line in Redis when it returns.
func TestNoPhantomAfterAWaiterGaveUp(t *testing.T) {
	t.Parallel()
	s, key := redistest.Start(t), redistest.Name(t)
	held := acquire(t, newRedis(s.Client()), key).(*redisLock)
	held.row = row{15, time.Now().Add(time.Hour).UnixMicro()} // the next is the end of the row: it would be reserved
	gaveUp := newRedis(s.Client())
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := gaveUp.Acquire(ctx, key)
		left <- err
	}()
	inLine(t, s.Client(), key, 1)
	leave()
	if err := <-left; !errors.Is(err, ErrHeld) {
		t.Fatal(err)
	}
	gaveUp.caller.Wait()
	if n := s.Client().ZCard(t.Context(), placeOf(t, key).line).Val(); n != 0 {
		t.Errorf("%d in line", n)
	}
	release(t, held)
	l, err := newRedis(s.Client()).TryAcquire(t.Context(), key)
	if err != nil {
		t.Fatalf("nobody holds it, and nobody waits: %v", err)
	}
	release(t, l)
}

// A holder that had waited stands in line no more: its release passes the lock on to nobody.
func TestNoPhantomAfterAHolderThatWaited(t *testing.T) {
	t.Parallel()
	s, key := redistest.Start(t), redistest.Name(t)
	rdb := s.Client()
	for name, spoil := range map[string]func(p place, channel string){
		"its place was given up":   func(place, string) {},
		"its place is still there": func(p place, channel string) { do(t, rdb, "ZADD", p.line, 1, channel+" me") },
	} {
		locker, p := newRedis(s.Client()), placeOf(t, key)
		channel := listening(t, locker)
		rdb.Set(t.Context(), key, "theirs", 0)
		w := waitFor(t, locker, key)
		inLine(t, rdb, key, 1)
		rdb.Del(t.Context(), key)
		l := (<-w).must(t)
		if n := rdb.ZCard(t.Context(), p.line).Val(); n != 0 {
			t.Errorf("%s: %d in line", name, n)
		}
		spoil(p, channel)
		release(t, l)
		other, err := newRedis(s.Client()).TryAcquire(t.Context(), key)
		if err != nil {
			t.Fatalf("%s: nobody holds it, and nobody waits: %v", name, err)
		}
		release(t, other)
		if n := locker.missed.Load(); n != 0 {
			t.Errorf("%s: it told itself of its own release", name)
		}
	}
}

// A reservation that is passed on to nobody is none any more.
func TestNoPhantomOfAReservation(t *testing.T) {
	t.Parallel()
	s, key := redistest.Start(t), redistest.Name(t)
	rdb, p := s.Client(), placeOf(t, key)
	locker := newRedis(s.Client())
	record := fmt.Sprintf("%d reserved *", rdb.Time(t.Context()).Val().UnixMicro())
	do(t, rdb, "SET", p.fence, record)
	if err := locker.give(t.Context(), &handover{place: p, value: "reserved", row: row{n: 1}, ttl: time.Minute}); err != nil {
		t.Fatal(err)
	}
	l, err := newRedis(rdb).TryAcquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	release(t, l)
}

// Any number of waiters that are gone is passed by.
func TestManyDeadInLine(t *testing.T) {
	t.Parallel()
	s, key := redistest.Start(t), redistest.Name(t)
	rdb, p := s.Client(), placeOf(t, key)
	held := acquire(t, newRedis(s.Client()), key).(*redisLock)
	held.row = row{1, time.Now().Add(time.Hour).UnixMicro()}
	for i := range 200 {
		rdb.ZAdd(t.Context(), p.line, redis.Z{Score: 1, Member: fmt.Sprint("dead", i, " gone")})
	}
	w := waitFor(t, newRedis(s.Client()), key)
	inLine(t, rdb, key, 201)
	release(t, held)
	l := (<-w).must(t)
	if l.row.n != 2 {
		t.Errorf("it was not told, but found by a look: %+v", l.row)
	}
	release(t, l)
}

// A key may hold any bytes.
func TestHandOverOfAnyKey(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	key := redistest.Name(t) + "\x00\n\xff %s"
	held := acquire(t, newRedis(s.Client()), key).(*redisLock)
	held.row = row{1, time.Now().Add(time.Hour).UnixMicro()}
	w := waitFor(t, newRedis(s.Client()), key)
	inLine(t, s.Client(), key, 1)
	release(t, held)
	l := (<-w).must(t)
	if l.row.n != 2 {
		t.Errorf("it was not told, but found by a look: %+v", l.row)
	}
	release(t, l)
}
