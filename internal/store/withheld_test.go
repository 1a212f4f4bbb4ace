package store

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/layout"
)

var withheldTests = []storeTest{
	{"PausedQueueGivesNoJobs", testPaused},
	{"PausedQueueIsQuiet", testPausedQuiet},
	{"PausedQueueTellsWhatIsNext", testPausedNext},
	{"ResumeWakes", testResume},
	{"NewerLayout", testNewerLayout},
	{"NewerLayoutPassesTheWakeUpOn", testNewerLayoutWake},
	{"LayoutOfThisRelease", testOwnLayout},
	{"LayoutThatIsNone", testNoLayout},
}

func (r *rig) pause() {
	r.t.Helper()
	changed, err := r.Settings().Pause(bg)
	r.must(err)
	same(r.t, "paused anew", changed, true)
}

// layout sets the queue's layout, as another release does.
func (r *rig) layout(n any) {
	r.t.Helper()
	r.must(r.rdb.HSet(bg, r.keys.Settings, "layout", n).Err())
}

// While a queue is paused, jobs are enqueued, become due and are settled. None is claimed.
func testPaused(t *testing.T, r *rig) {
	r.open()
	r.put("a", "b")
	running := r.claim(1)[0]
	r.pause()
	if changed, err := r.Settings().Pause(bg); changed || err != nil {
		t.Errorf("a second pause: %v, %v", changed, err)
	}
	r.put("c")
	r.enqueued(r.item("d", When{After: time.Hour}, 0))
	r.makeDue("1d")
	reply := r.call(ClaimRequest{Settle: []Settlement{settlement(running, Completed)}, Want: 5, Suspects: true})
	same(t, "refused", len(reply.Refused), 0)
	same(t, "claimed", len(reply.Deliveries), 0)
	same(t, "withheld", reply.Withheld, Withheld{Paused: true})
	same(t, "more", reply.More, false)
	equal(t, "ready", r.rdb.LRange(bg, r.keys.ReadyNormal, 0, -1).Val(), []string{"b", "c", "d"})
	alive, hints, err := r.Sessions().Renew(bg, r.session, time.Minute, "")
	r.must(err)
	same(t, "alive", alive, true)
	same(t, "withheld of a renewal", hints.Withheld, Withheld{Paused: true})
	same(t, "more of a renewal", hints.More, false)
	if changed, err := r.Settings().Resume(bg); !changed || err != nil {
		t.Errorf("resume: %v, %v", changed, err)
	}
	if changed, err := r.Settings().Resume(bg); changed || err != nil {
		t.Errorf("a second resume: %v, %v", changed, err)
	}
	equal(t, "claimed after it", ids(r.claim(5)), []string{"b", "c", "d"})
}

// While a queue is paused, no change of its ready jobs wakes a worker, which couldn't do anything.
func testPausedQuiet(t *testing.T, r *rig) {
	r.listen()
	r.open()
	r.put("a", "b")
	got := r.claim(2)
	r.takeWake()
	r.pause()
	r.put("c")
	same(t, "wake-ups for a new job", r.wakes(), 0)
	r.settled(settlement(got[0], Return))
	same(t, "wake-ups for one that comes back", r.wakes(), 0)
	r.claim(1)
	same(t, "wake-ups of a claim", r.wakes(), 0)
	r.crash()
	same(t, "wake-ups for one that is taken back", r.wakes(), 0)
	r.enqueued(r.item("d", When{After: time.Hour}, 0))
	same(t, "wake-ups for the one whose time is next, so that a worker sets its timer", r.wakes(), 1)
}

// While a queue is paused, workers still learn which sessions are over, so that Running falls to the jobs that really run. They also learn
// when the next job is due.
func testPausedNext(t *testing.T, r *rig) {
	r.open()
	lost := &rig{Queue: r.Queue, t: t, lane: r.NewLane(), session: "lost"}
	lost.open()
	r.put("a")
	lost.claim(1)
	lost.expire()
	r.enqueued(r.item("b", When{After: 10 * time.Second}, 0))
	r.pause()
	tells := func(what string, h Hints) {
		t.Helper()
		equal(t, "sessions that are over, by "+what, h.Expired, []string{"lost"})
		if h.Next <= 0 || h.Next > 10*time.Second {
			t.Errorf("by %s the next job is due in %v", what, h.Next)
		}
	}
	tells("a claim", r.call(ClaimRequest{Want: 1}).Hints)
	_, hints, err := r.Sessions().Renew(bg, r.session, time.Minute, "")
	r.must(err)
	tells("a renewal", hints)
}

func testResume(t *testing.T, r *rig) {
	r.listen()
	r.pause()
	r.idle.hears(r.Channels().Control(), Look)
	for _, want := range []bool{true, false} {
		changed, err := r.Settings().Resume(bg)
		r.must(err)
		same(t, "resumed", changed, want)
		r.idle.hears(r.Channels().Control(), Look) // even if nothing has changed, since a worker may have missed the change
	}
	same(t, "wake-ups", r.wakes(), 0)
	r.put("a")
	same(t, "wake-ups for a job", r.wakes(), 1)
}

// A release that is older than the queue's layout settles the jobs that it has. It does nothing else.
func testNewerLayout(t *testing.T, r *rig) {
	r.open()
	r.bury(Dead, "old")
	r.age(r.keys.Dead, "old", 40*24*time.Hour)
	r.put("a", "b", "c")
	got := r.claim(2)
	other := &rig{Queue: r.Queue, t: t, lane: r.NewLane(), session: "other"}
	other.open()
	other.claim(1)
	other.expire()
	r.enqueued(r.item("due", When{After: time.Hour}, 0))
	r.makeDue("1due")
	r.producer.Next()
	items := []Item{r.item("p", When{}, 0)}
	fates, err := r.Enqueue(bg, r.producer, items)
	r.must(err)
	r.layout(layout.Protocol + 1)

	if again, err := r.Enqueue(bg, r.producer, items); err != nil || again.list != fates.list {
		t.Errorf("a call that had been run is made again: %v, %v", again, err)
	}
	before := r.dump()
	r.producer.Next()
	_, err = r.Enqueue(bg, r.producer, []Item{r.item("q", When{}, 0)})
	var newer *layout.Error
	if !errors.As(err, &newer) || newer.Layout != layout.Protocol+1 || !strings.Contains(err.Error(), "update") {
		t.Errorf("enqueue: %v", err)
	}
	res, err := r.Sessions().Reclaim("other", true).Next(bg)
	r.must(err)
	same(t, "taken back", len(res.Returned), 0)
	r.sweep()
	r.unchanged("an older release", before)

	alive, hints, err := r.Sessions().Renew(bg, r.session, time.Minute, "")
	r.must(err)
	same(t, "alive", alive, true)
	same(t, "withheld of a renewal", hints.Withheld, Withheld{Layout: layout.Protocol + 1})
	same(t, "more, next and expired of a renewal", hints.More || hints.Next >= 0 || len(hints.Expired) > 0, false)
	reply := r.call(ClaimRequest{Settle: []Settlement{settlement(got[0], Completed), settlement(got[1], Retry)}, Want: 5, Suspects: true})
	same(t, "refused", len(reply.Refused), 0)
	same(t, "claimed", len(reply.Deliveries), 0)
	same(t, "withheld", reply.Withheld, Withheld{Layout: layout.Protocol + 1})
	same(t, "more, next and expired", reply.More || reply.Next >= 0 || len(reply.Expired) > 0, false)
	same(t, "jobs that are due", r.rdb.ZScore(bg, r.keys.Due, "1due").Val() > 0, true)
	left, err := r.Sessions().Close(bg, r.session, false)
	r.must(err)
	same(t, "left", left, 0)
}

// An older worker that took a wake-up passes it on to another worker.
func testNewerLayoutWake(t *testing.T, r *rig) {
	r.listen()
	r.open()
	r.claim(1)
	r.put("a")
	r.takeWake()
	r.layout(layout.Protocol + 1)
	r.claim(1)
	same(t, "wake-ups", r.wakes(), 1)
	r.takeWake()
	r.rdb.Del(bg, r.keys.ReadyNormal, r.keys.Jobs)
	r.claim(1)
	same(t, "wake-ups for what an older worker can't see", r.wakes(), 1)
}

// A queue has the layout from the first call on that writes to it.
func testOwnLayout(t *testing.T, r *rig) {
	for name, call := range map[string]func(r *rig){
		"a worker":    func(r *rig) { r.open() },
		"an enqueue":  func(r *rig) { r.put("a") },
		"a pause":     func(r *rig) { r.pause() },
		"a retention": func(r *rig) { r.must(r.Settings().SetRetention(bg, signalbox.Retention{Jobs: 5})) },
		"a limit":     func(r *rig) { _, err := r.Settings().SetLimits(bg, signalbox.Limits{Running: 5}); r.must(err) },
	} {
		r := newQueue(t, r.rdb)
		call(r)
		if noted := r.rdb.HGet(bg, r.keys.Settings, "layout").Val(); noted != strconv.Itoa(layout.Protocol) {
			t.Errorf("after %s the layout is %q", name, noted)
		}
	}
}

// A layout that is no number counts as a newer one: the program that wrote it knows more than this release.
func testNoLayout(t *testing.T, r *rig) {
	r.open()
	r.put("a")
	for _, noted := range []string{"new", "2.5", "0x2", "12345678901234567890", "a\r\nb", "paused", "", "nan", "-1"} {
		r.layout(noted)
		r.producer.Next()
		var newer *layout.Error
		if _, err := r.Enqueue(bg, r.producer, []Item{r.item("b", When{}, 0)}); !errors.As(err, &newer) || newer.Layout != 999 {
			t.Errorf("%q: enqueue: %v", noted, err)
		}
		if reply := r.call(ClaimRequest{Want: 1}); len(reply.Deliveries) > 0 || reply.Withheld != (Withheld{Layout: 999}) {
			t.Errorf("%q: claim: %+v", noted, reply)
		}
		if alive, hints, err := r.Sessions().Renew(bg, r.session, time.Minute, ""); err != nil || !alive || hints.Layout != 999 {
			t.Errorf("%q: renew: %v, %+v, %v", noted, alive, hints, err)
		}
	}
	r.layout(layout.Protocol)
	same(t, "the job", r.one().Job.ID, "a")
}

// Only the error about a layout becomes a *layout.Error.
func TestLayoutErrors(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, errors.New("LAYOUT 2 "), redis.Nil} {
		if got := layout.ErrorOf(err); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
}
