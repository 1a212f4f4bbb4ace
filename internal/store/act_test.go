package store

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/check"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/internal/wire"
)

var actTests = []storeTest{
	{"ActOnEachState", testActOnEachState},
	{"ActOnSuspects", testActOnSuspects},
	{"ActOnNothing", testActOnNothing},
	{"ActChecksTheRecord", testActChecksTheRecord},
	{"ActCountsWhatItDrops", testActCountsWhatItDrops},
	{"PrioritiseWithoutHeader", testPrioritiseWithoutHeader},
	{"ActMeetsAnotherSession", testActMeetsAnotherSession},
	{"ActWakes", testActWakes},
	{"ActKeepsCounts", testActKeepsCounts},
	{"ActRestoresLargest", testActRestoresLargest},
	{"EditOfARecord", testEditOfARecord},
	{"MarkedEndsCancelled", testMarkedEndsCancelled},
	{"MarkedAmongOthers", testMarkedAmongOthers},
	{"MarkedIsSettledOnce", testMarkedIsSettledOnce},
	{"MarkedIsReclaimed", testMarkedIsReclaimed},
	{"MarkedAfterTheScan", testMarkedAfterTheScan},
	{"MarkedOfTheWrongType", testMarkedOfTheWrongType},
	{"MarksAreFound", testMarksAreFound},
	{"MarkIsToldToTheWorker", testMarkIsToldToTheWorker},
	{"MarksAreChecked", testMarksAreChecked},
}

// did acts on one job.
func (r *rig) did(a Act, id string) Answer {
	r.t.Helper()
	answers, err := r.Do(bg, a, []string{id})
	r.must(err)
	if len(answers) != 1 {
		r.t.Fatalf("%d answers for a job", len(answers))
	}
	return answers[0]
}

func (r *rig) cancel(id string) {
	r.t.Helper()
	if a := r.did(CancelJobs("not needed"), id); a.Acted != Done {
		r.t.Fatalf("cancel of %s: %+v", id, a)
	}
}

// states returns where each job is.
func (r *rig) states() map[string]string {
	r.t.Helper()
	all, err := check.States(bg, r.Site())
	r.must(err)
	return all
}

// stored is a job as its record says.
func (r *rig) stored(id string) signalbox.Job {
	r.t.Helper()
	raw, err := r.rdb.HGet(bg, r.keys.Jobs, id).Bytes()
	r.must(err)
	job := signalbox.Job{ID: id}
	r.must(wire.Decode(raw, &job))
	return job
}

// into puts a job into a state: with two failed attempts if it ends.
func (r *rig) into(id string, state signalbox.State) {
	r.t.Helper()
	switch state {
	case signalbox.StateScheduled:
		r.enqueued(r.item(id, When{After: time.Hour}, 0))
		return
	case signalbox.StateReady:
		r.put(id)
		return
	}
	r.enqueued(r.item(id, When{}, signalbox.PriorityHigh))
	d := r.claim(1)[0]
	same(r.t, "claimed", d.Job.ID, id)
	if state == signalbox.StateRunning {
		return
	}
	s := settlement(d, Outcome(state))
	var err error
	s.Record, err = d.Failed(2, "boom")
	r.must(err)
	r.settled(s)
}

// Each act on a job in each state: what comes of it, and that it may be done again.
func testActOnEachState(t *testing.T, r *rig) {
	r.open()
	const scheduled, ready, running, dead, cancelled = signalbox.StateScheduled, signalbox.StateReady, signalbox.StateRunning, signalbox.StateDead, signalbox.StateCancelled
	all := []signalbox.State{scheduled, ready, running, dead, cancelled}
	const wrong, gone = signalbox.State("wrong"), signalbox.State("")
	edited := wire.Edit{Payload: []byte(`"other"`), MaxAttempts: 7, Timeout: time.Minute}
	do := func(a Act) func(string) (Answer, error) {
		return func(id string) (Answer, error) { return r.did(a, id), nil }
	}
	edit := func(run bool) func(string) (Answer, error) {
		return func(id string) (Answer, error) { return r.Edit(bg, id, edited, run) }
	}
	now, err := r.Now(bg)
	r.must(err)
	for _, c := range []struct {
		name string
		do   func(id string) (Answer, error)
		want []signalbox.State // afterwards, for each of all
	}{
		{"cancel", do(CancelJobs("why")), []signalbox.State{cancelled, cancelled, running, wrong, cancelled}},
		{"archive", do(ArchiveJobs("why")), []signalbox.State{dead, dead, wrong, dead, wrong}},
		{"delete", do(DeleteJobs()), []signalbox.State{gone, gone, wrong, gone, gone}},
		{"run", do(RunJobs(time.Time{})), []signalbox.State{ready, ready, wrong, ready, ready}},
		{"past", do(RunJobs(now.Add(-time.Hour))), []signalbox.State{ready, ready, wrong, ready, ready}},
		{"later", do(RunJobs(now.Add(48 * time.Hour))), []signalbox.State{scheduled, scheduled, wrong, scheduled, scheduled}},
		{"low", do(PrioritiseJobs(signalbox.PriorityLow)), []signalbox.State{scheduled, ready, wrong, wrong, wrong}},
		{"edit", edit(false), []signalbox.State{scheduled, ready, wrong, dead, cancelled}},
		{"edit-run", edit(true), []signalbox.State{ready, ready, wrong, ready, ready}},
	} {
		for i, from := range all {
			id := c.name + "." + string(from)
			r.into(id, from)
			before := r.stored(id)
			got, err := c.do(id)
			r.must(err)
			want := c.want[i]
			if want == wrong {
				same(t, id, got, Answer{Wrong, from})
				want = from
			} else {
				same(t, id, got, Answer{Done, from})
			}
			place := map[signalbox.State]string{
				gone: "", scheduled: "due", running: "in flight in " + r.session, dead: "dead", cancelled: "cancelled",
			}[want]
			if want == ready {
				place = "ready in list " + classes[wire.Class(before.Priority)]
			}
			if c.name == "low" && want == ready {
				place = "ready in list 2"
			}
			same(t, id+" afterwards", r.states()[id], place)
			r.check()
			if want == gone {
				same(t, id+" again", r.did(DeleteJobs(), id), Answer{Acted: Gone})
				continue
			}
			if c.want[i] != wrong {
				r.compare(c.name, before, from, want, now)
				again, err := c.do(id)
				r.must(err)
				if again.Acted == Done {
					same(t, id+" again: it was", again.State, want)
				}
				same(t, id+" after that", r.states()[id], place)
			}
			r.tidy(id, want)
		}
	}
	same(t, "left", r.rdb.HLen(bg, r.keys.Jobs).Val(), int64(1)) // running, and marked, and cancelled
	same(t, "marks", r.rdb.Exists(bg, r.keys.Cancels).Val(), int64(0))
}

// compare looks at what an act has made of a job's record.
func (r *rig) compare(act string, before signalbox.Job, from, to signalbox.State, now time.Time) {
	r.t.Helper()
	after := r.stored(before.ID)
	want := before
	want.ScheduledAt = after.ScheduledAt
	switch act {
	case "cancel":
		if from != signalbox.StateCancelled && from != signalbox.StateRunning {
			want.LastError = "job cancelled: why"
		}
	case "archive":
		if from != signalbox.StateDead {
			want.LastError = "archived: why"
		}
	case "low":
		want.Priority = signalbox.PriorityLow
	case "edit", "edit-run":
		want.Payload, want.MaxAttempts, want.Timeout = []byte(`"other"`), 7, time.Minute
	}
	if act != "edit" && !from.Live() && to.Live() {
		want.Attempt = 1 // it begins anew, and still says how it had ended
		same(r.t, "last error before", before.LastError, "boom")
	}
	same(r.t, act+": the record of "+before.ID, fmt.Sprintf("%+v", after), fmt.Sprintf("%+v", want))
	switch {
	case act == "later":
		same(r.t, before.ID+" is due at", after.ScheduledAt.UnixMicro(), now.Add(48*time.Hour).UnixMicro())
	case from != to && to == signalbox.StateReady:
		if d := after.ScheduledAt.Sub(now); d < 0 || d > time.Minute {
			r.t.Errorf("%s: %s is due after %v", act, before.ID, d)
		}
	default:
		same(r.t, before.ID+" is due at", after.ScheduledAt.UnixMicro(), before.ScheduledAt.UnixMicro())
	}
}

// tidy removes a job.
func (r *rig) tidy(id string, state signalbox.State) {
	r.t.Helper()
	if state != signalbox.StateRunning {
		same(r.t, "delete "+id, r.did(DeleteJobs(), id), Answer{Done, state})
		return
	}
	value := r.rdb.HGet(bg, r.keys.Inflight(r.session), id).Val()
	r.settled(Settlement{ID: id, Token: facts.TokenOf(value), Outcome: Completed})
}

// Suspects keep their list, whatever their priority, and get another place only when they have ended.
func testActOnSuspects(t *testing.T, r *rig) {
	r.open()
	r.put("a")
	for range SuspectAt {
		r.one()
		r.crash()
	}
	place := func(what, want string) {
		t.Helper()
		same(t, what, r.states()["a"], want)
		r.check()
	}
	place("after its crashes", "ready in list s")
	same(t, "another priority", r.did(PrioritiseJobs(signalbox.PriorityHigh), "a"), Answer{Done, signalbox.StateReady})
	place("with another priority", "ready in list s")
	same(t, "its priority", r.stored("a").Priority, signalbox.PriorityHigh)
	same(t, "later", r.did(RunJobs(time.Now().Add(time.Hour)), "a"), Answer{Done, signalbox.StateReady})
	place("when it runs later", "due")
	same(t, "its crashes", r.stored("a").Crashes, SuspectAt)
	same(t, "a lower priority", r.did(PrioritiseJobs(signalbox.PriorityLow), "a"), Answer{Done, signalbox.StateScheduled})
	place("with a lower priority", "due")
	same(t, "now", r.did(RunJobs(time.Time{}), "a"), Answer{Done, signalbox.StateScheduled})
	place("when it runs now", "ready in list s")
	r.cancel("a")
	place("when it is cancelled", "cancelled")
	same(t, "anew", r.did(RunJobs(time.Time{}), "a"), Answer{Done, signalbox.StateCancelled})
	place("when it begins anew", "ready in list 2")
	same(t, "its crashes then", r.stored("a").Crashes, 0)

	// One that runs has the flag of a suspect, too.
	for range SuspectAt {
		r.one()
		r.crash()
	}
	d := r.one()
	r.cancel("a")
	value := r.rdb.HGet(bg, r.keys.Inflight(r.session), "a").Val()
	same(t, "in flight", value, strconv.FormatInt(d.Job.Token, 10)+" s2c")
	r.check()
	returned, dead := r.crash()
	equal(t, "runs again", append(returned, dead...), nil)
	place("when its worker has died", "cancelled")
}

func testActOnNothing(t *testing.T, r *rig) {
	r.open()
	before := r.dump()
	for _, a := range []Act{CancelJobs(""), DeleteJobs(), RunJobs(time.Time{}), PrioritiseJobs(0)} {
		same(t, a.verb, r.did(a, "none"), Answer{Acted: Gone})
	}
	got, err := r.Edit(bg, "none", wire.Edit{}, true)
	r.must(err)
	same(t, "edit", got, Answer{Acted: Gone})
	answers, err := r.Do(bg, DeleteJobs(), nil)
	if err != nil || len(answers) > 0 {
		t.Errorf("of no job: %v, %v", answers, err)
	}
	r.unchanged("acting on no job", before)

	// One that another program has put nowhere is left as it is.
	r.put("a", "b")
	r.must(r.rdb.LRem(bg, r.keys.ReadyNormal, 1, "a").Err())
	same(t, "lost", r.did(DeleteJobs(), "a"), Answer{Lost, signalbox.StateReady})
	same(t, "its record is there", r.rdb.HExists(bg, r.keys.Jobs, "a").Val(), true)
	r.must(r.rdb.HDel(bg, r.keys.Jobs, "a").Err())
}

// A record that is no longer the one that was read is not replaced.
func testActChecksTheRecord(t *testing.T, r *rig) {
	r.open()
	r.put("a")
	before := r.dump()
	answers, err := r.do(bg, Act{verb: "edit", states: resting}, []target{{id: "a", digest: strings.Repeat("0", 40), record: []byte("other")}})
	r.must(err)
	equal(t, "answers", answers, []Answer{{Changed, signalbox.StateReady}})
	r.unchanged("an edit of another record", before)
}

// A session that was opened after the sessions were read may have the job: it is looked at before anything is done.
func testActMeetsAnotherSession(t *testing.T, r *rig) {
	r.open()
	r.put("a")
	r.one()
	reply, err := r.act(bg, DeleteJobs(), nil, []target{{id: "a"}})
	r.must(err)
	same(t, "without its session", reply.Str(0), "again")
	same(t, "with it", r.did(DeleteJobs(), "a"), Answer{Wrong, signalbox.StateRunning})
}

func testActWakes(t *testing.T, r *rig) {
	r.open()
	r.enqueued(r.item("a", When{After: time.Hour}, 0), r.item("b", When{After: 2 * time.Hour}, 0))
	r.listen()
	same(t, "later than others", r.did(RunJobs(time.Now().Add(90*time.Minute)), "b"), Answer{Done, signalbox.StateScheduled})
	same(t, "is woken for a later job", r.wakes(), 0)
	same(t, "earlier than others", r.did(RunJobs(time.Now().Add(time.Minute)), "b"), Answer{Done, signalbox.StateScheduled})
	same(t, "is woken for an earlier job", r.wakes(), 1)
	r.idle.waits()
	r.did(RunJobs(time.Time{}), "b")
	same(t, "is woken for a job that is ready", r.wakes(), 1)
	r.idle.waits()
	r.cancel("a")
	same(t, "is woken for a job that ends", r.wakes(), 0)
	r.pause()
	r.did(RunJobs(time.Time{}), "a")
	same(t, "is woken while the queue is paused", r.wakes(), 0)
}

func testActKeepsCounts(t *testing.T, r *rig) {
	r.open()
	r.into("d", signalbox.StateDead)
	r.into("s", signalbox.StateScheduled)
	r.did(RunJobs(time.Time{}), "d")
	r.cancel("d")
	r.cancel("d") // there is nothing to do
	r.did(DeleteJobs(), "d")
	r.did(DeleteJobs(), "s")
	got := r.counts().Total
	same(t, "totals", got, looks.Totals{Enqueued: 2, Dead: 1, Revived: 1, Cancelled: 1, Deleted: 2})

	// What is kept is bounded as ever.
	r.kept.Jobs = 1
	r.into("x", signalbox.StateScheduled)
	r.into("y", signalbox.StateScheduled)
	r.cancel("x")
	r.cancel("y")
	equal(t, "cancelled", r.buried(r.keys.Cancelled), []string{"y"})
}

// A job that begins anew counts for the bound of claims' replies again.
func testActRestoresLargest(t *testing.T, r *rig) {
	r.open()
	item, err := NewItem(&signalbox.Job{ID: "a", Kind: "k", Payload: []byte(strings.Repeat("x", 9000))}, When{})
	r.must(err)
	r.enqueued(item)
	r.settled(settlement(r.one(), Dead))
	r.must(r.rdb.HSet(bg, r.keys.Stats, "largest", 4096).Err()) // as a claim sets it that finds none alive
	r.did(RunJobs(time.Time{}), "a")
	largest, err := r.rdb.HGet(bg, r.keys.Stats, "largest").Int()
	r.must(err)
	if size := int(r.rdb.Do(bg, "HSTRLEN", r.keys.Jobs, "a").Val().(int64)); largest < size {
		t.Errorf("largest is %d, the record has %d bytes", largest, size)
	}
}

// Fields that an edit doesn't name stay, also those that this release doesn't know.
func testEditOfARecord(t *testing.T, r *rig) {
	r.open()
	r.put("a")
	r.must(r.rdb.HSet(bg, r.keys.Jobs, "a", r.rdb.HGet(bg, r.keys.Jobs, "a").Val()+"\xfa\x07\x01z").Err())
	before := r.stored("a")
	got, err := r.Edit(bg, "a", wire.Edit{Timeout: time.Second}, false)
	r.must(err)
	same(t, "edit", got, Answer{Done, signalbox.StateReady})
	after := r.stored("a")
	before.Timeout = time.Second
	same(t, "the job", fmt.Sprintf("%+v", after), fmt.Sprintf("%+v", before))
	if raw := r.rdb.HGet(bg, r.keys.Jobs, "a").Val(); !strings.Contains(raw, "\xfa\x07\x01z") {
		t.Errorf("a field is gone: %q", raw)
	}
	got, err = r.Edit(bg, "a", wire.Edit{Payload: []byte{}}, false)
	r.must(err)
	same(t, "edit", got, Answer{Done, signalbox.StateReady})
	same(t, "the payload", len(r.stored("a").Payload), 0)
	if _, err := r.Edit(bg, "a", wire.Edit{Payload: make([]byte, wire.MaxEnvelope)}, false); err == nil {
		t.Error("a payload that is too large goes in")
	}
}

// A job that was cancelled while it runs ends so, whatever it is settled with. The settlement says so, also when it is made again.
func testMarkedEndsCancelled(t *testing.T, r *rig) {
	r.open()
	for _, outcome := range outcomes {
		id := string(outcome)
		r.put(id)
		d := r.one()
		same(t, "cancel", r.did(CancelJobs("not needed"), id), Answer{Done, signalbox.StateRunning})
		same(t, "cancel again", r.did(CancelJobs("another reason"), id), Answer{Done, signalbox.StateRunning})
		same(t, "its place", r.states()[id], "in flight in "+r.session)
		r.check()
		s := settlement(d, outcome)
		req := &ClaimRequest{Session: r.session, Settle: []Settlement{s}, Want: 5}
		if outcome == Retry || outcome == Dead {
			record, err := d.Failed(3, "boom")
			r.must(err)
			req.Settle[0].Record = record
		}
		var want []int
		if outcome != Cancelled {
			want = []int{0}
		}
		r.lane.Next()
		for _, what := range []string{"settled", "settled again"} {
			reply, err := r.Sessions().Claim(bg, r.lane, req)
			r.must(err)
			equal(t, id+" "+what+": refused", reply.Refused, nil)
			equal(t, id+" "+what+": overruled", reply.Overruled, want)
			equal(t, id+" "+what+": claimed", ids(reply.Deliveries), []string{})
		}
		same(t, id+" afterwards", r.states()[id], "cancelled")
		job := r.stored(id)
		same(t, id+": the handler had finished", job.Finished, outcome == Completed)
		why := "job cancelled: not needed"
		if outcome == Completed {
			why += " (too late: its handler had returned nil)"
		}
		same(t, id+": last error", job.LastError, why)
		same(t, id+": payload", string(job.Payload), `"`+id+`"`)
		if outcome == Retry {
			same(t, id+": attempts", job.Attempt, 4)
		}
	}
	total := r.counts().Total
	same(t, "totals", total, looks.Totals{Enqueued: int64(len(outcomes)), Cancelled: int64(len(outcomes))})
	same(t, "marks", r.rdb.Exists(bg, r.keys.Cancels).Val(), int64(0))
}

// Jobs that are settled together with cancelled ones end as asked.
func testMarkedAmongOthers(t *testing.T, r *rig) {
	r.open()
	all := []string{"a", "b", "c", "d", "e", "f"}
	r.put(all...)
	got := r.claim(len(all))
	for _, id := range []string{"b", "d", "f"} {
		r.cancel(id)
	}
	s := []Settlement{
		settlement(got[0], Completed), settlement(got[1], Completed), settlement(got[2], Completed),
		settlement(got[3], Return), settlement(got[4], Dead), settlement(got[5], Dead),
	}
	s[2].Token++ // of a later delivery, as it were
	reply := r.call(ClaimRequest{Settle: s, Notes: []Note{{ID: "c", Token: got[2].Job.Token, Span: "x"}}})
	equal(t, "refused", reply.Refused, []int{2})
	equal(t, "overruled", reply.Overruled, []int{1, 3, 5})
	states := r.states()
	want := []string{"", "cancelled", "in flight in s1", "cancelled", "dead", "cancelled"}
	for i, id := range all {
		same(t, id, states[id], want[i])
	}
	same(t, "totals", r.counts().Total, looks.Totals{Enqueued: 6, Completed: 1, Dead: 1, Cancelled: 3})
}

// The same delivery twice in a call, as no worker of ours sends it: it ends once.
func testMarkedIsSettledOnce(t *testing.T, r *rig) {
	r.open()
	r.put("a")
	d := r.one()
	r.cancel("a")
	reply := r.call(ClaimRequest{Settle: []Settlement{settlement(d, Completed), settlement(d, Retry)}})
	equal(t, "overruled", reply.Overruled, []int{0})
	equal(t, "refused", reply.Refused, []int{1})
	same(t, "totals", r.counts().Total, looks.Totals{Enqueued: 1, Cancelled: 1})

	// One whose record is gone ends as one that completed.
	r.put("b")
	d = r.one()
	r.cancel("b")
	r.must(r.rdb.HDel(bg, r.keys.Jobs, "b").Err())
	r.settled(settlement(d, Retry))
	same(t, "its place", r.states()["b"], "")
}

// The worker dies: the job ends cancelled, and that is no crash.
func testMarkedIsReclaimed(t *testing.T, r *rig) {
	r.open()
	r.put("a", "b", "c")
	r.claim(3)
	r.cancel("b")
	r.cancel("c")
	r.must(r.rdb.HDel(bg, r.keys.Jobs, "c").Err())
	r.expire()
	res := r.reclaim(r.session)
	equal(t, "runs again", res.Returned, []string{"a"})
	equal(t, "cancelled", ids(res.Cancelled), []string{"b"})
	job := r.stored("b")
	same(t, "crashes", job.Crashes, 0)
	same(t, "last error", job.LastError, "job cancelled: not needed")
	same(t, "finished", job.Finished, false)
	same(t, "its place", r.states()["b"], "cancelled")
	same(t, "totals", r.counts().Total, looks.Totals{Enqueued: 3, Crashed: 1, Cancelled: 1})
	same(t, "marks", r.rdb.Exists(bg, r.keys.Cancels).Val(), int64(0))
}

// A job that is cancelled after its session was read for a reclaim, and before that: the next reclaim takes it.
func testMarkedAfterTheScan(t *testing.T, r *rig) {
	r.open()
	r.put("a", "b")
	r.claim(2)
	r.expire()
	recovery := r.Sessions().Reclaim(r.session, false)
	r.must(recovery.readAll(bg))
	recovery.read = true
	r.cancel("a")
	res, err := recovery.Next(bg)
	r.must(err)
	equal(t, "runs again", res.Returned, []string{"b"})
	same(t, "left", res.Left, 1)
	res = r.reclaim(r.session)
	equal(t, "cancelled", ids(res.Cancelled), []string{"a"})
	same(t, "done", res.Done, true)
}

// If the marks can't be read, a settlement changes nothing.
func testMarkedOfTheWrongType(t *testing.T, r *rig) {
	r.open()
	r.put("a", "b")
	got := r.claim(2)
	r.cancel("a")
	mark := r.rdb.HGet(bg, r.keys.Cancels, "a").Val()
	r.must(r.rdb.Del(bg, r.keys.Cancels).Err())
	r.must(r.rdb.SAdd(bg, r.keys.Cancels, "of another type").Err())
	before := r.dump()
	for _, outcome := range []Outcome{Completed, Retry} {
		r.lane.Next()
		_, err := r.Sessions().Claim(bg, r.lane, &ClaimRequest{Session: r.session, Settle: []Settlement{settlement(got[1], Completed), settlement(got[0], outcome)}})
		if err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("%s: %v", outcome, err)
		}
		r.unchanged("a settlement", before)
	}
	r.must(r.rdb.Del(bg, r.keys.Cancels).Err())
	r.must(r.rdb.HSet(bg, r.keys.Cancels, "a", mark).Err())
	r.settled(settlement(got[1], Completed), settlement(got[0], Completed))
}

// A worker finds which of its deliveries are of cancelled jobs.
func testMarksAreFound(t *testing.T, r *rig) {
	r.open()
	all := numbered("j", 2*maxMarks+3)
	r.put(all...)
	running := make(map[string]int64)
	for _, d := range r.claim(len(all)) {
		running[d.Job.ID] = d.Job.Token
	}
	renewed := func() bool {
		t.Helper()
		_, hints, err := r.Sessions().Renew(bg, r.session, time.Minute, "")
		r.must(err)
		return hints.Cancels
	}
	same(t, "marks, by a renewal", renewed(), false)
	want := []string{all[0], all[maxMarks], all[len(all)-1]}
	answers, err := r.Do(bg, CancelJobs(""), want)
	r.must(err)
	equal(t, "answers", answers, slices.Repeat([]Answer{{Done, signalbox.StateRunning}}, 3))
	same(t, "marks, by a renewal", renewed(), true)
	running[all[maxMarks]]++ // a later delivery
	got, err := r.Sessions().Cancelled(bg, running)
	r.must(err)
	same(t, "found", fmt.Sprint(got), fmt.Sprint(map[string]int64{all[0]: running[all[0]], want[2]: running[want[2]]}))
}

// The session of a job that is cancelled gets a message that names the delivery, also if it was cancelled before.
func testMarkIsToldToTheWorker(t *testing.T, r *rig) {
	all := numbered("j", 150)
	r.put(all...)
	r.listen()
	r.session = "idle"
	running := make(map[string]int64)
	for _, d := range r.claim(len(all)) {
		running[d.Job.ID] = d.Job.Token
	}
	for range 2 {
		_, err := r.Do(bg, CancelJobs(""), all)
		r.must(err)
		told := make(map[string]int64)
		for len(told) < len(running) {
			select {
			case m := <-r.idle.messages:
				same(t, "message", m.Kind, Cancel)
				for id, token := range m.Deliveries() {
					told[id] = token
				}
			case <-time.After(10 * time.Second):
				t.Fatal("no message comes")
			}
		}
		same(t, "told of", fmt.Sprint(told), fmt.Sprint(running))
		r.idle.silent("when all were told")
	}
}

// Check finds a mark without a delivery that has the flag, and the other way round.
func testMarksAreChecked(t *testing.T, r *rig) {
	r.open()
	r.put("a", "b")
	r.claim(2)
	r.cancel("a")
	r.check()
	mark := r.rdb.HGet(bg, r.keys.Cancels, "a").Val()
	finds := func(what string) {
		t.Helper()
		if err := check.Queue(bg, r.Site()); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("Check = %v, want %q", err, what)
		}
	}
	r.must(r.rdb.HSet(bg, r.keys.Cancels, "a", "17 0 ").Err())
	finds(`job "a" is marked as cancelled with token "17"`)
	r.must(r.rdb.HDel(bg, r.keys.Cancels, "a").Err())
	finds(`job "a" runs with the flag`)
	r.must(r.rdb.HSet(bg, r.keys.Cancels, "a", mark, "b", mark).Err())
	finds(`job "b" is marked as cancelled`)
	r.must(r.rdb.HDel(bg, r.keys.Cancels, "b").Err())
}

// One call doesn't search long lists for many jobs: the next call goes on.
func TestActIsBounded(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	const n = 20_000
	all := numbered("j", n)
	for some := range slices.Chunk(all, MaxBatch) {
		r.put(some...)
	}
	middle := all[n/2 : n/2+20]
	targets := make([]target, len(middle))
	for i, id := range middle {
		targets[i].id = id
	}
	reply, err := r.act(bg, RunJobs(time.Now().Add(time.Hour)), nil, targets)
	r.must(err)
	answers, err := parseActed(reply, len(targets))
	r.must(err)
	if got := len(answers); got < 2 || got > 2*facts.ActBudget/n {
		t.Errorf("a call for jobs in the middle of a list of %d gets to %d of them", n, got)
	}
	done, err := r.Do(bg, DeleteJobs(), middle)
	r.must(err)
	same(t, "answers", len(done), len(middle))
	first, err := r.Do(bg, DeleteJobs(), all[:200]) // near the end of the list
	r.must(err)
	last, err := r.Do(bg, DeleteJobs(), all[n-200:])
	r.must(err)
	for _, answer := range slices.Concat(first, last) {
		same(t, "answer", answer, Answer{Done, signalbox.StateReady})
	}
	reply, err = r.act(bg, DeleteJobs(), nil, []target{{id: all[300]}, {id: all[n-300]}, {id: all[301]}, {id: all[n-301]}})
	r.must(err)
	same(t, "jobs near the ends that a call gets to", len(reply.Strs(2)), 4)
	redistest.Eventually(t, func() bool { return r.counts().Ready+r.counts().Due == n-424 }, "424 jobs are gone")
}

// A record without a header has no priority: its job stays where it is.
func testPrioritiseWithoutHeader(t *testing.T, r *rig) {
	r.open()
	r.into("s", signalbox.StateScheduled)
	r.into("r", signalbox.StateReady)
	r.must(r.rdb.HSet(bg, r.keys.Jobs, "s", "no record", "r", "no record").Err())
	before := r.dump()
	for _, to := range []signalbox.Priority{signalbox.PriorityHigh, signalbox.PriorityNormal} {
		same(t, "scheduled", r.did(PrioritiseJobs(to), "s"), Answer{Failed, signalbox.StateScheduled})
		same(t, "ready", r.did(PrioritiseJobs(to), "r"), Answer{Failed, signalbox.StateReady})
	}
	r.unchanged("a priority for jobs without a header", before)
}

// A call that drops many old jobs gets to fewer: the next call goes on.
func testActCountsWhatItDrops(t *testing.T, r *rig) {
	const old, n = 900, 20
	r.put(numbered("old", old)...)
	_, err := r.Do(bg, CancelJobs(""), numbered("old", old))
	r.must(err)
	r.kept.Jobs = 1
	var targets []target
	for _, id := range numbered("j", n) {
		r.put(id)
		targets = append(targets, target{id: id})
	}
	reply, err := r.act(bg, CancelJobs(""), nil, targets)
	r.must(err)
	dropped := old + len(reply.Strs(2)) - len(r.buried(r.keys.Cancelled))
	if got := len(reply.Strs(2)); got < 2 || got > 8 {
		t.Errorf("a call gets to %d jobs, and drops %d", got, dropped)
	}
	answers, err := r.Do(bg, CancelJobs(""), numbered("j", n))
	r.must(err)
	same(t, "answers", len(answers), n)
}
