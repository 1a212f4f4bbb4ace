package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// standInHook gives all commands of a client to a StandIn.
type standInHook struct{ *StandIn }

func (standInHook) DialHook(next redis.DialHook) redis.DialHook       { return next }
func (h standInHook) ProcessHook(redis.ProcessHook) redis.ProcessHook { return h.Process }
func (standInHook) ProcessPipelineHook(n redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return n
}

// TestStandIn: a StandIn does with each call what the script does on a server, and makes the same records.
func TestStandIn(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	standIn := NewStandIn()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	rdb.AddHook(standInHook{standIn})
	q := New(rdb, "", r.Name())

	// end settles a job on both: on the server it is claimed first, with all that wait.
	held := make(map[string]Delivery)
	end := func(id string, o Outcome, outcome signalbox.Outcome) {
		t.Helper()
		for _, d := range r.claim(100) {
			held[d.Job.ID] = d
		}
		d, ok := held[id]
		if !ok {
			t.Fatalf("job %s was not claimed", id)
		}
		delete(held, id)
		s := settlement(d, o)
		if o == Completed && d.Job.Retain > 0 {
			s = kept(d)
		}
		r.settled(s)
		next := d.Job
		next.Token, next.ClaimedAt = 0, time.Time{} // as in a record
		if o == Completed {
			next = nil
		}
		standIn.Settle("", r.Name(), id, outcome, next)
	}
	high, normal, low := signalbox.PriorityHigh, signalbox.PriorityNormal, signalbox.PriorityLow
	absent := func(it Item) Item { it.IfAbsent(); return it }
	keeps := func(id string, d time.Duration) Item {
		it, err := NewItem(&signalbox.Job{ID: id, Kind: "k", Retain: d}, When{})
		r.must(err)
		return it
	}
	full, err := NewItem(&signalbox.Job{
		ID: "full", Kind: "k", Payload: []byte{0, 255, '"'}, Headers: map[string]string{"a": "b", "": "c"}, Priority: high,
		MaxAttempts: 3, Timeout: time.Second, Effect: "order-7", Incarnation: 7,
	}, When{})
	r.must(err)
	now := time.Now()
	overlaps := func(id, entry string, at time.Duration, how Overlap) Item {
		return r.item(id, When{At: now.Add(at), Entry: entry, Plan: "abc", Late: time.Hour, Overlap: how}, normal)
	}
	tick := func(id, entry string, at time.Duration) Item { return overlaps(id, entry, at, OverlapAllow) } // is never late, however slow the test is
	for _, c := range []struct {
		name   string
		before func()
		by     Reckoning
		items  []Item
		want   string
	}{
		{name: "plain", items: []Item{r.item("a", When{}, normal), r.item("b", When{}, high), r.item("c", When{}, low), full}, want: "1111"},
		{name: "with times", items: []Item{r.item("d", When{After: time.Hour}, normal), r.item("e", When{At: now.Add(time.Hour)}, low), r.item("f", When{At: now.Add(-time.Hour)}, normal)}, want: "111"},
		{name: "twice in a call", items: []Item{r.item("g", When{}, normal), r.item("g", When{}, normal), r.item("h", When{After: time.Hour}, normal), r.item("h", When{}, normal)}, want: "101s"},
		{name: "live", items: []Item{r.item("a", When{}, normal), absent(r.item("d", When{}, normal))}, want: "0s"},
		{name: "ended", before: func() {
			end("a", Completed, signalbox.OutcomeCompleted)
			end("b", Dead, signalbox.OutcomeDead)
			end("c", Cancelled, signalbox.OutcomeCancelled)
		}, items: []Item{absent(r.item("b", When{}, low)), absent(r.item("c", When{}, low)), r.item("a", When{}, low), r.item("b", When{}, low), r.item("c", When{}, low)}, want: "dc1DC"},
		{name: "kept for a time", items: []Item{
			keeps("k1", signalbox.RetainNone), keeps("k2", signalbox.RetainNone), keeps("k3", time.Hour), keeps("k4", time.Hour), keeps("k5", time.Hour),
			keeps("k6", time.Millisecond), keeps("k7", signalbox.RetainNone),
		}, want: "1111111"},
		{name: "kept for a time, ended", before: func() {
			end("k1", Dead, signalbox.OutcomeDead)
			end("k2", Cancelled, signalbox.OutcomeCancelled)
			end("k3", Completed, signalbox.OutcomeCompleted)
			end("k4", Completed, signalbox.OutcomeCompleted)
			end("k5", Dead, signalbox.OutcomeDead)
			end("k6", Dead, signalbox.OutcomeDead)
			end("k7", Retry, signalbox.OutcomeRetried)
			r.passed(r.keys.Dead, time.Second, "k6")
			standIn.queue(r.keys.Jobs).jobs["k6"].ended = now.Add(-time.Second)
			r.sweep()
		}, items: []Item{
			absent(keeps("k1", time.Hour)), absent(keeps("k2", 0)), absent(keeps("k3", 0)), keeps("k4", 0), absent(keeps("k5", 0)), absent(keeps("k6", 0)),
			absent(keeps("k7", 0)),
		}, want: "11fFd10"},
		{name: "a group with a mark in its key", items: []Item{r.made(signalbox.Job{ID: "m1"}, "ga!", When{})}, want: "1"},
		{name: "a group with a mark in its key, ended", before: func() { end("m1", Dead, signalbox.OutcomeDead) }, items: []Item{
			absent(r.made(signalbox.Job{ID: "m1"}, "ga!", When{})), r.made(signalbox.Job{ID: "m1"}, "ga!", When{}),
		}, want: "dD"},
		{name: "ticks", items: []Item{
			tick("t1", "e", -time.Second), tick("t2", "e", -time.Second), tick("t3", "e", 0), tick("t4", "e", time.Hour),
			r.item("t5", When{At: now.Add(-time.Hour), Entry: "f"}, normal), tick("t1", "g", 0),
		}, want: "1t1elt"},
		{name: "ticks by a reckoning", by: Reckoning{Known: true, Skew: -time.Hour}, items: []Item{
			tick("t6", "e", -time.Hour), tick("t7", "h", -time.Hour), tick("t8", "h", 0),
		}, want: "r1e"},
		{name: "ticks that overlap", items: []Item{
			overlaps("o1", "o", -2*time.Second, OverlapSkip), overlaps("o2", "o", -time.Second, OverlapSkip), overlaps("o3", "o", -time.Second, OverlapSkip),
			overlaps("c1", "c", -2*time.Second, OverlapCancel), overlaps("c2", "c", -time.Second, OverlapCancel),
		}, want: "1ot11"},
	} {
		if c.before != nil {
			c.before()
		}
		r.producer.Next()
		real, err := r.Cron().EnqueueTicks(bg, r.producer, c.items, c.by)
		r.must(err)
		lane := q.NewLane()
		lane.Next()
		got, err := q.Cron().EnqueueTicks(bg, lane, c.items, c.by)
		r.must(err)
		if got.list != c.want || real.list != c.want {
			t.Errorf("%s: %s, and %s on a server; want %s", c.name, got.list, real.list, c.want)
		}
		if got.Now.Sub(real.Now).Abs() > time.Minute {
			t.Errorf("%s: at %v, and %v on a server", c.name, got.Now, real.Now)
		}
		if lane.Writes() != 1 {
			t.Errorf("%s: the call was counted %d times", c.name, lane.Writes())
		}
	}

	r.must(q.Cron().Announce(bg, []Notice{notice("e", "@daily", "1")}))
	if lacking, err := q.Cron().Remind(bg, []Notice{notice("e", "@daily", "1")}); err != nil || len(lacking) > 0 {
		t.Errorf("a reminder: %v, %v", lacking, err)
	}

	for _, on := range []*Queue{q, r.Queue} {
		_, err := on.Cron().CancelOverlapped(bg, "c")
		r.must(err)
	}

	var plans []Registration
	for _, name := range []string{"e", "f", "g", "h", "nobodys"} {
		plans = append(plans, Registration{Plan: NewPlan(name)})
	}
	want, err := r.Cron().RegisterPlans(bg, plans)
	r.must(err)
	got, err := q.Cron().RegisterPlans(bg, plans)
	r.must(err)
	for i := range want {
		if apart := got[i].Since.Sub(want[i].Since); apart.Abs() > time.Minute {
			t.Errorf("entry %s has its plan since %v, and on a server since %v", plans[i].Entry, got[i].Since, want[i].Since)
		}
		got[i].Since, got[i].Born = want[i].Since, want[i].Born
	}
	equal(t, "last ticks", got, want)

	records, err := r.rdb.HGetAll(bg, r.keys.Jobs).Result()
	r.must(err)
	waiting := make(map[string]*signalbox.Job)
	for _, job := range standIn.Waiting() {
		waiting[job.ID] = job
	}
	same(t, "jobs that are there", len(waiting), len(records)-3)
	for id, record := range records {
		job := &signalbox.Job{ID: id, Queue: r.Name()}
		r.must(wire.Decode([]byte(record), job))
		if id == "k3" || id == "k5" || id == "c1" { // it has ended
			continue
		}
		got := waiting[id]
		if got == nil {
			t.Errorf("job %s isn't there", id)
			continue
		}
		if apart := got.EnqueuedAt.Sub(job.EnqueuedAt); apart.Abs() > time.Minute || got.ScheduledAt.Sub(job.ScheduledAt).Abs() > time.Minute {
			t.Errorf("job %s: %v, %v, and on a server %v, %v", id, got.EnqueuedAt, got.ScheduledAt, job.EnqueuedAt, job.ScheduledAt)
		}
		got.EnqueuedAt, got.ScheduledAt = job.EnqueuedAt, job.ScheduledAt
		if !reflect.DeepEqual(got, job) {
			t.Errorf("job %s: %+v, and on a server %+v", id, got, job)
		}
	}

	stopped := q.NewLane()
	stopped.Next()
	stopped.Stop()
	if _, err := q.Enqueue(context.Background(), stopped, []Item{r.item("stopped", When{}, normal)}); !errors.Is(err, ErrStopped) {
		t.Errorf("a call that was given up: %v", err)
	}
	if standIn.Has("", r.Name(), "stopped") {
		t.Error("the job of a call that was given up is in")
	}
}

// TestNewDelivery: a delivery without a claim has the record that a claim returns, and what becomes of it is as in Redis.
func TestNewDelivery(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.put("j")
	claimed := r.one()
	made := NewDelivery(claimed.Job)
	if !reflect.DeepEqual(made, claimed) {
		t.Errorf("made %+v, claimed %+v", made, claimed)
	}
	record, err := made.Failed(1, "boom")
	r.must(err)
	s := settlement(claimed, Retry)
	s.Record, s.Delay = record, time.Hour
	next := made.Next(*claimed.Job, &s, claimed.Job.ClaimedAt)
	r.settled(s)
	stored, err := r.rdb.HGet(bg, r.keys.Jobs, "j").Bytes()
	r.must(err)
	job := &signalbox.Job{ID: "j", Queue: r.Name(), Token: claimed.Job.Token}
	r.must(wire.Decode(stored, job))
	if job.ScheduledAt.Sub(next.ScheduledAt).Abs() > time.Minute {
		t.Errorf("due at %v, in Redis at %v", next.ScheduledAt, job.ScheduledAt)
	}
	next.ScheduledAt = job.ScheduledAt
	same(t, "the next delivery's job", fmt.Sprintf("%+v", *next), fmt.Sprintf("%+v", *job))
}

// TestStandInAgrees makes random enqueues on a server and on a StandIn: of few IDs and few unique keys of all scopes, with and without groups, delays, retentions and expiries, that
// update others or don't. Both have the same outcomes, and the same jobs in the end.
func TestStandInAgrees(t *testing.T) {
	t.Parallel()
	for seed := range uint64(150) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := onShared(t)
			rng := rand.New(rand.NewPCG(seed, 0))
			some := func(n int) bool { return rng.IntN(n) == 0 }
			standIn := NewStandIn()
			rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
			t.Cleanup(func() { _ = rdb.Close() })
			rdb.AddHook(standInHook{standIn})
			q := New(rdb, "", r.Name())
			var said []string
			for n := range 10 {
				var items []Item
				for range 1 + rng.IntN(3) {
					job := signalbox.Job{
						ID: fmt.Sprint("j", rng.IntN(6)), Kind: "k", Payload: fmt.Appendf(nil, `"%d"`, n), Priority: signalbox.Priority(rng.IntN(3)),
						Retain: []time.Duration{0, 0, signalbox.RetainNone, time.Minute, time.Hour}[rng.IntN(5)], MaxAttempts: 1 + rng.IntN(3),
					}
					if some(3) {
						job.Group = fmt.Sprint("g", rng.IntN(3))
						job.Serial = some(2)
						job.YieldOnRetry = job.Serial && some(2)
					}
					if some(4) {
						job.ExpireAfter = time.Duration(1+rng.IntN(3)) * time.Hour
					} else if some(4) {
						job.Deadline = time.Now().Add(time.Duration(1+rng.IntN(3)) * time.Hour).Truncate(time.Microsecond)
					}
					if some(4) {
						job.Encoding = "other"
					}
					if some(4) {
						job.Effect, job.Incarnation = fmt.Sprint("effect-", n), uint64(n)
					}
					when, updates := When{}, some(3)
					if some(3) || updates && n < 9 { // a job that is made due at once is promoted by the next claim, and there is none here: only the last call does that
						when.After = time.Duration(1+rng.IntN(5)) * time.Hour
					}
					it, err := NewItem(&job, when)
					r.must(err)
					said = append(said, fmt.Sprintf("%+v %+v", job, when))
					if !some(4) {
						u := Unique{Key: UniqueKey("k", fmt.Sprint(rng.IntN(3)), false), Scope: []byte{UntilStarted, UntilStarted, UntilEnded, ForWindow, Throttled}[rng.IntN(5)]}
						if u.Scope == ForWindow || u.Scope == Throttled {
							u.Window = time.Hour
						}
						it.Unique(u)
						said[len(said)-1] += fmt.Sprintf(" %+v", u)
						if u.Scope == Throttled || u.Scope == UntilStarted && updates {
							most := time.Duration(0)
							if u.Scope == UntilStarted && some(2) {
								most = 2 * time.Hour
							}
							it.Update(most)
							said[len(said)-1] += fmt.Sprint(" update ", most)
						}
					}
					if some(4) {
						it.IfAbsent()
					}
					items = append(items, it)
				}
				r.producer.Next()
				want, err := r.Enqueue(bg, r.producer, items)
				r.must(err)
				lane := q.NewLane()
				lane.Next()
				got, err := q.Enqueue(bg, lane, items)
				r.must(err)
				if got.list != want.list || !reflect.DeepEqual(got.met, want.met) {
					t.Fatalf("call %d: %s %+v, and on a server %s %+v, of\n%s", n, got.list, got.met, want.list, want.met, strings.Join(said, "\n"))
				}
				said = append(said, "-> "+want.list)
			}
			records, err := r.rdb.HGetAll(bg, r.keys.Jobs).Result()
			r.must(err)
			waiting := standIn.Waiting()
			same(t, "jobs", len(waiting), len(records))
			for _, got := range waiting {
				job := &signalbox.Job{ID: got.ID, Queue: r.Name()}
				r.must(wire.Decode([]byte(records[got.ID]), job))
				if got.EnqueuedAt.Sub(job.EnqueuedAt).Abs() < time.Minute && got.ScheduledAt.Sub(job.ScheduledAt).Abs() < time.Minute {
					got.EnqueuedAt, got.ScheduledAt = job.EnqueuedAt, job.ScheduledAt
				}
				if !reflect.DeepEqual(got, job) {
					t.Errorf("job %s: %+v,\nand on a server %+v, of\n%s", got.ID, got, job, strings.Join(said, "\n"))
				}
			}
		})
	}
}
