package main

import (
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// Limits are set one by one, and what no flag names stays.
func TestQueueLimits(t *testing.T) {
	t.Parallel()
	sh := newShell(t, redistest.Start(t))
	sh.ok("enqueue", "email.welcome", `{}`, "-q", "mail")
	var got struct {
		Queue          string
		Limits, Groups limitsJSON
		Of             map[string]ownLimitsJSON
		MaxLength      int `json:"max_length"`
		Length         int
	}
	read := func(args ...string) {
		t.Helper()
		got.Of = nil
		sh.into(&got, append([]string{"queue", "limit", "mail"}, args...)...)
	}
	read()
	if got.Queue != "mail" || got.Limits != (limitsJSON{}) || got.Groups != (limitsJSON{}) || len(got.Of) > 0 {
		t.Errorf("without limits: %+v", got)
	}
	read("--running", "20")
	read("--rate", "100/1m")
	read("--burst", "7")
	if got.Limits != (limitsJSON{20, 100, 60, 7}) {
		t.Errorf("of the queue: %+v", got)
	}
	read("--groups", "--running", "2")
	read("--group", "acme", "--running", "5")
	if n := got.Of["acme"].Running; got.Groups != (limitsJSON{Running: 2}) || n == nil || *n != 5 || got.Of["acme"].Rate != nil || got.Limits.Running != 20 {
		t.Errorf("of groups: %+v", got)
	}
	lines := strings.Split(sh.ok("queue", "limit", "mail"), "\n")
	for i, want := range []string{"LIMITS OF RUNNING RATE BURST", "queue mail 20 100/1m 7", "each group 2 no limit -", "group acme 5 inherited -"} {
		if text := strings.Join(strings.Fields(lines[i]), " "); text != want {
			t.Errorf("line %d: %q, want %q", i, text, want)
		}
	}
	read("--group", "acme", "--inherit")
	read("--rate", "none")
	if len(got.Of) > 0 || got.Limits != (limitsJSON{Running: 20}) {
		t.Errorf("taken back: %+v", got)
	}
	read("--length", "100")
	if got.MaxLength != 100 || got.Length != 1 || got.Limits.Running != 20 {
		t.Errorf("the length: %+v", got)
	}
	lines = strings.Split(sh.ok("queue", "limit", "mail"), "\n")
	for i, want := range []string{"LIMITS OF RUNNING RATE BURST LENGTH", "queue mail 20 no limit - 1 of 100", "each group 2 no limit - -"} {
		if text := strings.Join(strings.Fields(lines[i]), " "); text != want {
			t.Errorf("line %d: %q, want %q", i, text, want)
		}
	}
	if read("--length", "0"); got.MaxLength != 0 {
		t.Errorf("the length, taken back: %+v", got)
	}
	sh.ok("queue", "limit", "mail", "--group", "second", "--rate", "5/s")
	if out := sh.ok("queue", "limit", "mail"); !strings.Contains(out, "5/1s") {
		t.Error(out)
	}
	sh.ok("queue", "limit", "mail", "--group", "second", "--inherit")
	sh.fails(exitUsage, []string{"--burst goes with --rate"}, "queue", "limit", "mail", "--group", "bare", "--burst", "9")
	for _, wrong := range [][]string{{"--length", "-1"}, {"--length", "1", "--groups"}, {"--length", "1", "--group", "a"}, {"--rate", "100"}, {"--rate", "100/0s"}, {"--rate", "x/1s"}, {"--rate", "5/x"}, {"--group", "bare", "--burst", "9"}, {"--groups", "--group", "a"}, {"--inherit"}, {"--running", "-1"}, {"--running", "inherit"}, {"--rate", "inherit", "--groups"}, {"--burst", "3", "--groups"}} {
		if _, errs, code := sh.run(append([]string{"queue", "limit", "mail"}, wrong...)...); code == 0 || errs == "" {
			t.Errorf("%v is no mistake: %s", wrong, errs)
		}
	}
	for _, zero := range [][]string{{"--running", "0", "--group", "acme"}, {"--running", "0"}, {"--rate", "0"}} { // who wants none to run
		if _, errs, code := sh.run(append([]string{"queue", "limit", "mail"}, zero...)...); code == 0 || !strings.Contains(errs, "signalbox queue pause QUEUE --group GROUP") {
			t.Errorf("%v: %s", zero, errs)
		}
	}
}

// A group inherits what it has no limit of its own for, until it gets one, and again when that is taken back.
func TestQueueLimitsAreInherited(t *testing.T) {
	t.Parallel()
	sh := newShell(t, redistest.Start(t))
	sh.ok("enqueue", "email.welcome", `{}`, "-q", "mail")
	sh.ok("queue", "limit", "mail", "--groups", "--rate", "10/1m", "--burst", "3", "--running", "9")
	row := func(want string, args ...string) {
		t.Helper()
		out := sh.ok(append([]string{"queue", "limit", "mail"}, args...)...)
		for line := range strings.Lines(out) {
			if text := strings.Join(strings.Fields(line), " "); strings.HasPrefix(text, "group foo") {
				if text != want {
					t.Errorf("%v: %q, want %q", args, text, want)
				}
				return
			}
		}
		if want != "" {
			t.Errorf("%v: no limits of foo, want %q", args, want)
		}
	}
	row("group foo 3 inherited -", "--group", "foo", "--running", "3")
	row("group foo 3 no limit -", "--group", "foo", "--rate", "none")
	row("group foo no limit no limit -", "--group", "foo", "--running", "none")
	row("group foo no limit 5/1s 1", "--group", "foo", "--rate", "5/1s")
	row("group foo inherited 5/1s 1", "--group", "foo", "--running", "inherit")
	row("", "--group", "foo", "--rate", "inherit")
	row("group foo 3 inherited -", "--group", "foo", "--running", "3")
	row("", "--group", "foo", "--inherit")
}
