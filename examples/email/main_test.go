package main

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox/examples/internal/stage"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	redistest.Main(m)
}

// TestRun: each mail is sent once, in the time of the provider, and dead jobs are found and mended. It prints what README.md says.
func TestRun(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, url := range map[string]string{"embedded": "", "REDIS_URL": "redis://" + redistest.New(t).Addr()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			r, err := stage.Run(t.Context(), &out, url, "email", run)
			if err != nil || r.Problem() != nil {
				t.Fatalf("%s: %v, %v\n%s", r, err, r.Problem(), &out)
			}
			if lines := stage.Missing(string(readme), out.String()+r.String()); lines != nil {
				t.Errorf("README.md says that it prints %q, and it prints\n%s", lines, &out)
			}
		})
	}
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
