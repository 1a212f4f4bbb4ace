package main

import (
	"log/slog"
	"testing"

	"github.com/signalbox-go/signalbox/examples/internal/stage/stagetest"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	redistest.Main(m)
}

// TestRun: each mail is sent once, in the time of the provider, and dead jobs are found and mended. It prints what README.md says.
func TestRun(t *testing.T) {
	t.Parallel()
	stagetest.Follows(t, "redis://"+redistest.New(t).Addr(), "email", run)
}

// A result that isn't as it should be is a problem.
func TestProblem(t *testing.T) {
	t.Parallel()
	good := result{people: 24, leftOut: 24, sent: 23, busy: 4, dead: 2, retried: 1, deleted: 1}
	if err := good.Problem(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(r *result){
		"a mail is missing": func(r *result) { r.sent-- },
		"two mails":         func(r *result) { r.twice++ },
		"early":             func(r *result) { r.early++ },
		"nobody waited":     func(r *result) { r.busy = 0 },
		"not left out":      func(r *result) { r.leftOut-- },
		"a third is dead":   func(r *result) { r.dead++ },
		"not retried":       func(r *result) { r.retried = 0 },
		"not deleted":       func(r *result) { r.deleted = 0 },
	} {
		bad := good
		spoil(&bad)
		if bad.Problem() == nil {
			t.Errorf("%s: no problem", name)
		}
	}
}
