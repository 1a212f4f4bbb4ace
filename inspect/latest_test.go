package inspect_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/looks"
)

// The jobs that ended last come first.
func TestLatest(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *stage) {
		if jobs, err := s.ins.Latest(t.Context(), s.Name(), signalbox.StateDead, 5); len(jobs) != 0 || err != nil {
			t.Errorf("of no dead job: %v, %v", jobs, err)
		}
		s.states()
		for state, want := range map[signalbox.State]string{signalbox.StateDead: "dead2 dead1", signalbox.StateCancelled: "cancelled2 cancelled1"} {
			for n := range 3 {
				jobs, err := s.ins.Latest(t.Context(), s.Name(), state, n+1)
				s.must(err)
				var ids []string
				for _, job := range jobs {
					ids = append(ids, job.ID)
					if whole := s.one(job.ID, state); job.EndedAt != whole.EndedAt || job.LastError != whole.LastError || job.Kind != whole.Kind || job.Cursor != "" {
						t.Errorf("got %+v, want %+v", job, whole)
					}
				}
				if all := strings.Fields(want); strings.Join(ids, " ") != strings.Join(all[:min(n+1, 2)], " ") {
					t.Errorf("the last %d that are %s: %v", n+1, state, ids)
				}
			}
		}
		for _, wrong := range []struct {
			state signalbox.State
			n     int
		}{{signalbox.StateReady, 1}, {"", 1}, {signalbox.StateDead, 0}, {signalbox.StateDead, looks.MaxLatest + 1}} {
			if _, err := s.ins.Latest(t.Context(), s.Name(), wrong.state, wrong.n); !errors.Is(err, signalbox.ErrInvalid) {
				t.Errorf("%+v: %v", wrong, err)
			}
		}
		if _, err := s.ins.Latest(t.Context(), "mial", signalbox.StateDead, 1); !errors.Is(err, inspect.ErrNoQueue) {
			t.Errorf("of a queue that isn't there: %v", err)
		}
	})
}

// Large records are read as far as they have room, and one at least.
func TestLatestIsBounded(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	for _, id := range []string{"a", "b", "c", "d"} {
		s.put(signalbox.Job{ID: id, Payload: []byte(strings.Repeat("x", 100<<10))}, store.When{})
	}
	s.end(store.Dead, "no", s.claim(4)...)
	jobs, err := s.ins.Latest(t.Context(), s.Name(), signalbox.StateDead, 4)
	s.must(err)
	if len(jobs) != 2 || jobs[0].ID != "d" || jobs[1].ID != "c" {
		t.Errorf("%d jobs", len(jobs))
	}
}

// The counts since the queue began need no history.
func TestTotals(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *stage) {
		if _, err := s.ins.Totals(t.Context(), "mial"); !errors.Is(err, inspect.ErrNoQueue) {
			t.Errorf("of a queue that isn't there: %v", err)
		}
		if _, err := s.ins.Totals(t.Context(), "{}"); !errors.Is(err, signalbox.ErrInvalid) {
			t.Errorf("of a name that no queue has: %v", err)
		}
		if got, err := s.ins.Totals(t.Context(), s.Name()); err != nil || got.Counts != (inspect.Counts{}) || got.At.IsZero() {
			t.Errorf("of an empty queue: %+v, %v", got, err)
		}
		s.states()
		got, err := s.ins.Totals(t.Context(), s.Name())
		s.must(err)
		stats := s.stats(inspect.ByMinute)
		if got.Counts != stats.Total || got.Dead != 2 || got.At.After(stats.At) || stats.At.Sub(got.At) > time.Minute {
			t.Errorf("got %+v, and the statistics say %+v", got, stats.Total)
		}
		s.must(s.rdb.HSet(t.Context(), s.keys+"history", "last", "x").Err())
		if _, err := s.ins.Totals(t.Context(), s.Name()); err != nil {
			t.Errorf("with a history that can't be read: %v", err)
		}
		s.must(s.rdb.HDel(t.Context(), s.keys+"history", "last").Err())
		// A key of another type is named.
		for _, key := range []string{s.keys + "history", s.keys + "stats"} {
			s.must(s.rdb.Rename(t.Context(), key, key+"-moved").Err())
			s.must(s.rdb.Set(t.Context(), key, "x", 0).Err())
			if _, err := s.ins.Totals(t.Context(), s.Name()); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") || !strings.Contains(err.Error(), key) {
				t.Errorf("with a key of another type: %v", err)
			}
			s.must(s.rdb.Rename(t.Context(), key+"-moved", key).Err())
		}
	})
}

// A job that has a record, and no place, is told from one that is ready.
func TestJobNowhere(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *stage) {
		s.states()
		for _, id := range []string{"normal1", "low", "high"} {
			if job := s.one(id, signalbox.StateReady); job.Nowhere || job.Waits != "for a free slot" {
				t.Errorf("%+v", job)
			}
		}
		key := s.keys + "ready:low"
		s.must(s.rdb.LRem(t.Context(), key, 0, "low").Err())
		if job := s.one("low", signalbox.StateReady); !job.Nowhere || !strings.HasPrefix(job.Waits, "in vain: ") {
			t.Errorf("%+v", job)
		}
		// A running job may be found after the lists were searched.
		for id, state := range map[string]signalbox.State{"running1": signalbox.StateRunning, "dead1": signalbox.StateDead, "in2h": signalbox.StateScheduled} {
			if job := s.one(id, state); job.Nowhere {
				t.Errorf("%+v", job)
			}
		}
		s.must(s.rdb.RPush(t.Context(), key, "low").Err())
		if job := s.one("low", signalbox.StateReady); job.Nowhere {
			t.Errorf("%+v", job)
		}
	})
}
