package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// An empty list says what is empty: the namespace, the queue, or what was asked for.
func TestNothingThere(t *testing.T) {
	t.Parallel()
	sh := newShell(t, redistest.Start(t))
	note := func(want string, args ...string) {
		t.Helper()
		if out, errs, code := sh.run(args...); code != exitOK || !strings.Contains(errs, want) {
			t.Errorf("%q: %d, %q, %q; want %q", args, code, out, errs, want)
		}
	}
	note("There is no queue in namespace", "job", "ls")
	note("There is no queue in namespace", "doctor")
	note("There is no cron entry in namespace", "cron", "ls")
	sh.ok("enqueue", "email.welcome", "-q", "mail", "--id", "a")
	note("Queue mail has no cron entry.", "cron", "ls", "mail")
	note("Queue mail has no cron entry.", "cron", "ls", "--queue", "mail")
	note("There is no such job.", "job", "ls", "mail", "--state", "dead")
	sh.fails(exitNotFound, []string{"no such queue"}, "cron", "ls", "--queue", "mial")
}

// A pause that waits says so at once.
func TestPauseSaysThatItWaits(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	sh.ok("enqueue", "email.welcome", `{"do":"hold"}`, "-q", "mail")
	p := sh.works(srv)
	<-p.started
	ctx, stop := context.WithCancel(t.Context())
	var out strings.Builder
	errs := stopper{to: &strings.Builder{}, stop: stop, at: "queue mail is paused; waiting for 1 running job (Ctrl-C leaves it paused)\n"}
	a := &app{in: strings.NewReader(""), out: &out, err: errs, env: func(name string) string { return sh.env[name] }}
	late := time.AfterFunc(15*time.Second, stop)
	defer late.Stop()
	if code := a.run(ctx, []string{"queue", "pause", "mail", "--wait"}); code != exitInterrupted || !strings.HasPrefix(errs.to.String(), errs.at) {
		t.Errorf("%d, %q", code, errs.to)
	}
	close(p.free)
}

// A mistake in a flag is said in words, with the help to look at.
func TestFlagErrors(t *testing.T) {
	t.Parallel()
	sh := newShell(t, redistest.Start(t))
	for _, tc := range []struct{ args, want string }{
		{"queue set mail --keep-completed-jobs many", `invalid argument "many" for "--keep-completed-jobs" flag: want a whole number; see signalbox queue set --help`},
		{"queue ls --timeout 5", `flag: want a duration such as 90s or 12h; see signalbox queue ls --help`},
		{"queue pause mail --wait=perhaps", `flag: want true or false; see signalbox queue pause --help`},
		{"job ls --older-than 3x", `flag: want a duration such as 90s, 12h or 30d; see signalbox job ls --help`},
		{"cron next --qeue", `unknown flag: --qeue; see signalbox cron next --help`},
	} {
		sh.fails(exitUsage, []string{tc.want}, strings.Fields(tc.args)...)
	}
	if _, errs, _ := sh.run("queue", "ls", "--timeout", "5"); strings.Contains(errs, "time:") {
		t.Error(errs)
	}
}

// A mistake in the JSON of a job is named by its line and column, and nothing else of it.
func TestJSONMistakes(t *testing.T) {
	t.Parallel()
	sh := newShell(t, redistest.Start(t))
	for text, where := range map[string]string{
		"{":                              "line 1, column 1",
		"{\"a\":1,\n \"zürich\":SECRET}": "line 2, column 11",
		"{}\n\n]":                        "line 3, column 1",
	} {
		sh.fails(exitUsage, []string{"no JSON", where}, "enqueue", "email.welcome", text)
		if _, errs, _ := sh.run("enqueue", "email.welcome", text); strings.Contains(errs, "SECRET") {
			t.Error(errs)
		}
	}
}

// The command says which version it is, with the line that a bug report needs.
func TestVersion(t *testing.T) {
	t.Parallel()
	sh := &shell{t: t}
	if out := sh.ok("--version"); !strings.HasPrefix(out, "signalbox ") || !strings.Contains(out, ", go1.") || strings.Count(out, "\n") != 1 {
		t.Error(out)
	}
}
