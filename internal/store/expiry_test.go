package store

import (
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/doctor"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// brief is a time after which a job has expired as soon as the server's clock moves. See rig.later.
const brief = time.Microsecond

// expiring enqueues jobs that expire so long after they are due. key is that of their group, or "". With brief,
// they have expired when it returns.
func (r *rig) expiring(d time.Duration, key string, when When, ids ...string) {
	r.t.Helper()
	items := make([]Item, len(ids))
	for i, id := range ids {
		items[i] = r.made(signalbox.Job{ID: id, ExpireAfter: d}, key, when)
	}
	r.enqueued(items...)
	if d == brief {
		r.later()
	}
}

// late returns the IDs of jobs that a call has ended.
func late(reply *ClaimReply) []string { return ids(reply.Late) }

// deadOf returns the job, which must be dead since it has expired.
func (r *rig) deadOf(id string) looks.View {
	r.t.Helper()
	v, _, found, err := r.Looks().Show(bg, id)
	r.must(err)
	if !found || v.State != signalbox.StateDead || !strings.HasPrefix(v.Job.LastError, "expired") {
		r.t.Errorf("job %s is %q with the error %q, want it dead and expired", id, v.State, v.Job.LastError)
	}
	return v
}

// A claim ends a job that has not started in time, wherever it waits. It uses no slot.
func TestExpiry(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.expiring(time.Hour, "sg", When{}, "first")
	equal(t, "the holder of a serial group", ids(r.claim(1)), []string{"first"})
	r.check()
	r.expiring(brief, "", When{}, "alone")
	r.expiring(brief, "sg", When{}, "blocked")
	r.expiring(brief, "gg", When{}, "grouped")
	r.expiring(time.Hour, "", When{}, "good")
	r.expiring(time.Hour, "", When{After: time.Hour}, "later")
	r.check()
	reply := r.call(ClaimRequest{Want: 5})
	equal(t, "granted", ids(reply.Deliveries), []string{"good"})
	equal(t, "ended", late(reply), []string{"alone", "blocked", "grouped"})
	if reply.Late[0].Err != nil || reply.Late[0].Job.Kind != "k" {
		t.Errorf("what the reply says of the first: %+v", reply.Late[0])
	}
	for _, id := range []string{"alone", "blocked", "grouped"} {
		r.deadOf(id)
	}
	if c := r.counts(); c.Total.Expired != 3 || c.Total.Dead != 3 || c.Dead != 3 {
		t.Errorf("counted: %+v", c)
	}
	if n := r.rdb.ZCard(bg, r.keys.Expires).Val(); n != 1 {
		t.Errorf("%d jobs expire, want that which is due later", n)
	}
	reply = r.call(ClaimRequest{Want: 5, Settle: []Settlement{settlement(reply.Deliveries[0], Retry)}})
	equal(t, "what has started never expires", ids(reply.Deliveries), []string{"good"})
	r.check()
}

// A job that has started never expires, also if its worker dies.
func TestStartedJobsStay(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.expiring(time.Hour, "", When{}, "a")
	d := r.one()
	if d.Job.ExpireAfter != 0 || d.Job.Group != "" {
		t.Errorf("a handler gets %+v", d.Job)
	}
	if got := r.rdb.HGet(bg, r.keys.Jobs, "a").Val(); got != string(d.record) {
		t.Errorf("Redis has the record %q, the worker %q", got, d.record)
	}
	r.crash()
	r.check()
	same(t, "after a crash", r.one().Job.ID, "a")
	r.crash()
	same(t, "as a suspect", r.one().Job.ID, "a")
	if n := r.rdb.Exists(bg, r.keys.Expires).Val(); n != 0 {
		t.Error("it still expires")
	}
}

// A paused queue's jobs expire all the same, and scheduled ones do when their time to start is over. The call says when the next one does.
func TestExpiryInAPausedQueue(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	_, err := r.Settings().Pause(bg)
	r.must(err)
	r.expiring(time.Minute, "", When{}, "b")
	r.expiring(brief, "", When{}, "a")
	reply := r.call(ClaimRequest{Want: 5})
	equal(t, "ended", late(reply), []string{"a"})
	if reply.Next <= 0 || reply.Next > time.Minute {
		t.Errorf("the next one expires in %v", reply.Next)
	}
	_, renewed, err := r.Sessions().Renew(bg, r.session, time.Minute, "")
	r.must(err)
	if renewed.Next <= 0 || renewed.Next > time.Minute {
		t.Errorf("a renewal says that the next one expires in %v", renewed.Next)
	}
}

// A call ends at most 100 jobs before it draws, and at most 100 that it drew. It says that there are more.
func TestExpiryIsBounded(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.expiring(brief, "", When{}, numbered("a", 950)...)
	r.expiring(brief, "sg", When{}, numbered("b", 150)...)
	ended := 0
	for calls := 1; ; calls++ {
		reply := r.call(ClaimRequest{Want: MaxBatch})
		if n := len(reply.Late); n > 200 {
			t.Fatalf("a call has ended %d jobs", n)
		}
		if ended += len(reply.Late); ended == 1100 {
			break
		}
		if !reply.More && reply.Next != 0 || calls > 20 {
			t.Fatalf("after call %d, %d jobs have ended: %+v", calls, ended, reply.Hints)
		}
	}
	r.check()
	if reply := r.call(ClaimRequest{Want: MaxBatch}); reply.More || reply.CutShort {
		t.Errorf("when all is done: %+v", reply)
	}
}

// A call whose reply was lost ends no job again, nor others.
func TestExpiryOfALostReply(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.expiring(brief, "", When{}, "a")
	r.expiring(time.Hour, "", When{}, "b")
	r.lane.Next()
	req := ClaimRequest{Session: r.session, Want: 1}
	_, err := r.Sessions().Claim(bg, r.lane, &req)
	r.must(err)
	before := r.dump()
	reply, err := r.Sessions().Claim(bg, r.lane, &req)
	r.must(err)
	equal(t, "the same job", ids(reply.Deliveries), []string{"b"})
	equal(t, "ended again", late(reply), []string{})
	r.unchanged("a repeated call", before)
}

// What actions do to the time when a job expires. One that has expired can be run again, and has that long again from then on.
func TestActOnExpiring(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	do := func(a Act, id string, expires bool) {
		t.Helper()
		answers, err := r.Do(bg, a, []string{id})
		r.must(err)
		same(t, a.verb+" of "+id, answers[0].Acted, Done)
		r.check()
		same(t, "after "+a.verb+", "+id+" expires", r.rdb.ZScore(bg, r.keys.Expires, id).Err() == nil, expires)
	}
	r.expiring(time.Hour, "", When{}, "a", "b", "c")
	r.expiring(time.Hour, "sg", When{After: time.Hour}, "d")
	do(PrioritiseJobs(signalbox.PriorityHigh), "a", true)
	do(RunJobs(time.Now().Add(time.Hour)), "a", true)
	do(RunJobs(time.Time{}), "a", true)
	do(CancelJobs("why"), "a", false)
	do(DeleteJobs(), "b", false)
	do(RunJobs(time.Time{}), "d", true)
	do(RunJobs(time.Time{}), "a", true) // it was cancelled
	do(DeleteJobs(), "a", false)
	do(DeleteJobs(), "d", false)

	r.expiring(brief, "", When{}, "e")
	equal(t, "granted", ids(r.claim(1)), []string{"c"})
	r.deadOf("e")
	do(RunJobs(time.Time{}), "e", true)
	r.later()
	equal(t, "it expires again", late(r.call(ClaimRequest{Want: 1})), []string{"e"})
	r.expiring(time.Hour, "", When{}, "e") // a new job replaces it
	e := r.one()
	r.settled(settlement(e, Dead))
	do(RunJobs(time.Time{}), "e", false) // it had started
	same(t, "run again", r.one().Job.ID, "e")
}

// A job that is moved expires where it is. While it is on its way it doesn't.
func TestMoveOfExpiring(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	to := newQueue(t, r.rdb)
	r.open()
	to.open()
	r.expiring(time.Hour, "", When{}, "a")
	r.expiring(time.Hour, "", When{After: time.Hour}, "b")
	r.expiring(brief, "sg", When{}, "c")
	for _, id := range []string{"a", "b", "c"} {
		answers, err := r.Transfer().Move(bg, to.Name(), []string{id})
		r.must(err)
		same(t, "move of "+id, answers[0].Acted, Done)
		r.check()
		to.check()
	}
	same(t, "that expire here", r.rdb.ZCard(bg, r.keys.Expires).Val(), 0)
	same(t, "that expire there", r.rdb.ZCard(bg, to.keys.Expires).Val(), 3)
	reply := to.call(ClaimRequest{Want: 5})
	equal(t, "granted there", ids(reply.Deliveries), []string{"a"})
	equal(t, "expired there", late(reply), []string{"c"})
}

// An enqueue wakes a session if nobody knows yet when the job expires.
func TestExpiryWakes(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	_, err := r.Settings().Pause(bg)
	r.must(err)
	r.listen()
	r.expiring(time.Hour, "", When{}, "a")
	same(t, "wake-ups for the first", r.wakes(), 1)
	r.takeWake()
	r.expiring(2*time.Hour, "", When{}, "b")
	same(t, "wake-ups for a later one", r.wakes(), 0)
}

// A job that expires frees its unique key. One that replaces another, or debounces it, brings its own time to start.
func TestExpiryFreesTheKey(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	item := func(id string, d time.Duration, when When, scope byte) Item {
		it := r.made(signalbox.Job{ID: id, ExpireAfter: d, Retain: time.Hour}, "", when)
		it.Unique(Unique{Key: wire.UniqueKey("k", "key", false), Scope: scope, Window: time.Hour})
		return it
	}
	for _, scope := range []byte{UntilStarted, UntilEnded, Throttled} {
		id := "a" + string(scope)
		r.enqueued(item(id, brief, When{}, scope))
		same(t, "the holder", r.holder("key"), id)
		r.later()
		equal(t, "expired", late(r.call(ClaimRequest{Want: 1})), []string{id})
		r.deadOf(id)
		same(t, "the holder then", r.holder("key"), "")
	}
	r.enqueued(item("b", time.Hour, When{After: time.Hour}, UntilStarted))
	before := r.rdb.ZScore(bg, r.keys.Expires, "b").Val()
	for _, d := range []time.Duration{2 * time.Hour, 0, time.Hour} {
		it := item("c", d, When{After: 2 * time.Hour}, UntilStarted)
		it.Update(0)
		same(t, "fate", r.fates(it), "U")
		r.check()
		if at := r.rdb.ZScore(bg, r.keys.Expires, "b").Val(); (at > before) != (d > 0) {
			t.Errorf("with %v, b expires at %v, before at %v", d, at, before)
		}
	}
}

// A throttled job that is due at the end of a window expires after that. One that updates it brings its own time to start.
func TestExpiryOfTheThrottled(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	item := func(id string, d time.Duration) Item {
		it := r.made(signalbox.Job{ID: id, ExpireAfter: d}, "", When{})
		it.Unique(Unique{Key: wire.UniqueKey("k", "key", false), Scope: Throttled, Window: time.Hour})
		it.Update(0)
		return it
	}
	r.enqueued(item("a", time.Hour))
	same(t, "the first", r.one().Job.ID, "a")
	r.enqueued(item("b", time.Hour))
	due := r.stored("b").ScheduledAt
	for _, d := range []time.Duration{time.Hour, time.Minute, 2 * time.Hour} {
		same(t, "fate", r.fates(item("c", d)), "U")
		same(t, "due", r.stored("b").ScheduledAt, due)
		same(t, "b expires", r.rdb.ZScore(bg, r.keys.Expires, "b").Val(), float64(due.Add(d).UnixMicro()))
		r.check()
	}
	same(t, "without", r.fates(item("d", 0)), "U")
	same(t, "jobs that expire", r.rdb.ZCard(bg, r.keys.Expires).Val(), 0)
	r.check()
}

// The doctor finds entries of no job, and jobs without their entry.
func TestDoctorKnowsExpiry(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.expiring(time.Hour, "", When{}, "a", "b")
	r.expiring(time.Hour, "", When{After: time.Hour}, "c")
	r.putIn("gx", "d")
	right := r.rdb.ZScore(bg, r.keys.Expires, "a").Val()
	r.must(r.rdb.ZAdd(bg, r.keys.Expires, z(1, "gone"), z(1, "a"), z(1, "d")).Err())
	r.must(r.rdb.ZRem(bg, r.keys.Expires, "b", "c").Err())
	faults := make(map[string]bool)
	for _, repair := range []bool{true, false} {
		_, err := doctor.Run(bg, r.Site(), doctor.Checkup{Repair: repair, Pause: -1, Found: func(f doctor.Finding) {
			if f.Fault != facts.WrongExpiry || !repair || !f.Mended {
				t.Errorf("found %+v", f)
			}
			faults[f.Job] = true
		}})
		r.must(err)
	}
	same(t, "faults", len(faults), 5)
	same(t, "the time of a", r.rdb.ZScore(bg, r.keys.Expires, "a").Val(), right)
	r.check()
}

// A job that hasn't started by its deadline ends then, whenever it is due. One that has started keeps the deadline for its worker, and expires no more.
func TestDeadline(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	now := r.rdb.Time(bg).Val()
	past, future := now.Add(-time.Hour), now.Add(time.Hour).Truncate(time.Microsecond)
	r.enqueued(
		r.made(signalbox.Job{ID: "late", Deadline: past}, "", When{}),
		r.made(signalbox.Job{ID: "later", Deadline: past}, "sg", When{After: time.Hour}),
		r.made(signalbox.Job{ID: "good", Deadline: future}, "", When{}),
		r.made(signalbox.Job{ID: "waits", Deadline: future}, "", When{At: future.Add(time.Hour)}),
	)
	r.check()
	reply := r.call(ClaimRequest{Want: 5})
	equal(t, "granted", ids(reply.Deliveries), []string{"good"})
	equal(t, "ended", late(reply), []string{"late", "later"})
	d := reply.Deliveries[0]
	if !d.Job.Deadline.Equal(future) || d.Job.ExpireAfter != 0 || d.Job.Group != "" {
		t.Errorf("a handler gets %+v", d.Job)
	}
	if got := r.rdb.HGet(bg, r.keys.Jobs, "good").Val(); got != string(d.record) {
		t.Errorf("Redis has the record %q, the worker %q", got, d.record)
	}
	for _, id := range []string{"late", "later"} {
		if v := r.deadOf(id); !v.Job.Deadline.Equal(past.Truncate(time.Microsecond)) {
			t.Errorf("job %s had the deadline %v", id, v.Job.Deadline)
		}
	}
	if at := r.rdb.ZScore(bg, r.keys.Expires, "waits").Val(); at != float64(future.UnixMicro()) || r.rdb.ZCard(bg, r.keys.Expires).Val() != 1 {
		t.Errorf("what is due after its deadline expires at %.0f, want %d", at, future.UnixMicro())
	}
	reply = r.call(ClaimRequest{Want: 5, Settle: []Settlement{settlement(d, Retry)}})
	equal(t, "what has started", ids(reply.Deliveries), []string{"good"})
	if !reply.Deliveries[0].Job.Deadline.Equal(future) {
		t.Errorf("its next delivery has the deadline %v", reply.Deliveries[0].Job.Deadline)
	}
	r.crash()
	r.check()
	if again := r.one(); again.Job.ID != "good" || !again.Job.Deadline.Equal(future) {
		t.Errorf("after a crash, a handler gets %+v", again.Job)
	}
	r.check()
}
