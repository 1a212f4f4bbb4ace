package store

import (
	stdflag "flag"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/check"
)

var (
	walkSteps = stdflag.Int("walk.steps", 1_500, "transitions of each walk, about")
	walkEvery = stdflag.Int("walk.every", 8, "the whole queue is checked after that many transitions; 1 finds the one that went wrong")
	walkLog   = stdflag.Int("walk.log", 12, "how many of the last calls a failure tells")
	walkSeed  = stdflag.Int64("walk.seed", 0, "seed of each walk; 0 for one from the clock")
)

// A walk makes random calls to a queue with groups, limits, a maximum of jobs, jobs that expire and cron entries. A model knows what each call must answer and change. Calls are made
// again, come late, or lose their replies. Sessions end with jobs, and go on to settle them. The queue goes back to what it was before, as in a
// failover to a replica that is behind, while its workers know of what came later.
type walk struct {
	*rig
	rnd       *rand.Rand
	m         *model
	now       time.Time // of the server, at the last call that said it
	steps     int       // things done so far
	calls     int       // transitions so far: calls of scripts that change the queue, or would
	expired   int       // jobs so far that have expired
	refused   int       // jobs so far that a full queue has refused
	n         int       // jobs so far
	workers   []*walker
	frozen    []*walker // workers that go on though their sessions have expired
	past      []func()  // calls that come once more, late
	unsure    []Item    // jobs of an enqueue whose reply was lost
	log       []string
	saved     map[string]string // by key: what a failover goes back to
	before    *model            // of what was saved
	failovers int
	token     int64 // the largest that was granted
	last      int64 // the last place that an enqueue has given
	to        *rig  // another queue, which jobs are moved to, and come back from
	begun     int   // moves to it that may not have ended
	entries   []*metronome
}

// A walker is a worker of the walk.
type walker struct {
	session string
	lane    *Lane
	running []Delivery
	lost    *ClaimRequest // its last call, if the reply was lost
	then    *Completion   // the same, if that was a completion
}

var walkKeys = []string{"sA", "sB", "sC", "gA", "gB", "gC", "gD"}

func (w *walk) note(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

func (w *walk) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Errorf(format, args...)
	for _, line := range w.log[max(0, len(w.log)-*walkLog):] {
		w.t.Log(line)
	}
	w.t.Fatalf("%q", w.dump())
}

// verify checks the queue.
func (w *walk) verify() {
	w.t.Helper()
	w.steps++
	if w.steps%*walkEvery > 0 {
		return
	}
	w.compare()
	if w.steps%(4**walkEvery) > 0 {
		return
	}
	for _, q := range []*Queue{w.Queue, w.to.Queue} {
		if err := check.Queue(bg, q.Site()); err != nil {
			w.fail("%s: %v", q.Name(), err)
		}
	}
}

func (w *walk) some() *walker { return w.workers[w.rnd.Intn(len(w.workers))] }

// TestGroupWalk: whatever happens to jobs of groups, each is in one place, limits and rates are kept, lines keep their order, jobs expire in time, a full
// queue takes no more, nobody waits who may go on, each call is answered as the model says, and in the end nothing is left. make walk is the long form.
func TestGroupWalk(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	rdb := redistest.New(t).Client()
	first := *walkSeed
	if first == 0 {
		first = time.Now().UnixNano() % 1e9
	}
	var total, expired, refused atomic.Int64
	begin := time.Now()
	t.Cleanup(func() {
		t.Logf("walk: %d transitions in %v, %d jobs expired, %d refused, seeds from %d", total.Load(), time.Since(begin).Round(time.Second/10), expired.Load(), refused.Load(), first)
	})
	for i := range max(1, *walkSteps/walkCalls) {
		walks := t
		t.Run(fmt.Sprint("seed=", first+int64(i)), func(t *testing.T) {
			t.Parallel()
			if walks.Failed() {
				return // one bug is enough
			}
			w := &walk{rig: unchecked(t, rdb), to: unchecked(t, rdb), m: newModel(), rnd: rand.New(rand.NewSource(first + int64(i)))}
			w.run()
			total.Add(int64(w.calls))
			expired.Add(int64(w.expired))
			refused.Add(int64(w.refused))
		})
	}
}

// walkLength is how many things a walk does before it comes to its end, which takes some more. Then it has some walkCalls transitions.
const (
	walkLength = 400
	walkCalls  = 420
)

// run makes the transitions.
func (w *walk) run() {
	w.patience = 0 // nobody else moves jobs
	w.Queue = w.WithSessionTTL(walkTTL)
	var err error
	w.now, err = w.Now(bg)
	w.must(err)
	if w.rnd.Intn(2) == 0 {
		w.must(w.Settings().SetCompleted(bg, signalbox.Retention{Jobs: 5, Bytes: 1 << 20, Age: time.Hour}))
		w.m.trims = true
	}
	if w.rnd.Intn(2) == 0 {
		w.must(w.Settings().SetCopies(bg, w.to.Name()))
	}
	for entry, how := range map[string]Overlap{"eS": OverlapSkip, "eQ": OverlapQueue, "eC": OverlapCancel} {
		e := w.metronome(entry, how)
		if how == OverlapQueue {
			e.group = "Q"
		}
		if how != OverlapCancel {
			e.expires = time.Hour
		}
		w.entries = append(w.entries, e)
	}
	slices.SortFunc(w.entries, func(a, b *metronome) int { return strings.Compare(a.plan.Entry, b.plan.Entry) })
	for range 3 {
		x := &walker{lane: w.NewLane()}
		w.enter(x)
		w.workers = append(w.workers, x)
	}
	w.producer = w.NewLane()
	for range walkLength {
		switch k := w.rnd.Intn(66); {
		case k < 11:
			w.enqueue()
		case k < 13:
			w.again()
		case k < 31:
			w.claim(w.some(), w.rnd.Intn(8), false)
		case k >= 63:
			w.then(w.some())
		case k < 33:
			w.crash(w.some())
		case k < 35:
			if session := w.over(); session != "" {
				w.takeBack(session)
			}
		case k < 36:
			if len(w.frozen) > 0 {
				x := w.frozen[w.rnd.Intn(len(w.frozen))]
				if w.rnd.Intn(3) == 0 {
					w.then(x)
				} else {
					w.claim(x, w.rnd.Intn(4), false)
				}
			}
		case k < 40:
			w.due()
		case k < 44:
			w.act()
		case k < 46:
			w.move()
		case k < 53:
			w.limit()
		case k < 55:
			w.tick()
		case k < 58:
			w.lapse()
		case k < 61:
			if n := len(w.past); n > 0 {
				call := w.past[w.rnd.Intn(n)]
				call()
			}
		default:
			w.failover()
		}
		w.verify()
	}
	w.finish()
}

// finish has all jobs end, and checks that nothing is left.
func (w *walk) finish() {
	w.note("the end")
	w.bring()
	for key := range w.m.stopped {
		w.resumeGroup(key)
	}
	_, err := w.Settings().Resume(bg)
	w.must(err)
	w.m.paused = false
	for range 3 { // with the limits that there are: each claim gets what may start
		w.pass()
		w.due()
		for _, x := range slices.Clone(w.workers) {
			w.claim(x, 8, true)
			w.verify()
		}
	}
	_, err = w.Settings().SetLimits(bg, signalbox.Limits{})
	w.must(err)
	_, err = w.Settings().SetGroupLimits(bg, signalbox.Limits{})
	w.must(err)
	for group := range w.m.own { // also those of entries
		_, err = w.Settings().SetLimitsOf(bg, group[1:], signalbox.Limits{})
		w.must(err)
	}
	_, err = w.Settings().SetMaxLength(bg, 0)
	w.must(err)
	w.pass() // nothing is held back
	w.m.paused, w.m.most, w.m.queue, w.m.groups = false, 0, signalbox.Limits{}, signalbox.Limits{}
	clear(w.m.own)
	clear(w.m.next)
	for len(w.frozen) > 0 {
		w.leave(w.frozen[0])
	}
	for session := w.over(); session != ""; session = w.over() {
		w.takeBack(session)
	}
	for round := 0; ; round++ {
		for range 4 {
			w.due()
		}
		for _, x := range slices.Clone(w.workers) {
			w.claim(x, 8, true)
			w.verify()
		}
		for session := w.over(); session != ""; session = w.over() {
			w.takeBack(session)
		}
		left := make(map[string]string)
		for id, f := range w.m.jobs {
			if !f.ended() {
				left[id] = f.text(id)
			}
		}
		if len(left) == 0 {
			break
		}
		if round > 500 {
			w.fail("jobs are left: %q", left)
		}
	}
	if w.begun > 0 {
		if w.bring(); w.begun > 0 {
			w.fail("copies are left in the other queue, though nothing runs: %v", w.to.dump())
		}
	}
	for range 4 {
		w.pass() // what is parked, and became empty, is forgotten at its time, and so are rates, which are at most three hours ahead
	}
	w.claim(w.workers[0], 1, true)
	w.compare()
	if err := check.Queue(bg, w.Site()); err != nil {
		w.fail("%v", err)
	}
	for _, x := range w.workers {
		left, err := w.Sessions().Close(bg, x.session, false, x.lane)
		w.must(err)
		if left > 0 {
			w.fail("%d jobs are left in session %s", left, x.session)
		}
	}
	for key := range w.dump() {
		if slices.Contains([]string{"lined", "turns", "groups", "limits", "running", "rates", "parked", "expires", "sessions", "cancels"}, key) || strings.HasPrefix(key, "inflight") {
			w.fail("key %s is left", key)
		}
	}
}
