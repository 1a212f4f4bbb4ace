package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/looks"
)

// A crowd is a queue whose jobs move while they are listed. It knows which jobs have stayed where they were.
type crowd struct {
	*rig
	rand  *rand.Rand
	stays map[string]bool
	news  int
	runs  int // how many jobs are still to be run; the others stay
}

func newCrowd(t testing.TB, seed uint64) *crowd {
	t.Helper()
	r := onShared(t)
	r.looked = 20
	r.open()
	return &crowd{rig: r, rand: rand.New(rand.NewPCG(seed, 0)), stays: make(map[string]bool)}
}

// fill enqueues jobs that stay.
func (c *crowd) fill(n int, when When) {
	c.t.Helper()
	for some := range slices.Chunk(numbered("old", n), MaxBatch) {
		var items []Item
		for _, id := range some {
			items = append(items, c.item(id, when, signalbox.PriorityNormal))
			c.stays[id] = true
		}
		c.enqueued(items...)
	}
	c.runs = n * 2 / 3
}

// enqueue enqueues new jobs.
func (c *crowd) enqueue(n int, when When) {
	c.t.Helper()
	for range n {
		c.news++
		c.enqueued(c.item(fmt.Sprint("new", c.news), when, signalbox.PriorityNormal))
	}
}

// run claims jobs from the head of the list. Then some complete, some fail and return at the tail, and some are given back to the head.
func (c *crowd) run(n int) {
	c.t.Helper()
	n = min(n, c.runs)
	c.runs -= n
	for left := n; left > 0; {
		got := c.claim(min(left, 500))
		if len(got) == 0 {
			return
		}
		left -= len(got)
		var settle []Settlement
		for _, d := range got {
			delete(c.stays, d.Job.ID)
			outcome := Completed
			switch c.rand.IntN(10) {
			case 0:
				outcome = Return
			case 1, 2:
				outcome = Retry // without a delay
			}
			settle = append(settle, settlement(d, outcome))
		}
		for _, outcome := range []Outcome{Completed, Return, Retry} {
			c.settled(slices.DeleteFunc(slices.Clone(settle), func(s Settlement) bool { return s.Outcome != outcome })...)
		}
	}
}

// take removes jobs from the list, at any place.
func (c *crowd) take(n int) {
	c.t.Helper()
	for id := range c.stays {
		if n--; n < 0 {
			return
		}
		c.drop(id)
	}
}

// drop removes a job from its place.
func (c *crowd) drop(id string) {
	c.t.Helper()
	delete(c.stays, id)
	c.must(c.rdb.LRem(bg, c.keys.ReadyNormal, 1, id).Err())
	c.must(c.rdb.ZRem(bg, c.keys.Due, "1"+id).Err())
	c.must(c.rdb.HDel(bg, c.keys.Jobs, id).Err())
}

// move makes one random change to the queue.
func (c *crowd) move() {
	c.t.Helper()
	switch c.rand.IntN(8) {
	case 0:
		c.enqueue(c.rand.IntN(30), When{})
	case 1, 2:
		c.run(c.rand.IntN(40))
	case 3:
		c.run(c.rand.IntN(1500))
	case 4:
		c.take(c.rand.IntN(30))
	}
}

// seen fails the test if a job that stays in the queue was not listed.
func (c *crowd) seen(seed uint64, listed map[string]int) {
	c.t.Helper()
	missed := 0
	for id := range c.stays {
		if listed[id] == 0 {
			missed++
		}
	}
	if missed > 0 {
		c.t.Errorf("seed %d: %d of %d jobs that stayed were not listed", seed, missed, len(c.stays))
	}
}

// A ready job that stays in its list is listed, whatever happens to the other jobs meanwhile.
func TestListOfMovingJobs(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	for seed := range uint64(8) {
		c := newCrowd(t, seed)
		c.fill(3000, When{})
		listed := make(map[string]int)
		n := 0
		for view, err := range c.Looks().Jobs(bg, looks.Listing{State: signalbox.StateReady}) {
			c.must(err)
			listed[view.Job.ID]++
			if n++; n%c.looked == 0 {
				c.move()
			}
			if n > 100_000 {
				t.Fatalf("seed %d: it never ends", seed)
			}
		}
		if len(c.stays) == 0 {
			t.Errorf("seed %d: none stays", seed)
		}
		c.seen(seed, listed)
	}
}

// The same holds if each page is a separate listing that continues after a cursor.
func TestCursorsOfMovingJobs(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	for seed := range uint64(8) {
		c := newCrowd(t, seed)
		c.fill(3000, When{})
		listed := make(map[string]int)
		for after, more := "", true; more; {
			more = false
			n := 1 + c.rand.IntN(200)
			for view, err := range c.Looks().Jobs(bg, looks.Listing{State: signalbox.StateReady, After: after}) {
				c.must(err)
				listed[view.Job.ID]++
				after, more = view.Cursor, true
				if n--; n == 0 {
					break
				}
			}
			c.move()
		}
		c.seen(seed, listed)
	}
}

// A job was seen, and returns at the tail after a failed attempt. The listing doesn't take it for the place that it has reached.
func TestListAfterARetry(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.put(numbered("a", 50)...)
	after := ""
	for view, err := range r.Looks().Jobs(bg, looks.Listing{State: signalbox.StateReady}) {
		r.must(err)
		after = view.Cursor
		break // after a0000
	}
	r.later()
	r.settled(settlement(r.claim(1)[0], Retry))
	r.settle() // the job is promoted
	equal(t, "the tail", r.rdb.LRange(bg, r.keys.ReadyNormal, -1, -1).Val(), []string{"a0000"})
	var got []string
	for view, err := range r.Looks().Jobs(bg, looks.Listing{State: signalbox.StateReady, After: after}) {
		r.must(err)
		got = append(got, view.Job.ID)
	}
	equal(t, "behind it", got, append(numbered("a", 50)[1:], "a0000"))
}

// If nothing changes a list, each of its jobs is listed once, even if a page ends in the middle of the list. The same holds if all jobs
// before a cursor are gone or were given back.
func TestListOnce(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.looked = 7
	r.open()
	ids := numbered("a", 1000)
	r.put(ids[:900]...)
	r.put(ids[900:]...)
	list := func(after string, limit int) (got []string, last string) {
		for view, err := range r.Looks().Jobs(bg, looks.Listing{State: signalbox.StateReady, After: after}) {
			r.must(err)
			got, last = append(got, view.Job.ID), view.Cursor
			if len(got) == limit {
				break
			}
		}
		return got, last
	}
	all, _ := list("", 0)
	equal(t, "all", all, ids)
	_, cursor := list("", 600)
	got, _ := list(cursor, 0)
	equal(t, "behind the 600th", got, ids[600:])
	claimed := r.claim(100)
	got, _ = list(cursor, 0)
	equal(t, "when 100 have left", got, ids[600:])
	var back []Settlement
	for _, d := range claimed {
		back = append(back, settlement(d, Return))
	}
	r.settled(back...)
	got, _ = list(cursor, 0)
	equal(t, "when they are back at the head", got, ids[600:])
	r.claim(500)
	got, _ = list(cursor, 0)
	equal(t, "when 500 have left", got, ids[600:])
	r.claim(200)
	got, _ = list(cursor, 0)
	equal(t, "when the cursor's has left, and others", got, ids[700:])
}

// The search for the listing's place in a list reads it in parts of limited size.
func TestLongListIsSearchedInParts(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	ids := numbered("a", 9500)
	for some := range slices.Chunk(ids, MaxBatch) {
		r.put(some...)
	}
	cursor := ""
	for view, err := range r.Looks().Jobs(bg, looks.Listing{State: signalbox.StateReady}) {
		r.must(err)
		if view.Job.ID == ids[9000] {
			cursor = view.Cursor
			break
		}
	}
	for range 8 {
		r.claim(MaxBatch)
	}
	longest := 0
	spy := r.Queue.rdb.(*redis.Client)
	spy.AddHook(argSpy(func(args []any) {
		if len(args) > 10 && strings.HasPrefix(fmt.Sprint(args[0]), "eval") && fmt.Sprint(args[2]) == "5" {
			if first, ok := args[9].(int); ok { // of the list; the lines of groups have a score there
				longest = max(longest, args[10].(int)-first+1) // last and first index
			}
		}
	}))
	var got []string
	for view, err := range r.Looks().Jobs(bg, looks.Listing{State: signalbox.StateReady, After: cursor}) {
		r.must(err)
		got = append(got, view.Job.ID)
	}
	equal(t, "behind the cursor", got, ids[9001:])
	if longest < 2000 || longest > 2201 {
		t.Errorf("a call looks at %d jobs", longest)
	}
}

// Jobs that are due at the same time, or that ended at the same time, are each listed once, even if some leave the list meanwhile.
func TestManyAtTheSameTime(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	at := When{At: time.Now().Add(time.Hour).Truncate(time.Microsecond)}
	for seed := range uint64(8) {
		c := newCrowd(t, seed)
		c.fill(400, at)
		c.enqueue(20, When{After: time.Minute})
		c.enqueue(20, When{After: 2 * time.Hour})
		all := make(map[string]int)
		for view, err := range c.Looks().Jobs(bg, looks.Listing{State: signalbox.StateScheduled}) {
			c.must(err)
			all[view.Job.ID]++
		}
		if len(all) != 440 {
			t.Errorf("%d of 440 are listed", len(all))
		}
		listed, n := make(map[string]int), 0
		var last []string
		for view, err := range c.Looks().Jobs(bg, looks.Listing{State: signalbox.StateScheduled}) {
			c.must(err)
			listed[view.Job.ID]++
			last = append(last, view.Job.ID)
			if n++; n%c.looked == 0 {
				c.take(c.rand.IntN(10))
				for _, id := range last { // the cursor's job is gone, and the whole page with it
					if strings.HasPrefix(id, "old") {
						c.drop(id)
					}
				}
				last = nil
			}
		}
		for id, times := range listed {
			if times > 1 {
				t.Errorf("seed %d: %s is listed %d times", seed, id, times)
			}
		}
		c.seen(seed, listed)
	}
}

// IDs are sorted by their bytes, as in Redis.
func TestPlaceAmongTheSameScore(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	at := When{At: time.Now().Add(time.Hour).Truncate(time.Microsecond)}
	ids := []string{"!", "A", "B", "Z", "_", "a", "aa", "ab", "b", "~"}
	for _, id := range ids {
		r.enqueued(r.item(id, at, 0))
	}
	all, err := r.listed(looks.Listing{State: signalbox.StateScheduled})
	r.must(err)
	for i, id := range ids {
		after := all[i].Cursor
		for _, state := range []string{"there", "gone"} {
			if state == "gone" {
				r.must(r.rdb.ZRem(bg, r.keys.Due, "1"+id).Err())
			}
			var got []string
			for view, err := range r.Looks().Jobs(bg, looks.Listing{State: signalbox.StateScheduled, After: after}) {
				r.must(err)
				got = append(got, view.Job.ID)
			}
			equal(t, "behind "+id+", which is "+state, got, ids[i+1:])
		}
		r.must(r.rdb.ZAdd(bg, r.keys.Due, redis.Z{Score: float64(at.At.UnixMicro()), Member: "1" + id}).Err())
	}
}

// A call returns as many records as fit, or a single larger one. IDs that the caller doesn't want take no room.
func TestRecordsOfAPageAreBounded(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.room = 10_000
	large := func(id string, when When) Item {
		it, err := NewItem(&signalbox.Job{ID: id, Kind: "k", Payload: make([]byte, 3000)}, when)
		r.must(err)
		return it
	}
	for i := range 20 {
		r.enqueued(large(fmt.Sprintf("run%02d", i), When{}))
	}
	r.claim(4) // as many as fit
	r.claim(16)
	for i := range 20 {
		r.enqueued(large(fmt.Sprintf("ready%02d", i), When{}), large(fmt.Sprintf("later%02d", i), When{After: time.Duration(i+1) * time.Hour}))
	}
	r.room = 10_000
	seen, callEnds := 0, func() {} // called by the next call
	r.rdb.(*redis.Client).AddHook(argSpy(func([]any) { callEnds() }))
	for state, want := range map[signalbox.State][]int{
		signalbox.StateScheduled: {3, 3, 3, 3, 3, 3, 2}, signalbox.StateReady: {3, 3, 3, 3, 3, 3, 2}, signalbox.StateRunning: nil,
	} {
		var pages []int
		seen = 0
		callEnds = func() {
			if seen > 0 {
				pages, seen = append(pages, seen), 0
			}
		}
		for _, err := range r.Looks().Jobs(bg, looks.Listing{State: state}) {
			r.must(err)
			seen++
		}
		callEnds()
		if state == signalbox.StateRunning {
			if slices.Max(pages) > 3 {
				t.Errorf("pages of running jobs: %v", pages)
			}
			continue
		}
		equal(t, fmt.Sprintf("pages of %s jobs", state), pages, want)
	}
	r.room = 1
	n := 0
	for view, err := range r.Looks().Jobs(bg, looks.Listing{State: signalbox.StateReady, Prefix: "ready1"}) {
		r.must(err)
		if !strings.HasPrefix(view.Job.ID, "ready1") || len(view.Job.Payload) != 3000 {
			t.Errorf("%+v", view.Job.ID)
		}
		n++
	}
	same(t, "jobs with the prefix", n, 10)
}

// Strange values of other programs are listed with an error, or make the call return one. They cause no panic.
func TestStrangeJobs(t *testing.T) {
	t.Parallel()
	r := unchecked(t, redistest.Start(t).Client())
	r.open()
	r.put("sound")
	r.must(r.rdb.HSet(bg, r.keys.Jobs, "garbage", "{}", "", "x", "newer", "\x03 something", "cut", "\x011").Err())
	r.must(r.rdb.RPush(bg, r.keys.ReadyNormal, "garbage", "nothing", "", "cut", strings.Repeat("long", 200)).Err())
	for member, score := range map[string]float64{"garbage": 1.5, "nothing": -3, "": 1e300, "newer": 7} {
		r.must(r.rdb.ZAdd(bg, r.keys.Dead, redis.Z{Score: score, Member: member}).Err())
		r.must(r.rdb.ZAdd(bg, r.keys.Due, redis.Z{Score: score, Member: member}).Err())
	}
	r.must(r.rdb.HSet(bg, r.keys.Inflight(r.session), "garbage", "no token", "nothing", "", "newer", "12 s2c").Err())
	for state, want := range map[signalbox.State]int{
		signalbox.StateReady: 6, signalbox.StateDead: 4, signalbox.StateScheduled: 4, signalbox.StateRunning: 3,
	} {
		n := 0
		for view, err := range r.Looks().Jobs(bg, looks.Listing{State: state}) {
			r.must(err)
			if (view.Err == nil) != (view.Job.ID == "sound") {
				t.Errorf("%s job %q: %v", state, view.Job.ID, view.Err)
			}
			n++
			rest := 0
			for _, err := range r.Looks().Jobs(bg, looks.Listing{State: state, After: view.Cursor}) {
				r.must(err)
				rest++
			}
			if rest != want-n {
				t.Errorf("%d %s jobs stand behind %q, want %d", rest, state, view.Job.ID, want-n)
			}
		}
		same(t, string(state)+" jobs", n, want)
	}
	for _, id := range []string{"garbage", "nothing", "newer"} {
		if v, _, found, err := r.Looks().Show(bg, id); err != nil || !found || v.Err == nil {
			t.Errorf("%s: %v, %v, %+v", id, found, err, v)
		}
	}
	r.must(r.rdb.Del(bg, r.keys.Dead).Err())
	r.must(r.rdb.Set(bg, r.keys.Dead, "x", 0).Err())
	for _, err := range r.Looks().Jobs(bg, looks.Listing{State: signalbox.StateDead}) {
		if err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("of another type: %v", err)
		}
	}
}

// An argSpy records the arguments of commands.
type argSpy func(args []any)

func (s argSpy) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s argSpy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s argSpy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s(cmd.Args())
		return next(ctx, cmd)
	}
}

// A reader removes most jobs while it reads them. It doesn't read the jobs again that it leaves.
func TestListIsNotReadAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	c := newCrowd(t, 0)
	c.fill(1900, When{})
	n := 0
	for view, err := range c.Looks().Jobs(bg, looks.Listing{State: signalbox.StateReady}) {
		c.must(err)
		if !strings.HasSuffix(view.Job.ID, "5") {
			c.drop(view.Job.ID)
		}
		if n++; n > 1900*5/4 {
			t.Fatalf("%d jobs are read of 1900", n)
		}
	}
	same(t, "jobs left", len(c.stays), 190)
}

// The same holds if whole pages are removed and the jobs that are left stand before them.
func TestListOfFewThatAreLeft(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	c := newCrowd(t, 0)
	c.fill(1900, When{})
	n := 0
	for view, err := range c.Looks().Jobs(bg, looks.Listing{State: signalbox.StateReady}) {
		c.must(err)
		if view.Job.ID >= "old0600" {
			c.drop(view.Job.ID)
		}
		if n++; n > 1900*5/4 {
			t.Fatalf("%d jobs are read of 1900", n)
		}
	}
	same(t, "jobs left", len(c.stays), 600)
}
