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
		Of             map[string]limitsJSON
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
	if got.Groups != (limitsJSON{Running: 2}) || got.Of["acme"] != (limitsJSON{Running: 5}) || got.Limits.Running != 20 {
		t.Errorf("of groups: %+v", got)
	}
	lines := strings.Split(sh.ok("queue", "limit", "mail"), "\n")
	for i, want := range []string{"LIMITS OF RUNNING RATE BURST", "queue mail 20 100/1m 7", "each group 2 no limit -", "group acme 5 no limit -"} {
		if text := strings.Join(strings.Fields(lines[i]), " "); text != want {
			t.Errorf("line %d: %q, want %q", i, text, want)
		}
	}
	read("--group", "acme", "--inherit")
	read("--rate", "0")
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
	for _, wrong := range [][]string{{"--length", "-1"}, {"--length", "1", "--groups"}, {"--length", "1", "--group", "a"}, {"--rate", "100"}, {"--rate", "100/0s"}, {"--rate", "x/1s"}, {"--groups", "--group", "a"}, {"--inherit"}, {"--running", "-1"}, {"--burst", "3", "--groups"}} {
		if _, errs, code := sh.run(append([]string{"queue", "limit", "mail"}, wrong...)...); code == 0 || errs == "" {
			t.Errorf("%v is no mistake: %s", wrong, errs)
		}
	}
}
