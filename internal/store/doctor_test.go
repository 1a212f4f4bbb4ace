package store

import (
	"context"
	"errors"
	cli "flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/check"
	"github.com/signalbox-go/signalbox/internal/store/doctor"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

var doctorJobs = cli.Int("doctor.jobs", 5_000, "dead jobs, and others, of TestDoctorOfMany")

var doctorTests = []storeTest{
	{"DoctorOfSound", testDoctorOfSound},
	{"DoctorRepairs", testDoctorRepairs},
	{"DoctorRepairsGroups", testDoctorRepairsGroups},
	{"DoctorRepairsLimits", testDoctorRepairsLimits},
	{"DoctorBesideLoad", testDoctorBesideLoad},
	{"DoctorLooksAgain", testDoctorLooksAgain},
}

// findings runs the doctor.
func (r *rig) findings(repair bool) (all []doctor.Finding, c doctor.Checked) {
	r.t.Helper()
	c, err := doctor.Run(bg, r.Site(), doctor.Checkup{Repair: repair, Pause: -1, Found: func(f doctor.Finding) { all = append(all, f) }})
	r.must(err)
	if int64(len(all)) != c.Found || len(c.Unproved) > 0 {
		r.t.Errorf("%d findings, and it says %+v", len(all), c)
	}
	return all, c
}

// sound fills a queue with jobs in every state.
func (r *rig) sound() {
	r.t.Helper()
	r.open()
	r.bury(Dead, "dead")
	r.bury(Cancelled, "cancelled")
	r.put("run", "run2")
	got := r.claim(2)
	r.note(got[0], "span")
	r.cancel("run2")
	r.put("first", "ready")
	r.enqueued(r.item("high", When{}, signalbox.PriorityHigh), r.item("due", When{After: time.Hour}, signalbox.PriorityNormal))
}

func testDoctorOfSound(t *testing.T, r *rig) {
	if found, c := r.findings(true); len(found) > 0 || c.Jobs != 0 {
		t.Errorf("of an empty queue: %+v, %+v", found, c)
	}
	r.furnish()
	before := r.dump()
	found, c := r.findings(true)
	if len(found) > 0 || c.Jobs != r.rdb.HLen(bg, r.keys.Jobs).Val() || c.Jobs < 10 {
		t.Errorf("%+v, %+v", found, c)
	}
	r.unchanged("a doctor", before)
}

// A planted fault is what somebody did to a sound queue.
type planted struct {
	name   string
	want   []facts.Fault
	spoil  func(r *rig) error
	only   bool     // it is only reported
	differ []string // keys that the repair leaves otherwise than they were before; others are again as they were
}

func plantedFaults() []planted {
	z := func(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }
	return []planted{
		{name: "twice in a list", want: []facts.Fault{facts.TwoPlaces}, spoil: func(r *rig) error {
			return r.rdb.RPush(bg, r.keys.ReadyNormal, "ready").Err()
		}},
		{name: "in two lists", want: []facts.Fault{facts.TwoPlaces, facts.WrongClass}, spoil: func(r *rig) error {
			return r.rdb.RPush(bg, r.keys.ReadyLow, "ready").Err()
		}},
		{name: "ready and dead", want: []facts.Fault{facts.TwoPlaces}, spoil: func(r *rig) error {
			size := r.rdb.HStrLen(bg, r.keys.Jobs, "ready").Val()
			return errors.Join(r.rdb.ZAdd(bg, r.keys.Dead, z(1, "ready")).Err(), r.rdb.HIncrBy(bg, r.keys.Stats, "dead_bytes", size).Err())
		}},
		{name: "running and ready", want: []facts.Fault{facts.TwoPlaces}, spoil: func(r *rig) error {
			return r.rdb.LPush(bg, r.keys.ReadyNormal, "run").Err()
		}},
		{name: "due and ready", want: []facts.Fault{facts.TwoPlaces, facts.WrongTime}, spoil: func(r *rig) error {
			return r.rdb.ZAdd(bg, r.keys.Due, z(4e15, "1ready")).Err()
		}},
		{name: "in two sessions", want: []facts.Fault{facts.TwoPlaces}, differ: []string{"sessions"}, spoil: func(r *rig) error {
			return errors.Join(r.rdb.ZAdd(bg, r.keys.Sessions, z(4e15, "s2")).Err(), r.rdb.HSet(bg, r.keys.Inflight("s2"), "run", "7").Err())
		}},
		{name: "dead and cancelled", want: []facts.Fault{facts.TwoPlaces}, differ: []string{"dead", "cancelled", "stats"}, spoil: func(r *rig) error {
			size := r.rdb.HStrLen(bg, r.keys.Jobs, "dead").Val()
			return errors.Join(r.rdb.ZAdd(bg, r.keys.Cancelled, z(1, "dead")).Err(), r.rdb.HIncrBy(bg, r.keys.Stats, "cancelled_bytes", size).Err())
		}},
		{name: "a record without a place", want: []facts.Fault{facts.NoPlace}, spoil: func(r *rig) error {
			return r.rdb.LRem(bg, r.keys.ReadyNormal, 1, "ready").Err()
		}},
		{name: "a scheduled record without a place", want: []facts.Fault{facts.NoPlace}, spoil: func(r *rig) error {
			return r.rdb.ZRem(bg, r.keys.Due, "1due").Err()
		}},
		{name: "ready without a record", want: []facts.Fault{facts.NoRecord}, spoil: func(r *rig) error {
			return r.rdb.RPush(bg, r.keys.ReadyLow, "x").Err()
		}},
		{name: "due without a record", want: []facts.Fault{facts.NoRecord}, spoil: func(r *rig) error {
			return r.rdb.ZAdd(bg, r.keys.Due, z(1, "sx")).Err()
		}},
		{name: "running without a record", want: []facts.Fault{facts.NoRecord}, spoil: func(r *rig) error {
			return r.rdb.HSet(bg, r.keys.Inflight("s1"), "x", "7").Err()
		}},
		{name: "dead without a record", want: []facts.Fault{facts.NoRecord}, spoil: func(r *rig) error {
			return r.rdb.ZAdd(bg, r.keys.Dead, z(1, "x")).Err()
		}},
		{name: "in the list of another class", want: []facts.Fault{facts.WrongClass}, spoil: func(r *rig) error {
			return errors.Join(r.rdb.LRem(bg, r.keys.ReadyNormal, 1, "ready").Err(), r.rdb.RPush(bg, r.keys.ReadySuspect, "ready").Err())
		}},
		{name: "due in another class", want: []facts.Fault{facts.WrongClass}, spoil: func(r *rig) error {
			score := r.rdb.ZScore(bg, r.keys.Due, "1due").Val()
			return errors.Join(r.rdb.ZRem(bg, r.keys.Due, "1due").Err(), r.rdb.ZAdd(bg, r.keys.Due, z(score, "0due")).Err())
		}},
		{name: "due at another time", want: []facts.Fault{facts.WrongTime}, spoil: func(r *rig) error {
			return r.rdb.ZAdd(bg, r.keys.Due, z(5, "1due")).Err()
		}},
		{name: "an empty member", want: []facts.Fault{facts.BadMember}, spoil: func(r *rig) error {
			return r.rdb.ZAdd(bg, r.keys.Due, z(5, "")).Err()
		}},
		{name: "a session that isn't registered", want: []facts.Fault{facts.NoSession}, differ: []string{"sessions", "ready:normal", "inflight:s2"}, spoil: func(r *rig) error {
			return errors.Join(r.rdb.LRem(bg, r.keys.ReadyNormal, 1, "ready").Err(), r.rdb.HSet(bg, r.keys.Inflight("s2"), "ready", "7").Err())
		}},
		{name: "no token", want: []facts.Fault{facts.BadToken}, differ: []string{"inflight:s1", "ready:normal"}, spoil: func(r *rig) error {
			return r.rdb.HSet(bg, r.keys.Inflight("s1"), "run", "x").Err()
		}},
		{name: "a negative token", want: []facts.Fault{facts.BadToken}, differ: []string{"inflight:s1", "ready:normal"}, spoil: func(r *rig) error {
			return r.rdb.HSet(bg, r.keys.Inflight("s1"), "run", "-5").Err()
		}},
		{name: "a token with a sign", want: []facts.Fault{facts.BadToken}, differ: []string{"inflight:s1", "ready:normal"}, spoil: func(r *rig) error {
			return r.rdb.HSet(bg, r.keys.Inflight("s1"), "run", "+5").Err()
		}},
		{name: "a token of a time far away", want: []facts.Fault{facts.BadToken}, differ: []string{"inflight:s1", "ready:normal"}, spoil: func(r *rig) error {
			return r.rdb.HSet(bg, r.keys.Inflight("s1"), "run", r.days(367)).Err()
		}},
		{name: "a token of a time far away, and cancelled", want: []facts.Fault{facts.BadToken}, differ: []string{"inflight:s1", "ready:normal", "cancels"}, spoil: func(r *rig) error {
			token := fmt.Sprint(r.days(367))
			return errors.Join(r.rdb.HSet(bg, r.keys.Inflight("s1"), "run2", token+" c").Err(), r.rdb.HSet(bg, r.keys.Cancels, "run2", token+" "+string(facts.MarkOf(""))).Err())
		}},
		{name: "a token of a later time", want: []facts.Fault{facts.BeyondFence}, differ: []string{"inflight:s1", "fence"}, spoil: func(r *rig) error {
			return r.rdb.HSet(bg, r.keys.Inflight("s1"), "run", r.days(365)).Err()
		}},
		{name: "no token, and cancelled", want: []facts.Fault{facts.BadToken, facts.StrayMark}, spoil: func(r *rig) error {
			return r.rdb.HSet(bg, r.keys.Inflight("s1"), "run2", "x c").Err()
		}},
		{name: "beyond the fence", want: []facts.Fault{facts.BeyondFence, facts.BeyondFence}, spoil: func(r *rig) error {
			return r.rdb.DecrBy(bg, r.keys.Fence, 100).Err()
		}},
		{name: "a stale count", want: []facts.Fault{facts.WrongBytes}, spoil: func(r *rig) error {
			return r.rdb.HSet(bg, r.keys.Stats, "dead_bytes", 7).Err()
		}},
		{name: "a count that is none", want: []facts.Fault{facts.WrongBytes}, spoil: func(r *rig) error {
			return r.rdb.HSet(bg, r.keys.Stats, "cancelled_bytes", "x").Err()
		}},
		{name: "a larger record", want: []facts.Fault{facts.WrongLargest}, differ: []string{"stats", "jobs"}, spoil: func(r *rig) error {
			record := r.rdb.HGet(bg, r.keys.Jobs, "ready").Val()
			return r.rdb.HSet(bg, r.keys.Jobs, "ready", record+"\x12\xd8\x36"+strings.Repeat("x", 7000)).Err()
		}},
		{name: "a span of nobody", want: []facts.Fault{facts.StrayNote}, spoil: func(r *rig) error {
			return r.rdb.HSet(bg, r.keys.Notes, "x", "1 span").Err()
		}},
		{name: "a span of an ended job", want: []facts.Fault{facts.StrayNote}, spoil: func(r *rig) error {
			return r.rdb.HSet(bg, r.keys.Notes, "dead", "1 span").Err()
		}},
		{name: "a mark of a job that waits", want: []facts.Fault{facts.StrayMark}, spoil: func(r *rig) error {
			return r.rdb.HSet(bg, r.keys.Cancels, "ready", "1 0  ").Err()
		}},
		{name: "a mark of another delivery", want: []facts.Fault{facts.StrayMark}, spoil: func(r *rig) error {
			return r.rdb.HSet(bg, r.keys.Cancels, "run", "1 0  ").Err()
		}},
		{name: "a mark without the flag", want: []facts.Fault{facts.StrayMark}, spoil: func(r *rig) error {
			token := r.rdb.HGet(bg, r.keys.Inflight("s1"), "run2").Val()
			return r.rdb.HSet(bg, r.keys.Inflight("s1"), "run2", strings.TrimSuffix(token, " c")).Err()
		}},
		{name: "a flag without a mark", want: []facts.Fault{facts.NoMark}, differ: []string{"cancels"}, spoil: func(r *rig) error {
			return r.rdb.HDel(bg, r.keys.Cancels, "run2").Err()
		}},
		{name: "an address of no session", want: []facts.Fault{facts.StrayAddress}, spoil: func(r *rig) error {
			return r.rdb.ZAdd(bg, r.keys.Idle, z(1, r.Channels().Address("nobody", false))).Err()
		}},

		{name: "an unreadable record", want: []facts.Fault{facts.Unreadable}, only: true, spoil: func(r *rig) error {
			return r.rdb.HSet(bg, r.keys.Jobs, "ready", "no record").Err()
		}},
		{name: "two with one token", want: []facts.Fault{facts.SameToken}, only: true, spoil: func(r *rig) error {
			token := strings.TrimSuffix(r.rdb.HGet(bg, r.keys.Inflight("s1"), "run2").Val(), " c")
			return r.rdb.HSet(bg, r.keys.Inflight("s1"), "run", token).Err()
		}},
		{name: "suspects together", want: []facts.Fault{facts.Together}, only: true, spoil: func(r *rig) error {
			token := strings.TrimSuffix(r.rdb.HGet(bg, r.keys.Inflight("s1"), "run2").Val(), " c")
			run := r.rdb.HGet(bg, r.keys.Inflight("s1"), "run").Val()
			return r.rdb.HSet(bg, r.keys.Inflight("s1"), "run", run+" s2", "run2", token+" s4c").Err()
		}},
		{name: "suspects together, with more crashes than are usual", want: []facts.Fault{facts.Together}, only: true, spoil: func(r *rig) error {
			token := strings.TrimSuffix(r.rdb.HGet(bg, r.keys.Inflight("s1"), "run2").Val(), " c")
			run := r.rdb.HGet(bg, r.keys.Inflight("s1"), "run").Val()
			return r.rdb.HSet(bg, r.keys.Inflight("s1"), "run", run+" s7", "run2", token+" s12c").Err()
		}},
		{name: "a stray key", want: []facts.Fault{facts.StrayKey, facts.StrayKey}, only: true, spoil: func(r *rig) error {
			return errors.Join(r.rdb.Set(bg, r.keys.Prefix+"odd", 1, 0).Err(), r.rdb.Set(bg, r.keys.Inflight(""), 1, 0).Err())
		}},
		{name: "settings that can't be read", want: slices.Repeat([]facts.Fault{facts.BadSetting}, 6), only: true, spoil: func(r *rig) error {
			return r.rdb.HSet(bg, r.keys.Settings, "slots", "many", "keep", "012 1 1", "quiet:w", "yes", "cron:e", "yes", "paused", "", "layout", "1.0").Err()
		}},
		{name: "no fence", want: []facts.Fault{facts.BadFence}, only: true, spoil: func(r *rig) error {
			return r.rdb.Set(bg, r.keys.Fence, "x", 0).Err()
		}},
		{name: "a negative fence", want: []facts.Fault{facts.BadFence}, only: true, spoil: func(r *rig) error {
			return r.rdb.Set(bg, r.keys.Fence, "-5", 0).Err()
		}},
		{name: "a fence with a sign", want: []facts.Fault{facts.BadFence}, only: true, spoil: func(r *rig) error {
			return r.rdb.Set(bg, r.keys.Fence, "+5", 0).Err()
		}},
		{name: "a fence that is too large", want: []facts.Fault{facts.BadFence}, only: true, spoil: func(r *rig) error {
			return r.rdb.Set(bg, r.keys.Fence, facts.LatestToken+1, 0).Err()
		}},
		{name: "a fence that is too long", want: []facts.Fault{facts.BadFence}, only: true, spoil: func(r *rig) error {
			return r.rdb.Set(bg, r.keys.Fence, "123456789012345678", 0).Err()
		}},
		{name: "another type", want: []facts.Fault{facts.WrongType}, only: true, spoil: func(r *rig) error {
			return errors.Join(r.rdb.Del(bg, r.keys.Due).Err(), r.rdb.Set(bg, r.keys.Due, "1", 0).Err())
		}},
	}
}

// days returns the token of so many days from now.
func (r *rig) days(n int64) int64 {
	r.t.Helper()
	now, err := r.Now(bg)
	r.must(err)
	return now.UnixMicro() + n*24*time.Hour.Microseconds()
}

// Each planted fault is found, repaired or only reported, and nothing else is touched.
func testDoctorRepairs(t *testing.T, all *rig) { testPlanted(t, all, plantedFaults(), (*rig).sound) }

// testPlanted plants each of the faults in a queue that sound has furnished.
func testPlanted(t *testing.T, all *rig, faults []planted, sound func(r *rig)) {
	for _, p := range faults {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			r := unchecked(t, all.rdb)
			sound(r)
			r.check()
			sound := r.dump()
			r.must(p.spoil(r))
			spoilt := r.dump()
			if len(differences(sound, spoilt)) == 0 {
				t.Fatal("nothing is planted")
			}

			found, _ := r.findings(false)
			equal(t, "findings", faultsOf(found), p.want)
			r.unchanged("a look", spoilt)
			for _, f := range found {
				if f.Mended || f.Text == "" || doctor.Mendable(f.Fault) == p.only {
					t.Errorf("%+v", f)
				}
			}
			if err := check.Queue(bg, r.Site()); err == nil && !slices.Contains([]facts.Fault{facts.Unreadable, facts.BadSetting}, p.want[0]) {
				t.Error("Check has another opinion: it finds nothing")
			}

			found, c := r.findings(true)
			equal(t, "findings of a repair", faultsOf(found), p.want)
			if p.only {
				r.unchanged("a repair of what is only reported", spoilt)
				return
			}
			same(t, "repaired", c.Mended, c.Found)
			for _, d := range differences(sound, r.dump()) {
				key, _, _ := strings.Cut(d, ":\n")
				if !slices.Contains(p.differ, key) {
					t.Errorf("the repair leaves %s", d)
				}
			}
			r.check()
			if found, _ := r.findings(true); len(found) > 0 {
				t.Errorf("after the repair: %+v", found)
			}
		})
	}
}

func faultsOf(found []doctor.Finding) []facts.Fault {
	var all []facts.Fault
	for _, f := range found {
		all = append(all, f.Fault)
	}
	return all
}

// A job of a session that isn't registered is given back as after a crash.
func TestDoctorGivesBack(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.put("a")
	r.claim(1)
	r.must(r.rdb.ZRem(bg, r.keys.Sessions, "s1").Err())
	r.findings(true)
	res := r.reclaim("s1")
	equal(t, "returned", res.Returned, []string{"a"})
	r.session = "s2"
	r.open()
	same(t, "crashes", r.one().Job.Crashes, 1)
}

// A delivery whose token can't be read, of a job that was cancelled while it runs, gets back all that its session holds: the token, the group, the unique key and
// the links. So its end frees the key, and its flow counts it.
func TestDoctorKeepsWhatADeliveryHas(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	b := r.newBatch("flow", string(AwaitsEnd))
	job := signalbox.Job{ID: "a", Kind: "k", Payload: []byte("1"), Group: "g"}
	it, err := NewItem(&job, When{})
	r.must(err)
	it.Unique(Unique{Key: "only", Scope: UntilEnded})
	it.Join(b.ref)
	b.lane.Next()
	_, err = b.Flows().Add(bg, b.lane, &Addition{Flow: b.ref, Items: []Item{it}, Digest: "d"})
	r.must(err)
	b.seal()
	d := r.one()
	r.cancel("a")
	held, err := r.rdb.HGet(bg, r.keys.Inflight("s1"), "a").Result()
	r.must(err)
	if f := facts.FieldsOf(held); f.Group == "" || f.Key == "" || f.Links == "" || !f.Flagged() {
		t.Fatalf("the session holds %q", held)
	}
	_, rest, _ := strings.Cut(held, " ")
	r.must(r.rdb.HSet(bg, r.keys.Inflight("s1"), "a", "x "+rest).Err())
	found, _ := r.findings(true)
	same(t, "the first finding", faultsOf(found)[0], facts.BadToken)
	after, err := r.rdb.HGet(bg, r.keys.Inflight("s1"), "a").Result()
	r.must(err)
	same(t, "what the session holds", after, held)
	r.settled(settlement(d, Completed))
	found, _ = r.findings(false)
	same(t, "what the doctor finds behind its end", len(found), 0)
	same(t, "the callback was released", r.one().Job.ID, "flow-e")
}

// What has moved since it was looked at is left as it is.
func testDoctorLooksAgain(t *testing.T, r *rig) {
	r.open()
	r.put("a")
	r.must(r.rdb.RPush(bg, r.keys.ReadyLow, "a").Err())
	sessions, err := r.Site().SessionsOf(bg, nil)
	r.must(err)
	e, again, err := r.Site().Examine(bg, sessions, facts.Origin{IDs: []string{"a"}, Search: true})
	r.must(err)
	if again || len(e.Jobs) != 1 || len(e.Jobs[0].Places) != 2 {
		t.Fatalf("%v, %+v", again, e)
	}
	r.must(r.rdb.LRem(bg, r.keys.ReadyLow, 0, "a").Err())
	before := r.dump()
	done, _, err := doctor.Mend(bg, r.Site(), sessions, &e.Jobs[0], doctor.StepsOf(&e.Jobs[0], e.Around, 0)...)
	r.must(err)
	same(t, "repaired what is no more", done, false)
	r.unchanged("such a repair", before)
	r.session = "another"
	r.open()
	if _, again, err := r.Site().Examine(bg, sessions, facts.Origin{IDs: []string{"a"}}); err != nil || !again {
		t.Errorf("with a session that it doesn't know: %v, %v", again, err)
	}
	if _, again, err := doctor.Mend(bg, r.Site(), sessions, &e.Jobs[0], doctor.Step{Verb: "undue", A: "1", B: ""}); err != nil || !again {
		t.Errorf("a repair with a session that it doesn't know: %v, %v", again, err)
	}
}

// A job that runs while the lists are read, and waits while sessions are read, is seen nowhere. It is no finding: the last script searches
// the lists itself.
func TestDoctorOfOneThatHides(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := newQueue(t, srv.Client())
	r.open()
	r.put("a")
	r.claim(1)
	r.put("b")
	hides := func(out bool) {
		if out {
			r.settled(settlement(Delivery{Job: &signalbox.Job{ID: "a", Token: facts.TokenOf(r.rdb.HGet(bg, r.keys.Inflight("s1"), "a").Val())}}, Return))
		} else {
			equal(t, "claimed", ids(r.claim(1)), []string{"a"})
		}
	}
	rdb := srv.ClientWith(func(*redis.UniversalOptions) {})
	calls := 0
	rdb.(*redis.Client).AddHook(hooked(func(cmd redis.Cmder, call func() error) error {
		switch {
		case slices.Contains(cmd.Args(), any("jobs")): // the records
			hides(true)
			calls++
		case cmd.Name() == "lrange": // of the suspects' second look
			hides(false)
			defer hides(true)
			calls++
		}
		return call()
	}))
	q := New(rdb, "", r.Name())
	c, err := doctor.Run(bg, q.Site(), doctor.Checkup{Repair: true, Pause: -1, Found: func(f doctor.Finding) { t.Errorf("%+v", f) }})
	r.must(err)
	if calls != 2 || c.Jobs != 2 {
		t.Errorf("%d calls, %+v", calls, c)
	}
}

// A job that was enqueued in the microsecond in which the doctor began is looked at. The clock of the embedded server stands still for longer.
func TestDoctorOfTheSameMoment(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := unchecked(t, srv.Client())
	r.put("a")
	r.must(r.rdb.LRem(bg, r.keys.ReadyNormal, 0, "a").Err())
	rdb := srv.ClientWith(func(*redis.UniversalOptions) {})
	rdb.(*redis.Client).AddHook(hooked(func(cmd redis.Cmder, call func() error) error {
		err := call()
		if now, ok := cmd.(*redis.TimeCmd); ok {
			now.SetVal(r.stored("a").EnqueuedAt)
		}
		return err
	}))
	if c, err := doctor.Run(bg, New(rdb, "", r.Name()).Site(), doctor.Checkup{Pause: -1}); err != nil || c.Found != 1 {
		t.Errorf("%+v, %v", c, err)
	}
}

// hooked is a hook around each command.
type hooked func(cmd redis.Cmder, call func() error) error

func (f hooked) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f hooked) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (f hooked) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return f(cmd, func() error { return next(ctx, cmd) })
	}
}

// A doctor of a newer layout's queue looks, and repairs nothing.
func TestDoctorOfNewerLayout(t *testing.T) {
	t.Parallel()
	r := unchecked(t, redistest.Start(t).Client())
	r.put("a")
	r.must(r.rdb.RPush(bg, r.keys.ReadyLow, "x").Err())
	r.layout(layout.Protocol + 1)
	before := r.dump()
	if found, _ := r.findings(false); len(found) != 1 {
		t.Errorf("%+v", found)
	}
	if _, err := doctor.Run(bg, r.Site(), doctor.Checkup{Repair: true}); !errors.Is(err, signalbox.ErrOutdated) {
		t.Error(err)
	}
	r.unchanged("a repair", before)
}

// Jobs go all ways there are, and the doctor finds nothing.
func testDoctorBesideLoad(t *testing.T, r *rig) {
	const n = 600
	stop := make(chan struct{})
	var load sync.WaitGroup
	for i := range 3 {
		one := &rig{Queue: r.Queue, t: t, producer: r.NewLane(), lane: r.NewLane(), session: fmt.Sprint("load", i)}
		one.open()
		load.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 1))
			for round := 0; ; round++ {
				select {
				case <-stop:
					return
				default:
				}
				one.move(rnd, i, round, n)
			}
		})
	}
	for range 8 {
		c, err := doctor.Run(bg, r.Site(), doctor.Checkup{Pause: -1, Found: func(f doctor.Finding) { t.Errorf("%+v", f) }})
		r.must(err)
		for _, text := range c.Unproved {
			if !strings.HasPrefix(text, "how many jobs hold ") { // jobs are put off and given back all the time
				t.Errorf("unproved: %s", text)
			}
		}
	}
	close(stop)
	load.Wait()
}

// move has some jobs enter, run, end and move.
func (r *rig) move(rnd *rand.Rand, who, round, n int) {
	id := func() string { return fmt.Sprintf("j%d-%d", who, rnd.IntN(n)) }
	for range 20 {
		when := When{}
		if rnd.IntN(4) == 0 {
			when.After = time.Duration(rnd.IntN(20)) * time.Millisecond
		}
		key := []string{"", "", "", "sa", "sb", "sc", "ga", "gb"}[rnd.IntN(8)]
		r.enqueued(r.made(signalbox.Job{ID: id(), Priority: signalbox.Priority(rnd.IntN(3))}, key, when))
	}
	var settle []Settlement
	for _, d := range r.claim(30) {
		o := []Outcome{Completed, Return, Return, Retry, Delay, Dead, Cancelled}[rnd.IntN(7)]
		settle = append(settle, settlement(d, o))
		if rnd.IntN(10) == 0 {
			r.note(d, "span")
			if _, err := r.Do(bg, CancelJobs("why"), []string{d.Job.ID}); err != nil {
				r.t.Error(err)
			}
		}
	}
	r.call(ClaimRequest{Settle: settle, Address: r.address()})
	for _, act := range []Act{RunJobs(time.Time{}), DeleteJobs(), PrioritiseJobs(signalbox.PriorityLow), CancelJobs("why")} {
		if _, err := r.Do(bg, act, []string{id(), id()}); err != nil {
			r.t.Error(err)
		}
	}
	if round%10 == 9 {
		r.crash()
	}
}

// With many sessions a call looks at few jobs. The others of its page are looked at by the next calls.
func TestDoctorOfManySessions(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	r := unchecked(t, redistest.Start(t).Client())
	for i := range 500 {
		r.must(r.rdb.ZAdd(bg, r.keys.Sessions, redis.Z{Score: 4e15, Member: fmt.Sprint("s", i)}).Err())
	}
	for _, id := range numbered("j", 30) {
		r.enqueued(r.item(id, When{After: time.Hour}, 0))
		r.must(r.rdb.ZAdd(bg, r.keys.Due, redis.Z{Score: 1, Member: "1" + id}).Err())
	}
	if found, c := r.findings(true); len(found) != 30 || c.Mended != 30 || c.Jobs != 30 {
		t.Errorf("%d findings, %+v", len(found), c)
	}
	r.check()
}

// A queue with more jobs than a page, in a list, a session and as dead ones: each of some lost ones is found, and no call is long.
// -doctor.jobs=50000 -v prints how long.
func TestDoctorOfMany(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	srv := redistest.New(t)
	r := newQueue(t, srv.Client())
	r.open()
	n := *doctorJobs
	r.kept.Jobs = int64(n)
	for done := 0; done < n; done += 500 {
		r.put(numbered(fmt.Sprint("d", done, "-"), 500)...)
		var settle []Settlement
		for _, d := range r.claim(500) {
			settle = append(settle, settlement(d, Dead))
		}
		for some := range slices.Chunk(settle, 500) {
			r.settled(some...)
		}
		r.put(numbered(fmt.Sprint("w", done, "-"), 500)...)
		r.claim(100)
	}
	if found, c := r.findings(false); len(found) > 0 || c.Jobs < int64(2*n) {
		t.Errorf("%+v, %+v", found, c)
	}
	var lost []any
	for i, id := range r.rdb.LRange(bg, r.keys.ReadyNormal, 0, -1).Val() {
		if i%(n/20) == 7 {
			lost = append(lost, id)
			r.must(r.rdb.LRem(bg, r.keys.ReadyNormal, 1, id).Err())
		}
	}
	r.must(r.rdb.HIncrBy(bg, r.keys.Stats, "dead_bytes", 5).Err())
	found, c := r.findings(true)
	if len(found) != len(lost)+1 || c.Mended != c.Found {
		t.Errorf("%d findings, %d repaired; %d were lost", c.Found, c.Mended, len(lost))
	}
	middle := r.rdb.LIndex(bg, r.keys.ReadyNormal, int64(n)/3).Val()
	for what, call := range map[string]func() error{
		"a page of records": func() error {
			_, _, err := r.Site().Examine(bg, []string{"s1"}, facts.Origin{Name: "jobs", Cursor: "0", Count: facts.MaxLook})
			return err
		},
		"a page of a list": func() error {
			_, _, err := r.Site().Examine(bg, []string{"s1"}, facts.Origin{Name: "ready", Of: "1", Cursor: "100", Count: 100 + facts.MaxLook + doctor.Overlap})
			return err
		},
		"the search for a job": func() error {
			_, _, err := r.Site().Examine(bg, []string{"s1"}, facts.Origin{IDs: []string{middle}, Search: true})
			return err
		},
		"a part of the sum": func() error {
			_, err := scripts.Sum.Run(bg, r.rdb, scripts.Sum.Keys(&r.keys), []any{"dead", 0, doctor.MaxSum - 1})
			return err
		},
	} {
		const times = 20
		before := r.cpu()
		for range times {
			r.must(call())
		}
		took := (r.cpu() - before) / times
		t.Logf("%d jobs: %s takes Redis %v of processor time", c.Jobs, what, took)
		if took > 5*time.Millisecond {
			t.Errorf("%s takes Redis %v", what, took)
		}
	}
}

// cpu returns how much processor time the server has used.
func (r *rig) cpu() (used time.Duration) {
	r.t.Helper()
	info := r.rdb.InfoMap(bg, "cpu").Val()["CPU"]
	for _, field := range []string{"used_cpu_user_main_thread", "used_cpu_sys_main_thread"} {
		d, err := time.ParseDuration(info[field] + "s")
		if err != nil {
			return 0 // the embedded server doesn't say
		}
		used += d
	}
	return used
}

// A key of another type that the doctor doesn't need is reported, and all else is checked.
func TestDoctorOfTypesBeside(t *testing.T) {
	t.Parallel()
	r := unchecked(t, redistest.Start(t).Client())
	r.put("a")
	r.must(r.rdb.LRem(bg, r.keys.ReadyNormal, 0, "a").Err())
	for _, key := range []string{r.keys.History, r.keys.Entries, r.keys.Cron, r.keys.Reporter} {
		r.must(r.rdb.Del(bg, key).Err())
		r.must(r.rdb.RPush(bg, key, "x").Err())
	}
	found, _ := r.findings(false)
	equal(t, "findings", faultsOf(found), []facts.Fault{facts.WrongType, facts.WrongType, facts.WrongType, facts.WrongType, facts.NoPlace})
}
