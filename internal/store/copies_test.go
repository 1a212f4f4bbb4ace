package store

import (
	"errors"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/internal/store/settings"
	"github.com/signalbox-go/signalbox/internal/wire"
)

var copiesTests = []storeTest{
	{"CopiesOfDeadJobs", testCopiesOfDeadJobs},
	{"CopyOfACrash", testCopyOfACrash},
	{"CopierDies", testCopierDies},
	{"CopyOfAHeldJob", testCopyOfAHeldJob},
	{"CopyOfAJobThatIsDeadAgain", testCopyOfAJobThatIsDeadAgain},
	{"CopiesOfEachDeath", testCopiesOfEachDeath},
	{"NoCopyOfOthers", testNoCopyOfOthers},
	{"NoCopyOfACopy", testNoCopyOfACopy},
	{"CopiesSettings", testCopiesSettings},
	{"CopiesOfUnfitJobs", testCopiesOfUnfitJobs},
	{"CopiesInPages", testCopiesInPages},
	{"CopiesRefused", testCopiesRefused},
	{"CopyCompletedMeanwhile", testCopyCompletedMeanwhile},
	{"CopyDeadMeanwhile", testCopyDeadMeanwhile},
	{"CopyOfEncoded", testCopyOfEncoded},
	{"CopyKeepsTheEffect", testCopyKeepsTheEffect},
}

// A payload that isn't JSON stays as it is, and keeps the key that it may be bound to: when the job is edited, moved, and copied.
func testCopyOfEncoded(t *testing.T, r *rig) {
	to := r.copyTo()
	sealed := signalbox.Job{ID: "a", Kind: "charge", Payload: []byte("sealed"), Encoding: "aead", Incarnation: 7, Queue: r.Name(), Retain: time.Hour}
	item, err := NewItem(&sealed, When{})
	r.must(err)
	item.IfAbsent()
	r.enqueued(item)
	key := sealed.EffectKey()
	raw := r.rdb.HGet(bg, r.keys.Jobs, "a").Val()
	if !strings.HasPrefix(raw, "\x021\x00\x02") {
		t.Errorf("the record begins with %x", raw[:min(4, len(raw))])
	}
	if _, err := (wire.Edit{Payload: []byte("{}")}).Apply([]byte(raw)); !errors.Is(err, signalbox.ErrInvalid) {
		t.Errorf("the payload is edited: %v", err)
	}
	moved := r.other()
	_, err = r.Transfer().Move(bg, moved.Name(), []string{"a"})
	r.must(err)
	got := moved.claim(1)[0].Job
	if got.EffectKey() != key || got.Encoding != "aead" || string(got.Payload) != "sealed" {
		t.Errorf("moved: %+v, key %s, want %s", got, got.EffectKey(), key)
	}

	sealed.ID, sealed.Retain = "b", 0
	item, err = NewItem(&sealed, When{})
	r.must(err)
	r.enqueued(item)
	r.settled(r.fails(r.one(), "no"))
	same(t, "copies", r.copyAll(r.Transfer().NewCopier()).Jobs, 1)
	got = to.claim(1)[0].Job
	if got.EffectKey() != sealed.EffectKey() || got.Encoding != "aead" || string(got.Payload) != "sealed" {
		t.Errorf("the copy: %+v, key %s, want %s", got, got.EffectKey(), sealed.EffectKey())
	}
}

// A copy has the effect key of the dead job, and the time from which the age of its effect counts. So have the copies of later deaths, of a copy that was
// made twice, and of one that an operator moves. The original keeps both when it is retried.
func testCopyKeepsTheEffect(t *testing.T, r *rig) {
	to := r.copyTo()
	due := time.Now().Add(-time.Hour).Truncate(time.Microsecond)
	for _, c := range []struct {
		name string
		job  signalbox.Job
	}{
		{"an ID that was drawn", signalbox.Job{}},
		{"an ID that was chosen", signalbox.Job{Incarnation: 7}},
		{"the producer's key", signalbox.Job{Effect: "order-17", Incarnation: 7}},
		{"a tick", signalbox.Job{Effect: "{q}e{@5}", Born: due}},
		{"a time", signalbox.Job{Born: due}},
	} {
		job := c.job
		job.ID, job.Kind, job.Payload = strings.ReplaceAll(c.name, " ", "-"), "charge", []byte(`{}`)
		item, err := NewItem(&job, When{})
		r.must(err)
		r.enqueued(item)
		first := r.one()
		key, born := first.Job.EffectKey(), first.Job.Born
		if born.IsZero() {
			born = first.Job.EnqueuedAt
		}
		r.settled(r.fails(first, "no"))
		for death := 1; death <= 2; death++ {
			same(t, c.name+": copies", r.copyAll(r.Transfer().NewCopier()).Jobs, 1)
			copied := to.one()
			if death == 2 { // the key is the same wherever it goes on
				to.settled(settlement(copied, Dead))
				third := r.other()
				to.moved(third, copied.Job.ID)
				third.did(RunJobs(time.Time{}), copied.Job.ID)
				copied = third.one()
				third.settled(settlement(copied, Completed))
			} else {
				to.settled(settlement(copied, Completed))
			}
			same(t, c.name+": effect key", copied.Job.EffectKey(), key)
			if !copied.Job.Born.Equal(born) {
				t.Errorf("%s: the copy of death %d counts from %v, want %v", c.name, death, copied.Job.Born, born)
			}
			if copied.Job.EnqueuedAt.Before(first.Job.EnqueuedAt) || copied.Job.ID == job.ID {
				t.Errorf("%s: the copy is %+v", c.name, copied.Job)
			}
			r.later()
			r.did(RunJobs(time.Time{}), job.ID)
			again := r.one()
			same(t, c.name+": effect key of the original", again.Job.EffectKey(), key)
			r.settled(settlement(again, Dead))
		}
		r.copyAll(r.Transfer().NewCopier())
		to.settled(settlement(to.one(), Completed))
	}
}

// noted returns what is noted of deaths: the times by the jobs' IDs.
func (r *rig) noted() map[string]string {
	r.t.Helper()
	all, err := r.rdb.HGetAll(bg, r.keys.Notes).Result()
	r.must(err)
	noted := make(map[string]string)
	for name, value := range all {
		if id, ok := strings.CutPrefix(name, "dead "); ok {
			noted[id] = value
		}
	}
	return noted
}

// copyAll makes copies of all deaths that are noted.
func (r *rig) copyAll(c *Copier) (done Copied) {
	r.t.Helper()
	var all []string
	for cursor, begun := uint64(0), false; !begun || cursor != 0; begun = true {
		ids, next, err := c.Noted(bg, cursor)
		r.must(err)
		all, cursor = append(all, ids...), next
	}
	done, err := c.Copy(bg, all)
	r.must(err)
	return done
}

// copyTo has dead jobs copied to another queue, which it returns.
func (r *rig) copyTo() *rig {
	r.t.Helper()
	r.open()
	to := r.other()
	r.must(r.Settings().SetCopies(bg, to.Name()))
	return to
}

// fails is a settlement of a job that is dead of an error.
func (r *rig) fails(d Delivery, message string) Settlement {
	r.t.Helper()
	s := settlement(d, Dead)
	var err error
	s.Record, err = d.FailedAttempt(message, &Attempt{Number: 1, Error: message, Worker: "w0"})
	r.must(err)
	return s
}

func testCopiesOfDeadJobs(t *testing.T, r *rig) {
	to := r.copyTo()
	dead := signalbox.Job{
		ID: "a", Kind: "charge", Payload: []byte(`{"n":1}`), Priority: signalbox.PriorityHigh, MaxAttempts: 3, Timeout: time.Minute, Effect: "order-17", Incarnation: 7,
		Headers: map[string]string{"tenant": "acme", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
	}
	item, err := NewItem(&dead, When{})
	r.must(err)
	r.enqueued(item, r.item("b", When{}, signalbox.PriorityLow), r.item("c", When{}, 0), r.item("d", When{}, 0))
	message := strings.Repeat("x", 511) + "äöü"
	for _, d := range r.claim(4) {
		switch d.Job.ID {
		case "a":
			r.settled(r.fails(d, message))
		case "c":
			r.settled(settlement(d, Cancelled))
		case "d":
			r.settled(settlement(d, Completed))
		default:
			r.settled(settlement(d, Dead))
		}
	}
	noted := r.noted()
	for id, score := range map[string]float64{"a": r.rdb.ZScore(bg, r.keys.Dead, "a").Val(), "b": r.rdb.ZScore(bg, r.keys.Dead, "b").Val()} {
		same(t, "noted of "+id, noted[id], strconv.FormatInt(int64(score), 10))
	}
	same(t, "noted", len(noted), 2)
	if found, _ := r.findings(false); len(found) > 0 {
		t.Errorf("the doctor finds %+v", found)
	}
	r.check()

	done := r.copyAll(r.Transfer().NewCopier())
	same(t, "copies", done.Jobs, 2)
	same(t, "to", done.To, to.Name())
	same(t, "notes that are left", len(r.noted()), 0)
	equal(t, "dead jobs", r.buried(r.keys.Dead), []string{"a", "b"})
	same(t, "the other queue", to.counts().Ready, 2)
	copied := to.claim(2)
	got, low := copied[0].Job, copied[1].Job
	us, err := strconv.ParseInt(noted["a"], 10, 64)
	r.must(err)
	headers := map[string]string{
		"tenant": "acme", "traceparent": dead.Headers["traceparent"],
		"signalbox-dead-queue": r.Name(), "signalbox-dead-id": "a", "signalbox-dead-error": strings.Repeat("x", 511),
		"signalbox-dead-at": time.UnixMicro(us).UTC().Format("2006-01-02T15:04:05.000000Z"),
	}
	if !maps.Equal(got.Headers, headers) {
		t.Errorf("headers %q, want %q", got.Headers, headers)
	}
	if got.Kind != "charge" || string(got.Payload) != `{"n":1}` || got.Priority != signalbox.PriorityHigh || got.MaxAttempts != 3 || got.Timeout != time.Minute {
		t.Errorf("the copy is %+v", got)
	}
	if got.Attempt != 1 || got.Crashes != 0 || got.LastError != "" || got.EffectKey() != "order-17" || got.Born.IsZero() || len(wire.Attempts(copied[0].record)) != 0 {
		t.Errorf("the copy is no new job: %+v", got)
	}
	if _, there := low.Headers["signalbox-dead-error"]; there || low.Priority != signalbox.PriorityLow || string(low.Payload) != `"b"` {
		t.Errorf("the copy of a job without an error is %+v", low)
	}
	names, err := Queues(bg, r.rdb, "")
	r.must(err)
	same(t, "the other queue is listed", strings.Contains(strings.Join(names, " "), to.Name()), true)
	to.settled(settlement(copied[0], Completed), settlement(copied[1], Completed))
}

func testCopyOfACrash(t *testing.T, r *rig) {
	to := r.copyTo()
	r.put("poison")
	for range CrashLimit {
		r.one()
		r.crash()
	}
	same(t, "copies", r.copyAll(r.Transfer().NewCopier()).Jobs, 1)
	d := to.one()
	same(t, "of", d.Job.Headers["signalbox-dead-id"], "poison")
	same(t, "crashes", d.Job.Crashes, 0)
	if !strings.Contains(d.Job.Headers["signalbox-dead-error"], "died") {
		t.Errorf("its error is %q", d.Job.Headers["signalbox-dead-error"])
	}
}

// A copier dies at each of its steps: before the call, or when the call was made and its reply is lost. Another one goes on, and there is
// one copy of each job.
func testCopierDies(t *testing.T, r *rig) {
	to := r.copyTo()
	const steps = 3 // read, copy, remove the note
	jobs := 0
	for calls := range steps + 1 {
		for _, lost := range []bool{false, true} {
			jobs++
			id := "j" + strconv.Itoa(jobs)
			r.bury(Dead, id)
			_, err := r.mover(&mortal{calls: calls, lost: lost}).Transfer().NewCopier().Copy(bg, []string{id})
			if survives := calls == steps && !lost; survives != (err == nil) || err != nil && !errors.Is(err, errDied) {
				t.Errorf("it dies after %d calls, %v: %v", calls, lost, err)
			}
			if copies := to.counts().Total.Enqueued - int64(jobs-1); copies != map[bool]int64{true: 1}[calls >= 2] {
				t.Errorf("it dies after %d calls, %v: %d copies", calls, lost, copies)
			}
			same(t, id+": jobs that are noted", len(r.noted()), map[bool]int{true: 1}[calls < steps])
			r.copyAll(r.Transfer().NewCopier())
			same(t, id+": jobs that are noted then", len(r.noted()), 0)
			same(t, id+": copies", to.counts().Ready, int64(jobs))
		}
	}
	same(t, "copies that were put in", to.counts().Total.Enqueued, int64(jobs))
}

// A job that was retried and died again is copied again. The note of its new death stays when that of the first goes.
func testCopiesOfEachDeath(t *testing.T, r *rig) {
	to := r.copyTo()
	c := r.Transfer().NewCopier()
	again := func() {
		r.later()
		r.did(RunJobs(time.Time{}), "a")
		r.settled(settlement(r.one(), Dead))
	}
	r.bury(Dead, "a")
	r.copyAll(c)
	again()
	r.copyAll(c)
	same(t, "copies", to.counts().Ready, 2)
	first := r.Transfer().NewCopier()
	again()
	deaths, _, _, err := first.read(bg, []string{"a"})
	r.must(err)
	again()
	r.must(first.q.Settings().ForgetNotes(bg, []settings.Note{{ID: "a", At: deaths[0].at}}))
	same(t, "notes", len(r.noted()), 1)
	r.copyAll(c)
	same(t, "copies", to.counts().Ready, 3)
	same(t, "notes", len(r.noted()), 0)
}

// A job that isn't dead any more when its turn comes isn't copied.
func testNoCopyOfOthers(t *testing.T, r *rig) {
	to := r.copyTo()
	r.bury(Dead, "retried", "deleted", "replaced", "dropped", "moved", "dead")
	r.did(RunJobs(time.Time{}), "retried")
	r.did(DeleteJobs(), "deleted")
	r.put("replaced")
	third := r.other()
	r.moved(third, "moved")
	r.age(r.keys.Dead, "dropped", 31*24*time.Hour)
	same(t, "dropped", r.sweep(), 1)
	same(t, "notes", len(r.noted()), 6)
	same(t, "copies", r.copyAll(r.Transfer().NewCopier()).Jobs, 1)
	same(t, "notes", len(r.noted()), 0)
	same(t, "the copy", to.one().Job.Headers["signalbox-dead-id"], "dead")
}

// A dead job that is held for a move when its turn comes is copied: the move may be undone. One that was retried before it was held isn't, nor is the copy of a move.
func testCopyOfAHeldJob(t *testing.T, r *rig) {
	to := r.copyTo()
	r.bury(Dead, "a", "b", "c")
	held := r.tour(to, "a")
	held.rounds(hasHeld)
	r.did(RunJobs(time.Time{}), "b")
	retried := r.tour(to, "b")
	retried.rounds(hasHeld)
	r.moved(to, "c")
	back := to.tour(r, "c")
	back.rounds(hasCopied)
	same(t, "held", r.has("a")+r.has("b")+r.has("c"), "heldheldheld")
	same(t, "copies", r.copyAll(r.Transfer().NewCopier()).Jobs, 1)
	same(t, "notes, until the others are let go", len(r.noted()), 2)
	held.m.undo(bg, []*moving{held.moving})
	r.must(r.rdb.ZScore(bg, r.keys.Dead, "a").Err())
	same(t, "the copy", to.one().Job.Headers["signalbox-dead-id"], "a")
	retried.end()
	back.end()
	same(t, "copies of what came back", r.copyAll(r.Transfer().NewCopier()).Jobs, 1)
	same(t, "notes", len(r.noted()), 0)
}

// A copier looks at a job that isn't dead, and before it removes the note the job is dead again: by a failover, or since it was moved back. The note stays.
func testCopyOfAJobThatIsDeadAgain(t *testing.T, r *rig) {
	needsDump(t)
	to := r.copyTo()
	r.bury(Dead, "a", "b")
	before := r.remember()
	r.did(RunJobs(time.Time{}), "a")
	r.moved(to, "b")
	c := r.Transfer().NewCopier()
	deaths, _, _, err := c.read(bg, []string{"a", "b"})
	r.must(err)
	_, _, gone := c.sort(deaths, &Copied{})
	same(t, "notes that are to go", len(gone), 2)
	r.failOver(before)
	r.must(c.q.Settings().ForgetNotes(bg, gone))
	same(t, "notes", len(r.noted()), 2)
	same(t, "copies", r.copyAll(c).Jobs, 2)
	same(t, "notes", len(r.noted()), 0)
}

// Two queues that copy to each other make one copy of a job.
func testNoCopyOfACopy(t *testing.T, r *rig) {
	to := r.copyTo()
	r.must(to.Settings().SetCopies(bg, r.Name()))
	r.bury(Dead, "a")
	r.copyAll(r.Transfer().NewCopier())
	to.settled(settlement(to.one(), Dead))
	same(t, "notes", len(to.noted()), 1)
	same(t, "copies of the copy", to.copyAll(to.Transfer().NewCopier()).Jobs, 0)
	same(t, "notes", len(to.noted()), 0)
	same(t, "enqueued", r.counts().Total.Enqueued, 1)
}

func testCopiesSettings(t *testing.T, r *rig) {
	is := func(what, want string) {
		t.Helper()
		ending, err := r.Settings().Ending(bg)
		r.must(err)
		s, err := r.Settings().Read(bg)
		r.must(err)
		same(t, what, ending.Copies, want)
		same(t, what, s.Copies, want)
	}
	r.open()
	is("at first", "")
	r.bury(Dead, "before")
	same(t, "there are notes", r.rdb.Exists(bg, r.keys.Notes).Val(), 0)
	to := r.other()
	r.tells(settings.Wanted{CopyDead: "other"})
	is("a Config", "other")
	r.tells(settings.Wanted{CopyDead: to.Name()})
	is("a new Config", to.Name())
	r.tells(settings.Wanted{CopyDead: "other"})
	is("the one before", to.Name())
	r.put("span")
	d := r.one()
	r.note(d, "span")
	r.bury(Dead, "a")
	r.must(r.Settings().SetCopies(bg, ""))
	is("none", "")
	same(t, "notes", len(r.noted()), 0)
	same(t, "other notes", r.rdb.HLen(bg, r.keys.Notes).Val(), 1)
	r.tells(settings.Wanted{CopyDead: to.Name()})
	is("the same Config where there are to be none", "")
	r.bury(Dead, "b")
	same(t, "notes", len(r.noted()), 0)
	same(t, "without a setting", r.copyAll(r.Transfer().NewCopier()).To, "")
	same(t, "copies", to.counts().Total.Enqueued, 0)
	if found, _ := r.findings(false); len(found) > 0 {
		t.Errorf("the doctor finds %+v", found)
	}
	for _, wrong := range []string{"a b", "{x}", strings.Repeat("q", layout.MaxName+1), r.Name()} {
		if err := settings.ValidateCopies(r.Name(), wrong); !errors.Is(err, signalbox.ErrInvalid) {
			t.Errorf("copies to %q: %v", wrong, err)
		}
	}
	r.must(errors.Join(settings.ValidateCopies(r.Name(), ""), settings.ValidateCopies(r.Name(), "other")))

	// Another program can write anything. Nothing is copied then, or noted, and the doctor says so.
	r.must(r.rdb.HSet(bg, r.keys.Settings, "copy_dead", "a b").Err())
	r.bury(Dead, "c")
	same(t, "a strange setting", r.copyAll(r.Transfer().NewCopier()).Jobs, 0)
	same(t, "notes", len(r.noted()), 0)
	found, _ := r.findings(false)
	if len(found) != 1 || found[0].Fault != facts.BadSetting {
		t.Errorf("the doctor finds %+v", found)
	}
	r.must(r.rdb.HDel(bg, r.keys.Settings, "copy_dead").Err())
}

// A record that can't be read isn't copied. One of a newer release is left to a newer worker.
func testCopiesOfUnfitJobs(t *testing.T, r *rig) {
	to := r.copyTo()
	r.bury(Dead, "good", "newer", "strange")
	large, err := NewItem(&signalbox.Job{ID: "large", Kind: "k", Payload: make([]byte, wire.MaxEnvelope-100)}, When{})
	r.must(err)
	r.enqueued(large)
	r.settled(settlement(r.one(), Dead))
	write := func(id string, record []byte) {
		r.must(r.rdb.HIncrBy(bg, r.keys.Stats, "dead_bytes", int64(len(record))-r.rdb.HStrLen(bg, r.keys.Jobs, id).Val()).Err())
		r.must(r.rdb.HSet(bg, r.keys.Jobs, id, record).Err())
	}
	record, err := r.rdb.HGet(bg, r.keys.Jobs, "newer").Bytes()
	r.must(err)
	record[0] = 3
	write("newer", record)
	write("strange", []byte("strange"))
	done := r.copyAll(r.Transfer().NewCopier())
	same(t, "copies", done.Jobs, 1)
	unfit := make(map[string]error)
	for _, u := range done.Unfit {
		unfit[u.ID] = u.Err
	}
	if len(unfit) != 2 || !errors.Is(unfit["strange"], wire.ErrCorrupt) || !errors.Is(unfit["large"], signalbox.ErrInvalid) {
		t.Errorf("unfit: %v", unfit)
	}
	same(t, "notes", len(r.noted()), 1)
	same(t, "the note of the newer one", r.noted()["newer"] != "", true)
	same(t, "the copy", to.one().Job.Headers["signalbox-dead-id"], "good")
}

// Records go in calls of limited size, and all are copied.
func testCopiesInPages(t *testing.T, r *rig) {
	to := r.copyTo()
	r.room = 500
	ids := numbered("j", 30)
	r.bury(Dead, ids...)
	same(t, "copies", r.copyAll(r.Transfer().NewCopier()).Jobs, 30)
	same(t, "the other queue", to.counts().Ready, 30)
	seen := make(map[string]bool)
	for _, d := range to.claim(30) {
		seen[d.Job.Headers["signalbox-dead-id"]] = true
	}
	same(t, "different jobs", len(seen), 30)
	same(t, "notes", len(r.noted()), 0)
	deaths, _, looked, err := r.Transfer().NewCopier().read(bg, ids[:2])
	r.must(err)
	same(t, "without notes", len(deaths), 0)
	same(t, "looked at", looked, 2)
}

// If the other queue refuses copies, the notes stay.
func testCopiesRefused(t *testing.T, r *rig) {
	to := r.copyTo()
	r.bury(Dead, "a")
	r.must(to.rdb.HSet(bg, to.keys.Settings, "layout", layout.Protocol+1).Err())
	c := r.Transfer().NewCopier()
	_, err := c.Copy(bg, []string{"a"})
	refused, ok := errors.AsType[*CopyError](err)
	if !ok || refused.To != to.Name() || !errors.Is(err, signalbox.ErrOutdated) {
		t.Errorf("it is refused with %v", err)
	}
	same(t, "notes", len(r.noted()), 1)

	// Meanwhile jobs that need no copy any more lose their notes: there are no more notes than dead jobs.
	r.bury(Dead, "b", "c", "d")
	r.did(DeleteJobs(), "b")
	if _, err = c.Copy(bg, []string{"a", "b", "c"}); !errors.As(err, &refused) {
		t.Errorf("again: %v", err)
	}
	same(t, "notes of a, c and d", len(r.noted()), 3)
	r.did(DeleteJobs(), "c")
	calls := to.counts()
	if done, err := c.Tidy(bg, []string{"a", "c", "d"}, refused); err != error(refused) || done.Jobs != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	same(t, "notes of a and d", len(r.noted()), 2)
	same(t, "the other queue", to.counts(), calls)
	r.did(DeleteJobs(), "d")
	r.must(to.rdb.HDel(bg, to.keys.Settings, "layout").Err())
	same(t, "copies then", r.copyAll(c).Jobs, 1)
	same(t, "notes", len(r.noted()), 0)
	to.settled(settlement(to.one(), Completed))
}

// A copy that completed before the note was removed is made again: it has the same ID, and so the same effect key.
func testCopyCompletedMeanwhile(t *testing.T, r *rig) {
	to := r.copyTo()
	r.bury(Dead, "a")
	_, err := r.mover(&mortal{calls: 2}).Transfer().NewCopier().Copy(bg, []string{"a"})
	if !errors.Is(err, errDied) {
		t.Fatal(err)
	}
	first := to.one()
	to.settled(settlement(first, Completed))
	r.copyAll(r.Transfer().NewCopier())
	again := to.one()
	same(t, "ID", again.Job.ID, first.Job.ID)
	same(t, "effect key", again.Job.EffectKey(), first.Job.EffectKey())
	want := r.Transfer().NewCopier().id(death{id: "a", at: strconv.FormatInt(int64(r.rdb.ZScore(bg, r.keys.Dead, "a").Val()), 10)})
	same(t, "ID", again.Job.ID, want)
	if err := layout.ValidateID(want); err != nil || !strings.HasPrefix(want, "dead-") || len(want) != 37 {
		t.Errorf("ID %q: %v", want, err)
	}
}

// A copy that has died before the note was removed stays dead: it is not replaced by a second one.
func testCopyDeadMeanwhile(t *testing.T, r *rig) {
	to := r.copyTo()
	r.bury(Dead, "a")
	_, err := r.mover(&mortal{calls: 2}).Transfer().NewCopier().Copy(bg, []string{"a"})
	if !errors.Is(err, errDied) {
		t.Fatal(err)
	}
	to.settled(settlement(to.one(), Dead))
	r.copyAll(r.Transfer().NewCopier())
	same(t, "the other queue", to.counts(), looks.Counts{Dead: 1, Total: looks.Totals{Enqueued: 1, Dead: 1}})
	same(t, "notes", len(r.noted()), 0)
}

// A user needs the keys and channels of both queues. Without those of the other one the notes stay. It can do without the registry.
func TestCopiesNeedRights(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	r := newQueue(t, srv.Client())
	to := r.copyTo()
	r.bury(Dead, "a")
	r.must(r.rdb.Do(bg, "ACL", "SETUSER", "narrow", "on", ">secret", "+@all", "~"+r.keys.Prefix+"*", "&"+r.keys.Prefix+"*").Err())
	narrow := srv.ClientWith(func(o *redis.UniversalOptions) { o.Username, o.Password = "narrow", "secret" })
	c := New(narrow, "", r.Name()).Transfer().NewCopier()
	_, err := c.Copy(bg, []string{"a"})
	if refused, ok := errors.AsType[*CopyError](err); !ok || refused.To != to.Name() || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("without the other queue's keys: %v", err)
	}
	same(t, "notes", len(r.noted()), 1)
	r.must(r.rdb.Do(bg, "ACL", "SETUSER", "narrow", "~"+to.keys.Prefix+"*", "&"+to.keys.Prefix+"*").Err())
	same(t, "copies", r.copyAll(c).Jobs, 1)
	same(t, "notes", len(r.noted()), 0)
	to.settled(settlement(to.one(), Completed))
}
