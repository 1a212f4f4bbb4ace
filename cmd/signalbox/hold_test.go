package main

import (
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
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

// A hold that ends earlier than the one that stands changes nothing, and the command says which one counts: for the queue, and for a group of either kind.
func TestShorterHold(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	sh.ok("enqueue", "email.welcome", `{}`, "-q", "mail")
	const longer = "was held back for longer already, until "
	for _, part := range []string{"", "acme"} {
		var flags []string
		if part != "" {
			flags = []string{"--group", part}
			if _, err := store.New(srv.Client(), sh.namespace, "mail").Settings().HoldBack(t.Context(), "g"+part, "", 2*time.Hour); err != nil { // as a handler does; not the serial group
				t.Fatal(err)
			}
		}
		for _, step := range []struct {
			long string
			says bool
		}{{"3h", false}, {"1h", true}, {"4h", false}} {
			if part != "" && step.long == "3h" {
				step.long, step.says = "1h", true
			}
			_, errs, code := sh.run(append([]string{"queue", "hold", "mail", "--for", step.long}, flags...)...)
			if code != exitOK || strings.Contains(errs, longer) != step.says || step.says && !strings.Contains(errs, partOf("mail", part)) {
				t.Errorf("%s --for %s: %d, %s", part, step.long, code, errs)
			}
		}
	}
}
