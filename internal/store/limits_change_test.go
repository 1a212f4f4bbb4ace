package store

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/facts"
)

// starts claims, by the hints of the replies, until n jobs have started in all. It returns them, and how many calls that took.
func (r *rig) starts(n int) (all []Delivery, calls int) {
	r.t.Helper()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for last := time.Now().Add(30 * time.Second); len(all) < n; {
		if time.Now().After(last) {
			r.t.Fatalf("%d of %d jobs have started, in %d calls", len(all), n, calls)
		}
		<-timer.C
		reply := r.call(ClaimRequest{Want: 10})
		calls++
		all = append(all, reply.Deliveries...)
		pause := time.Millisecond
		if !reply.More && (reply.Next < 0 || reply.Next > pause) {
			pause = min(max(reply.Next, 0), 100*time.Millisecond)
		}
		timer.Reset(pause)
	}
	return all, calls
}

// bounded is what limits can be of: each sets them for the jobs of put.
func bounded(r *rig) map[string]func(signalbox.Limits) {
	return map[string]func(signalbox.Limits){
		"queue":  func(l signalbox.Limits) { _, err := r.Settings().SetLimits(bg, l); r.must(err) },
		"groups": func(l signalbox.Limits) { _, err := r.Settings().SetGroupLimits(bg, l); r.must(err) },
		"group":  func(l signalbox.Limits) { _, err := r.Settings().SetLimitsOf(bg, "a", l); r.must(err) },
	}
}

// When a rate has been used up and is changed, jobs start by the new one.
func TestRateIsChanged(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"queue", "groups", "group"} {
		for what, change := range map[string][2]signalbox.Rate{
			"a higher one":  {{Jobs: 3, Per: 24 * time.Hour, Burst: 3}, {Jobs: 50, Burst: 3}},
			"a quota":       {{Jobs: 1, Per: time.Hour}, {Jobs: 24 * 3600 * 40, Per: 24 * time.Hour, Burst: 3}},
			"a lower burst": {{Jobs: 3, Per: time.Minute, Burst: 3}, {Jobs: 1, Per: 20 * time.Millisecond}},
		} {
			t.Run(of+"/"+what, func(t *testing.T) {
				t.Parallel()
				r := onShared(t)
				r.open()
				r.putIn("ga", numbered("j", 20)...)
				set := bounded(r)[of]
				set(signalbox.Limits{Rate: change[0]})
				began := len(r.claim(10))
				same(t, "at once", began, max(1, change[0].Burst))
				same(t, "then none", len(r.claim(10)), 0)
				set(signalbox.Limits{Rate: change[1]})
				_, calls := r.starts(20 - began)
				if calls > 80 {
					t.Errorf("%d calls for %d jobs", calls, 20-began)
				}
				r.check()
			})
		}
	}
}

// When Redis' clock is set back, rates go on: what waits for one waits no longer than it would have.
func TestRatesWhenTheClockGoesBack(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"queue", "groups", "group"} {
		t.Run(of, func(t *testing.T) {
			t.Parallel()
			srv, shift := redistest.NewWithClock(t)
			r := unchecked(t, srv.Client())
			r.open()
			r.putIn("ga", numbered("j", 20)...)
			bounded(r)[of](signalbox.Limits{Rate: signalbox.Rate{Jobs: 20, Burst: 3}})
			began, _ := r.starts(5)
			shift(-time.Minute)
			_, calls := r.starts(20 - len(began))
			if calls > 80 {
				t.Errorf("%d calls for %d jobs", calls, 20-len(began))
			}
		})
	}
}

// A hold that was made while Redis' clock was an hour ahead ends at its time. So does one that was made before the clock went back.
func TestHoldsWhenTheClockGoesBack(t *testing.T) {
	t.Parallel()
	for _, group := range []string{"", "ga"} {
		t.Run(fmt.Sprintf("%q", group), func(t *testing.T) {
			t.Parallel()
			srv, shift := redistest.NewWithClock(t)
			r := unchecked(t, srv.Client())
			shift(time.Hour)
			r.open()
			r.putIn("ga", "a1", "a2")
			until, err := r.Settings().HoldBack(bg, group, "", 2*time.Second)
			r.must(err)
			shift(0) // nobody has looked since
			same(t, "claimed", len(r.claim(5)), 0)
			now, err := r.Now(bg)
			r.must(err)
			if left := until.Add(-time.Hour).Sub(now); left > 2*time.Second {
				t.Errorf("it was to end in %v", left)
			}
			holds, err := r.Settings().Holds(bg)
			r.must(err)
			if len(holds) != 1 || holds[0].Until.Sub(now) > 20*time.Second || holds[0].Until.Before(now) {
				t.Errorf("it is now %v, and held back are %+v", now, holds)
			}
			r.starts(2)
		})
	}
}

// A hold that an operator ends is over at once, also if Redis' clock goes back before anybody has seen the time at which it was ended.
func TestHoldEndsBeforeTheClockGoesBack(t *testing.T) {
	t.Parallel()
	srv, shift := redistest.NewWithClock(t)
	r := unchecked(t, srv.Client())
	shift(time.Hour)
	r.open()
	_, err := r.Settings().HoldBack(bg, "ga", "", time.Hour)
	r.must(err)
	r.putIn("ga", "a1")
	same(t, "claimed", len(r.claim(5)), 0) // the line is parked, and the time noted
	_, err = r.Settings().HoldBack(bg, "ga", "", 0)
	r.must(err)
	shift(0)
	same(t, "claimed", len(r.claim(5)), 1)
}

// A rate counts from when it was changed, also for a queue or a group at which nobody looks until later.
func TestRateIsChangedUnseen(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"queue", "groups", "group"} {
		t.Run(of, func(t *testing.T) {
			t.Parallel()
			r := onShared(t)
			r.open()
			set := bounded(r)[of]
			set(signalbox.Limits{Rate: signalbox.Rate{Jobs: 1, Per: 24 * time.Hour}})
			r.putIn("ga", "j1")
			same(t, "claimed", len(r.claim(5)), 1)
			member := map[string]string{"queue": ""}[of]
			if of != "queue" {
				member = "ga"
			}
			set(signalbox.Limits{Rate: signalbox.Rate{Jobs: 1, Per: time.Hour}})
			now, err := r.Now(bg)
			r.must(err)
			at := facts.TimeOf(r.rdb.ZScore(bg, r.keys.Rates, member).Val())
			if wait := at.Sub(now); wait > time.Hour || wait < 59*time.Minute {
				t.Errorf("the next job may start in %v", wait)
			}
		})
	}
}

// A time that is further ahead than the rate can bring it, whoever wrote it, keeps jobs from starting for no longer than the rate does.
func TestTimesFarAhead(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"queue", "groups", "group"} {
		t.Run(of, func(t *testing.T) {
			t.Parallel()
			r := onShared(t)
			r.open()
			bounded(r)[of](signalbox.Limits{Rate: signalbox.Rate{Jobs: 1, Per: 10 * time.Millisecond, Burst: 2}})
			r.must(r.rdb.ZAdd(bg, r.keys.Rates, z(8e15, map[bool]string{false: "ga"}[of == "queue"])).Err())
			r.putIn("ga", numbered("j", 5)...)
			r.starts(5)
			r.check()
		})
	}
}

// A limit of a group that is lowered while jobs run holds for these jobs, too, when they come to run again: after a crash, or given back.
func TestLoweredGroupLimitHoldsForItsOwn(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"groups", "group"} {
		for _, back := range []string{"a crash", "given back", "two crashes"} {
			t.Run(of+"/"+back, func(t *testing.T) {
				t.Parallel()
				r := onShared(t)
				r.open()
				set := bounded(r)[of]
				set(signalbox.Limits{Running: 4})
				r.putIn("ga", numbered("j", 6)...)
				got := r.claim(10)
				same(t, "before", len(got), 4)
				set(signalbox.Limits{Running: 1})
				dead := r.session
				switch back {
				case "given back":
					var all []Settlement
					for _, d := range slices.Backward(got) { // the oldest last, so that it stands first
						all = append(all, settlement(d, Return))
					}
					r.settled(all...)
				default:
					r.expire()
					r.session = "s2"
					r.open()
					r.reclaim(dead)
				}
				if back == "two crashes" {
					r.claim(10)
					dead = r.session
					r.expire()
					r.session = "s3"
					r.open()
					r.reclaim(dead)
				}
				r.check()
				var order []string
				for len(order) < 6 { // one at a time, in order
					got := r.call(ClaimRequest{Want: 10, Suspects: true})
					if len(got.Deliveries) == 0 && got.More {
						continue // a suspect was drawn from its line
					}
					same(t, "at a time", len(got.Deliveries), 1)
					order = append(order, got.Deliveries[0].Job.ID)
					same(t, "and no other", len(r.claim(10)), 0)
					r.check()
					r.settled(settlement(got.Deliveries[0], Completed))
				}
				equal(t, "in order", order, numbered("j", 6))
			})
		}
	}
}

// IDs without a record, which are in the lists where somebody has deleted records by hand, let no more jobs run than the queue's limit allows.
func TestLimitBesideIDsWithoutRecords(t *testing.T) {
	t.Parallel()
	for what, registered := range map[string]bool{"sessions are registered": true, "one is taken for over": false} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := unchecked(t, redistest.New(t).Client())
			r.open()
			_, err := r.Settings().SetLimits(bg, signalbox.Limits{Running: 2})
			r.must(err)
			r.put(numbered("j", 6)...)
			equal(t, "the first session", ids(r.claim(9)), []string{"j0000", "j0001"})
			r.must(r.rdb.RPush(bg, r.keys.ReadyNormal, "x1", "x2", "x3", "x4", "x5", "x6").Err())
			if !registered {
				r.must(r.rdb.ZRem(bg, r.keys.Sessions, r.session).Err())
			}
			first := r.session
			r.session, r.lane = "s2", r.NewLane()
			r.open()
			for range 2 {
				equal(t, "beside two that run", ids(r.claim(9)), []string{})
			}
			same(t, "their number", r.rdb.HGet(bg, r.keys.Running, first).Val(), "2")
		})
	}
}

// A group with limits of its own inherits the others of all groups, field by field, also when these change later.
func TestGroupInheritsLimits(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	limits := func(running, jobs int) (l signalbox.Limits) {
		l.Running, l.Rate.Jobs = running, jobs
		if jobs > 0 {
			l.Rate.Per, l.Rate.Burst = 24*time.Hour, jobs
		}
		return l
	}
	all := func(l signalbox.Limits) { t.Helper(); _, err := r.Settings().SetGroupLimits(bg, l); r.must(err) }
	of := func(l signalbox.Limits) { t.Helper(); _, err := r.Settings().SetLimitsOf(bg, "a", l); r.must(err) }
	n := 0
	starts := func(what string, want int) { // of ten jobs of a group that has run none
		t.Helper()
		n++
		r.must(r.rdb.Del(bg, r.keys.Rates, r.keys.Parked).Err())
		r.putIn("ga", numbered(fmt.Sprint("j", n, "-"), 10)...)
		got := r.claim(10)
		groups, _, err := r.Looks().GroupsInUse(bg, 1)
		r.must(err)
		if l := groups[0].Limits; want < 10 && min(cmp.Or(l.Running, 99), cmp.Or(l.Rate.Jobs, 99)) != want {
			t.Errorf("%s: the limits in force are %+v", what, l)
		}
		var done []Settlement
		for _, d := range got {
			done = append(done, settlement(d, Completed))
		}
		same(t, what, len(got), want)
		r.settled(done...)
		_, err = r.Do(bg, DeleteJobs(), r.rdb.HKeys(bg, r.keys.Jobs).Val())
		r.must(err)
	}
	all(limits(9, 4))
	starts("the limits of all", 4)
	of(limits(3, 0))
	starts("three at a time, and the rate of all", 3)
	all(limits(9, 2))
	starts("the rate of all, which is lower now", 2)
	all(limits(0, 0))
	starts("no rate any more", 3)
	all(limits(6, 5))
	of(limits(8, signalbox.NoLimit))
	starts("no rate, whatever all have", 8)
	of(limits(0, 7))
	starts("six at a time as all, by a rate of its own", 6)
	of(limits(signalbox.NoLimit, 7))
	starts("any number at a time", 7)
	of(unlimited)
	starts("no limit", 10)
	of(signalbox.Limits{})
	starts("the limits of all again", 5)
	same(t, "what is left", r.rdb.Exists(bg, r.keys.Limits).Val(), 0)
}

// A job that holds its serial group and was put off for the group's rate starts when the rate is another one, or there is none. One that has been put off for
// something else since doesn't.
func TestPutOffForARate(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"groups", "group"} {
		for what, l := range map[string]signalbox.Limits{"a higher rate": {Rate: signalbox.Rate{Jobs: 50}}, "none": {}} {
			for _, since := range []bool{false, true} {
				t.Run(fmt.Sprint(of, "/", what, "/", since), func(t *testing.T) {
					t.Parallel()
					r := onShared(t)
					r.open()
					set := bounded(r)[of]
					set(signalbox.Limits{Rate: signalbox.Rate{Jobs: 1, Per: 24 * time.Hour}})
					r.putIn("sa", "a1", "a2")
					first := r.claim(1)
					equal(t, "at once", ids(first), []string{"a1"})
					r.call(ClaimRequest{Settle: []Settlement{settlement(first[0], Retry)}})
					equal(t, "for its retry the rate has no room", ids(r.claim(9)), []string{})
					if since {
						r.must(r.rdb.HSet(bg, r.keys.Limits, "dsa", "1 a1").Err()) // it was due at another time then
					}
					set(l)
					same(t, "what is known of it", r.rdb.HExists(bg, r.keys.Limits, "dsa").Val(), false)
					if since {
						equal(t, "with the new limits", ids(r.claim(9)), []string{})
						return
					}
					got, _ := r.starts(1)
					equal(t, "with the new limits", ids(got), []string{"a1"})
					r.check()
				})
			}
		}
	}
}

// The same job waits no longer when Redis' clock is set back.
func TestPutOffWhenTheClockGoesBack(t *testing.T) {
	t.Parallel()
	srv, shift := redistest.NewWithClock(t)
	r := unchecked(t, srv.Client())
	r.open()
	bounded(r)["groups"](signalbox.Limits{Rate: signalbox.Rate{Jobs: 1, Per: 500 * time.Millisecond}})
	r.putIn("sa", "a1", "a2")
	first := r.claim(1)
	r.call(ClaimRequest{Want: 9, Settle: []Settlement{settlement(first[0], Retry)}})
	same(t, "put off", r.rdb.ZCard(bg, r.keys.Due).Val(), 1)
	shift(-time.Hour)
	got, _ := r.starts(1)
	equal(t, "started", ids(got), []string{"a1"})
}

// Jobs of a group that come back from a worker wait for their group's rate in their line: as others do, and in order.
func TestRatesOfJobsThatComeBack(t *testing.T) {
	t.Parallel()
	for _, back := range []string{"a crash", "given back"} {
		t.Run(back, func(t *testing.T) {
			t.Parallel()
			r := onShared(t)
			r.open()
			set := bounded(r)["group"]
			set(signalbox.Limits{Rate: signalbox.Rate{Jobs: 3, Per: 24 * time.Hour, Burst: 3}})
			r.putIn("ga", numbered("j", 5)...)
			got := r.claim(9)
			same(t, "before", len(got), 3)
			if back == "a crash" {
				dead := r.session
				r.expire()
				r.session = "s2"
				r.open()
				r.reclaim(dead)
			} else {
				var all []Settlement
				for _, d := range slices.Backward(got) {
					all = append(all, settlement(d, Return))
				}
				r.settled(all...)
			}
			reply := r.call(ClaimRequest{Want: 9})
			if len(reply.Deliveries) > 0 || reply.More || reply.Next < 50*time.Minute {
				t.Errorf("the rate has no room: %v, %+v", ids(reply.Deliveries), reply.Hints)
			}
			r.check()
			set(signalbox.Limits{Rate: signalbox.Rate{Jobs: 1000}})
			got, _ = r.starts(5)
			equal(t, "in order", ids(got), numbered("j", 5))
			r.check()
		})
	}
}
