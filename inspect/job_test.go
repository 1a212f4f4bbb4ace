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
			"dead1": signalbox.StateDead, "cancelled1": signalbox.StateCancelled, "running1": signalbox.StateRunning,
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
