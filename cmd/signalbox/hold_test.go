package main

import (
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// What is held back is listed with its end, and can be lifted.
func TestQueueHold(t *testing.T) {
	t.Parallel()
	sh := newShell(t, redistest.Start(t))
	sh.ok("enqueue", "email.welcome", `{}`, "-q", "mail")
	var got struct {
		Queue  string
		Held   []holdJSON
		Paused []pausedJSON
	}
	read := func(args ...string) {
		t.Helper()
		got.Held = nil
		sh.into(&got, append([]string{"queue", "hold", "mail"}, args...)...)
	}
	read()
	if got.Queue != "mail" || got.Held == nil || len(got.Held) > 0 {
		t.Errorf("held back: %+v", got)
	}
	read("--for", "10m")
	read("--group", "acme", "--for", "20m")
	if len(got.Held) != 3 || got.Held[0].Group != "" || got.Held[1].Group != "acme" || got.Held[1].Serial == got.Held[2].Serial || got.Held[2].Until == nil {
		t.Errorf("held back: %+v", got)
	}
	lines := strings.Split(sh.ok("queue", "hold", "mail"), "\n")
	for i, want := range []string{"HELD BACK FOR UNTIL BY", "queue mail ", "group acme ", "serial group acme "} {
		text := strings.Join(strings.Fields(lines[i]), " ")
		if !strings.HasPrefix(text, want) || i > 0 && !strings.HasSuffix(text, "Z an operator") {
			t.Errorf("line %d: %q, want %q", i, text, want)
		}
	}
	read("--group", "acme", "--lift")
	if len(got.Held) != 1 || got.Held[0].Group != "" {
		t.Errorf("held back: %+v", got)
	}
	read("--lift")
	if len(got.Held) > 0 {
		t.Errorf("held back: %+v", got)
	}
	for _, wrong := range [][]string{{"--for", "0s"}, {"--for", "1m", "--lift"}, {"--group", "a"}, {"--for", "25h"}} {
		if _, errs, code := sh.run(append([]string{"queue", "hold", "mail"}, wrong...)...); code == 0 || errs == "" {
			t.Errorf("%v is no mistake: %s", wrong, errs)
		}
	}
	sh.fails(exitNotFound, []string{"no such queue"}, "queue", "hold", "mial")
}
