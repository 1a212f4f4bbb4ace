package inspect_test

import (
	"testing"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

// A job that is archived is dead, with the reason as its last error, and isn't copied as jobs are that die. It can be retried.
func TestArchive(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.states()
	if err := s.ins.SetCopyDead(t.Context(), s.Name(), s.beside().Name()); err != nil {
		t.Fatal(err)
	}
	for id, was := range map[string]signalbox.State{"high": signalbox.StateReady, "retried": signalbox.StateScheduled, "dead1": signalbox.StateDead} {
		if got, err := s.ins.Do(t.Context(), s.Name(), id, inspect.Archive{Why: "the customer has left"}); err != nil || got != was {
			t.Errorf("%s was %s: %v", id, got, err)
		}
		job := s.one(id, signalbox.StateDead)
		if said := job.LastError == "archived: the customer has left"; said == (id == "dead1") {
			t.Errorf("%s says %q", id, job.LastError)
		}
		if noted, err := s.rdb.HExists(t.Context(), s.keys+"notes", "dead "+id).Result(); err != nil || noted {
			t.Errorf("%s is to be copied: %v", id, err)
		}
	}
	if _, err := s.ins.Do(t.Context(), s.Name(), "high", inspect.Retry{}); err != nil || s.one("high", signalbox.StateReady).Failed != 0 {
		t.Errorf("%v", err)
	}
}
