package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
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
		locker := New(released(&passedOn))
		p := placeOf(t, "key")
		w := locker.join(p.lock) // and never receives
		for _, value := range []string{"a", "", "b", "", "c"} {
			locker.tell(p, turn{value: value, row: row{n: 1}})
			locker.lookAll()
			locker.caller.done.Wait()
		}
		other := locker.join("other")
		if first := <-other.first; first || len(other.turns) != 0 {
			t.Errorf("the line of another key: the holder tells: %v, %d turns", first, len(other.turns))
		}
		locker.leave(placeOf(t, "other"), other, false)
		locker.leave(p, w, false)
		locker.caller.done.Wait()
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
			left := New(s.Client())
			channel := listening(t, left)
			held := acquire(t, New(rdb), key).(*redisLock)
			held.row = c.row
			do(t, rdb, "ZADD", waitKey(fence(t, key)), 1, channel+" left")
			next := waitFor(t, New(s.Client()), key)
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
	locker := New(s.Client())
	channel := listening(t, locker)
	held := acquire(t, New(rdb), key).(*redisLock)
	held.row = row{1, time.Now().Add(time.Hour).UnixMicro()}
	do(t, rdb, "ZADD", p.line, 1, channel+" ours")
	w := locker.join(key)
	next := waitFor(t, locker, key)
	inLocalLine(t, locker, key, 2)
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
		locker = New(fakeRedis{run: func(script *redis.Script, args []any) (any, error) {
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
			return []any{int64(0), int64(1), int64(-1), int64(1), int64(at)}, nil
		}})
		locker.bell.ready = true // it listens, and so counts on being told
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
		locker := New(heldUntil(free, func() int64 { return -1 }, &looks))
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
		locker := New(heldUntil(time.Now(), nil, &looks))
		p := placeOf(t, "key")
		w := locker.join(p.lock)
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
