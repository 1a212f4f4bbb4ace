package scheduler

import (
	"context"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

// states makes a job in each state in which an ID can be met. The ID is the state.
func states(t *testing.T, s *Scheduler, q *store.Queue) {
	t.Helper()
	ctx := context.Background()
	put := func(id signalbox.State, opts ...EnqueueOption) {
		t.Helper()
		if res, err := s.Enqueue(ctx, note{}, append(opts, Queue(q.Name()), ID(string(id)))...); err != nil || !res.New {
			t.Fatal(res, err)
		}
	}
	for _, id := range []signalbox.State{signalbox.StateDead, signalbox.StateCancelled, signalbox.StateRunning} {
		put(id)
	}
	if _, _, err := q.Sessions().Open(ctx, "s", time.Hour); err != nil {
		t.Fatal(err)
	}
	lane := q.NewLane()
	lane.Next()
	reply, err := q.Sessions().Claim(ctx, lane, &store.ClaimRequest{Session: "s", Want: 3})
	if err != nil || len(reply.Deliveries) != 3 {
		t.Fatal(reply, err)
	}
	settle := func(i int, o store.Outcome) store.Settlement {
		job := reply.Deliveries[i].Job
		return store.Settlement{ID: job.ID, Token: job.Token, Outcome: o}
	}
	lane.Next()
	if _, err := q.Sessions().Claim(ctx, lane, &store.ClaimRequest{Session: "s", Settle: []store.Settlement{settle(0, store.Dead), settle(1, store.Cancelled)}}); err != nil {
		t.Fatal(err)
	}
	put(signalbox.StateReady)
	put(signalbox.StateScheduled, After(time.Hour))
}

var allStates = []signalbox.State{
	signalbox.StateScheduled, signalbox.StateReady, signalbox.StateRunning, signalbox.StateDead, signalbox.StateCancelled, signalbox.StateCompleted,
}

// wanted returns the expected result of an enqueue that meets a job in a state.
func wanted(id signalbox.State, ifAbsent bool) Result {
	res := Result{ID: string(id)}
	switch {
	case id == signalbox.StateCompleted: // its record is deleted
		res.New = true
	case !id.Live() && !ifAbsent:
		res.New, res.Replaced = true, id
	default:
		res.Existing, res.State = string(id), id
	}
	return res
}

func TestIDNamesALiveJob(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]EnqueueOption{"": nil, "if absent": {IfAbsent()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			s, q := setup(t)
			states(t, s, q)
			for _, id := range allStates {
				res, err := s.Enqueue(ctx, note{1}, append(opts, Queue(q.Name()), ID(string(id)))...)
				if want := wanted(id, opts != nil); err != nil || res.said() != want {
					t.Errorf("%s: got %+v, %v; want %+v", id, res, err, want)
				}
			}

			s, q = setup(t)
			states(t, s, q)
			var items []Item
			for _, id := range allStates {
				items = append(items, Item{note{1}, append([]EnqueueOption{ID(string(id))}, opts...)})
			}
			results, err := s.EnqueueMany(ctx, items, Queue(q.Name()))
			for i, id := range allStates {
				if want := wanted(id, opts != nil); err != nil || results[i].said() != want {
					t.Errorf("of many: %s: got %+v, %v; want %+v", id, results[i], err, want)
				}
			}
		})
	}
}

// A dead job is replaced by a new one, with its own effect key and all attempts.
func TestReplacedJobIsNew(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	states(t, s, q)
	if res, err := s.Enqueue(context.Background(), note{7}, Queue(q.Name()), ID("dead")); err != nil || !res.New {
		t.Fatal(res, err)
	}
	for _, job := range claimAll(t, q) {
		if job.ID == "dead" && string(job.Payload) == `{"N":7}` && job.Attempt == 1 {
			return
		}
	}
	t.Error("it doesn't run")
}

// The enqueue met a live job, but then Redis can't be asked for its state. The call still
// succeeds.
func TestStateIsUnknown(t *testing.T) {
	t.Parallel()
	s, q, p := proxied(t, noRetries)
	states(t, s, q)
	p.Reply(func(cmd []string) bool { return cmd[0] == "zrange" }, "-NOPERM this user has no permissions to run the 'zrange' command", -1)
	for _, id := range []signalbox.State{signalbox.StateReady, signalbox.StateRunning} {
		if res, err := s.Enqueue(context.Background(), note{}, Queue(q.Name()), ID(string(id))); err != nil || res.said() != (Result{ID: string(id), Existing: string(id)}) {
			t.Errorf("got %+v, %v", res, err)
		}
	}
	res, err := s.Enqueue(context.Background(), note{}, Queue(q.Name()), ID("scheduled"))
	if err != nil || res.State != signalbox.StateScheduled {
		t.Errorf("got %+v, %v", res, err)
	}
}

// deliver claims the only ready job and settles it.
func deliver(t *testing.T, q *store.Queue, o store.Outcome) *signalbox.Job {
	t.Helper()
	ctx, lane, session := context.Background(), q.NewLane(), store.NewID()
	if _, _, err := q.Sessions().Open(ctx, session, time.Hour); err != nil {
		t.Fatal(err)
	}
	lane.Next()
	reply, err := q.Sessions().Claim(ctx, lane, &store.ClaimRequest{Session: session, Want: 2})
	if err != nil || len(reply.Deliveries) != 1 || reply.Deliveries[0].Err != nil {
		t.Fatal(reply, err)
	}
	job := reply.Deliveries[0].Job
	settlement := store.Settlement{ID: job.ID, Token: job.Token, Outcome: o}
	if o == store.Retry {
		if settlement.Record, err = reply.Deliveries[0].Failed(job.Attempt, "boom"); err != nil {
			t.Fatal(err)
		}
	}
	lane.Next()
	if _, err := q.Sessions().Claim(ctx, lane, &store.ClaimRequest{Session: session, Settle: []store.Settlement{settlement}}); err != nil {
		t.Fatal(err)
	}
	return job
}

// The effect key is the same in all deliveries of a job, and differs for the next job with the
// ID.
func TestEffectKeys(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s, q := setup(t)
	one := func(opts ...EnqueueOption) {
		t.Helper()
		if res, err := s.Enqueue(ctx, note{}, append(opts, Queue(q.Name()))...); err != nil || !res.New {
			t.Fatal(res, err)
		}
	}
	inMany := func(opts ...EnqueueOption) {
		t.Helper()
		if results, err := s.EnqueueMany(ctx, []Item{{note{}, opts}}, Queue(q.Name())); err != nil || !results[0].New {
			t.Fatal(results, err)
		}
	}
	for name, enqueue := range map[string]func(...EnqueueOption){"Enqueue": one, "EnqueueMany": inMany} {
		seen := make(map[string]bool)
		for range 2 {
			enqueue(ID("a"))
			first := deliver(t, q, store.Retry)
			second := deliver(t, q, store.Return)
			third := deliver(t, q, store.Dead)
			key := first.EffectKey()
			if second.EffectKey() != key || third.EffectKey() != key || third.Attempt != 2 {
				t.Errorf("%s: deliveries with %s, %s, %s", name, key, second.EffectKey(), third.EffectKey())
			}
			if seen[key] || len(key) != len("{"+q.Name()+"}a{0123456789abcdef}") {
				t.Errorf("%s: key %s, after %v", name, key, seen)
			}
			seen[key] = true
		}
		enqueue()
		job := deliver(t, q, store.Completed)
		if want := "{" + q.Name() + "}" + job.ID; job.EffectKey() != want || job.Incarnation != 0 {
			t.Errorf("%s: a random ID: %s, want %s", name, job.EffectKey(), want)
		}
		enqueue(ID("b"), EffectKey("order-17"))
		if job := deliver(t, q, store.Completed); job.EffectKey() != "order-17" || job.Incarnation != 0 {
			t.Errorf("%s: a key of the caller's: %s", name, job.EffectKey())
		}
	}
}

// The record of a job with a random ID is the same as before there were incarnations.
func TestPlainJobsHaveNoIncarnation(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	res, err := s.Enqueue(context.Background(), note{}, Queue(q.Name()))
	if err != nil {
		t.Fatal(err)
	}
	n, err := redistest.Start(t).Client().Do(context.Background(), "HSTRLEN", "signalbox:{default:"+q.Name()+"}:jobs", res.ID).Int()
	if want := 20 + 2 + len("note") + 2 + len(`{"N":0}`); err != nil || n != want {
		t.Errorf("the record takes %d bytes, %v; want %d", n, err, want)
	}
}
