package store

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/check"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/wire"
)

var uniqueTests = []storeTest{
	{"UniqueMeets", testUniqueMeets},
	{"UniqueEnds", testUniqueEnds},
	{"UniqueLivesOn", testUniqueLivesOn},
	{"UniqueWindow", testUniqueWindow},
	{"UniqueWindowsAreSwept", testUniqueWindowsSwept},
	{"UniqueAgain", testUniqueAgain},
	{"UniqueLostReply", testUniqueLostReply},
	{"UniqueOfTheGone", testUniqueOfTheGone},
	{"UniqueRunAgain", testUniqueRunAgain},
	{"UniqueMoves", testUniqueMoves},
	{"UniqueIsDeleted", testUniqueIsDeleted},
	{"UniqueAfterPlain", testUniqueAfterPlain},
	{"UniqueDoctor", testUniqueDoctor},
	{"UniqueMany", testUniqueMany},
	{"UniqueUpdates", testUniqueUpdates},
	{"UniqueUpdatesInVain", testUniqueUpdatesInVain},
	{"UniqueInAGroup", testUniqueInAGroup},
	{"UniqueThrottled", testUniqueThrottled},
	{"UniqueThrottledEnds", testUniqueThrottledEnds},
	{"UniqueThrottledInAWindow", testUniqueThrottledInAWindow},
	{"UniqueOnTheMove", testUniqueOnTheMove},
	{"UniqueMovesOnceStarted", testUniqueMovesOnceStarted},
	{"UniqueUpdateInAMove", testUniqueUpdateInAMove},
}

// unique returns a job with a unique key.
func (r *rig) unique(id, key string, scope byte) Item {
	r.t.Helper()
	it := r.item(id, When{}, signalbox.PriorityNormal)
	it.Unique(Unique{Key: wire.UniqueKey("k", key, false), Scope: scope, Window: time.Hour})
	return it
}

// meets enqueues a job with the key, which must meet another one, and returns that.
func (r *rig) meets(id, key string, scope byte) Met {
	r.t.Helper()
	r.producer.Next()
	fates, err := r.Enqueue(bg, r.producer, []Item{r.unique(id, key, scope)})
	r.must(err)
	if fates.list != "u" || len(fates.Met()) != 1 {
		r.t.Fatalf("%s has the fate %q and meets %v; want one job that has the key", id, fates.list, fates.Met())
	}
	return fates.Met()[0]
}

// holder returns the job that has the key, or "".
func (r *rig) holder(key string) string {
	r.t.Helper()
	value, err := r.rdb.HGet(bg, r.keys.Unique, wire.UniqueKey("k", key, false)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		r.t.Fatal(err)
	}
	_, id, _ := strings.Cut(value, " ")
	return id
}

func testUniqueMeets(t *testing.T, r *rig) {
	r.open()
	same(t, "the first", r.fates(r.unique("a", "x", wire.UntilEnded)), "1")
	same(t, "it is ready", r.meets("b", "x", wire.UntilEnded), Met{ID: "a", Live: true})
	same(t, "by another scope", r.meets("b", "x", wire.UntilStarted), Met{ID: "a", Live: true})
	same(t, "another key", r.fates(r.unique("c", "y", wire.UntilEnded)), "1")
	same(t, "the ID comes first", r.fates(r.unique("a", "x", wire.UntilEnded)), "0")

	later := r.unique("d", "z", wire.UntilEnded)
	later.when = When{After: time.Hour}.arg()
	same(t, "two of one key, and one of another", r.fates(later, r.unique("e", "z", wire.UntilStarted), r.unique("f", "w", wire.UntilStarted)), "1u1")
	same(t, "it is scheduled", r.meets("g", "z", wire.UntilEnded), Met{ID: "d", State: signalbox.StateScheduled})
	for _, id := range []string{"b", "e", "g"} {
		if r.rdb.HExists(bg, r.keys.Jobs, id).Val() {
			t.Errorf("job %s is there", id)
		}
	}

	// Another kind has keys of its own.
	other, err := NewItem(&signalbox.Job{ID: "other", Kind: "kk", Payload: []byte("1")}, When{})
	r.must(err)
	other.Unique(Unique{Key: wire.UniqueKey("kk", "x", false), Scope: wire.UntilEnded})
	same(t, "of another kind", r.fates(other), "1")
	equal(t, "claimed", ids(r.claim(10)), []string{"a", "c", "f", "other"})
}

// The step that ends a job frees its key, however the job ends.
func testUniqueEnds(t *testing.T, all *rig) {
	for name := range all.ends() {
		for _, scope := range []byte{wire.UntilEnded, wire.UntilStarted} {
			t.Run(fmt.Sprintf("%s, %c", name, scope), func(t *testing.T) {
				t.Parallel()
				r := newQueue(t, all.rdb)
				r.open()
				same(t, "the job", r.fates(r.unique("a", "x", scope)), "1")
				r.meets("b", "x", scope)
				r.ends()[name]("a")
				same(t, "the key has", r.holder("x"), "")
				r.check()
				same(t, "the next job", r.fates(r.unique("b", "x", scope)), "1")
			})
		}
	}
}

// A job that doesn't end keeps its key until the end, and has freed its key until the start for good.
func testUniqueLivesOn(t *testing.T, all *rig) {
	for name, again := range map[string]func(r *rig, d Delivery){
		"retry":  func(r *rig, d Delivery) { r.settled(settlement(d, Retry)) },
		"delay":  func(r *rig, d Delivery) { r.settled(settlement(d, Delay)) },
		"return": func(r *rig, d Delivery) { r.settled(settlement(d, Return)) },
		"crash":  func(r *rig, _ Delivery) { r.crash() },
		"refused": func(r *rig, d Delivery) {
			s := settlement(d, Completed)
			s.Token--
			equal(r.t, "refused", r.settle(s), []int{0})
			r.settled(settlement(d, Return))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newQueue(t, all.rdb)
			r.open()
			same(t, "the job", r.fates(r.unique("a", "x", wire.UntilEnded)), "1")
			again(r, r.one())
			same(t, "it meets", r.meets("b", "x", wire.UntilEnded).ID, "a")
			r.check()
			r.settled(settlement(r.one(), Completed))

			same(t, "the job", r.fates(r.unique("c", "x", wire.UntilStarted)), "1")
			got := r.one()
			same(t, "the second", r.fates(r.unique("d", "x", wire.UntilStarted)), "1")
			again(r, got)
			same(t, "it meets", r.meets("e", "x", wire.UntilEnded).ID, "d")
			for _, d := range r.claim(5) {
				r.settled(settlement(d, Completed))
			}
			same(t, "keys", r.rdb.Exists(bg, r.keys.Unique).Val(), 0)
		})
	}
}

// shut has the window of a key end.
func (r *rig) shut(key string) {
	r.t.Helper()
	field := wire.UniqueKey("k", key, false)
	now, err := r.Now(bg)
	r.must(err)
	over := now.UnixMicro() - 1
	r.must(r.rdb.HSet(bg, r.keys.Unique, field, strconv.FormatInt(over, 10)+" "+r.holder(key)).Err())
	r.must(r.rdb.ZAdd(bg, r.keys.Windows, redis.Z{Score: float64(over), Member: field}).Err())
}

func testUniqueWindow(t *testing.T, r *rig) {
	r.open()
	same(t, "the job", r.fates(r.unique("a", "x", wire.ForWindow)), "1")
	same(t, "it is ready", r.meets("b", "x", wire.UntilEnded), Met{ID: "a", Live: true})
	end := r.rdb.ZScore(bg, r.keys.Windows, wire.UniqueKey("k", "x", false)).Val()
	now, err := r.Now(bg)
	r.must(err)
	if left := end - float64(now.UnixMicro()); left > 3600e6 || left < 3500e6 {
		t.Errorf("the window is open for %v us", left)
	}
	r.settled(settlement(r.one(), Dead))
	same(t, "it is dead", r.meets("b", "x", wire.ForWindow), Met{ID: "a", State: signalbox.StateDead})
	same(t, "it is dead, and has the ID", r.meets("a", "x", wire.ForWindow), Met{ID: "a", State: signalbox.StateDead})
	same(t, "the dead job", r.states()["a"], "dead")
	r.did(RunJobs(time.Time{}), "a")
	r.settled(settlement(r.one(), Completed))
	same(t, "it is gone", r.meets("b", "x", wire.ForWindow), Met{ID: "a"})
	same(t, "it is gone, and has the ID", r.meets("a", "x", wire.ForWindow), Met{ID: "a"})
	r.shut("x")
	same(t, "after the window", r.fates(r.unique("b", "x", wire.UntilEnded)), "1")
	r.settled(settlement(r.one(), Completed))
	same(t, "keys", r.rdb.HLen(bg, r.keys.Unique).Val(), 0)

	// Windows that are over are dropped by enqueues with windows, and by sweeps.
	for _, key := range numbered("w", 20) {
		r.fates(r.unique(key, key, wire.ForWindow))
		r.shut(key)
	}
	same(t, "windows", r.rdb.ZCard(bg, r.keys.Windows).Val(), 1) // each call dropped the one before
	r.sweep()
	same(t, "windows after a sweep", r.rdb.Exists(bg, r.keys.Windows, r.keys.Unique).Val(), 0)
}

// A sweep says of windows, too, that it has dropped some, so that it is made again while there are more.
func testUniqueWindowsSwept(t *testing.T, r *rig) {
	const n = 1200
	now, err := r.Now(bg)
	r.must(err)
	_, err = r.rdb.Pipelined(bg, func(p redis.Pipeliner) error {
		for i, key := range numbered("w", n) {
			over := now.UnixMicro() - int64(n-i)
			p.HSet(bg, r.keys.Unique, wire.UniqueKey("k", key, false), strconv.FormatInt(over, 10)+" gone")
			p.ZAdd(bg, r.keys.Windows, redis.Z{Score: float64(over), Member: wire.UniqueKey("k", key, false)})
		}
		return nil
	})
	r.must(err)
	for _, want := range []int{500, 500, 200, 0} {
		same(t, "windows that a sweep has dropped", r.sweep(), want)
	}
	same(t, "windows", r.rdb.Exists(bg, r.keys.Windows, r.keys.Unique).Val(), 0)
}

func testUniqueAgain(t *testing.T, r *rig) {
	r.open()
	// A job that has ended is replaced by another of its ID, and not if its key is taken.
	r.fates(r.unique("a", "x", wire.UntilEnded))
	r.settled(settlement(r.one(), Dead))
	same(t, "with the key", r.fates(r.unique("a", "x", wire.UntilEnded)), "D")
	r.settled(settlement(r.one(), Dead))
	r.fates(r.unique("b", "x", wire.UntilEnded))
	same(t, "it meets", r.meets("a", "x", wire.UntilEnded).ID, "b")
	same(t, "the dead job", r.states()["a"], "dead")
	cautious := r.unique("a", "y", wire.UntilEnded)
	cautious.IfAbsent()
	same(t, "with care", r.fates(cautious), "d")
	same(t, "the other key has", r.holder("y"), "")
}

func testUniqueLostReply(t *testing.T, r *rig) {
	r.open()
	items := []Item{r.unique("a", "x", wire.UntilEnded), r.unique("b", "x", wire.UntilEnded), r.unique("c", "y", wire.UntilStarted), r.unique("d", "y", wire.ForWindow)}
	r.producer.Next()
	first, err := r.Enqueue(bg, r.producer, items)
	r.must(err)
	same(t, "fates", first.list, "1u1u")
	r.lane.Next()
	req := &ClaimRequest{Session: r.session, Want: 9}
	got, err := r.Sessions().Claim(bg, r.lane, req)
	r.must(err)
	equal(t, "claimed", ids(got.Deliveries), []string{"a", "c"})
	same(t, "the key has", r.holder("y"), "")
	r.producer2(r.unique("e", "y", wire.UntilStarted))

	second, err := r.Enqueue(bg, r.producer, items)
	r.must(err)
	same(t, "the same fates", second.list, first.list)
	equal(t, "the same jobs", second.Met(), first.Met())
	again, err := r.Sessions().Claim(bg, r.lane, req)
	r.must(err)
	equal(t, "claimed again", ids(again.Deliveries), ids(got.Deliveries))
	same(t, "the key has", r.holder("y"), "e")

	req = &ClaimRequest{Session: r.session, Settle: []Settlement{settlement(got.Deliveries[0], Completed), settlement(got.Deliveries[1], Completed)}}
	r.lane.Next()
	for range 2 {
		reply, err := r.Sessions().Claim(bg, r.lane, req)
		r.must(err)
		equal(t, "refused", reply.Refused, nil)
		if r.holder("x") == "" {
			r.producer2(r.unique("f", "x", wire.UntilEnded))
		}
	}
	same(t, "the key has", r.holder("x"), "f")
}

// producer2 enqueues a job by another lane.
func (r *rig) producer2(it Item) {
	r.t.Helper()
	lane := r.NewLane()
	lane.Next()
	fates, err := r.Enqueue(bg, lane, []Item{it})
	r.must(err)
	same(r.t, "fates", fates.list, "1")
}

// A key whose job is gone, or has ended, is free, whoever has removed it.
func testUniqueOfTheGone(t *testing.T, r *rig) {
	r.open()
	r.fates(r.unique("a", "x", wire.UntilEnded))
	r.must(r.rdb.HDel(bg, r.keys.Jobs, "a").Err())
	same(t, "the next job", r.fates(r.unique("b", "x", wire.UntilEnded)), "1")
	equal(t, "claimed", ids(r.claim(3)), []string{"b"})
	r.must(r.rdb.HDel(bg, r.keys.Jobs, "b").Err())
	r.crash()
	same(t, "the key has", r.holder("x"), "")

	r.fates(r.unique("c", "x", wire.UntilEnded))
	d := r.one()
	r.must(r.rdb.HDel(bg, r.keys.Jobs, "c").Err())
	r.settle(settlement(d, Retry))
	same(t, "the key has", r.holder("x"), "")

	r.put("dead")
	r.settled(settlement(r.one(), Dead))
	r.must(r.rdb.HSet(bg, r.keys.Unique, wire.UniqueKey("k", "x", false), "e dead").Err())
	same(t, "the next job", r.fates(r.unique("d", "x", wire.UntilEnded)), "1")
}

func testUniqueRunAgain(t *testing.T, r *rig) {
	r.open()
	for _, scope := range []byte{wire.UntilEnded, wire.UntilStarted} {
		for name, end := range map[string]func(id string){
			"dead":      func(string) { r.settled(settlement(r.one(), Dead)) },
			"cancelled": r.cancel,
		} {
			id := name + string(scope)
			r.fates(r.unique(id, "x", scope))
			end(id)
			r.fates(r.unique("other-"+id, "x", scope))
			before := r.dump()
			same(t, "while another has it", r.did(RunJobs(time.Time{}), id), Answer{KeyTaken, signalbox.State(name)})
			r.unchanged("the refused retry", before)
			r.cancel("other-" + id)
			same(t, "while nobody has it", r.did(RunJobs(time.Time{}), id).Acted, Done)
			same(t, "the key has", r.holder("x"), id)
			r.check()
			r.settled(settlement(r.one(), Completed))
		}
	}
	// A window isn't taken again, and keeps nobody from running again.
	r.fates(r.unique("w", "x", wire.ForWindow))
	r.settled(settlement(r.one(), Dead))
	same(t, "of a window", r.did(RunJobs(time.Time{}), "w").Acted, Done)
}

func testUniqueMoves(t *testing.T, r *rig) {
	r.open()
	to := r.other()
	for _, scope := range []byte{wire.UntilEnded, wire.UntilStarted} {
		id := "a" + string(scope)
		r.fates(r.unique(id, "x", scope))
		same(t, "moved", r.moved(to, id).Acted, Done)
		same(t, "the key there has", to.holder("x"), id)
		same(t, "the key here has", r.holder("x"), "")
		same(t, "it meets there", to.meets("b", "x", scope).ID, id)
		same(t, "the key here is free", r.fates(r.unique("b", "x", scope)), "1")
		r.check()
		to.check()
		same(t, "while it is taken there", r.moved(to, "b"), Answer{KeyTaken, signalbox.StateReady})
		same(t, "it stays", r.states()["b"], "ready in list 1")
		same(t, "the key here has", r.holder("x"), "b")
		same(t, "the key there has", to.holder("x"), id)
		r.check()
		to.check()
		r.did(DeleteJobs(), "b")
		to.did(DeleteJobs(), "b")
		to.did(DeleteJobs(), id)
	}

	// One that has ended doesn't take the key, and takes it when it runs again.
	r.fates(r.unique("dead", "x", wire.UntilEnded))
	r.settled(settlement(r.one(), Dead))
	to.fates(to.unique("c", "x", wire.UntilEnded))
	same(t, "a dead one", r.moved(to, "dead").Acted, Done)
	same(t, "the key there has", to.holder("x"), "c")
	same(t, "run again", to.did(RunJobs(time.Time{}), "dead").Acted, KeyTaken)
	third := to.other()
	same(t, "a dead one", to.moved(third, "dead").Acted, Done)
	same(t, "run again", third.did(RunJobs(time.Time{}), "dead").Acted, Done)
	third.open()
	third.settled(settlement(third.one(), Completed))
	same(t, "the key there has", third.holder("x"), "")
	third.check()
}

func testUniqueIsDeleted(t *testing.T, r *rig) {
	r.open()
	for _, scope := range []byte{wire.UntilEnded, wire.UntilStarted, wire.ForWindow} {
		r.fates(r.unique("a", "x", scope))
		same(t, "deleted", r.did(DeleteJobs(), "a").Acted, Done)
		same(t, "keys", r.rdb.Exists(bg, r.keys.Unique, r.keys.Windows).Val(), 0)
	}
	r.fates(r.unique("a", "x", wire.UntilEnded))
	r.settled(settlement(r.one(), Dead))
	r.fates(r.unique("b", "x", wire.UntilEnded))
	r.did(DeleteJobs(), "a")
	same(t, "the key has", r.holder("x"), "b")
}

func testUniqueAfterPlain(t *testing.T, r *rig) {
	r.open()
	r.put("plain")
	plain := r.one()
	r.fates(r.unique("a", "x", wire.UntilStarted))
	reply := r.call(ClaimRequest{Settle: []Settlement{settlement(plain, Completed)}, Want: 5})
	equal(t, "claimed", ids(reply.Deliveries), []string{"a"})
	equal(t, "refused", reply.Refused, nil)
	same(t, "the key has", r.holder("x"), "")
	r.settled(settlement(reply.Deliveries[0], Completed))
}

func testUniqueDoctor(t *testing.T, all *rig) {
	field := wire.UniqueKey("k", "x", false)
	for _, c := range []struct {
		name  string
		scope byte
		want  []facts.Fault
		spoil func(r *rig) error
		after string // who has the key then
	}{
		{"lost", wire.UntilEnded, []facts.Fault{facts.NoKey}, func(r *rig) error { return r.rdb.Del(bg, r.keys.Unique).Err() }, "a"},
		{"lost by one that may have started", wire.UntilStarted, nil, func(r *rig) error { return r.rdb.Del(bg, r.keys.Unique).Err() }, ""},
		{"of a job that is gone", wire.UntilEnded, []facts.Fault{facts.NoKey, facts.StrayUnique}, func(r *rig) error {
			return r.rdb.HSet(bg, r.keys.Unique, field, "e gone").Err()
		}, ""},
		{"of a job without one", wire.UntilStarted, []facts.Fault{facts.StrayUnique}, func(r *rig) error {
			return r.rdb.HSet(bg, r.keys.Unique, field, "s plain").Err()
		}, ""},
		{"of a job that runs", wire.UntilStarted, []facts.Fault{facts.StrayUnique}, func(r *rig) error {
			r.claim(1)
			return r.rdb.HSet(bg, r.keys.Unique, field, "s a").Err()
		}, ""},
		{"of a job that has started and waits again", wire.UntilStarted, []facts.Fault{facts.StrayUnique}, func(r *rig) error {
			r.settled(settlement(r.claim(1)[0], Return))
			return r.rdb.HSet(bg, r.keys.Unique, field, "s a").Err()
		}, ""},
		{"of a job that has ended", wire.UntilEnded, []facts.Fault{facts.StrayUnique}, func(r *rig) error {
			r.cancel("a")
			return r.rdb.HSet(bg, r.keys.Unique, field, "e a").Err()
		}, ""},
		{"a window without an end", wire.ForWindow, []facts.Fault{facts.StrayUnique}, func(r *rig) error { return r.rdb.Del(bg, r.keys.Windows).Err() }, ""},
		{"what nobody can read", wire.UntilStarted, []facts.Fault{facts.StrayUnique}, func(r *rig) error { return r.rdb.HSet(bg, r.keys.Unique, field, "?").Err() }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := unchecked(t, all.rdb)
			r.open()
			r.fates(r.unique("a", "x", c.scope), r.item("plain", When{}, signalbox.PriorityNormal))
			r.check()
			found, _ := r.findings(false)
			equal(t, "findings before", faultsOf(found), nil)
			r.must(c.spoil(r))
			spoilt := r.dump()
			found, _ = r.findings(false)
			equal(t, "findings", faultsOf(found), c.want)
			r.unchanged("a look", spoilt)
			if c.want != nil && !slices.Contains(c.want, facts.NoKey) && check.Queue(bg, r.Site()) == nil {
				t.Error("Check has another opinion: it finds nothing")
			}
			r.findings(true)
			r.findings(true) // a key that was freed goes to its job
			found, _ = r.findings(false)
			equal(t, "findings after", faultsOf(found), nil)
			want := c.after
			if slices.Contains(c.want, facts.NoKey) {
				want = "a"
			}
			same(t, "the key has", r.holder("x"), want)
			r.check()
		})
	}
}

// update returns a job that gives another one of its key what it has.
func (r *rig) update(id string, after time.Duration, most time.Duration, p signalbox.Priority) Item {
	r.t.Helper()
	it := r.item(id, When{After: after}, p)
	it.Unique(Unique{Key: wire.UniqueKey("k", "x", false), Scope: wire.UntilStarted})
	it.Update(most)
	return it
}

func testUniqueUpdates(t *testing.T, r *rig) {
	r.open()
	// A scheduled job gets all: the arguments, the time, the priority. It keeps its ID, and the time of its enqueue.
	same(t, "the first", r.fates(r.update("a", time.Hour, 0, signalbox.PriorityNormal)), "1")
	was := r.stored("a")
	r.later()
	r.producer.Next()
	items := []Item{r.update("b", 2*time.Hour, 0, signalbox.PriorityHigh), r.item("plain", When{After: time.Hour}, 0)}
	for range 2 { // the second time as after a lost reply
		fates, err := r.Enqueue(bg, r.producer, items)
		r.must(err)
		same(t, "the second", fates.list, "U1")
		equal(t, "it meets", fates.Met(), []Met{{ID: "a", State: signalbox.StateScheduled}})
		r.producer2(r.item(NewID(), When{After: time.Hour}, 0))
	}
	now := r.stored("a")
	same(t, "arguments", string(now.Payload), `"b"`)
	same(t, "priority", now.Priority, signalbox.PriorityHigh)
	same(t, "enqueued", now.EnqueuedAt, was.EnqueuedAt)
	if delay := now.ScheduledAt.Sub(was.ScheduledAt); delay < time.Hour || delay > time.Hour+time.Minute {
		t.Errorf("it is due %v later", delay)
	}
	same(t, "another job", r.rdb.HExists(bg, r.keys.Jobs, "b").Val(), false)
	same(t, "the key has", r.holder("x"), "a")

	// It is due so long after its enqueue at most.
	same(t, "with a bound", r.fates(r.update("c", 5*time.Hour, 3*time.Hour, 0)), "U")
	same(t, "due", r.stored("a").ScheduledAt, was.EnqueuedAt.Add(3*time.Hour))
	same(t, "with a bound that is over", r.fates(r.update("d", 5*time.Hour, time.Microsecond, 0)), "U")
	r.check()
	same(t, "it is due now", string(r.one().Job.Payload), `"d"`)
	same(t, "the key has", r.holder("x"), "")

	// One that is ready gets the arguments, and stays where it is. Two of one call meet, too.
	same(t, "two of one call", r.fates(r.update("e", 0, 0, 0), r.update("f", time.Hour, 0, signalbox.PriorityLow), r.item("g", When{}, 0), r.update("h", 0, 0, 0)), "1U1U")
	got := r.claim(2)
	equal(t, "claimed", ids(got), []string{"e", "g"})
	same(t, "arguments", string(got[0].Job.Payload), `"h"`)
	same(t, "another", r.fates(r.update("i", 0, 0, 0)), "1")
	same(t, "the running one's arguments", string(r.stored("e").Payload), `"h"`)
}

// A job with another scope, or without the wish to update, changes nothing.
func testUniqueUpdatesInVain(t *testing.T, r *rig) {
	r.open()
	r.fates(r.unique("a", "x", wire.UntilEnded))
	was := r.stored("a")
	same(t, "until the end", r.fates(r.update("b", time.Hour, 0, 0)), "u")
	r.one()
	same(t, "while it runs", r.fates(r.update("b", time.Hour, 0, 0)), "u")
	same(t, "arguments", string(r.stored("a").Payload), string(was.Payload))
	r.crash()
	r.settled(settlement(r.one(), Completed))
	r.fates(r.unique("c", "x", wire.UntilStarted))
	same(t, "without the wish", r.fates(r.unique("d", "x", wire.UntilStarted)), "u")
	same(t, "arguments", string(r.one().Job.Payload), `"c"`)
}

// A large call with keys, and one in which each of them is taken, have all outcomes.
func testUniqueMany(t *testing.T, r *rig) {
	r.open()
	first, second := make([]Item, MaxBatch), make([]Item, MaxBatch)
	for i := range first {
		key := fmt.Sprintf("%0200d", i)
		first[i], second[i] = r.unique(fmt.Sprintf("a%d", i), key, wire.UntilEnded), r.unique(fmt.Sprintf("b%d", i), key, wire.ForWindow)
	}
	same(t, "fates", r.fates(first...), strings.Repeat("1", MaxBatch))
	r.producer.Next()
	fates, err := r.Enqueue(bg, r.producer, second)
	r.must(err)
	same(t, "fates", fates.list, strings.Repeat("u", MaxBatch))
	for i, met := range fates.Met() {
		same(t, "it meets", met.ID, fmt.Sprintf("a%d", i))
	}
	for done := 0; done < MaxBatch; {
		got := r.claim(MaxBatch)
		var all []Settlement
		for _, d := range got {
			all = append(all, settlement(d, Completed))
		}
		r.settled(all...)
		done += len(got)
	}
	same(t, "keys", r.rdb.Exists(bg, r.keys.Unique).Val(), 0)
}

// A delivery has the key of its group and its unique key. Each is freed by what ends its scope.
func testUniqueInAGroup(t *testing.T, all *rig) {
	for name := range all.ends() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newQueue(t, all.rdb)
			r.open()
			item := func(id string) Item {
				it := r.grouped(id, "sg", When{}, signalbox.PriorityNormal)
				it.Unique(Unique{Key: wire.UniqueKey("k", "x", false), Scope: wire.UntilEnded})
				return it
			}
			same(t, "the job", r.fates(item("a")), "1")
			same(t, "it waits in its line", r.meets("b", "x", wire.UntilEnded), Met{ID: "a", Live: true})
			s := settlement(r.one(), Delay)
			s.Delay = time.Hour
			r.settled(s)
			same(t, "it is put off", r.meets("b", "x", wire.UntilEnded), Met{ID: "a", State: signalbox.StateScheduled})
			r.check()
			r.makeDue("1a")
			r.one()
			r.crash()
			same(t, "it was taken back", r.meets("b", "x", wire.UntilEnded), Met{ID: "a", Live: true})
			if name != "crashed to death" { // that counts the crashes
				r.ends()[name]("a")
			} else {
				r.settled(settlement(r.one(), Dead))
			}
			same(t, "the key has", r.holder("x"), "")
			r.check()
			same(t, "the next job", r.fates(item("b")), "1")
			b := r.claim(5)
			equal(t, "claimed", ids(b), []string{"b"})
			r.settled(settlement(b[0], Completed)) // and isn't kept
			same(t, "then the key has", r.holder("x"), "")
			r.check()
		})
	}
}

// A throttled job that meets a window of its own call has the key as well, from then on.
func testUniqueThrottledInAWindow(t *testing.T, r *rig) {
	same(t, "fates", r.fates(r.unique("a", "x", wire.ForWindow), r.throttled("b")), "11")
	same(t, "the key has", r.holder("x"), "b")
	same(t, "windows", r.rdb.ZCard(bg, r.keys.Windows).Val(), 0)
	r.check()
}

// throttled returns a job that is throttled with an hour between two starts.
func (r *rig) throttled(id string) Item {
	r.t.Helper()
	it := r.item(id, When{}, signalbox.PriorityNormal)
	it.Unique(Unique{Key: wire.UniqueKey("k", "x", false), Scope: wire.Throttled, Window: time.Hour})
	it.Update(0)
	return it
}

// windowEnd returns when the window of the key x ends.
func (r *rig) windowEnd() time.Time {
	return time.UnixMicro(int64(r.rdb.ZScore(bg, r.keys.Windows, wire.UniqueKey("k", "x", false)).Val()))
}

// At most one job starts in a window. One that comes in it is due at its end, with the arguments of the last one.
func testUniqueThrottled(t *testing.T, r *rig) {
	r.open()
	same(t, "the first, and those that meet it", r.fates(r.throttled("a"), r.throttled("b"), r.throttled("c")), "1UU")
	got := r.one()
	same(t, "it is due now", string(got.Job.Payload), `"c"`)
	end := r.windowEnd()
	if left := end.Sub(got.Job.ClaimedAt); left > time.Hour+time.Second || left < time.Hour-time.Minute {
		t.Errorf("the window is open for %v", left)
	}
	same(t, "others are left out", r.meets("other", "x", wire.UntilEnded), Met{ID: "a", Live: true})
	// A retry is none of its business.
	r.settled(settlement(got, Retry))
	got = r.one()
	same(t, "the window after a retry", r.windowEnd(), end)

	same(t, "the next one", r.fates(r.throttled("d")), "1")
	same(t, "its time", r.stored("d").ScheduledAt, end)
	same(t, "the key has", r.holder("x"), "d")
	r.check()
	r.producer.Next()
	items := []Item{r.throttled("e"), r.throttled("f")}
	for range 2 { // the second time as after a lost reply
		fates, err := r.Enqueue(bg, r.producer, items)
		r.must(err)
		same(t, "the next ones", fates.list, "UU")
		equal(t, "they meet", fates.Met(), []Met{{ID: "d", State: signalbox.StateScheduled}, {ID: "d", State: signalbox.StateScheduled}})
	}
	same(t, "its time", r.stored("d").ScheduledAt, end)
	same(t, "its arguments", string(r.stored("d").Payload), `"f"`)
	r.settled(settlement(got, Completed))
	equal(t, "claimed in the window", ids(r.claim(10)), []string{})
	r.check()

	// Its start begins another window.
	r.did(RunJobs(time.Time{}), "d")
	r.lane.Next()
	req := &ClaimRequest{Session: r.session, Want: 2}
	for range 2 { // the second time as after a lost reply
		reply, err := r.Sessions().Claim(bg, r.lane, req)
		r.must(err)
		equal(t, "claimed", ids(reply.Deliveries), []string{"d"})
		got = reply.Deliveries[0]
	}
	r.settled(settlement(got, Completed))
	same(t, "in its window", r.fates(r.throttled("g")), "1")
	if !r.stored("g").ScheduledAt.After(end) {
		t.Errorf("it is due at %v, and the first window ended at %v", r.stored("g").ScheduledAt, end)
	}
}

// A job that ends before its start frees its key. A window is over by itself, or when an operator deletes its job.
func testUniqueThrottledEnds(t *testing.T, r *rig) {
	r.open()
	for _, act := range []Act{DeleteJobs(), CancelJobs("")} {
		same(t, "the job", r.fates(r.throttled("a")), "1")
		r.did(act, "a")
		same(t, "the key has", r.holder("x"), "")
		r.check()
	}
	same(t, "the job", r.fates(r.throttled("b")), "1")
	r.settled(settlement(r.one(), Dead))
	same(t, "in its window", r.fates(r.throttled("c")), "1")
	same(t, "it is scheduled", r.stored("c").ScheduledAt.After(r.stored("b").ScheduledAt), true)
	r.did(RunJobs(time.Time{}), "b") // a job that is run again isn't throttled
	r.settled(settlement(r.one(), Dead))
	same(t, "the key has", r.holder("x"), "c")
	r.did(RunJobs(time.Time{}), "c")
	r.settled(settlement(r.one(), Dead))
	r.shut("x")
	same(t, "after the window", r.fates(r.throttled("d")), "1")
	same(t, "it is due now", r.one().Job.ID, "d")
	r.crash()
	r.settled(settlement(r.one(), Dead))
	r.did(DeleteJobs(), "d")
	same(t, "keys", r.rdb.Exists(bg, r.keys.Unique, r.keys.Windows).Val(), 0)
}

// A job that is on its way to another queue isn't updated: its copy would not be.
func testUniqueOnTheMove(t *testing.T, r *rig) {
	r.open()
	same(t, "the job", r.fates(r.update("a", time.Hour, 0, 0)), "1")
	r.did(holdJobs(resting), "a")
	was := r.rdb.HGet(bg, r.keys.Jobs, "a").Val()
	same(t, "it moves", r.fates(r.update("b", time.Hour, 0, 0)), "u")
	same(t, "its record", r.rdb.HGet(bg, r.keys.Jobs, "a").Val(), was)
}

// A job that has started had its key until then. It doesn't take it in another queue, where an update would rewrite it: whatever it waits for, and
// moved or imported. An operator who runs it again after its end does give it the key.
func testUniqueMovesOnceStarted(t *testing.T, r *rig) {
	r.open()
	to := r.other()
	r.producer.Next()
	if _, err := r.Enqueue(bg, r.producer, []Item{r.unique("a", "x", wire.HasStarted)}); err == nil {
		t.Error("a producer put in a job that has started")
	}
	again := func(outcome Outcome) func() {
		return func() {
			s := settlement(r.one(), outcome)
			if outcome != Return {
				s.Delay = time.Hour
			}
			r.settled(s)
		}
	}
	for name, start := range map[string]func(){
		"failed":   again(Retry),
		"snoozed":  again(Delay),
		"returned": again(Return),
		"crashed":  func() { r.one(); r.crash() },
	} {
		for _, way := range []string{"moved", "imported"} {
			id := name + "-" + way
			same(t, id, r.fates(r.update(id, 0, 0, 0)), "1")
			start()
			same(t, id+": the key here has", r.holder("x"), "")
			same(t, id+": while another has it there", to.fates(to.update("other", time.Hour, 0, 0)), "1")
			if way == "moved" {
				same(t, id, r.moved(to, id).Acted, Done)
			} else {
				state, _, _ := strings.Cut(r.states()[id], " ")
				p := placement{id: id, state: signalbox.StateReady, record: []byte(r.rdb.HGet(bg, r.keys.Jobs, id).Val())}
				if state == "due" {
					p.state, p.at = signalbox.StateScheduled, r.stored(id).ScheduledAt
				}
				answers, err := to.Transfer().putRecords(bg, []placement{p}, false)
				r.must(err)
				equal(t, id, answers, []Answer{{Acted: Done}})
				r.did(DeleteJobs(), id)
			}
			same(t, id+": the key there has", to.holder("x"), "other")
			to.did(DeleteJobs(), "other")
			payload := string(to.stored(id).Payload)
			same(t, id+": it meets nobody", to.fates(to.update("b", time.Hour, 0, 0)), "1")
			same(t, id+": its arguments", string(to.stored(id).Payload), payload)
			to.check()

			to.did(RunJobs(time.Time{}), id)
			same(t, id+": run by an operator before its end, the key there has", to.holder("x"), "b")
			to.cancel(id)
			same(t, id+": while another has the key", to.did(RunJobs(time.Time{}), id).Acted, KeyTaken)
			to.did(DeleteJobs(), "b")
			same(t, id+": run again", to.did(RunJobs(time.Time{}), id).Acted, Done)
			same(t, id+": the key there has", to.holder("x"), id)
			to.settled(settlement(to.one(), Completed))
			same(t, id+": the key there has", to.holder("x"), "")
			r.check()
			to.check()
		}
	}
}

// A mover dies after any of its calls. Then each queue gets a job that is to update the one that moves. That one runs once, and so does the other
// if it was put in.
func testUniqueUpdateInAMove(t *testing.T, r *rig) {
	r.open()
	to := r.other()
	for _, scope := range []byte{wire.UntilStarted, wire.Throttled} {
		item := func(q *rig, id string) Item {
			if scope == wire.Throttled {
				return q.throttled(id)
			}
			return q.update(id, 0, 0, 0)
		}
		met := 0 // how often the one that moves was met while it was held
		for _, there := range []bool{false, true} {
			for calls := range 7 {
				name := fmt.Sprintf("scope %c, update in the other queue %v, %d calls", scope, there, calls)
				same(t, name, r.fates(item(r, "a")), "1")
				if _, err := r.mover(&mortal{calls: calls}).Transfer().Move(bg, to.Name(), []string{"a"}); (calls <= 5) != errors.Is(err, errDied) {
					t.Fatalf("%s: %v", name, err)
				}
				q := r
				if there {
					q = to
				}
				held := q.holds("a")
				fate := q.fates(item(q, "b"))
				if held && fate == "u" {
					met++
				}
				if held && fate == "U" {
					t.Errorf("%s: it was updated while it is held", name)
				}
				ran := make(map[string]int)
				for range 2 {
					for _, one := range []*rig{r, to} {
						one.check()
						for _, d := range one.claim(5) {
							ran[d.Job.ID]++
							one.settled(settlement(d, Completed))
						}
					}
					r.moved(to, "a")
				}
				same(t, name+": a ran", ran["a"], 1)
				if want := strings.Count(fate, "1"); ran["b"] != want {
					t.Errorf("%s: fate %s, b ran %d times", name, fate, ran["b"])
				}
				for _, one := range []*rig{r, to} {
					same(t, name+": jobs that are left", one.rdb.HLen(bg, one.keys.Jobs).Val(), 0)
					one.must(one.rdb.Del(bg, one.keys.Unique, one.keys.Windows).Err()) // the windows
				}
			}
		}
		if met == 0 {
			t.Errorf("scope %c: it was never met while it was held", scope)
		}
	}
}
