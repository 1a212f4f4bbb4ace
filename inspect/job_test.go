package inspect_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

// one returns a job, whose state is checked.
func (s *stage) one(id string, state signalbox.State) inspect.Job {
	s.t.Helper()
	job, err := s.ins.Job(s.t.Context(), s.Name(), id)
	s.must(err)
	if job.State != state || job.ID != id || job.Queue != s.Name() || job.Err != nil {
		s.t.Errorf("job %s is %s, want %s: %+v", id, job.State, state, job)
	}
	return job
}

func TestJob(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *stage) {
		s.states()
		for id, state := range map[string]signalbox.State{
			"dead1": signalbox.StateDead, "cancelled1": signalbox.StateCancelled, "completed1": signalbox.StateCompleted, "running1": signalbox.StateRunning,
			"normal1": signalbox.StateReady, "retried": signalbox.StateScheduled,
		} {
			job := s.one(id, state)
			for listed := range s.ins.Jobs(t.Context(), s.Name(), inspect.Filter{State: state, IDPrefix: id}) {
				listed.Cursor = ""
				if !reflect.DeepEqual(job, listed) {
					t.Errorf("it is listed as %+v, and is %+v", listed, job)
				}
			}
			if ended := !job.EndedAt.IsZero(); ended == state.Live() {
				t.Errorf("job %s, which is %s, ended at %v", id, state, job.EndedAt)
			}
			if completed := job.Success != nil && job.Success.Worker == me; completed != (state == signalbox.StateCompleted) {
				t.Errorf("job %s, which is %s, was completed by %+v", id, state, job.Success)
			}
			if runs := job.Worker == me && job.Token > 0 && !job.Since.IsZero(); runs != (state == signalbox.StateRunning) {
				t.Errorf("job %s, which is %s: worker %q, token %d, since %v", id, state, job.Worker, job.Token, job.Since)
			}
		}
		retried := s.one("retried", signalbox.StateScheduled)
		if retried.Failed != 1 || retried.LastError != "not yet" || retried.DueAt.Sub(retried.EnqueuedAt) < time.Hour ||
			retried.Waits != "until "+retried.DueAt.UTC().Format("2006-01-02 15:04:05 MST") {
			t.Errorf("retried: %+v", retried)
		}
		if _, err := s.ins.Job(t.Context(), s.Name(), "daed1"); !errors.Is(err, inspect.ErrNoJob) || !strings.Contains(err.Error(), "daed1") {
			t.Errorf("a job that isn't there: %v", err)
		}
		if _, err := s.ins.Job(t.Context(), "mial", "dead1"); !errors.Is(err, inspect.ErrNoQueue) {
			t.Errorf("a queue that isn't there: %v", err)
		}
		if _, err := s.ins.Job(t.Context(), "{}", "dead1"); !errors.Is(err, signalbox.ErrInvalid) {
			t.Errorf("a name that no queue has: %v", err)
		}
	})
}

// All that a producer says of a job is there.
func TestJobInFull(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	s.put(signalbox.Job{
		ID: "a", Kind: "charge", Payload: []byte(`{"Order":17}`), Headers: map[string]string{"tenant": "acme", "traceparent": parent},
		Priority: signalbox.PriorityHigh, MaxAttempts: 3, Timeout: time.Minute, Effect: "order-17",
	}, store.When{})
	job := s.one("a", signalbox.StateReady)
	if job.EnqueuedAt.IsZero() || !job.DueAt.Equal(job.EnqueuedAt) {
		t.Errorf("enqueued at %v, due at %v", job.EnqueuedAt, job.DueAt)
	}
	at := job.EnqueuedAt
	want := inspect.Job{
		Queue: s.Name(), ID: "a", Kind: "charge", State: signalbox.StateReady, Payload: []byte(`{"Order":17}`),
		Headers:  map[string]string{"tenant": "acme", "traceparent": parent},
		Priority: signalbox.PriorityHigh, MaxAttempts: 3, Timeout: time.Minute, EnqueuedAt: at, DueAt: at, EffectKey: "order-17",
		TraceID: "0af7651916cd43dd8448eb211c80319c", SpanID: "b7ad6b7169203331", Waits: "for a free slot",
	}
	if !reflect.DeepEqual(job, want) {
		t.Errorf("got  %+v\nwant %+v", job, want)
	}
}

// Why a job isn't running is said in words.
func TestWaits(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	s := newStage(t, rdb)
	waits := func(id, want string) {
		t.Helper()
		job, err := s.ins.Job(t.Context(), s.Name(), id)
		s.must(err)
		if job.Waits != want {
			t.Errorf("job %s, which is %s, waits %q, want %q", id, job.State, job.Waits, want)
		}
		for listed, err := range s.ins.Jobs(t.Context(), s.Name(), inspect.Filter{State: job.State, IDPrefix: id}) {
			s.must(err)
			if listed.Waits != job.Waits {
				t.Errorf("job %s waits %q, and is listed as waiting %q", id, job.Waits, listed.Waits)
			}
		}
	}
	s.puts("crashed")
	for range store.SuspectAt {
		s.claim(1)
		_, _, err := s.Sessions().Renew(t.Context(), s.session, 0, "")
		s.must(err)
		_, err = s.Sessions().Reclaim(s.session, false).Next(t.Context())
		s.must(err)
		s.session = store.NewSession(me)
		s.open()
	}
	s.puts("ready", "running", "dead")
	s.put(signalbox.Job{ID: "soon"}, store.When{After: time.Millisecond})
	s.put(signalbox.Job{ID: "later"}, store.When{After: time.Hour})
	redistest.Eventually(t, func() bool {
		job, err := s.ins.Job(t.Context(), s.Name(), "soon")
		return err != nil || job.Waits == "its time has come; for a free slot"
	}, "its time has come")
	waits("ready", "for a free slot")
	waits("crashed", "for a worker that may try a job which has crashed 2 times")
	waits("soon", "its time has come; for a free slot")
	_, err := s.ins.Quiet(t.Context(), me)
	s.must(err)
	waits("ready", "all workers of the queue are quiet")
	_, err = s.ins.Pause(t.Context(), s.Name())
	s.must(err)
	waits("ready", "the queue is paused")
	waits("soon", "its time has come; the queue is paused")
	_, err = s.ins.Resume(t.Context(), s.Name())
	s.must(err)
	_, err = s.ins.Unquiet(t.Context(), me)
	s.must(err)
	got := s.claim(4) // crashed, ready, running, dead or soon
	for _, d := range got[1:] {
		s.end(store.Dead, "", d)
	}
	waits(got[0].Job.ID, "")
	waits(got[1].Job.ID, "")
	s.end(store.Return, "", got[0])
	_, err = s.Sessions().Close(t.Context(), s.session, true)
	s.must(err)
	waits(got[0].Job.ID, "no worker works the queue")
}

// A running job is shown with the span of the attempt, and with a mark if it was asked to end.
func TestRunningJob(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.puts("a", "b")
	got := s.claim(2)
	const span = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	s.lane.Next()
	_, err := s.Sessions().Claim(t.Context(), s.lane, &store.ClaimRequest{Session: s.session, Notes: []store.Note{{ID: "a", Token: got[0].Job.Token, Span: span}}})
	s.must(err)
	key := s.keys + "inflight:" + s.session
	held := s.rdb.HGet(t.Context(), key, "b").Val()
	s.must(s.rdb.HSet(t.Context(), key, "b", held+" s2c").Err())
	a, b := s.one("a", signalbox.StateRunning), s.one("b", signalbox.StateRunning)
	if a.RunTraceID != "0af7651916cd43dd8448eb211c80319c" || a.RunSpanID != "b7ad6b7169203331" || a.Cancelling {
		t.Errorf("%+v", a)
	}
	if b.RunTraceID != "" || !b.Cancelling || b.Token != got[1].Job.Token || b.Since.Sub(got[1].Job.ClaimedAt).Abs() > time.Second {
		t.Errorf("%+v; it was claimed at %v", b, got[1].Job.ClaimedAt)
	}
	if listed := s.list(inspect.Filter{State: signalbox.StateRunning}); listed[0].RunSpanID != a.RunSpanID || !listed[1].Cancelling {
		t.Errorf("%+v", listed)
	}
	if workers, err := s.ins.Workers(t.Context()); err != nil || !workers[0].Running[1].Cancelling {
		t.Errorf("%+v, %v", workers, err)
	}
	s.must(s.rdb.HSet(t.Context(), key, "b", held).Err())
}

// A record that can't be read is said so with the job, and what is known of the job is there.
func TestUnreadableRecord(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.puts("a")
	got := s.claim(1)
	s.must(s.rdb.HSet(t.Context(), s.keys+"jobs", "a", "{}").Err())
	job, err := s.ins.Job(t.Context(), s.Name(), "a")
	if err != nil || job.State != signalbox.StateRunning || job.Token != got[0].Job.Token || job.Err == nil || !strings.Contains(job.Err.Error(), "job a can't be read") {
		t.Errorf("%+v, %v", job, err)
	}
	listed := s.list(inspect.Filter{State: signalbox.StateRunning})
	if len(listed) != 1 || listed[0].Err == nil || listed[0].Worker != me {
		t.Errorf("%+v", listed)
	}
	s.lists("by what only a record says", inspect.Filter{State: signalbox.StateRunning, Kind: "k"})
}

// A traceparent that is none says nothing.
func TestMalformedTrace(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	for i, parent := range []string{
		"x", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331", "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333-01",
	} {
		id := string(rune('a' + i))
		s.put(signalbox.Job{ID: id, Headers: map[string]string{"traceparent": parent}}, store.When{})
		if job := s.one(id, signalbox.StateReady); job.TraceID != "" || job.SpanID != "" {
			t.Errorf("%q is read as %q, %q", parent, job.TraceID, job.SpanID)
		}
	}
}
