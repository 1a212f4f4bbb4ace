package store

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/looks"
)

var historyTests = []storeTest{
	{"History", testHistory},
	{"TimesAreAddedOnce", testTimesOnce},
	{"TimesOfADeadSession", testTimesOfADeadSession},
	{"CloseTakesTimes", testCloseTakesTimes},
	{"HistoryOldRound", testHistoryOldRound},
	{"HistoryOfGarbage", testHistoryOfGarbage},
	{"HistoryIsBounded", testHistoryIsBounded},
	{"IdleQueueHasNoHistory", testIdleQueueHasNoHistory},
}

// history returns the queue's history. Its periods must follow each other, and end now.
func (r *rig) history(step looks.Step) looks.History {
	r.t.Helper()
	r.later()
	h, err := r.Looks().History(bg, step)
	r.must(err)
	for i, p := range h.Periods {
		if !p.End.After(p.Start) || i > 0 && !p.Start.Equal(h.Periods[i-1].End) || i == len(h.Periods)-1 && !p.End.Equal(h.At) {
			r.t.Errorf("period %d of %d is from %v to %v; it is %v", i, len(h.Periods), p.Start, p.End, h.At)
		}
	}
	return h
}

// sumOfPeriods returns what happened in all periods.
func sumOfPeriods(h looks.History) (all looks.Period) {
	sum := reflect.ValueOf(&all.Totals).Elem()
	for _, p := range h.Periods {
		for i := range sum.NumField() {
			sum.Field(i).SetInt(sum.Field(i).Int() + reflect.ValueOf(p.Totals).Field(i).Int())
		}
		all.Wait.Merge(&p.Wait)
		all.Run.Merge(&p.Run)
	}
	return all
}

func (r *rig) notes(t *Times) {
	r.t.Helper()
	alive, _, err := r.Taking(t).Sessions().Renew(bg, r.session, 1000*time.Hour, "")
	r.must(err)
	same(r.t, "alive", alive, true)
}

// batch returns a batch of times that ran.
func (r *rig) batch(lane *Lane, ran ...time.Duration) *Times {
	lane.Next()
	t := &Times{Lane: lane}
	for _, d := range ran {
		t.Run.Add(d)
	}
	return t
}

// What the counters say now is the end of the last period, also if no session was renewed since.
func testHistory(t *testing.T, r *rig) {
	r.open()
	for range 2 {
		r.put("a", "b", "c")
		got := r.claim(3)
		r.settled(settlement(got[0], Completed), settlement(got[1], Dead), settlement(got[2], Cancelled))
		for _, step := range []looks.Step{looks.Minutes, looks.Hours} {
			h := r.history(step)
			same(t, "the sum", sumOfPeriods(h).Totals, r.counts().Total)
			same(t, "the total", h.Total, r.counts().Total)
		}
		r.notes(nil)
	}
	left, err := r.Sessions().Close(bg, r.session, false)
	r.must(err)
	same(t, "left", left, 0)
	same(t, "the sum", sumOfPeriods(r.history(looks.Minutes)).Totals, r.counts().Total)
}

// A batch that is sent again, since its reply was lost, is added once. The next one is added to it.
func testTimesOnce(t *testing.T, r *rig) {
	r.open()
	lane := r.NewLane()
	first := r.batch(lane, time.Millisecond, time.Second, time.Second)
	first.Wait.Add(time.Hour)
	for range 3 {
		r.notes(first)
	}
	same(t, "the first batch", sumOfPeriods(r.history(looks.Minutes)).Run, first.Run)
	second := r.batch(lane, time.Second, 2*time.Hour)
	r.notes(second)
	r.notes(second)
	for _, step := range []looks.Step{looks.Minutes, looks.Hours} {
		all := sumOfPeriods(r.history(step))
		both := first.Run
		both.Merge(&second.Run)
		same(t, "ran", all.Run, both)
		same(t, "waited", all.Wait, first.Wait)
	}
}

// A session that is over adds no times: the worker sends them again, with another session.
func testTimesOfADeadSession(t *testing.T, r *rig) {
	batch := r.batch(r.NewLane(), time.Second)
	alive, _, err := r.Taking(batch).Sessions().Renew(bg, "unknown", time.Minute, "")
	r.must(err)
	same(t, "alive", alive, false)
	r.open()
	same(t, "after a session that is over", sumOfPeriods(r.history(looks.Minutes)).Run, facts.Histogram{})
	alive, _, err = r.Taking(batch).Sessions().Open(bg, "another", time.Minute)
	r.must(err)
	same(t, "alive", alive, true)
	same(t, "after one that was opened", sumOfPeriods(r.history(looks.Minutes)).Run, batch.Run)
}

// The end of a session takes times along, those of a renewal without a reply only once. The lane of the times outlives it, so that a
// call which is sent again adds nothing.
func testCloseTakesTimes(t *testing.T, r *rig) {
	r.open()
	lane := r.NewLane()
	batch := r.batch(lane, time.Second)
	r.notes(batch)
	r.put("a")
	got := r.claim(1) // its lane is written
	_, err := r.Taking(batch).Sessions().Close(bg, r.session, true, r.lane)
	r.must(err)
	same(t, "of a batch that was sent", sumOfPeriods(r.history(looks.Minutes)).Run, batch.Run)
	more := r.batch(lane, time.Second)
	r.settled(settlement(got[0], Completed))
	for range 2 {
		_, err = r.Taking(more).Sessions().Close(bg, r.session, true, r.lane)
		r.must(err)
	}
	same(t, "of two batches", sumOfPeriods(r.history(looks.Minutes)).Run, facts.Histogram{10: 2})
	same(t, "lanes of claims", r.rdb.Exists(bg, r.lane.key).Val(), 0)
	if ttl := r.rdb.PTTL(bg, lane.key).Val(); ttl <= 0 || ttl > time.Hour {
		t.Errorf("the lane of the times expires after %v", ttl)
	}
}

// nowIn returns the number of the server's minute.
func (r *rig) nowIn() int64 { return r.rdb.Time(bg).Val().Unix() / 60 }

// What a field has of three hours ago is replaced.
func testHistoryOldRound(t *testing.T, r *rig) {
	minute := r.nowIn()
	for n := minute; n < minute+3; n++ { // the minute may end now
		old := fmt.Sprintf("%d 9 9 9 9 9 9 9 9 9 9;3:7;4:7", (n-180)*60_000_000+5)
		r.must(r.rdb.HSet(bg, r.keys.History, fmt.Sprint("m", n%180), old).Err())
	}
	r.open()
	r.notes(r.batch(r.NewLane(), time.Millisecond))
	found := 0
	for n := minute; n < minute+3; n++ {
		text := r.rdb.HGet(bg, r.keys.History, fmt.Sprint("m", n%180)).Val()
		us, sample, _ := strings.Cut(text, " ")
		if at, err := strconv.ParseInt(us, 10, 64); err == nil && at/60_000_000 == n {
			found++
			same(t, "counters, waits and runs", sample, "0 0 0 0 0 0 0 0 0 0 0;;0:1")
		}
	}
	if found != 1 {
		t.Errorf("%d fields were written", found)
	}
}

// Whatever another program writes to the history, renewals go on. What they would replace is as it should be then, and the error names
// the others.
func testHistoryOfGarbage(t *testing.T, r *rig) {
	r.open()
	minute := r.nowIn()
	far := fmt.Sprint("m", (minute+90)%180)
	fields := []any{far, "7 1 2;x;", "last", "garbage", "before", "garbage", "since:m", "", "h3", strings.Repeat("9", 400), "other", "x"}
	for n := minute; n < minute+3; n++ {
		fields = append(fields, fmt.Sprint("m", n%180), "1 2 3 4 5 6 7 8 9 10 11;0:1:2,,;:")
	}
	r.must(r.rdb.HSet(bg, r.keys.History, fields...).Err())
	r.must(r.rdb.HSet(bg, r.keys.Stats, "completed", "many", "dead", strings.Repeat("1", 18)).Err())
	lane := r.NewLane()
	r.must(r.rdb.Set(bg, lane.key, "garbage", 0).Err())
	r.notes(r.batch(lane, time.Second))
	r.notes(r.batch(lane, time.Second))
	r.later() // a period takes time
	h, err := r.Looks().History(bg, looks.Minutes)
	if err == nil || !strings.Contains(err.Error(), "field "+far) || !strings.Contains(err.Error(), "HDEL") || strings.Contains(err.Error(), "since") || strings.Contains(err.Error(), "last") {
		t.Errorf("History: %v", err)
	}
	same(t, "completed", h.Total.Completed, 0)
	same(t, "dead", h.Total.Dead, 0)
	same(t, "ran", sumOfPeriods(h).Run[10], 2)
	r.must(r.rdb.HDel(bg, r.keys.History, far, "before").Err())
	r.must(r.rdb.HDel(bg, r.keys.Stats, "completed", "dead").Err())
	for n := minute + 1; n < minute+3; n++ {
		r.must(r.rdb.HDel(bg, r.keys.History, fmt.Sprint("m", n%180)).Err())
	}
	r.history(looks.Minutes)
}

// A field has a bound, whatever there is to count. docs/wire.md and docs/operations/health.md say what follows from it.
func testHistoryIsBounded(t *testing.T, r *rig) {
	redistest.Eventually(t, func() bool { return r.rdb.Time(bg).Val().Second() < 50 }, "a minute has begun")
	r.open()
	most := r.batch(r.NewLane())
	for i := range most.Run {
		most.Run[i], most.Wait[i] = 1<<53-1, 1<<53-1
	}
	r.notes(most)
	again := *most
	again.Lane.Next()
	r.notes(&again)
	for _, name := range []string{"enqueued", "completed", "retry", "delay", "return", "dead", "cancelled", "crashed", "deleted", "revived"} {
		r.must(r.rdb.HSet(bg, r.keys.Stats, name, strings.Repeat("9", 16)).Err())
	}
	r.notes(nil)
	h := r.history(looks.Minutes)
	same(t, "enqueued", h.Total.Enqueued, 9999999999999999)
	same(t, "the longest", sumOfPeriods(h).Run[23], 1<<53-1) // and no more
	longest := 0
	for _, text := range r.rdb.HGetAll(bg, r.keys.History).Val() {
		longest = max(longest, len(text))
	}
	if longest > 1200 || longest < 1000 {
		t.Errorf("a field has %d bytes", longest)
	}
	r.must(r.rdb.Del(bg, r.keys.Stats).Err())
	same(t, "periods when the counters are gone", sumOfPeriods(r.history(looks.Minutes)).Totals, looks.Totals{})
}

// While nothing happens, renewals don't let the history grow.
func testIdleQueueHasNoHistory(t *testing.T, r *rig) {
	r.open()
	before := r.rdb.HGetAll(bg, r.keys.History).Val()
	r.later()
	r.notes(nil)
	after := r.rdb.HGetAll(bg, r.keys.History).Val()
	if before["last"] == after["last"] {
		t.Errorf("last is still %q", after["last"])
	}
	for _, field := range []string{"last", "before"} {
		delete(before, field)
		delete(after, field)
	}
	if len(before) != 4 || fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("the history was %v, and is %v", before, after)
	}
}

// Over many hours, each minute and each hour has its own period. A time in which nobody looked is one long period.
func TestHistoryOverTime(t *testing.T) {
	t.Parallel()
	srv, shift := redistest.NewWithClock(t)
	r := newQueue(t, srv.Client())
	lane, ahead, jobs := r.NewLane(), time.Duration(0), 0
	forward := func(d time.Duration) {
		ahead += d
		shift(ahead)
	}
	put := func() {
		jobs++
		r.put(fmt.Sprint("job", jobs))
	}
	forward(time.Duration(62-r.rdb.Time(bg).Val().Second()) * time.Second) // to the beginning of a minute
	r.open()
	r.notes(nil)
	for range 200 {
		put()
		r.notes(r.batch(lane, time.Second))
		forward(time.Minute)
		r.notes(r.batch(lane, time.Second))
	}
	minutes := r.history(looks.Minutes)
	for i, p := range minutes.Periods {
		if i > 0 && i < len(minutes.Periods)-1 && (p.Enqueued != 1 || p.Run[10] != 2 || p.End.Sub(p.Start) < 55*time.Second || p.End.Sub(p.Start) > 80*time.Second) {
			t.Errorf("period %d is of %v and has %+v", i, p.End.Sub(p.Start), p)
		}
	}
	if n := len(minutes.Periods); n < 179 || n > 181 {
		t.Errorf("%d minutes", n)
	}
	hours := r.history(looks.Hours)
	same(t, "all by the hour", sumOfPeriods(hours).Enqueued, int64(jobs))
	same(t, "times by the hour", sumOfPeriods(hours).Run[10], 400)
	if n := len(hours.Periods); n < 4 || n > 6 {
		t.Errorf("%d hours", n)
	}

	// Nothing happens for two hours, while a worker is there: the last note of that time is the end of a period.
	for range 120 {
		forward(time.Minute)
		r.notes(nil)
	}
	put()
	last := r.history(looks.Minutes).Periods
	same(t, "enqueued since", last[len(last)-1].Enqueued, 1)
	if p := last[len(last)-1]; p.End.Sub(p.Start) > 80*time.Second {
		t.Errorf("the job was put in within %v, says the history", p.End.Sub(p.Start))
	}
	r.notes(nil)
	forward(time.Minute)
	r.notes(nil)
	for _, p := range r.history(looks.Minutes).Periods {
		if d := p.End.Sub(p.Start); d > 80*time.Second && p.Enqueued > 0 {
			t.Errorf("%d jobs were put in within %v, says the history later", p.Enqueued, d)
		}
	}

	// For two hours nobody is there but producers. What they do is not taken to be of a minute.
	put()
	forward(2 * time.Hour)
	put()
	r.notes(nil)
	forward(time.Minute)
	put()
	last = r.history(looks.Minutes).Periods
	now, outage := last[len(last)-1], last[len(last)-2]
	same(t, "enqueued since somebody looks", now.Enqueued, 1)
	same(t, "enqueued while nobody looked", outage.Enqueued, 2)
	if d := outage.End.Sub(outage.Start); d < 2*time.Hour || d > 2*time.Hour+time.Minute {
		t.Errorf("that was %v", d)
	}
	r.notes(nil)

	// Longer than the minutes go back: only the hours have it.
	put()
	forward(5 * time.Hour)
	r.notes(nil)
	put()
	forward(time.Second)
	same(t, "by the minute", sumOfPeriods(r.history(looks.Minutes)).Enqueued, 1)
	same(t, "by the hour", sumOfPeriods(r.history(looks.Hours)).Enqueued, int64(jobs))

	// The clock is set back: nothing is negative, and what comes is counted.
	r.notes(r.batch(lane, time.Second))
	forward(-10 * time.Minute)
	r.notes(r.batch(lane, time.Second))
	put()
	forward(time.Second)
	h := r.history(looks.Minutes)
	same(t, "since the clock was set back", h.Periods[len(h.Periods)-1].Enqueued, 1)
	if n := r.rdb.HLen(bg, r.keys.History).Val(); n > 4+180+15 {
		t.Errorf("%d fields", n)
	}
}

// The scripts write the counters in the order in which Go reads them.
func TestCountersOfASample(t *testing.T) {
	t.Parallel()
	r := unchecked(t, redistest.New(t).Client())
	r.open()
	for i, counter := range []string{"enqueued", "completed", "retry", "delay", "return", "dead", "cancelled", "crashed", "deleted", "revived", "expired"} {
		r.must(r.rdb.HSet(bg, r.keys.Stats, counter, 100+i).Err())
	}
	r.notes(nil)
	_, sample, _ := strings.Cut(r.rdb.HGet(bg, r.keys.History, "last").Val(), " ")
	same(t, "counters of the last sample", sample, "100 101 102 103 104 105 106 107 108 109 110")
	want := looks.Totals{Enqueued: 100, Completed: 101, Retried: 102, Delayed: 103, Returned: 104, Dead: 105, Cancelled: 106, Crashed: 107, Deleted: 108, Revived: 109, Expired: 110}
	same(t, "counters", r.history(looks.Minutes).Total, want)
	same(t, "counters that are read as fields", r.counts().Total, want)
}

// BenchmarkRenew renews a session: without statistics that changed, and with.
func BenchmarkRenew(b *testing.B) {
	for _, name := range []string{"idle", "busy"} {
		b.Run(name, func(b *testing.B) {
			r := newQueue(b, redistest.Start(b).Client())
			r.open()
			lane := r.NewLane()
			batch := &Times{Lane: lane, Wait: facts.Histogram{0: 900, 1: 50, 3: 7, 5: 2}, Run: facts.Histogram{2: 1, 3: 400, 4: 300, 5: 20, 7: 1}}
			for range b.N {
				if name == "idle" {
					r.notes(nil)
					continue
				}
				lane.Next()
				r.notes(batch)
			}
		})
	}
}
