package main

import (
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// A queue that is empty and unused is removed. Otherwise the command says what keeps it.
func TestQueueRm(t *testing.T) {
	t.Parallel()
	sh := newShell(t, redistest.Start(t))
	for _, queue := range []string{"tenant-1", "tenant-2", "mail"} {
		sh.ok("enqueue", "email.welcome", `{}`, "-q", queue, "--id", "a")
	}
	if _, errs, code := sh.run("queue", "rm", "tenant-1"); code != exitState || !strings.Contains(errs, "jobs that haven't ended, 1") || !strings.Contains(errs, "signalbox queue delete-waiting tenant-1 --scheduled") {
		t.Errorf("%d, %s", code, errs)
	}
	for _, queue := range []string{"tenant-1", "tenant-2"} {
		sh.ok("job", "rm", queue, "a", "--yes")
	}
	sh.ok("queue", "set", "tenant-2", "--slots", "3")
	if _, errs, code := sh.run("queue", "rm", "tenant-2"); code != exitState || errs != "signalbox: queue tenant-2 isn't removed: it is in use\n  - settings, slots: remove them, too (signalbox queue rm tenant-2 --settings)\n" {
		t.Errorf("%d, %s", code, errs)
	}
	out, errs, code := sh.run("queue", "rm", "--matching", "tenant-*", "--dry-run")
	if code != exitOK || !strings.Contains(out, "queue tenant-1 would be removed") || !strings.Contains(errs, "queue tenant-2 stays:\n  - settings, slots: ") {
		t.Errorf("%d, %s, %s", code, out, errs)
	}
	sh.ok("queue", "pause", "tenant-2")
	sh.ok("queue", "set", "tenant-2", "--keep-age", "2d", "--keep-jobs", "7")
	_, errs, code = sh.run("queue", "rm", "tenant-2", "mail", "--unused-for", "5m")
	if lines := strings.Split(errs, "\n"); code != exitState || lines[0] != "signalbox: queues tenant-2, mail aren't removed: they are in use" || lines[1] != "queue tenant-2:" || !strings.HasPrefix(lines[2], "  - a pause: ") ||
		lines[3] != "  - settings, slots, what is kept of dead and cancelled jobs: remove them, too (signalbox queue rm tenant-2 --settings)" || !strings.Contains(errs, "\nqueue mail:\n  - jobs that haven't ended, 1: ") {
		t.Errorf("%d, %s", code, errs)
	}
	if out, errs, code := sh.run("queue", "rm", "tenant-2", "-o", "json"); code != exitState || !strings.Contains(out, `"reasons":["a pause: `) || errs != "signalbox: queue tenant-2 isn't removed: it is in use\n" {
		t.Errorf("%d, %s, %s", code, out, errs)
	}
	sh.ok("queue", "resume", "tenant-2")
	var done struct {
		Removed []string
		Kept    []struct {
			Queue   string
			Reasons []string
		}
		Dry bool `json:"dry_run"`
	}
	sh.into(&done, "queue", "rm", "--matching", "tenant-*", "--settings")
	if len(done.Removed) != 2 || len(done.Kept) != 0 || done.Dry {
		t.Errorf("%+v", done)
	}
	if out := sh.ok("queue", "ls"); strings.Contains(out, "tenant") || !strings.Contains(out, "mail") {
		t.Errorf("%s", out)
	}
	for _, args := range [][]string{{"queue", "rm"}, {"queue", "rm", "mail", "--matching", "*"}} {
		if _, errs, code := sh.run(args...); code != exitUsage || !strings.Contains(errs, "--matching") {
			t.Errorf("%v: %d, %s", args, code, errs)
		}
	}
	if _, _, code := sh.run("queue", "rm", "nobody"); code != exitNotFound {
		t.Errorf("%d", code)
	}
}
