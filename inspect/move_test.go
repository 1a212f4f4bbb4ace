package inspect_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

// beside returns a stage on another queue of the same namespace.
func (s *stage) beside() *stage {
	s.t.Helper()
	q := known(s.t, s.rdb, s.namespace)
	o := *s
	o.Queue, o.keys = q, "signalbox:{"+s.namespace+":"+q.Name()+"}:"
	o.session, o.lane, o.enqueue = store.NewSession(me), q.NewLane(), q.NewLane()
	o.open()
	return &o
}

// What Move makes of a job, seen from outside. internal/store attacks its steps.
func TestMove(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *stage) {
		s.states()
		to := s.beside()
		for id, state := range map[string]signalbox.State{
			"high": signalbox.StateReady, "in2h": signalbox.StateScheduled, "dead1": signalbox.StateDead, "cancelled1": signalbox.StateCancelled,
		} {
			want := s.one(id, state)
			if was, err := s.ins.Do(t.Context(), s.Name(), id, inspect.Move{To: to.Name()}); err != nil || was != state {
				t.Fatalf("%s: %q, %v", id, was, err)
			}
			got := to.one(id, state)
			if got.EffectKey != want.EffectKey || got.Kind != want.Kind || got.Priority != want.Priority || got.Failed != want.Failed || got.LastError != want.LastError ||
				!got.EnqueuedAt.Equal(want.EnqueuedAt) || !got.DueAt.Equal(want.DueAt) || !got.EndedAt.Equal(want.EndedAt) {
				t.Errorf("it is  %+v\nit was %+v", got, want)
			}
			if _, err := s.ins.Job(t.Context(), s.Name(), id); !errors.Is(err, inspect.ErrNoJob) {
				t.Errorf("%s is there still: %v", id, err)
			}
		}
		to.puts("normal1")
		for _, c := range []struct {
			id   string
			to   string
			want error
			says string
		}{
			{"running1", to.Name(), inspect.ErrState, "is running, and Move is for jobs that are scheduled, ready, dead or cancelled"},
			{"normal1", to.Name(), inspect.ErrTaken, "normal1"},
			{"nobody", to.Name(), inspect.ErrNoJob, "nobody"},
			{"normal2", "mial", inspect.ErrNoQueue, "mial"},
			{"normal2", s.Name(), signalbox.ErrInvalid, "already"},
			{"normal2", "{}", signalbox.ErrInvalid, "Move.To"},
			{"normal2", "", signalbox.ErrInvalid, "Move.To"},
		} {
			if _, err := s.ins.Do(t.Context(), s.Name(), c.id, inspect.Move{To: c.to}); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s to %q: %v", c.id, c.to, err)
			}
		}
		s.one("normal2", signalbox.StateReady)
	})
}

// dying is a hook of a client that makes so many calls of scripts, and then no call.
func dying(calls int) redis.Hook { return &death{left: calls} }

type death struct{ left int }

var errDied = errors.New("died")

func (d *death) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d *death) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (d *death) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if d.left == 0 {
			cmd.SetErr(errDied)
			return errDied
		}
		err := next(ctx, cmd)
		if err == nil && strings.HasPrefix(cmd.Name(), "eval") {
			d.left--
		}
		return err
	}
}

// A bulk move whose process dies is ended by the same call. What is held says so meanwhile.
func TestMoveAll(t *testing.T) {
	t.Parallel()
	held := 0
	for _, calls := range []int{12, 18, 27} {
		srv := redistest.Start(t)
		s := newStage(t, srv.Client())
		to := s.beside()
		want := numbered("j", 250)
		s.puts(want...)
		s.put(signalbox.Job{ID: "other", Kind: "other"}, store.When{})
		s.put(signalbox.Job{ID: "later"}, store.When{After: time.Hour})
		to.puts("j000007")
		f, a := inspect.Filter{State: signalbox.StateReady, Kind: "k"}, inspect.Move{To: to.Name()}
		p, err := s.ins.DoAll(t.Context(), s.Name(), f, a, inspect.Bulk{DryRun: true})
		if err != nil || p.Matched != 250 || p.Done != 0 {
			t.Fatalf("dry: %+v, %v", p, err)
		}
		rdb := srv.ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries = -1 })
		rdb.AddHook(dying(calls))
		if _, err = inspector(t, rdb, s.namespace).DoAll(t.Context(), s.Name(), f, a, inspect.Bulk{}); !errors.Is(err, errDied) {
			t.Fatalf("a mover that dies: %v", err)
		}
		for job, err := range s.ins.Jobs(t.Context(), s.Name(), inspect.Filter{State: signalbox.StateScheduled}) {
			s.must(err)
			if strings.Contains(job.Waits, "it is being moved to queue "+to.Name()+", and was ready") {
				held++
			}
		}
		p, err = s.ins.DoAll(t.Context(), s.Name(), f, a, inspect.Bulk{})
		if !errors.Is(err, inspect.ErrTaken) || p.Failed != 1 || p.Done == 0 || p.Moved != 0 {
			t.Errorf("again: %+v, %v", p, err)
		}
		s.lists("ready, left", inspect.Filter{State: signalbox.StateReady}, "j000007", "other")
		s.lists("scheduled, left", inspect.Filter{State: signalbox.StateScheduled}, "later")
		if got := len(to.list(inspect.Filter{State: signalbox.StateReady})); got != 250 {
			t.Errorf("%d jobs are there", got)
		}
		to.lists("held", inspect.Filter{State: signalbox.StateScheduled})
	}
	if held < 100 {
		t.Errorf("%d jobs were left held; did the movers not die?", held)
	}
}

// What is held by a move that wasn't finished is not to be acted on, and the error says what to do.
func TestHeld(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := newStage(t, srv.Client())
	to := s.beside()
	s.puts("a")
	rdb := srv.ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries = -1 })
	rdb.AddHook(dying(6))
	if _, err := inspector(t, rdb, s.namespace).Do(t.Context(), s.Name(), "a", inspect.Move{To: to.Name()}); !errors.Is(err, errDied) {
		t.Fatal(err)
	}
	for _, at := range []struct {
		*stage
		waits string
	}{{s, "moved to queue " + to.Name()}, {to, "a copy of the job in queue " + s.Name()}} {
		if job := at.one("a", signalbox.StateScheduled); !strings.Contains(job.Waits, at.waits) {
			t.Errorf("it waits %q, want %q", job.Waits, at.waits)
		}
		for _, a := range []inspect.Action{inspect.Retry{}, inspect.Delete{}, inspect.Cancel{}, inspect.Edit{MaxAttempts: 3}, inspect.Prioritise{To: signalbox.PriorityHigh}} {
			_, err := s.ins.Do(t.Context(), at.Name(), "a", a)
			if !errors.Is(err, inspect.ErrState) || !strings.Contains(err.Error(), "move it there once more") {
				t.Errorf("%T: %v", a, err)
			}
		}
	}
	if _, err := s.ins.Do(t.Context(), s.Name(), "a", inspect.Move{To: to.Name()}); err != nil {
		t.Error(err)
	}
	to.one("a", signalbox.StateReady)
}

func TestDeleteWaiting(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *stage) {
		s.states()
		p, err := s.ins.DeleteWaiting(t.Context(), s.Name(), inspect.Waiting{Scheduled: true, Bulk: inspect.Bulk{DryRun: true}})
		if want := (inspect.BulkCounts{Seen: 7, Matched: 7}); err != nil || p != want {
			t.Errorf("dry: %+v, %v; want %+v", p, err, want)
		}
		var last inspect.BulkCounts
		p, err = s.ins.DeleteWaiting(t.Context(), s.Name(), inspect.Waiting{Bulk: inspect.Bulk{Progress: func(p inspect.BulkCounts) { last = p }}})
		if want := (inspect.BulkCounts{Seen: 4, Matched: 4, Done: 4}); err != nil || p != want || last != want {
			t.Errorf("ready: %+v, %v, reported %+v; want %+v", p, err, last, want)
		}
		s.lists("ready", inspect.Filter{State: signalbox.StateReady})
		s.lists("scheduled", inspect.Filter{State: signalbox.StateScheduled}, "in30m", "retried", "in2h")
		s.puts("new")
		p, err = s.ins.DeleteWaiting(t.Context(), s.Name(), inspect.Waiting{Scheduled: true})
		if want := (inspect.BulkCounts{Seen: 4, Matched: 4, Done: 4}); err != nil || p != want {
			t.Errorf("both: %+v, %v; want %+v", p, err, want)
		}
		s.lists("scheduled", inspect.Filter{State: signalbox.StateScheduled})
		for id, state := range map[string]signalbox.State{"dead1": signalbox.StateDead, "cancelled1": signalbox.StateCancelled, "running1": signalbox.StateRunning} {
			s.one(id, state)
		}
		if _, err := s.ins.DeleteWaiting(t.Context(), "mial", inspect.Waiting{}); !errors.Is(err, inspect.ErrNoQueue) {
			t.Errorf("a queue that isn't there: %v", err)
		}
		if _, err := s.ins.DeleteWaiting(t.Context(), "{}", inspect.Waiting{}); !errors.Is(err, signalbox.ErrInvalid) {
			t.Errorf("a name that no queue has: %v", err)
		}
	})
}

// A producer that enqueues as fast as DeleteWaiting deletes doesn't keep it from ending.
func TestDeleteWaitingEnds(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.puts(numbered("j", 450)...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	p, err := s.ins.DeleteWaiting(ctx, s.Name(), inspect.Waiting{Bulk: inspect.Bulk{Progress: func(inspect.BulkCounts) {
		if n++; n > 20 {
			cancel() // it would never end
		}
		s.puts(numbered("new"+string(rune('a'+n%26)), 300)...)
	}}})
	if err != nil || p.Done != 450 {
		t.Errorf("%+v, %v", p, err)
	}
}
