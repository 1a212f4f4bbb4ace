package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

// A stage is a queue with a session of a worker, in the hand of one test.
type stage struct {
	*store.Queue
	t             *testing.T
	rdb           redis.UniversalClient
	ins           *inspect.Inspector
	namespace     string
	keys          string // what all keys of the queue begin with
	session       string
	lane, enqueue *store.Lane
}

const me = "host:1:abcde" // the worker

// newStage returns a stage on a queue that is checked when the test ends.
func newStage(t *testing.T, rdb redis.UniversalClient) *stage {
	t.Helper()
	namespace := redistest.Name(t)
	q := known(t, rdb, namespace)
	s := &stage{
		Queue: q, t: t, rdb: rdb, ins: inspector(t, rdb, namespace), namespace: namespace, keys: "signalbox:{" + namespace + ":" + q.Name() + "}:",
		session: store.NewSession(me), lane: q.NewLane(), enqueue: q.NewLane(),
	}
	s.open()
	return s
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) open() {
	s.t.Helper()
	alive, _, err := s.Sessions().Open(s.t.Context(), s.session, time.Hour)
	s.must(err)
	if !alive {
		s.t.Fatal("the session is over")
	}
}

// put enqueues a job.
func (s *stage) put(job signalbox.Job, when store.When) {
	s.t.Helper()
	if job.Kind == "" {
		job.Kind = "k"
	}
	item, err := store.NewItem(&job, when)
	s.must(err)
	s.enqueue.Next()
	_, err = s.Enqueue(s.t.Context(), s.enqueue, []store.Item{item})
	s.must(err)
}

// puts enqueues jobs with these IDs.
func (s *stage) puts(ids ...string) {
	s.t.Helper()
	for part := range slices.Chunk(ids, store.MaxBatch) {
		var items []store.Item
		for _, id := range part {
			item, err := store.NewItem(&signalbox.Job{ID: id, Kind: "k"}, store.When{})
			s.must(err)
			items = append(items, item)
		}
		s.enqueue.Next()
		_, err := s.Enqueue(s.t.Context(), s.enqueue, items)
		s.must(err)
	}
}

// claim claims n jobs.
func (s *stage) claim(n int, settle ...store.Settlement) []store.Delivery {
	s.t.Helper()
	s.lane.Next()
	reply, err := s.Sessions().Claim(s.t.Context(), s.lane, &store.ClaimRequest{Session: s.session, Want: n, Settle: settle, Suspects: true})
	s.must(err)
	if !reply.Alive || len(reply.Refused) > 0 || len(reply.Deliveries) != n {
		s.t.Fatalf("claimed %d of %d jobs, refused %v, alive %v", len(reply.Deliveries), n, reply.Refused, reply.Alive)
	}
	return reply.Deliveries
}

// end ends deliveries.
func (s *stage) end(outcome store.Outcome, lastError string, deliveries ...store.Delivery) {
	s.t.Helper()
	for some := range slices.Chunk(deliveries, 500) {
		var settle []store.Settlement
		for _, d := range some {
			one := store.Settlement{ID: d.Job.ID, Token: d.Job.Token, Outcome: outcome, Prio: d.Job.Priority, Delay: time.Hour, Suspect: d.Job.Crashes >= store.SuspectAt}
			if outcome == store.Completed { // it is kept if the queue's settings say so
				one.Keep = store.Kept(&store.Attempt{Number: d.Job.Attempt, Worker: me}, nil)
			}
			if lastError != "" {
				record, err := d.Failed(d.Job.Attempt, lastError)
				s.must(err)
				one.Record = record
			}
			settle = append(settle, one)
		}
		s.claim(0, settle...)
	}
}

// list returns what a filter names.
func (s *stage) list(f inspect.Filter) []inspect.Job {
	s.t.Helper()
	var jobs []inspect.Job
	for job, err := range s.ins.Jobs(s.t.Context(), s.Name(), f) {
		s.must(err)
		jobs = append(jobs, job)
	}
	return jobs
}

func ids(jobs []inspect.Job) []string {
	all := []string{}
	for _, job := range jobs {
		all = append(all, job.ID)
	}
	return all
}

func (s *stage) lists(what string, f inspect.Filter, want ...string) {
	s.t.Helper()
	if got := ids(s.list(f)); !slices.Equal(got, want) {
		s.t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func numbered(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s%06d", prefix, i)
	}
	return all
}

// states puts jobs in each state: two dead, two cancelled, two running, four ready, three scheduled.
func (s *stage) states() {
	s.t.Helper()
	s.puts("dead1", "dead2", "cancelled1", "cancelled2", "retried")
	got := s.claim(5)
	s.end(store.Dead, "broken pipe", got[0])
	s.end(store.Dead, "out of cheese", got[1])
	s.end(store.Cancelled, "not wanted", got[2])
	s.end(store.Cancelled, "not needed", got[3])
	s.end(store.Retry, "not yet", got[4])
	s.must(s.Settings().SetCompleted(s.t.Context(), signalbox.Retention{Jobs: 10_000}))
	s.puts("completed1", "completed2")
	s.end(store.Completed, "", s.claim(2)...)
	s.puts("running1", "running2")
	s.claim(2)
	s.put(signalbox.Job{ID: "low", Priority: signalbox.PriorityLow}, store.When{})
	s.puts("normal1", "normal2")
	s.put(signalbox.Job{ID: "high", Priority: signalbox.PriorityHigh, Kind: "other"}, store.When{})
	s.put(signalbox.Job{ID: "in30m"}, store.When{After: 30 * time.Minute})
	s.put(signalbox.Job{ID: "in2h", Kind: "other"}, store.When{After: 2 * time.Hour})
}

// each runs a test on a stage with one server and on one with a Cluster.
func each(t *testing.T, run func(t *testing.T, s *stage)) {
	t.Run("one server", func(t *testing.T) {
		t.Parallel()
		run(t, newStage(t, redistest.Start(t).Client()))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		rdb := redistest.Cluster(t).Client()
		for range 3 { // on some master, and mostly not on the first one
			run(t, newStage(t, rdb))
		}
	})
}

func TestJobs(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *stage) {
		s.states()
		s.lists("dead", inspect.Filter{State: signalbox.StateDead}, "dead1", "dead2")
		s.lists("cancelled", inspect.Filter{State: signalbox.StateCancelled}, "cancelled1", "cancelled2")
		s.lists("completed", inspect.Filter{State: signalbox.StateCompleted}, "completed1", "completed2")
		s.lists("ready", inspect.Filter{State: signalbox.StateReady}, "high", "normal1", "normal2", "low")
		s.lists("scheduled", inspect.Filter{State: signalbox.StateScheduled}, "in30m", "retried", "in2h")
		s.lists("running", inspect.Filter{State: signalbox.StateRunning}, "running1", "running2")

		s.lists("by kind", inspect.Filter{State: signalbox.StateReady, Kind: "other"}, "high")
		s.lists("by kind", inspect.Filter{State: signalbox.StateScheduled, Kind: "other"}, "in2h")
		s.lists("by ID", inspect.Filter{State: signalbox.StateReady, IDPrefix: "normal"}, "normal1", "normal2")
		s.lists("by ID", inspect.Filter{State: signalbox.StateScheduled, IDPrefix: "in"}, "in30m", "in2h")
		s.lists("by ID", inspect.Filter{State: signalbox.StateRunning, IDPrefix: "running2"}, "running2")
		s.lists("by error", inspect.Filter{State: signalbox.StateDead, Error: "of cheese"}, "dead2")
		s.lists("one", inspect.Filter{State: signalbox.StateDead, Limit: 1}, "dead1")

		s.lists("due later than in an hour", inspect.Filter{State: signalbox.StateScheduled, OlderThan: 61 * time.Minute}, "in2h")
		s.lists("due within 31 minutes", inspect.Filter{State: signalbox.StateScheduled, NewerThan: 31 * time.Minute}, "in30m")
		s.lists("due in between", inspect.Filter{State: signalbox.StateScheduled, OlderThan: 31 * time.Minute, NewerThan: 61 * time.Minute}, "retried")
		for _, state := range []signalbox.State{signalbox.StateDead, signalbox.StateCancelled, signalbox.StateCompleted, signalbox.StateReady, signalbox.StateRunning} {
			s.lists("old "+string(state), inspect.Filter{State: state, OlderThan: time.Hour})
			if got, all := s.list(inspect.Filter{State: state, NewerThan: time.Hour}), s.list(inspect.Filter{State: state}); len(got) != len(all) {
				t.Errorf("new %s: %v of %v", state, ids(got), ids(all))
			}
		}
	})
}

// A listing that is left after any job, and taken up with its cursor, has all jobs once.
func TestCursors(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *stage) {
		s.states()
		for _, state := range []signalbox.State{
			signalbox.StateDead, signalbox.StateCancelled, signalbox.StateCompleted, signalbox.StateReady, signalbox.StateRunning, signalbox.StateScheduled,
		} {
			all := ids(s.list(inspect.Filter{State: state}))
			for limit := 1; limit <= len(all); limit++ {
				var got []string
				f := inspect.Filter{State: state, Limit: limit}
				for range len(all) + 1 {
					page := s.list(f)
					if len(page) == 0 {
						break
					}
					got, f.After = append(got, ids(page)...), page[len(page)-1].Cursor
				}
				if !slices.Equal(got, all) {
					t.Errorf("%s, %d at a time: %v, want %v", state, limit, got, all)
				}
			}
		}
	})
}

// A cursor is good for its queue and its state only, and only as it was given out.
func TestBadCursors(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	rdb := redistest.Start(t).Client()
	s, other := newStage(t, rdb), newStage(t, rdb)
	s.states()
	s.puts("normal33", "normal333") // cursors of any length
	states := []signalbox.State{signalbox.StateDead, signalbox.StateReady, signalbox.StateRunning, signalbox.StateScheduled}
	refused := func(what string, on *stage, state signalbox.State, after string) {
		t.Helper()
		var got error
		for _, err := range on.ins.Jobs(t.Context(), on.Name(), inspect.Filter{State: state, After: after}) {
			got = err
		}
		if !errors.Is(got, signalbox.ErrInvalid) || !strings.Contains(got.Error(), "cursor") {
			t.Errorf("%s: %v", what, got)
		}
	}
	for i, state := range states {
		for _, job := range s.list(inspect.Filter{State: state}) {
			cursor := job.Cursor
			refused("of another state", s, states[(i+1)%len(states)], cursor)
			refused("of another queue", other, state, cursor)
			for j := range cursor {
				flipped := []byte(cursor)
				flipped[j] ^= 1
				refused("spoilt", s, state, string(flipped))
				if j > 0 {
					refused("cut", s, state, cursor[:j])
				}
			}
		}
		refused("none", s, state, "x")
	}
}

func TestWrongFilters(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	for what, f := range map[string]inspect.Filter{
		`state ""`:         {},
		"Filter.OlderThan": {State: signalbox.StateDead, OlderThan: -1},
		"Filter.NewerThan": {State: signalbox.StateDead, NewerThan: -1},
		"Filter.Limit":     {State: signalbox.StateDead, Limit: -1},
		"no job is both":   {State: signalbox.StateDead, OlderThan: 2, NewerThan: 1},
	} {
		n := 0
		for _, err := range s.ins.Jobs(t.Context(), s.Name(), f) {
			n++
			if !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), what) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if n != 1 {
			t.Errorf("%s: %d errors", what, n)
		}
	}
	for _, err := range s.ins.Jobs(t.Context(), "mial", inspect.Filter{State: signalbox.StateDead}) {
		if !errors.Is(err, inspect.ErrNoQueue) {
			t.Errorf("a queue that isn't there: %v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range s.ins.Jobs(ctx, s.Name(), inspect.Filter{State: signalbox.StateDead}) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("after the end of ctx: %v", err)
		}
	}
}
