package inspect_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// unique enqueues a job with a unique key. It reports whether the job went in.
func (s *stage) unique(id, key string, scope byte) bool {
	s.t.Helper()
	item, err := store.NewItem(&signalbox.Job{ID: id, Kind: "k"}, store.When{})
	s.must(err)
	item.Unique(store.Unique{Key: wire.UniqueKey("k", key, false), Scope: scope, Window: time.Hour})
	s.enqueue.Next()
	fates, err := s.Enqueue(s.t.Context(), s.enqueue, []store.Item{item})
	s.must(err)
	return fates.Of(0).In()
}

func TestUnique(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *stage) {
		to := s.beside()
		for scope, until := range map[byte]string{wire.UntilStarted: "started", wire.UntilEnded: "ended", wire.ForWindow: "1h0m0s"} {
			id := "shown-" + until
			s.unique(id, until, scope)
			if job := s.one(id, signalbox.StateReady); job.UniqueKey != until || job.UniqueUntil != until {
				t.Errorf("%s: key %q, until %q", id, job.UniqueKey, job.UniqueUntil)
			}
		}
		s.end(store.Completed, "", s.claim(3)...)

		// A dead job that is retried, moved or imported takes its key, and only if nobody has it.
		s.unique("a", "x", wire.UntilEnded)
		s.end(store.Dead, "boom", s.claim(1)...)
		s.unique("b", "x", wire.UntilEnded)
		for _, a := range []inspect.Action{inspect.Retry{}, inspect.Reschedule{At: time.Now().Add(time.Hour)}, inspect.Edit{MaxAttempts: 3, Run: true}} {
			if _, err := s.ins.Do(t.Context(), s.Name(), "a", a); !errors.Is(err, inspect.ErrKeyTaken) || !strings.Contains(err.Error(), "job a") {
				t.Errorf("%T: %v", a, err)
			}
		}
		p, err := s.ins.DoAll(t.Context(), s.Name(), inspect.Filter{State: signalbox.StateDead}, inspect.Retry{}, inspect.Bulk{})
		if !errors.Is(err, inspect.ErrKeyTaken) || p.Failed != 1 || p.Done != 0 {
			t.Errorf("retry of all: %+v, %v", p, err)
		}
		to.unique("c", "x", wire.UntilEnded)
		if _, err := s.ins.Do(t.Context(), s.Name(), "b", inspect.Move{To: to.Name()}); !errors.Is(err, inspect.ErrKeyTaken) || !strings.Contains(err.Error(), to.Name()) {
			t.Errorf("move: %v", err)
		}
		file := s.exported()
		if done := to.imports(file, inspect.Importing{}); done.Done != 1 || done.There != 1 { // the dead one goes in
			t.Errorf("import: %+v", done)
		}
		to.one("a", signalbox.StateDead)
		to.one("c", signalbox.StateReady)
		s.does("b", inspect.Delete{}, signalbox.StateReady)
		s.does("a", inspect.Retry{}, signalbox.StateDead)
		if s.unique("d", "x", wire.UntilEnded) {
			t.Error("the job that runs again has no key")
		}
		third := s.beside()
		if done := third.imports(file, inspect.Importing{}); done.Done != 2 {
			t.Errorf("import: %+v", done)
		}
		if third.unique("d", "x", wire.UntilEnded) {
			t.Error("the imported job has no key")
		}
	})
}
