package inspect_test

import (
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/store"
)

func TestWorkers(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *stage) {
		s.states()
		if alive, _, err := s.Open(t.Context(), store.NewSession("another"), time.Hour); !alive || err != nil {
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
			if want := running[i]; r.ID != want.ID || r.Queue != s.Name() || r.Token != want.Token || !r.Since.Equal(want.Since) || r.Cancelling {
				t.Errorf("it runs %+v, want %+v", r, want)
			}
		}
	})
}
