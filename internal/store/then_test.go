package store

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/store/server"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// then completes a delivery with follow-ups, in the lane's next call.
func (r *rig) then(d Delivery, items ...Item) *CompletionReply {
	r.t.Helper()
	r.lane.Next()
	return r.thenAgain(d, items...)
}

// thenAgain makes the lane's last call again.
func (r *rig) thenAgain(d Delivery, items ...Item) *CompletionReply {
	r.t.Helper()
	reply, err := r.Sessions().Complete(bg, r.lane, &Completion{r.session, settlement(d, Completed), items})
	r.must(err)
	return reply
}

// completed says that a reply is that of a completion whose follow-ups had these outcomes.
func (r *rig) completed(what string, reply *CompletionReply, fates string) {
	r.t.Helper()
	if !reply.Alive || len(reply.Refused)+len(reply.Overruled) > 0 || reply.Fates != fates {
		r.t.Errorf("%s: %+v; want follow-ups with %q", what, reply, fates)
	}
}

// A job completes, and its follow-ups are there, of any kind.
func TestThen(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.put("a")
	d := r.one()
	unique := r.item("unique", When{}, signalbox.PriorityHigh)
	unique.Unique(Unique{Key: wire.UniqueKey("k", "x", false), Scope: wire.UntilEnded})
	reply := r.then(d, r.item("b", When{}, 0), r.item("later", When{After: time.Hour}, signalbox.PriorityLow), r.grouped("g", "gone", When{}, 0), r.grouped("s", "sone", When{}, 0), unique)
	r.completed("the call", reply, "11111")
	same(t, "counts", r.counts().Total, looks.Totals{Enqueued: 6, Completed: 1})
	same(t, "the jobs", fmt.Sprint(r.states()), "map[b:ready in list 1 g:ready in the line of its group later:due s:ready in the line of its group unique:ready in list 0]")
	r.check()

	// The lane goes on with claims.
	got := r.claim(10)
	same(t, "jobs that run", len(got), 4)
	r.completed("another call", r.then(got[0], r.item("c", When{}, 0)), "1")
	r.settled(settlement(got[1], Completed))
	r.check()
}

// A call that is made again, since its reply was lost, is answered as before, whatever has happened to the follow-ups since. A late copy does nothing.
func TestThenAgain(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.put("a")
	d := r.one()
	r.completed("the call", r.then(d, r.item("b", When{}, 0)), "1")
	before := r.dump()
	r.completed("made again", r.thenAgain(d, r.item("b", When{}, 0)), "")
	r.unchanged("a call that is made again", before)

	other := &rig{Queue: r.Queue, t: t, lane: r.NewLane(), session: "other"}
	other.open()
	other.settled(settlement(other.one(), Completed))
	before = r.dump()
	r.completed("made again when the follow-up has ended", r.thenAgain(d, r.item("b", When{}, 0)), "")
	r.unchanged("a call that is made again", before)

	r.lane.Next()
	other.must(r.rdb.Ping(bg).Err())
	r.claim(1)
	before = r.dump()
	r.lane.numbered(r.lane.seq-1, func() {
		if reply, err := r.Sessions().Complete(bg, r.lane, &Completion{r.session, settlement(d, Completed), r.items("b")}); err != scripts.ErrStale {
			t.Errorf("a late copy: %+v, %v", reply, err)
		}
	})
	r.unchanged("a late copy", before)

	// From a lane that Redis doesn't know any more it is the token that counts.
	r.lane = r.NewLane()
	before = r.dump()
	if reply := r.then(d, r.item("b", When{}, 0)); len(reply.Refused) != 1 || reply.Fates != "" {
		t.Errorf("from another lane: %+v", reply)
	}
	r.unchangedBut("a copy from another lane", before, r.lane)
}

// A delivery that another one has superseded gets no follow-ups, and the other one does. So there is one set of them in the end.
func TestThenSuperseded(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.put("a")
	old := r.one()
	r.crash()
	d := r.one()
	before := r.dump()
	for what, bad := range map[string]Delivery{
		"of the token before": old,
		"of no job":           {Job: &signalbox.Job{ID: "none", Token: d.Job.Token}},
	} {
		reply := r.then(bad, r.item("b", When{}, 0))
		if len(reply.Refused) != 1 || reply.Fates != "" {
			t.Errorf("%s: %+v", what, reply)
		}
		if again := r.thenAgain(bad, r.item("b", When{}, 0)); len(again.Refused) != 1 {
			t.Errorf("%s, again: %+v", what, again)
		}
		r.unchangedBut(what, before, r.lane)
	}
	session := r.session
	r.session = "another"
	if reply := r.then(d, r.item("b", When{}, 0)); len(reply.Refused) != 1 || reply.Alive {
		t.Errorf("of another session: %+v", reply)
	}
	r.session = session
	r.completed("of the delivery that runs", r.then(d, r.item("b", When{}, 0)), "1")
}

// A job that was cancelled while it ran ends cancelled, without follow-ups.
func TestThenCancelled(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.put("a")
	d := r.one()
	r.cancel("a")
	reply := r.then(d, r.item("b", When{}, 0))
	if len(reply.Overruled) != 1 || reply.Fates != "" {
		t.Errorf("%+v", reply)
	}
	if again := r.thenAgain(d, r.item("b", When{}, 0)); len(again.Overruled) != 1 {
		t.Errorf("again: %+v", again)
	}
	same(t, "the jobs", fmt.Sprint(r.states()), "map[a:cancelled]")
	same(t, "marks", r.rdb.HLen(bg, r.keys.Cancels).Val(), 0)
}

// Follow-ups are put in though the queue has as many jobs as it may have. Producers that wait hear of room when there is some.
func TestThenFull(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.maximum(2)
	r.put("a", "b")
	d := r.claim(1)[0]
	sub := r.rdb.Subscribe(bg, r.keys.Settings)
	defer sub.Close()
	_, err := sub.Receive(bg)
	r.must(err)
	r.completed("the call", r.then(d, r.items("c", "d", "e")...), "111")
	same(t, "another enqueue", r.fates(r.item("x", When{}, 0)), "n")
	for i := range 4 { // b, c, d, e: the last three make room
		r.settled(settlement(r.claim(1)[0], Completed))
		same(t, "jobs", r.rdb.HLen(bg, r.keys.Jobs).Val(), int64(3-i))
	}
	message, err := sub.ReceiveMessage(bg)
	if err != nil || message.Payload != "room" {
		t.Errorf("%v, %v", message, err)
	}
	select {
	case m := <-sub.Channel():
		t.Errorf("more than one message: %v", m)
	default:
	}
}

// Follow-ups are judged as other jobs are: by ID and unique key. What their maker had is free by then.
func TestThenMet(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	keyed := func(id, key string) Item {
		it := r.item(id, When{}, 0)
		it.Unique(Unique{Key: wire.UniqueKey("k", key, false), Scope: wire.UntilEnded})
		return it
	}
	r.bury(Dead, "dead")
	cautious := r.item("dead", When{}, 0)
	cautious.IfAbsent()
	r.enqueued(keyed("a", "own"))
	d := r.one()
	r.put("live")
	r.enqueued(keyed("holder", "other"))
	reply := r.then(d, r.items("live")[0], keyed("met", "other"), keyed("next", "own"), r.items("a")[0], cautious, r.items("dead")[0])
	r.completed("the call", reply, "0u11dD")
	r.check()

	// A job of a serial group leaves it for its follow-up. A completed job that is kept is replaced by one with its ID.
	r.settleAll()
	r.must(r.Settings().SetCompleted(bg, signalbox.Retention{Jobs: 100}))
	r.putIn("sg", "one")
	d = r.one()
	s := kept(d)
	r.lane.Next()
	reply, err := r.Sessions().Complete(bg, r.lane, &Completion{r.session, s, []Item{r.grouped("one", "sg", When{}, 0), r.grouped("two", "sg", When{}, 0)}})
	r.must(err)
	r.completed("in a serial group", reply, "F1")
	same(t, "the next of the group", r.one().Job.ID, "one")
	r.check()
}

// settleAll completes all jobs that wait.
func (r *rig) settleAll() {
	r.t.Helper()
	for {
		got := r.claim(10)
		if len(got) == 0 {
			return
		}
		for _, d := range got {
			r.settled(settlement(d, Completed))
		}
	}
}

// A completed job is kept as one without follow-ups is: if its queue or its record says so.
func TestThenKept(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.enqueued(r.made(signalbox.Job{ID: "a", Retain: time.Hour}, "", When{}))
	d := r.one()
	s := kept(d)
	r.lane.Next()
	reply, err := r.Sessions().Complete(bg, r.lane, &Completion{r.session, s, r.items("b")})
	r.must(err)
	r.completed("the call", reply, "1")
	same(t, "the jobs", fmt.Sprint(r.states()), "map[a:completed b:ready in list 1]")
	if v := r.shown("a"); v.Success == nil || *v.Success != successOf {
		t.Errorf("the attempt that completed it: %+v", v.Success)
	}
}

// A job that leaves its place lets others start: at a limit of the queue, and of its group.
func TestThenLimits(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	_, err := r.Settings().SetLimits(bg, signalbox.Limits{Running: 1})
	r.must(err)
	r.put("a", "b")
	d := r.claim(2)
	same(t, "jobs that run", len(d), 1)
	r.completed("the call", r.then(d[0], r.item("c", When{}, 0)), "1")
	r.check()
	same(t, "the next", r.claim(2)[0].Job.ID, "b")
}

// Redis has gone back to before a call that was answered: the session ends, as with a claim, and the job runs again.
func TestThenForgotten(t *testing.T) {
	t.Parallel()
	needsDump(t)
	for name, next := range map[string]func(r *rig, d Delivery) *ClaimReply{
		"a claim":            func(r *rig, _ Delivery) *ClaimReply { return r.call(ClaimRequest{Want: 1}) },
		"another completion": func(r *rig, d Delivery) *ClaimReply { return &r.then(d, r.item("c", When{}, 0)).ClaimReply },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := onShared(t)
			r.open()
			r.put("a", "z")
			got := r.claim(2)
			m := r.remember()
			r.completed("the call", r.then(got[0], r.item("b", When{}, 0)), "1")
			r.goBack(m)
			if reply := next(r, got[1]); reply.Alive || reply.Forgot.IsZero() {
				t.Errorf("%+v", reply)
			}
			r.crash()
			d := r.claim(1)[0]
			same(t, "the job that runs again", d.Job.ID, "a")
			r.completed("its completion", r.then(d, r.item("b", When{}, 0)), "1")
		})
	}
}

// Redis is out of memory: jobs complete, with their follow-ups.
func TestThenOutOfMemory(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	r := newQueue(t, srv.Client())
	r.open()
	r.put("a")
	d := r.one()
	r.must(r.rdb.ConfigSet(bg, "maxmemory", "1").Err())
	r.completed("the call", r.then(d, r.item("b", When{}, 0)), "1")
	r.must(r.rdb.ConfigSet(bg, "maxmemory", "0").Err())
}

// If a user lacks one of the script's commands, the call changes nothing.
func TestThenDenied(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	admin := srv.Client()
	var commands []string
	for _, call := range regexp.MustCompile(`redis\.call\('(\w+)'`).FindAllStringSubmatch(scripts.Sources()["then"], -1) {
		commands = append(commands, call[1])
	}
	slices.Sort(commands)
	for i, command := range slices.Compact(commands) {
		name := fmt.Sprint("user", i)
		r := newQueue(t, admin)
		d := r.furnish()[0]
		r.lane.Next()
		r.must(admin.Do(bg, "ACL", "SETUSER", name, "on", ">secret", "~*", "&*", "+@all", "-"+strings.ToLower(command)).Err())
		rdb := srv.ClientWith(func(o *redis.UniversalOptions) { o.Username, o.Password = name, "secret" })
		items := []Item{r.item("dead2", When{}, signalbox.PriorityHigh), r.item("late", When{After: time.Hour}, 0), r.grouped("g", "gg", When{}, 0)}
		before := r.dump()
		_, err := New(rdb, "", r.Name()).Sessions().Complete(bg, r.lane, &Completion{r.session, settlement(d, Completed), items})
		if err == nil || !server.IsDenied(err) {
			t.Errorf("without %s: %v", command, err)
		}
		r.unchanged("a call without "+command, before)
		r.completed("with "+command, r.thenAgain(d, items...), "D11")
	}
}

// What is no completion is refused before it is sent, and by the script.
func TestThenBounds(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.put("a")
	d := r.one()
	many := make([]Item, MaxFollowUps)
	for i := range many {
		many[i] = r.item(fmt.Sprint("f", i), When{}, 0)
	}
	r.lane.Next()
	before := r.dump()
	for what, c := range map[string]*Completion{
		"without follow-ups":   {r.session, settlement(d, Completed), nil},
		"with too many":        {r.session, settlement(d, Completed), append(slices.Clone(many), many[0])},
		"of a job that failed": {r.session, settlement(d, Retry), many[:1]},
		"of a cron entry":      {r.session, settlement(d, Completed), []Item{r.item("tick", When{At: time.Now(), Entry: "entry"}, 0)}},
	} {
		if _, err := r.Sessions().Complete(bg, r.lane, c); err == nil {
			t.Errorf("%s: no error", what)
		}
		r.unchanged(what, before)
	}
	r.completed("500 follow-ups", r.then(d, many...), strings.Repeat("1", MaxFollowUps))
}

// The ID of a follow-up follows from its maker, its kind and its place, and from nothing else.
func TestFollowUpID(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, maker := range []signalbox.Job{{ID: "a", Queue: "q"}, {ID: "b", Queue: "q"}, {ID: "a", Queue: "q", Incarnation: 1}, {ID: "a", Effect: "e"}, {ID: "b", Effect: "e"}} {
		for _, kind := range []string{"k", "l"} {
			for place := range 3 {
				id, incarnation := FollowUpID(&maker, kind, place)
				retried := maker
				retried.Attempt, retried.Token = 7, 9
				again, same := FollowUpID(&retried, kind, place)
				if seen[id] || incarnation == 0 || len(id) != 22 || again != id || same != incarnation {
					t.Errorf("%+v, kind %s, place %d: %s, %d, and in a retry %s, %d", maker, kind, place, id, incarnation, again, same)
				}
				seen[id] = true
			}
		}
	}
}
