package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

// state returns the state of a job of queue "mail", or "" if it is gone.
func (s *shell) state(id string) string {
	s.t.Helper()
	out, errs, code := s.run("job", "show", "mail", id, "-o", "json")
	if code == exitNotFound {
		return ""
	}
	if code != 0 {
		s.t.Fatal(errs)
	}
	var j showJSON
	decode(s.t, out, &j)
	return j.State
}

// ended puts dead jobs with these IDs into the queue "mail", and one that is cancelled, c1.
func (s *shell) ended(srv *redistest.Server, dead ...string) *post {
	s.t.Helper()
	for _, id := range dead {
		s.ok("enqueue", "email.welcome", `{"do":"die"}`, "-q", "mail", "--id", id, "--max-attempts", "1")
	}
	s.ok("enqueue", "email.welcome", `{"do":"cancel"}`, "-q", "mail", "--id", "c1")
	p := s.works(srv)
	s.settled(int64(len(dead)), 1)
	s.ok("queue", "pause", "mail")
	return p
}

func TestActOnIDs(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	sh.ended(srv, "d1", "d2", "d3")
	sh.ok("enqueue", "email.welcome", "-q", "mail", "--id", "w1")
	sh.ok("enqueue", "email.welcome", "-q", "mail", "--id", "s1", "--after", "1h")

	same(t, sh.ok("job", "retry", "mail", "d1"), "job d1 was dead: retried")
	if got := sh.state("d1"); got != "ready" {
		t.Errorf("d1 is %q", got)
	}
	same(t, sh.ok("job", "retry", "mail", "d1"), "nothing to do: job d1 is ready already")
	same(t, sh.ok("job", "reschedule", "mail", "d2", "c1", "--after", "2h"), "job d2 was dead: rescheduled\njob c1 was cancelled: rescheduled")
	same(t, sh.ok("job", "prioritise", "mail", "w1", "--to", "high", "-o", "json"), `{"jobs":[{"id":"w1","was":"ready","done":true,"error":""}],"queue":"mail"}`)
	same(t, sh.ok("job", "cancel", "mail", "s1", "--why", "sent by hand"), "job s1 was scheduled: cancelled")
	if out := sh.ok("job", "show", "mail", "s1"); !strings.Contains(out, "sent by hand") {
		t.Error(out)
	}
	same(t, sh.ok("job", "rm", "mail", "d3", "--yes"), "job d3 was dead: deleted")
	if got := sh.state("d3"); got != "" {
		t.Errorf("d3 is %q", got)
	}

	sh.fails(exitNotFound, []string{"no such job", "nobody"}, "job", "retry", "mail", "nobody")
	sh.fails(exitNotFound, []string{"no such queue", "mial"}, "job", "retry", "mial", "d1")
	sh.fails(exitState, []string{"s1", "cancelled"}, "job", "prioritise", "mail", "s1", "--to", "low")
	sh.fails(exitUsage, []string{"--to"}, "job", "prioritise", "mail", "w1")
	sh.fails(exitUsage, []string{"--at and --after"}, "job", "reschedule", "mail", "w1")
	sh.fails(exitUsage, []string{"RFC 3339"}, "job", "reschedule", "mail", "w1", "--at", "noon")
	sh.fails(exitUsage, []string{"IDs", "--state"}, "job", "retry", "mail")
	sh.fails(exitUsage, []string{"IDs are given together"}, "job", "retry", "mail", "d1", "--state", "dead")
	sh.fails(exitUsage, []string{"IDs are given together"}, "job", "retry", "mail", "d1", "--dry-run")

	// The others of a list are acted on, and the status is that of what failed.
	out, errs, code := sh.run("job", "rm", "mail", "w1", "nobody", "s1", "--yes")
	if code != exitNotFound || out != "job w1 was ready: deleted\njob s1 was cancelled: deleted\n" || !strings.Contains(errs, "nobody") {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
	out, _, code = sh.run("job", "rm", "mail", "d1", "nobody", "nothing", "--yes", "-o", "json")
	var got struct {
		Queue string
		Jobs  []actedJSON
	}
	decode(t, out, &got)
	if code != exitNotFound || len(got.Jobs) != 3 || !got.Jobs[0].Done || got.Jobs[1].Done || got.Jobs[1].Error == "" || got.Queue != "mail" {
		t.Errorf("%d, %+v", code, got)
	}
}

// What can't be undone is asked for. Without somebody to ask, it isn't done.
func TestAsk(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	sh.ended(srv, "d1", "d2")
	sh.fails(exitUsage, []string{"--yes"}, "job", "rm", "mail", "d1")
	sh.fails(exitUsage, []string{"--yes", "--dry-run"}, "job", "rm", "mail", "--state", "dead")
	sh.fails(exitUsage, []string{"--yes"}, "job", "retry", "mail", "--state", "dead")
	sh.terminal = true
	for _, answer := range []string{"n\n", "\n", "", "yesterday\n"} {
		sh.in = answer
		for _, args := range [][]string{{"d1"}, {"--state", "dead"}} {
			out, errs, code := sh.run(append([]string{"job", "rm", "mail"}, args...)...)
			if code != exitFailure || out != "" || !strings.Contains(errs, "nothing was done") || !strings.Contains(errs, "[y/N]") {
				t.Errorf("%q: %d, %q, %q", answer, code, out, errs)
			}
		}
	}
	if sh.state("d1") != "dead" || sh.state("d2") != "dead" {
		t.Error("a job is gone")
	}
	sh.in = "y\n"
	out, errs, code := sh.run("job", "rm", "mail", "d1")
	if code != 0 || out != "job d1 was dead: deleted\n" || errs != "Delete job d1 of queue mail? [y/N] " {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
	sh.in = "Yes\n"
	out, errs, code = sh.run("job", "retry", "mail", "--state", "dead")
	if code != 0 || out != "1 job of queue mail retried\n" || !strings.Contains(errs, "Retry 1 job of queue mail, in state dead? [y/N] ") {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
	if out, errs, code = sh.run("job", "retry", "mail", "--state", "dead"); code != 0 || out != "" || !strings.Contains(errs, "There is no such job.") {
		t.Errorf("of none: %d, %q, %q", code, out, errs)
	}
}

// A question doesn't keep an interrupted command.
func TestInterruptedQuestion(t *testing.T) {
	t.Parallel()
	sh := newShell(t, redistest.Start(t))
	sh.ok("enqueue", "email.welcome", "-q", "mail", "--id", "d1")
	ctx, stop := context.WithCancel(t.Context())
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs strings.Builder
	a := &app{in: read, out: &errs, err: stopper{&errs, stop, "[y/N]"}, env: func(name string) string { return sh.env[name] }, inTerminal: true, errTerminal: true}
	if code := a.run(ctx, []string{"job", "rm", "mail", "d1"}); code != exitInterrupted {
		t.Errorf("%d, %s", code, errs.String())
	}
	_ = write.Close() // ends the read
}

// A stopper calls stop when a text is written.
type stopper struct {
	to   *strings.Builder
	stop func()
	at   string
}

func (s stopper) Write(p []byte) (int, error) {
	if strings.Contains(string(p), s.at) {
		s.stop()
	}
	return s.to.Write(p)
}

func TestBulk(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	var ids []string
	for i := range 30 {
		ids = append(ids, fmt.Sprintf("d%02d", i))
	}
	sh.ended(srv, ids...)
	same(t, sh.ok("job", "retry", "mail", "--state", "dead", "--id-prefix", "d0", "--dry-run"), "10 jobs of queue mail would be retried")
	same(t, sh.ok("job", "retry", "mail", "--state", "dead", "--id-prefix", "d0", "--dry-run", "-o", "json"),
		`{"queue":"mail","dry_run":true,"seen":10,"matched":10,"done":0,"moved":0}`)
	same(t, sh.ok("job", "retry", "mail", "--state", "dead", "--id-prefix", "d0", "--error", "smtp", "--kind", "email.welcome", "--newer-than", "1d", "--yes"),
		"10 jobs of queue mail retried")
	same(t, sh.ok("job", "retry", "mail", "--state", "dead", "--kind", "report", "--yes"), "0 jobs of queue mail retried")
	same(t, sh.ok("job", "rm", "mail", "--state", "dead", "--limit", "5", "--yes"), "5 jobs of queue mail deleted")
	var got bulkJSON
	sh.into(&got, "job", "rm", "mail", "--state", "dead", "--yes")
	if got.Done != 15 || got.Matched != 15 || got.Moved != 0 || got.DryRun || got.Queue != "mail" {
		t.Errorf("%+v", got)
	}
	var queues struct{ Queues []queueJSON }
	if sh.into(&queues, "queue", "ls", "mail"); queues.Queues[0].Dead != 0 || queues.Queues[0].Ready != 10 || queues.Queues[0].Cancelled != 1 {
		t.Errorf("%+v", queues)
	}
	same(t, sh.ok("job", "cancel", "mail", "--state", "ready", "--yes"), "10 jobs of queue mail cancelled")
	sh.fails(exitUsage, []string{"one --state"}, "job", "rm", "mail", "--kind", "x", "--yes")
	sh.fails(exitUsage, []string{"one --state"}, "job", "rm", "mail", "--state", "dead,ready", "--yes")
	sh.fails(exitUsage, []string{"--state"}, "job", "rm", "mail", "--state", "lost", "--yes")
	sh.fails(exitUsage, []string{"--limit"}, "job", "rm", "mail", "--state", "dead", "--limit", "-1", "--yes")
	sh.fails(exitNotFound, []string{"no such queue"}, "job", "rm", "mial", "--state", "dead", "--yes")
	// An action that isn't for the state is a mistake.
	sh.fails(exitUsage, []string{"--state running: job rm is for jobs that are ready, scheduled, dead, cancelled, completed or awaiting"}, "job", "rm", "mail", "--state", "running", "--yes")
	// Nothing was begun: it isn't said how far that came.
	_, errs, _ := sh.run("job", "rm", "mial", "--state", "dead", "--yes")
	if !strings.HasPrefix(errs, "signalbox: no such queue") {
		t.Error(errs)
	}
}

// The states that the help of a verb has are those that its action is for.
func TestStatesOfVerbs(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	sh.ok("enqueue", "email.welcome", "-q", "mail")
	ins, err := inspect.New(srv.Client(), inspect.Config{Namespace: sh.namespace})
	if err != nil {
		t.Fatal(err)
	}
	sh.ok("enqueue", "email.welcome", "-q", "other")
	for name, tc := range map[string]struct {
		action inspect.Action
		flags  []string
	}{
		"retry":      {inspect.Retry{}, nil},
		"cancel":     {inspect.Cancel{}, nil},
		"archive":    {inspect.Archive{}, nil},
		"rm":         {inspect.Delete{}, nil},
		"reschedule": {inspect.Reschedule{At: time.Now()}, []string{"--after", "1h"}},
		"prioritise": {inspect.Prioritise{To: signalbox.PriorityHigh}, []string{"--to", "high"}},
		"mv":         {inspect.Move{To: "other"}, []string{"--to", "other"}},
	} {
		help := strings.Join(strings.Fields(sh.ok("job", name, "--help")), " ") // its lines end anywhere
		_, help, _ = strings.Cut(help, "jobs in this state: ")
		help, _, _ = strings.Cut(help, "--")
		for _, state := range states {
			_, err := ins.DoAll(t.Context(), "mail", inspect.Filter{State: state}, tc.action, inspect.Bulk{DryRun: true})
			is := err == nil
			if said := strings.Contains(help, string(state)); said != is {
				t.Errorf("job %s is for %s jobs: %v; its help says %v", name, state, is, said)
			}
			if _, errs, code := sh.run(append([]string{"job", name, "mail", "--state", string(state), "--dry-run"}, tc.flags...)...); (code == exitOK) != is {
				t.Errorf("job %s --state %s: status %d, %s", name, state, code, errs)
			}
		}
	}
}

// A command that asks before it deletes looks first whether there is something to delete.
func TestRmOfNone(t *testing.T) {
	t.Parallel()
	sh := newShell(t, redistest.Start(t))
	sh.ok("enqueue", "email.welcome", "-q", "mail", "--id", "a")
	sh.terminal, sh.in = true, "n\n"
	sh.fails(exitNotFound, []string{"no such job", "b"}, "job", "rm", "mail", "b", "c")
	if _, errs, _ := sh.run("job", "rm", "mail", "b", "a"); !strings.Contains(errs, "Delete 2 jobs of queue mail? [y/N]") {
		t.Error(errs)
	}
}

// Bulk work that is interrupted, or loses Redis, says how far it came.
func TestBulkThatEnds(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	sh.ended(srv, "d1", "d2")
	proxy := redistest.NewProxy(t, srv.Addr())
	sh.env["REDIS_URL"] = "redis://" + proxy.Addr()
	held, free := proxy.HoldReplies(redistest.Command("evalsha"))
	sh.unanswered(held, []string{"at least 0 jobs deleted, the call may be repeated"}, "job", "rm", "mail", "--state", "dead", "--yes")
	free()
	held, free = proxy.HoldReplies(redistest.Command("evalsha"))
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		<-held // its call is under way
		stop()
	}()
	_, errs, code := sh.runIn(ctx, "job", "rm", "mail", "--state", "dead", "--yes", "--timeout", "10m")
	if code != exitInterrupted || errs != "signalbox: interrupted: at least 0 jobs deleted, the call may be repeated\n" {
		t.Errorf("%d, %q", code, errs)
	}
	free()
	sh.ok("job", "rm", "mail", "--state", "dead", "--yes")
}

// The handler of a running job is asked to end, and the job ends cancelled.
func TestCancelRunning(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	sh.ok("enqueue", "email.welcome", `{"do":"hold"}`, "-q", "mail", "--id", "r1")
	p := sh.works(srv)
	<-p.started
	same(t, sh.ok("job", "cancel", "mail", "r1"), "job r1 is running: its handler is asked to end")
	redistest.Eventually(t, func() bool { return sh.state("r1") == "cancelled" }, "the job ends cancelled")
	sh.ok("enqueue", "email.welcome", `{"do":"hold"}`, "-q", "mail", "--id", "r2")
	<-p.started
	same(t, sh.ok("job", "cancel", "mail", "--state", "running", "--yes"), "1 job of queue mail asked to end")
	sh.fails(exitState, []string{"r1", "cancelled"}, "job", "prioritise", "mail", "r1", "--to", "high")
}

func TestEdit(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	sh.ended(srv, "d1")
	same(t, sh.ok("job", "edit", "mail", "d1", "--args", `{"do":"nothing"}`), "job d1, which is dead, was changed")
	sh.in = `{"do":"it"}`
	same(t, sh.ok("job", "edit", "mail", "d1", "--args", "-", "--max-attempts", "3", "--job-timeout", "1m", "-o", "json"), `{"queue":"mail","id":"d1","was":"dead","run":false}`)
	var j showJSON
	sh.into(&j, "job", "show", "mail", "d1")
	if string(j.Payload) != `{"do":"it"}` || j.MaxAttempts != 3 || j.TimeoutSeconds != 60 || j.State != "dead" {
		t.Errorf("%+v", j)
	}
	same(t, sh.ok("job", "edit", "mail", "d1", "--args", `{"do":"nothing"}`, "--run"), "job d1 was dead: changed, and ready to run")
	sh.ok("queue", "resume", "mail")
	redistest.Eventually(t, func() bool { return sh.state("d1") == "" }, "the job is done")

	sh.ok("enqueue", "email.welcome", `{"do":"hold"}`, "-q", "mail", "--id", "r1")
	redistest.Eventually(t, func() bool { return sh.state("r1") == "running" }, "the job runs")
	sh.fails(exitState, []string{"r1", "running"}, "job", "edit", "mail", "r1", "--args", "{}")
	sh.fails(exitNotFound, []string{"no such job"}, "job", "edit", "mail", "nobody", "--args", "{}")
	sh.fails(exitUsage, []string{"no JSON"}, "job", "edit", "mail", "r1", "--args", `{"s3cret`)
	sh.fails(exitUsage, []string{"--args"}, "job", "edit", "mail", "r1")
	sh.fails(exitUsage, []string{"--max-attempts"}, "job", "edit", "mail", "r1", "--max-attempts", "0")
}

// Without flags the arguments open in an editor.
func TestEditByHand(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	sh.terminal = true
	sh.ended(srv, "d1")
	dir := t.TempDir()
	edit := func(script string) {
		t.Helper()
		file := filepath.Join(dir, "editor")
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
			t.Fatal(err)
		}
		sh.env["EDITOR"] = "sh " + file
	}
	kept := filepath.Join(dir, "seen")
	a := &app{}
	if !a.interrupted(os.Interrupt) {
		t.Error("Ctrl-C doesn't end a command")
	}
	if a.editing.Store(true); a.interrupted(os.Interrupt) || !a.interrupted(syscall.SIGTERM) {
		t.Error("Ctrl-C ends a command whose editor has the terminal, or SIGTERM doesn't")
	}
	edit(`cp "$1" ` + kept + `; sed -i 's/die/rest/' "$1"`)
	same(t, sh.ok("job", "edit", "mail", "d1"), "job d1, which is dead, was changed")
	if seen, err := os.ReadFile(kept); err != nil || string(seen) != "{\n  \"do\": \"die\"\n}\n" {
		t.Errorf("the editor saw %q, %v", seen, err)
	}
	var j showJSON
	if sh.into(&j, "job", "show", "mail", "d1"); string(j.Payload) != `{"do":"rest"}` {
		t.Errorf("%s", j.Payload)
	}
	for script, want := range map[string]string{"": "to run the job as it is: signalbox job retry mail d1", "exit 3": "nothing was changed", `echo '{"s3cret' >"$1"`: "no JSON"} {
		edit(script)
		out, errs, code := sh.run("job", "edit", "mail", "d1")
		if code == 0 || out != "" || !strings.Contains(errs, want) || strings.Contains(errs, "s3cret") {
			t.Errorf("%s: %d, %q, %q", script, code, out, errs)
		}
	}
	if sh.into(&j, "job", "show", "mail", "d1"); string(j.Payload) != `{"do":"rest"}` {
		t.Errorf("%s", j.Payload)
	}
	// What somebody has written is kept.
	edit(`echo '{"s3cret' >"$1"`)
	_, errs, _ := sh.run("job", "edit", "mail", "d1")
	sh.keeps(errs, "{\"s3cret\n")
	// Somebody else changes the arguments meanwhile.
	edit(`sed -i 's/rest/work/' "$1"; touch ` + dir + `/open; until [ -e ` + dir + `/other ]; do sleep 0.01; done`)
	changed := make(chan string)
	go func() {
		_, errs, code := sh.run("job", "edit", "mail", "d1")
		changed <- fmt.Sprint(code, errs)
	}()
	redistest.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(dir, "open"))
		return err == nil
	}, "the editor is open")
	sh.ok("job", "edit", "mail", "d1", "--args", `{"do":"play"}`)
	if err := os.WriteFile(filepath.Join(dir, "other"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	said := <-changed
	if !strings.HasPrefix(said, "1") || !strings.Contains(said, "somebody else") {
		t.Error(said)
	}
	sh.keeps(said, "{\n  \"do\": \"work\"\n}\n")
	if sh.into(&j, "job", "show", "mail", "d1"); string(j.Payload) != `{"do":"play"}` {
		t.Errorf("%s", j.Payload)
	}
	// Redis has nothing to do with an editor that isn't there.
	for _, editor := range []string{"/no/such/editor", dir} {
		sh.env["EDITOR"] = editor
		if _, errs, code := sh.run("job", "edit", "mail", "d1"); code != exitFailure || strings.Contains(errs, "Redis") {
			t.Errorf("%d, %q", code, errs)
		}
	}
}

// keeps checks that what was written stands in the file that a message names, and removes it.
func (s *shell) keeps(message, want string) {
	s.t.Helper()
	_, file, _ := strings.Cut(message, "kept in ")
	file, _, _ = strings.Cut(strings.TrimSpace(file), ":")
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		s.t.Errorf("%q: %q, %v; want %q", message, got, err, want)
	}
	os.RemoveAll(filepath.Dir(file))
}

// A terminal shows how far bulk work is.
func TestProgress(t *testing.T) {
	t.Parallel()
	var errs strings.Builder
	p := (&app{err: &errs, errTerminal: true}).progress("deleted")
	p.last = time.Time{}
	p.show(inspect.BulkCounts{Seen: 50, Matched: 40})
	p.total, p.last = 80, time.Time{}
	p.show(inspect.BulkCounts{Seen: 50, Matched: 40, Done: 20})
	p.show(inspect.BulkCounts{Seen: 51, Matched: 41, Done: 21}) // too soon after
	p.end()
	want := "\r\x1b[Kdeleted: 40 jobs of 50\r\x1b[Kdeleted: [#####               ]  25 %  20 of 80\r\x1b[K"
	if errs.String() != want {
		t.Errorf("%q, want %q", errs.String(), want)
	}
	errs.Reset()
	p = (&app{err: &errs}).progress("deleted")
	p.last = time.Time{}
	p.show(inspect.BulkCounts{Seen: 1})
	p.end()
	if errs.String() != "" {
		t.Errorf("without a terminal: %q", errs.String())
	}
}
