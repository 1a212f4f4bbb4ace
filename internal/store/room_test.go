package store

import (
	"errors"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/settings"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// tried enqueues in one call.
func (r *rig) tried(items ...Item) Fates {
	r.t.Helper()
	r.producer.Next()
	fates, err := r.Enqueue(bg, r.producer, items)
	r.must(err)
	return fates
}

func (r *rig) items(ids ...string) []Item {
	r.t.Helper()
	items := make([]Item, len(ids))
	for i, id := range ids {
		items[i] = r.item(id, When{}, signalbox.PriorityNormal)
	}
	return items
}

func (r *rig) maximum(n int) {
	r.t.Helper()
	_, err := r.Settings().SetMaxLength(bg, n)
	r.must(err)
}

// A queue with a maximum takes the first jobs of a call that fit. The others change nothing.
func TestMaxLength(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.maximum(3)
	later := r.item("later", When{After: time.Hour}, 0)
	f := r.tried(append(r.items("a"), later, r.grouped("g", "sg", When{}, 0), r.items("b")[0], r.items("a")[0], r.items("b")[0])...)
	same(t, "the first that fit, in order", f.list, "111n0n")
	same(t, "the length", f.Full(), Length{3, 3})
	r.check()
	r.open()
	d := r.claim(2)
	same(t, "one that runs counts", r.tried(r.items("c")...).list, "n")
	r.settled(settlement(d[0], Retry))
	same(t, "one that is retried counts", r.tried(r.items("c")...).list, "n")
	s := settlement(d[1], Dead)
	var err error
	s.Record, err = d[1].Failed(2, "boom")
	r.must(err)
	r.settled(s)
	same(t, "one that is dead doesn't, and one in its place does", r.tried(r.items("c", d[1].Job.ID)...).list, "1n")
	same(t, "the dead one", r.states()[d[1].Job.ID], "dead")
	same(t, "again by an operator", r.did(RunJobs(time.Time{}), d[1].Job.ID).Acted, Done)
	same(t, "above the maximum", r.tried(r.items("e")...).Full(), Length{4, 3})
	r.maximum(0)
	same(t, "without a maximum", r.tried(r.items("e")...).list, "1")
	r.check()
	r.noFindings()
}

// The answer of a call that refused jobs is kept: a repeated call, and a copy of it that is late, get the same one.
func TestFullAgain(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.maximum(2)
	first := r.tried(r.items("a", "b", "c")...)
	r.settled(settlement(r.claim(1)[0], Completed))
	before := r.dump()
	again, err := r.Enqueue(bg, r.producer, r.items("a", "b", "c"))
	r.must(err)
	same(t, "the call made again", again.list, first.list)
	same(t, "its length", again.Full(), first.Full())
	r.unchanged("the call made again", before)
	r.producer.Next()
	_, err = r.Enqueue(bg, r.producer, r.items("b", "c"))
	r.must(err)
	full := r.tried(r.items("d")...)
	r.settled(settlement(r.claim(1)[0], Completed))
	before = r.dump()
	late, err := r.Enqueue(bg, r.producer, r.items("d"))
	r.must(err)
	same(t, "a call that put nothing in, made again when there is room", late.list, full.list)
	r.unchanged("it", before)
}

// What needs no room is answered in a full queue as ever.
func TestFullNeedsNoRoom(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	unique := func(id string, scope byte, replace bool) Item {
		it := r.item(id, When{After: time.Hour}, 0)
		it.Unique(Unique{Scope: scope, Key: UniqueKey("k", "key", false)})
		if replace {
			it.Update(0)
		}
		return it
	}
	r.tried(unique("a", wire.UntilStarted, false))
	r.maximum(1)
	same(t, "a job that is there", r.tried(r.item("a", When{}, 0)).list, "s")
	same(t, "a unique key that another job has", r.tried(unique("b", wire.UntilStarted, false)).list, "u")
	same(t, "one that updates", r.tried(unique("b", wire.UntilStarted, true)).list, "U")
	mixed := r.tried(unique("b", wire.UntilStarted, false), r.items("c")[0])
	same(t, "mixed", mixed.list, "un")
	if mixed.Len() != 2 || len(mixed.Met()) != 1 || mixed.Met()[0].ID != "a" || mixed.Full() != (Length{1, 1}) {
		t.Errorf("what it met: %+v, %+v", mixed.Met(), mixed.Full())
	}
	other := r.item("d", When{}, 0)
	other.Unique(Unique{Scope: wire.UntilEnded, Key: UniqueKey("k", "other", false)})
	r.maximum(2)
	same(t, "the last place, and a free unique key", r.tried(r.items("c")[0], other).list, "1n")
	if n := r.rdb.HLen(bg, r.keys.Unique).Val(); n != 1 {
		t.Errorf("%d unique keys: a job that was refused has one", n)
	}
	r.check()
	r.noFindings()
}

// A throttled job that finds no room changes nothing of the window that it meets.
func TestFullThrottled(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	same(t, "the first", r.fates(r.throttled("a")), "1")
	r.settled(settlement(r.one(), Completed))
	end := r.windowEnd()
	r.maximum(1)
	same(t, "one without room, behind another one", r.tried(r.unique("b", "y", wire.UntilEnded), r.throttled("c")).list, "1n")
	same(t, "the window's end", r.windowEnd(), end)
	r.check()
	r.maximum(2)
	same(t, "then", r.fates(r.throttled("c")), "1")
	same(t, "its time", r.stored("c").ScheduledAt, end)
	r.check()
}

// A tick's job goes in above the maximum. Otherwise the tick would be lost, or enqueued late.
func TestTicksOfAFullQueue(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.tried(r.items("a")...)
	r.maximum(1)
	now := r.rdb.Time(bg).Val()
	f := r.tried(r.item("tick", When{At: now, Entry: "e"}, 0), r.items("b")[0])
	same(t, "a tick and a job", f.list, "1n")
	same(t, "the length", f.Full(), Length{2, 1})
	r.check()
}

// roomy subscribes to the queue's channel. It returns how many messages have come since.
func (r *rig) roomy(srv *redistest.Server) func() int {
	r.t.Helper()
	sub := srv.Client().Subscribe(bg, r.Channels().Room())
	r.t.Cleanup(func() { _ = sub.Close() })
	_, err := sub.Receive(bg)
	r.must(err)
	messages := sub.Channel()
	return func() (n int) {
		r.must(r.rdb.Publish(bg, r.Channels().Room(), "end").Err())
		for m := range messages {
			if m.Payload == "end" {
				break
			}
			same(r.t, "the message", kindOf(m.Payload), Room)
			n++
		}
		return n
	}
}

// Each script that ends jobs or deletes them says that there is room, once, and only if there was none.
func TestRoomIsTold(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := onShared(t)
	told := r.roomy(srv)
	r.open()
	fill := func() {
		t.Helper()
		for i := 0; ; i++ {
			if f := r.tried(r.items(NewID())...); !f.Of(0).In() {
				break
			}
		}
		same(t, "told while it fills", told(), 0)
	}
	r.tried(r.items("x", "y")...)
	same(t, "told without a maximum", told(), 0)
	r.maximum(3)
	same(t, "told of a new maximum", told(), 1)
	r.maximum(3)
	same(t, "told of the same one", told(), 0)
	d := r.claim(2)
	r.settled(settlement(d[0], Completed))
	same(t, "told by a queue that was not full", told(), 0)
	fill()
	r.settled(settlement(d[1], Retry))
	same(t, "told by a retry", told(), 0)
	d = r.claim(2)
	r.settled(settlement(d[0], Completed), settlement(d[1], Completed))
	same(t, "told by jobs that completed", told(), 1)
	fill()
	r.settled(settlement(r.claim(1)[0], Dead))
	same(t, "told by one that died", told(), 1)
	fill()
	id := r.waitingID()
	same(t, "cancelled", r.did(CancelJobs(""), id).Acted, Done)
	same(t, "told by one that was cancelled", told(), 1)
	same(t, "run again", r.did(RunJobs(time.Time{}), id).Acted, Done)
	same(t, "deleted", r.did(DeleteJobs(), id).Acted, Done)
	same(t, "told by one that was deleted", told(), 1)
	r.expiring(time.Microsecond, "", When{}, "late")
	same(t, "expired", late(r.call(ClaimRequest{Want: 1}))[0], "late")
	same(t, "told by one that expired", told(), 1)
	r.maximum(1000)
	same(t, "told of a larger maximum", told(), 1)
	r.check()
}

// noFindings checks that the doctor finds nothing.
func (r *rig) noFindings() {
	r.t.Helper()
	if found, _ := r.findings(false); len(found) > 0 {
		r.t.Errorf("the doctor finds %v", found)
	}
}

// waitingID returns the ID of a ready job.
func (r *rig) waitingID() string {
	r.t.Helper()
	id, err := r.rdb.LIndex(bg, r.keys.ReadyNormal, 0).Result()
	r.must(err)
	return id
}

// A reclaim says so, too: of a job that was cancelled while it ran, and of one that crashed too often.
func TestRoomIsToldByAReclaim(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := onShared(t)
	told := r.roomy(srv)
	r.open()
	r.put("a")
	r.maximum(1)
	told()
	r.claim(1)
	r.cancel("a")
	same(t, "told by a mark", told(), 0)
	r.crash()
	same(t, "told by the reclaim of a cancelled job", told(), 1)
	same(t, "room", r.tried(r.items("b")...).list, "1")
	r.claim(1)
	r.crash()
	same(t, "told by a job that is taken back", told(), 0)
	same(t, "its place", r.tried(r.items("c")...).list, "n")
}

// What an operator sets stays, also none.
func TestMaxLengthSetting(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	setting := func() int {
		s, err := r.Settings().Read(bg)
		r.must(err)
		return s.MaxLength
	}
	r.tells(settings.Wanted{})
	same(t, "layout of a queue without", r.rdb.HLen(bg, r.keys.Settings).Val(), int64(0))
	r.tells(settings.Wanted{MaxLength: 5})
	same(t, "told", setting(), 5)
	changed, err := r.Settings().SetMaxLength(bg, 7)
	r.must(err)
	same(t, "changed", changed, true)
	same(t, "set", setting(), 7)
	r.noFindings()
	r.maximum(0)
	r.tells(settings.Wanted{MaxLength: 5})
	same(t, "told over none that was set", setting(), 0)
	r.noFindings()
	for _, text := range []string{"0", "-1", "many", "1e3"} {
		r.must(r.rdb.HSet(bg, r.keys.Settings, "max_length", text).Err())
		same(t, "for Go: "+text, setting(), 0)
		same(t, "for the scripts: "+text, r.tried(r.items(NewID())...).list, "1")
	}
	for _, n := range []int{-1, settings.MaxLength + 1} {
		if err := settings.ValidateMaxLength(n); !errors.Is(err, signalbox.ErrInvalid) {
			t.Errorf("%d: %v", n, err)
		}
	}
	if err := errors.Join(settings.ValidateMaxLength(0), settings.ValidateMaxLength(settings.MaxLength)); err != nil {
		t.Error(err)
	}
}

// A copy of a dead job that the other queue refuses stays noted, and is made when there is room.
func TestCopiesIntoAFullQueue(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	to := r.copyTo()
	to.put("x")
	to.maximum(1)
	r.into("a", signalbox.StateDead)
	c := r.Transfer().NewCopier()
	noted, _, err := c.Noted(bg, 0)
	r.must(err)
	_, err = c.Copy(bg, noted)
	var refused *CopyError
	if !errors.As(err, &refused) || !errors.Is(err, signalbox.ErrQueueFull) {
		t.Errorf("the copy: %v", err)
	}
	to.maximum(2)
	same(t, "copies when there is room", r.copyAll(c).Jobs, 1)
}

// A move isn't refused by a full queue, and makes room in the one that the job leaves.
func TestMovesMakeRoom(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := onShared(t)
	to := r.other()
	r.put("a")
	to.put("b")
	r.maximum(1)
	to.maximum(1)
	told := r.roomy(srv)
	same(t, "moved", r.moved(to, "a").Acted, Done)
	same(t, "told", told(), 1)
	same(t, "room", r.tried(r.items("c")...).list, "1")
	same(t, "above the maximum", to.tried(to.items("c")...).Full(), Length{2, 1})
	to.check()
	r.check()
}
