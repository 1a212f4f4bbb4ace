package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/internal/wire"
)

var retainTests = []storeTest{
	{"RetainEachEnd", testRetainEachEnd},
	{"RetainNone", testRetainNone},
	{"RetainUntil", testRetainUntil},
	{"RetainWithinBounds", testRetainWithinBounds},
	{"RetainOfCompleted", testRetainOfCompleted},
	{"RetainIsListed", testRetainIsListed},
	{"RetainIsMoved", testRetainIsMoved},
	{"RetainAgain", testRetainAgain},
	{"RetainOfAnEntry", testRetainOfAnEntry},
}

// retained enqueues jobs that are kept for so long after they have ended.
func (r *rig) retained(d time.Duration, ids ...string) {
	r.t.Helper()
	for _, id := range ids {
		it, err := NewItem(&signalbox.Job{ID: id, Kind: "k", Payload: []byte(`"` + id + `"`), Retain: d}, When{})
		r.must(err)
		r.enqueued(it)
	}
}

// retainedTill ends such jobs.
func (r *rig) retainedTill(o Outcome, d time.Duration, ids ...string) {
	r.t.Helper()
	for _, id := range ids {
		r.retained(d, id)
		got := r.one()
		s := settlement(got, o)
		if o == Completed {
			s = kept(got)
		}
		r.settled(s)
	}
}

// passed has a time pass for jobs of a set whose records say how long they are kept.
func (r *rig) passed(set string, d time.Duration, ids ...string) {
	r.t.Helper()
	for _, id := range ids {
		r.must(r.rdb.ZIncrBy(bg, set, -float64(d.Microseconds()), id).Err())
	}
}

// ends are the ways in which a job ends. Each ends a job that is there, and returns its state then.
func (r *rig) ends() map[string]func(id string) (string, Outcome) {
	settled := func(o Outcome) func(string) (string, Outcome) {
		return func(string) (string, Outcome) {
			s := settlement(r.one(), o)
			if o == Completed {
				s.Keep = Kept(&successOf, nil)
			}
			r.settled(s)
			return r.keys.Named[strings.ToUpper(string(o))], o
		}
	}
	return map[string]func(id string) (string, Outcome){
		"completed": settled(Completed),
		"dead":      settled(Dead),
		"cancelled": settled(Cancelled),
		"dead with a record": func(string) (string, Outcome) {
			d := r.one()
			s := settlement(d, Dead)
			var err error
			s.Record, err = d.FailedAttempt("boom", &Attempt{Number: 1, Error: "boom"})
			r.must(err)
			r.settled(s)
			return r.keys.Dead, Dead
		},
		"crashed to death": func(string) (string, Outcome) {
			for range CrashLimit {
				r.one()
				r.crash()
			}
			return r.keys.Dead, Dead
		},
		"cancelled while it waits": func(id string) (string, Outcome) {
			r.cancel(id)
			return r.keys.Cancelled, Cancelled
		},
		"cancelled while it runs": func(id string) (string, Outcome) {
			d := r.one()
			r.cancel(id)
			r.settled(settlement(d, Retry))
			return r.keys.Cancelled, Cancelled
		},
		"cancelled while it runs, and completed": func(id string) (string, Outcome) {
			d := r.one()
			r.cancel(id)
			r.call(ClaimRequest{Settle: []Settlement{settlement(d, Completed)}})
			return r.keys.Cancelled, Cancelled
		},
		"cancelled while it runs, and crashed": func(id string) (string, Outcome) {
			r.one()
			r.cancel(id)
			r.crash()
			return r.keys.Cancelled, Cancelled
		},
	}
}

// However a job ends, its record says how long it is kept.
func testRetainEachEnd(t *testing.T, r *rig) {
	r.open()
	for name, end := range r.ends() {
		id := strings.Map(func(c rune) rune {
			if c == ' ' || c == ',' {
				return '-'
			}
			return c
		}, name)
		r.retained(time.Hour, id)
		before, err := r.Now(bg)
		r.must(err)
		set, state := end(id)
		after, err := r.Now(bg)
		r.must(err)
		drop := r.rdb.ZScore(bg, set, id).Val() + 1<<52
		if from, to := float64(before.Add(time.Hour).UnixMicro()), float64(after.Add(time.Hour).UnixMicro()); drop < from || drop > to {
			t.Errorf("%s: it is dropped at %.0f; want %.0f to %.0f", name, drop, from, to)
		}
		v := r.shown(id)
		if v.State != signalbox.State(state) || v.At.Before(before.Truncate(time.Microsecond)) || v.At.After(after) || v.Job.Retain != time.Hour || v.Err != nil {
			t.Errorf("%s: it is shown %s since %v, kept for %v; want since %v", name, v.State, v.At, v.Job.Retain, before)
		}
		r.check()
		if found, _ := r.findings(false); len(found) > 0 {
			t.Errorf("%s: the doctor finds %v", name, found)
		}
	}
}

// A job that isn't to be kept is counted, and that is all. Nothing is left of it.
func testRetainNone(t *testing.T, r *rig) {
	r.open()
	r.keepCompleted(signalbox.Retention{Jobs: 10})
	want := looks.Totals{}
	for _, end := range r.ends() {
		r.retained(signalbox.RetainNone, "j")
		set, state := end("j")
		same(t, "the set", r.rdb.ZCard(bg, set).Val(), 0)
		same(t, "records", r.rdb.HLen(bg, r.keys.Jobs).Val(), 0)
		same(t, "marks", r.rdb.HLen(bg, r.keys.Cancels).Val(), 0)
		want.Enqueued++
		switch state {
		case Completed:
			want.Completed++
		case Dead:
			want.Dead++
		default:
			want.Cancelled++
		}
		got := r.counts().Total
		got.Retried, got.Crashed, got.Returned = 0, 0, 0
		same(t, "counted", got, want)
		r.check()
	}
	same(t, "bytes", r.rdb.HGet(bg, r.keys.Stats, "dead_bytes").Val(), "")
	r.retained(signalbox.RetainNone, "again")
	r.settled(settlement(r.one(), Dead))
	equal(t, "the ID is free", r.put("again"), []bool{true})
	r.settled(settlement(r.one(), Completed))

	// It goes at once, also if more jobs are due than one call drops.
	ids := numbered("due", 150)
	r.retained(time.Hour, ids...)
	var ended []Settlement
	for _, d := range r.claim(len(ids)) {
		ended = append(ended, settlement(d, Dead))
	}
	r.settled(ended...)
	r.passed(r.keys.Dead, 2*time.Hour, ids...)
	r.retained(signalbox.RetainNone, "j")
	r.settled(settlement(r.one(), Dead))
	same(t, "its record", r.rdb.HExists(bg, r.keys.Jobs, "j").Val(), false)
	same(t, "swept", r.sweep(), 150)
}

// A job goes when its time is over, whatever the queue's age, and not before.
func testRetainUntil(t *testing.T, r *rig) {
	r.open()
	r.kept.Age = 30 * time.Minute
	r.retainedTill(Dead, time.Hour, "b", "c", "d")
	r.retainedTill(Dead, time.Minute, "a")
	r.bury(Dead, "x", "y")
	equal(t, "dead", r.buried(r.keys.Dead), []string{"a", "b", "c", "d", "x", "y"})
	r.age(r.keys.Dead, "x", 31*time.Minute)
	r.passed(r.keys.Dead, 31*time.Minute, "a", "b")
	r.bury(Dead, "z")
	equal(t, "after half an hour", r.buried(r.keys.Dead), []string{"b", "c", "d", "y", "z"})
	r.passed(r.keys.Dead, 30*time.Minute, "b")
	r.passed(r.keys.Dead, 59*time.Minute, "c", "d")
	same(t, "swept", r.sweep(), 1)
	equal(t, "after an hour", r.buried(r.keys.Dead), []string{"c", "d", "y", "z"})
	r.passed(r.keys.Dead, time.Minute, "c", "d")
	same(t, "swept", r.sweep(), 2)
	equal(t, "at the end", r.buried(r.keys.Dead), []string{"y", "z"})
	same(t, "records", r.rdb.HLen(bg, r.keys.Jobs).Val(), 2)
}

// Number and bytes drop jobs without a time of their own first.
func testRetainWithinBounds(t *testing.T, r *rig) {
	r.open()
	r.kept.Jobs = 3
	r.bury(Cancelled, "x")
	r.retainedTill(Cancelled, 2*time.Hour, "b")
	r.bury(Cancelled, "y", "z")
	equal(t, "cancelled", r.buried(r.keys.Cancelled), []string{"b", "y", "z"})
	r.retainedTill(Cancelled, time.Hour, "a")
	r.retainedTill(Cancelled, 3*time.Hour, "c")
	equal(t, "no others are left", r.buried(r.keys.Cancelled), []string{"a", "b", "c"})
	r.retainedTill(Cancelled, 4*time.Hour, "d")
	equal(t, "the one whose time is over first", r.buried(r.keys.Cancelled), []string{"b", "c", "d"})
	r.kept.Bytes = r.rdb.HStrLen(bg, r.keys.Jobs, "d").Val()
	same(t, "swept", r.sweep(), 2)
	equal(t, "by bytes", r.buried(r.keys.Cancelled), []string{"d"})
}

// A queue that keeps no completed jobs keeps those whose records say so, within the default bounds.
func testRetainOfCompleted(t *testing.T, r *rig) {
	r.open()
	r.kept.Jobs = 2
	r.retainedTill(Completed, time.Hour, "a")
	r.buryCompleted("plain")
	equal(t, "kept", r.buried(r.keys.Completed), []string{"a"})
	v := r.shown("a")
	if v.State != signalbox.StateCompleted || v.Success == nil || *v.Success != successOf {
		t.Errorf("it is %s, completed by %+v", v.State, v.Success)
	}
	same(t, "swept", r.sweep(), 0)
	r.passed(r.keys.Completed, time.Minute, "a")
	r.retainedTill(Completed, time.Hour, "b", "c")
	equal(t, "the default bounds", r.buried(r.keys.Completed), []string{"b", "c"})

	r.keepCompleted(signalbox.Retention{Jobs: 10})
	r.buryCompleted("x")
	equal(t, "where some are kept", r.buried(r.keys.Completed), []string{"b", "c", "x"})
	r.keepCompleted(signalbox.Retention{})
	same(t, "swept where none are kept any more", r.sweep(), 1)
	equal(t, "kept", r.buried(r.keys.Completed), []string{"b", "c"})
	r.passed(r.keys.Completed, time.Hour, "b")
	same(t, "swept", r.sweep(), 1)
	same(t, "fate of the ID", r.fates(r.item("c", When{}, 0)), "F")
	r.settled(settlement(r.one(), Completed))
	same(t, "records", r.rdb.HLen(bg, r.keys.Jobs).Val(), 0)

	// A worker of an older release asks for nothing.
	r.retained(time.Hour, "old")
	r.settled(settlement(r.one(), Completed))
	same(t, "records", r.rdb.HLen(bg, r.keys.Jobs).Val(), 0)
}

// Listings have the time when a job ended, and look at that.
func testRetainIsListed(t *testing.T, r *rig) {
	r.open()
	r.looked = 2
	ended := make(map[string]time.Time)
	now, err := r.Now(bg)
	r.must(err)
	for i, id := range []string{"p", "a", "q", "b", "s", "c"} {
		own := id < "p"
		at := now.Add(time.Duration(i-10) * time.Minute)
		ended[id] = at
		if !own {
			r.bury(Dead, id)
			r.must(r.rdb.ZAdd(bg, r.keys.Dead, redis.Z{Score: float64(at.UnixMicro()), Member: id}).Err())
			continue
		}
		r.retainedTill(Dead, time.Hour, id)
		r.must(r.rdb.ZAdd(bg, r.keys.Dead, redis.Z{Score: float64(at.Add(time.Hour).UnixMicro()) - 1<<52, Member: id}).Err())
	}
	list := func(l looks.Listing) (ids []string) {
		t.Helper()
		l.State = signalbox.StateDead
		for v, err := range r.Looks().Jobs(bg, l) {
			r.must(err)
			if !v.At.Equal(ended[v.Job.ID].Truncate(time.Microsecond)) {
				t.Errorf("%s ended at %v; want %v", v.Job.ID, v.At, ended[v.Job.ID])
			}
			ids = append(ids, v.Job.ID)
		}
		return ids
	}
	equal(t, "all", list(looks.Listing{}), []string{"a", "b", "c", "p", "q", "s"})
	equal(t, "from a time", list(looks.Listing{From: ended["q"]}), []string{"b", "c", "q", "s"})
	equal(t, "up to a time", list(looks.Listing{To: ended["q"]}), []string{"a", "p", "q"})
	equal(t, "between", list(looks.Listing{From: ended["a"], To: ended["b"]}), []string{"a", "b", "q"})
	equal(t, "after all", list(looks.Listing{From: now}), nil)
	equal(t, "by the ID", list(looks.Listing{Prefix: "b", From: ended["a"]}), []string{"b"})
	for v, err := range r.Looks().Jobs(bg, looks.Listing{State: signalbox.StateDead, From: ended["a"]}) {
		r.must(err)
		equal(t, "behind "+v.Job.ID, list(looks.Listing{From: ended["a"], After: v.Cursor}), map[string][]string{
			"a": {"b", "c", "q", "s"}, "b": {"c", "q", "s"}, "c": {"q", "s"}, "q": {"s"}, "s": nil,
		}[v.Job.ID])
	}

	for n, want := range []string{1: "c", 3: "csb", 4: "csbq", 9: "csbqap"} {
		if want == "" {
			continue
		}
		latest, err := r.Looks().Latest(bg, signalbox.StateDead, n)
		r.must(err)
		same(t, fmt.Sprint("the latest ", n), strings.Join(viewed(latest), ""), want)
	}
	for s, err := range r.Transfer().All(bg) {
		r.must(err)
		if !s.Ended.Equal(ended[s.ID].Truncate(time.Microsecond)) {
			t.Errorf("all: %s ended at %v; want %v", s.ID, s.Ended, ended[s.ID])
		}
	}
}

// A job that is moved, or written to a file and read, keeps the time when it ended and when it is dropped.
func testRetainIsMoved(t *testing.T, r *rig) {
	r.open()
	to := r.other()
	r.retainedTill(Dead, time.Hour, "a", "b")
	r.passed(r.keys.Dead, 20*time.Minute, "a", "b")
	before, score := r.shown("a"), r.rdb.ZScore(bg, r.keys.Dead, "a").Val()
	same(t, "moved", r.moved(to, "a"), Answer{Done, signalbox.StateDead})
	got := to.shown("a")
	if !got.At.Equal(before.At) || got.Job.Retain != time.Hour || to.rdb.ZScore(bg, to.keys.Dead, "a").Val() != score {
		t.Errorf("it ended at %v, and is kept for %v; want %v", got.At, got.Job.Retain, before.At)
	}
	for s, err := range r.Transfer().All(bg) {
		r.must(err)
		s.Record = nil
		r.must(to.Transfer().Prepare(&s))
		_, err := to.Transfer().Put(bg, []Stored{s}, false)
		r.must(err)
		same(t, "of a file", to.rdb.ZScore(bg, to.keys.Dead, "b").Val(), r.rdb.ZScore(bg, r.keys.Dead, "b").Val())
		same(t, "of a file", to.shown("b").Job.Retain, time.Hour)
	}
	to.check()
	to.passed(to.keys.Dead, 39*time.Minute, "a", "b")
	same(t, "swept", to.sweep(), 0)
	to.passed(to.keys.Dead, time.Minute, "a", "b")
	same(t, "swept", to.sweep(), 2)
}

// What is done to a job leaves how long it is kept. One that takes its ID has its own.
func testRetainAgain(t *testing.T, r *rig) {
	r.open()
	r.retainedTill(Dead, time.Hour, "a")
	same(t, "run", r.did(RunJobs(time.Time{}), "a"), Answer{Done, signalbox.StateDead})
	same(t, "class", r.did(PrioritiseJobs(signalbox.PriorityLow), "a"), Answer{Done, signalbox.StateReady})
	answer, err := r.Edit(bg, "a", wire.Edit{Payload: []byte(`"edited"`)}, false)
	r.must(err)
	same(t, "edited", answer.Acted, Done)
	d := r.one()
	same(t, "of the delivery", d.Job.Retain, time.Hour)
	r.settled(settlement(d, Cancelled))
	if score := r.rdb.ZScore(bg, r.keys.Cancelled, "a").Val(); score >= 0 {
		t.Errorf("its score is %.0f", score)
	}
	same(t, "fate", r.fates(r.item("a", When{}, 0)), "C")
	equal(t, "cancelled", r.buried(r.keys.Cancelled), nil)
	same(t, "bytes", r.rdb.HGet(bg, r.keys.Stats, "cancelled_bytes").Val(), "0")
	r.settled(settlement(r.one(), Dead))
	if score := r.rdb.ZScore(bg, r.keys.Dead, "a").Val(); score < 0 {
		t.Errorf("the score of the new job is %.0f", score)
	}
	cautious, err := NewItem(&signalbox.Job{ID: "a", Kind: "k", Retain: time.Hour}, When{})
	r.must(err)
	cautious.IfAbsent()
	same(t, "fate of one that replaces no other", r.fates(cautious), "d")
	same(t, "deleted", r.did(DeleteJobs(), "a"), Answer{Done, signalbox.StateDead})
	same(t, "fate of one that replaces no other", r.fates(cautious), "1")
	same(t, "and is kept", r.stored("a").Retain, time.Hour)
}

// A job of a cron entry that a tool enqueues is as that of a tick.
func testRetainOfAnEntry(t *testing.T, r *rig) {
	r.open()
	for _, d := range []time.Duration{0, time.Hour, signalbox.RetainNone} {
		job := &signalbox.Job{Kind: "k", Payload: []byte(`{"a":1}`), Priority: signalbox.PriorityHigh, Retain: d, Group: "a", Serial: d > 0}
		n := NewNotice(NewPlan("e", "plan"), Description{Spec: "@daily", Zone: "UTC"}, job, false)
		r.must(r.Cron().Announce(bg, []Notice{n}))
		known, err := r.Cron().RunEntry(bg, "e", fmt.Sprint("run", d))
		r.must(err)
		same(t, "known", known, true)
		got := r.one().Job
		if got.Retain != d || got.Kind != "k" || string(got.Payload) != `{"a":1}` || got.Priority != signalbox.PriorityHigh || got.Group != "a" || got.Serial != (d > 0) {
			t.Errorf("with %v it is %+v", d, got)
		}
	}
	for _, strange := range []string{"1+", "1+\x02", "1+\x02\x00\x08", "1+\x00\x00\x00\n\x01k", "1+\x02\xff\xff\n\x01k"} {
		r.must(r.rdb.HSet(bg, r.keys.Entries, "job:e", strange).Err())
		if _, err := r.Cron().RunEntry(bg, "e", "strange"); err == nil || !strings.Contains(err.Error(), "holds no job") {
			t.Errorf("%q: %v", strange, err)
		}
	}
}

// A job that says nothing pays nothing: no byte, no argument. What a server runs for its end is the same.
func TestRetainIsFree(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	r := newQueue(t, srv.Client())
	r.open()
	same(t, "class of a plain job", r.item("a", When{}, 0).class, "1")
	log := monitor(t, srv.Addr())
	commands := func(what string, d time.Duration, o Outcome) (all []string) {
		r.retained(d, what)
		s := settlement(r.one(), o)
		r.must(r.rdb.Echo(bg, "begin "+what).Err())
		r.settled(s)
		r.must(r.rdb.Echo(bg, "end "+what).Err())
		for log.Scan() && !strings.Contains(log.Text(), `"end `+what+`"`) {
			if _, call, lua := strings.Cut(log.Text(), " lua] "); lua {
				all = append(all, call)
			} else if strings.Contains(log.Text(), `"begin `+what+`"`) {
				all = nil
			}
		}
		return all
	}
	commands("first", 0, Completed) // loads the script
	if got := strings.Join(commands("plain", 0, Completed), "\n"); strings.Contains(got, `"HGET" "`+r.keys.Jobs) || strings.Contains(got, ":completed") {
		t.Errorf("the end of a plain job looks at its record:\n%s", got)
	}
	dead := commands("dead", 0, Dead)
	trims := 0
	for _, call := range dead {
		if strings.Contains(call, `"ZRANGE" "`+r.keys.Dead) {
			trims++
		}
	}
	same(t, "looks at the dead", trims, 1)
}
