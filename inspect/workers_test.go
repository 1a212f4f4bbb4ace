package inspect_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/store"
)

func TestWorkers(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *stage) {
		s.states()
		if alive, _, err := s.Sessions().Open(t.Context(), store.NewSession("another"), time.Hour); !alive || err != nil {
			t.Fatal(alive, err)
		}
		if _, err := s.ins.Quiet(t.Context(), "another"); err != nil {
			t.Fatal(err)
		}
		all, err := s.ins.Workers(t.Context())
		if err != nil || len(all) != 2 || all[0].ID != "another" || all[1].ID != me {
			t.Fatalf("%+v, %v", all, err)
		}
		if !all[0].Quiet || all[1].Quiet || len(all[0].Running) != 0 {
			t.Errorf("%+v", all)
		}
		w := all[1]
		if len(w.Sessions) != 1 || w.Sessions[0].Queue != s.Name() || w.Sessions[0].Left <= 0 || w.Sessions[0].Left > time.Hour {
			t.Errorf("sessions: %+v", w.Sessions)
		}
		running := s.list(inspect.Filter{State: "running"})
		if len(w.Running) != 2 || len(running) != 2 {
			t.Fatalf("it runs %+v, want %+v", w.Running, running)
		}
		for i, r := range w.Running {
			if want := running[i]; r.ID != want.ID || r.Kind == "" || r.Kind != want.Kind || r.Queue != s.Name() || r.Token != want.Token || !r.Since.Equal(want.Since) || r.Cancelling {
				t.Errorf("it runs %+v, want %+v", r, want)
			}
		}
	})
}

// A worker that was asked to end says so until it has.
func TestStop(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *stage) {
		session := store.NewSession("another")
		if alive, _, err := s.Sessions().Open(t.Context(), session, time.Hour); !alive || err != nil {
			t.Fatal(alive, err)
		}
		for _, want := range []bool{true, false} {
			if changed, err := s.ins.Stop(t.Context(), "another"); changed != want || err != nil {
				t.Errorf("changed %v, %v", changed, err)
			}
		}
		all, err := s.ins.Workers(t.Context())
		if err != nil || len(all) != 2 || !all[0].Stopping || !all[0].Quiet || all[1].Stopping || all[1].Quiet {
			t.Errorf("%+v, %v", all, err)
		}
		// A stop is final, also while the worker has no session, and whatever is said to others meanwhile.
		if changed, err := s.ins.Unquiet(t.Context(), "another"); changed || !errors.Is(err, inspect.ErrState) || !strings.Contains(err.Error(), "final") {
			t.Errorf("unquiet: %v, %v", changed, err)
		}
		_, _, err = s.Sessions().Renew(t.Context(), session, 0, "") // it has lost its lease
		s.must(err)
		_, err = s.Sessions().Reclaim(session, false).Next(t.Context())
		s.must(err)
		if _, err := s.ins.Quiet(t.Context(), me); err != nil {
			t.Error(err)
		}
		if alive, hints, err := s.As("another").Sessions().Open(t.Context(), store.NewSession("another"), time.Hour); !alive || !hints.Withheld.Stop || err != nil {
			t.Errorf("in its next session it may work: %v, %+v, %v", alive, hints.Withheld, err)
		}
		if changed, err := s.ins.Stop(t.Context(), "nobody"); changed || !errors.Is(err, inspect.ErrNoWorker) || !strings.Contains(err.Error(), "another") {
			t.Errorf("changed %v, %v", changed, err)
		}
	})
}

// Only the delivery that is stuck says so: another delivery of its job doesn't.
func TestStuck(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *stage) {
		s.states()
		running := s.list(inspect.Filter{State: "running"})
		all, err := s.ins.Workers(t.Context())
		if err != nil || len(all) != 1 || len(running) != 2 {
			t.Fatalf("%+v, %v", all, err)
		}
		leases, err := s.Looks().Leases(t.Context())
		s.must(err)
		since := time.UnixMicro(1_800_000_000_000_000)
		s.must(s.Sessions().WriteStuck(t.Context(), leases[0].Session, time.Hour, []store.Stuck{
			{ID: running[0].ID, Kind: "charge", Token: running[0].Token, Since: since, Stack: "main.go:7", Freed: true},
			{ID: running[1].ID, Token: running[1].Token - 1, Since: since},
		}))
		record, err := s.rdb.HGet(t.Context(), s.keys+"jobs", running[0].ID).Result()
		s.must(err)
		s.must(s.rdb.HDel(t.Context(), s.keys+"jobs", running[0].ID).Err()) // then its worker knows its kind
		all, err = s.ins.Workers(t.Context())
		s.must(err)
		for _, r := range all[0].Running {
			switch {
			case r.ID == running[0].ID && (r.Kind != "charge" || r.Stuck == nil || *r.Stuck != inspect.Stuck{Since: since, Stack: "main.go:7", SlotFreed: true}):
				t.Errorf("%+v", r)
			case r.ID == running[1].ID && r.Stuck != nil:
				t.Errorf("%+v", r)
			}
		}
		s.must(s.rdb.HSet(t.Context(), s.keys+"jobs", running[0].ID, record).Err())
	})
}

// A running job has the progress of its own delivery. What can't be read counts as none.
func TestProgress(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *stage) {
		s.states()
		running := s.list(inspect.Filter{State: "running"})
		leases, err := s.Looks().Leases(t.Context())
		s.must(err)
		at := time.UnixMicro(1_800_000_000_000_000)
		s.must(s.Sessions().WriteProgress(t.Context(), leases[0].Session, time.Hour, []store.Progress{
			{ID: running[0].ID, Token: running[0].Token, Done: 3, Total: 7, Note: "pages", At: at},
			{ID: running[1].ID, Token: running[1].Token - 1, Done: 9, At: at}, // of its last delivery
		}))
		look := func(want *inspect.Progress) {
			t.Helper()
			all, err := s.ins.Workers(t.Context())
			s.must(err)
			for i, r := range running {
				job, err := s.ins.Job(t.Context(), s.Name(), r.ID)
				s.must(err)
				got := []*inspect.Progress{job.Progress}
				for _, other := range all[0].Running {
					if other.ID == r.ID {
						got = append(got, other.Progress)
					}
				}
				for _, p := range got {
					if i == 0 && want != nil && (p == nil || *p != *want) || (i > 0 || want == nil) && p != nil {
						t.Errorf("job %d has the progress %+v", i, p)
					}
				}
			}
		}
		look(&inspect.Progress{Done: 3, Total: 7, Note: "pages", At: at})
		s.must(s.rdb.Set(t.Context(), s.keys+"progress:"+leases[0].Session, "none", 0).Err())
		look(nil)
	})
}
