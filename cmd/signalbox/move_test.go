package main

import (
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/scheduler"
)

func TestMv(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	for _, id := range []string{"a", "b", "c"} {
		sh.ok("enqueue", "email.welcome", "-q", "mail", "--id", id)
	}
	sh.ok("enqueue", "email.welcome", "-q", "slow", "--id", "c")
	same(t, sh.ok("job", "mv", "mail", "a", "--to", "slow"), "job a was ready: moved")
	same(t, sh.ok("job", "mv", "mail", "--state", "ready", "--to", "slow", "--dry-run"), "2 jobs of queue mail would be moved")
	sh.fails(exitState, []string{"queue slow has a job of this ID"}, "job", "mv", "mail", "c", "--to", "slow")
	sh.fails(exitState, []string{"at least 1 job moved, 1 failed", "job c"}, "job", "mv", "mail", "--state", "ready", "--to", "slow", "--yes")
	s, err := scheduler.New(srv.Client(), scheduler.Config{Namespace: sh.namespace})
	if err != nil {
		t.Fatal(err)
	}
	for _, queue := range []string{"mail", "slow"} {
		if _, err := s.Enqueue(t.Context(), letter{}, scheduler.Queue(queue), scheduler.ID(queue+"-sync"), scheduler.Unique("shop-7", scheduler.UntilEnded)); err != nil {
			t.Fatal(err)
		}
	}
	sh.fails(exitState, []string{"mail-sync", "another job has its unique key", "queue slow"}, "job", "mv", "mail", "mail-sync", "--to", "slow")
	sh.ok("job", "rm", "mail", "mail-sync", "-y")
	sh.ok("job", "rm", "slow", "slow-sync", "-y")
	sh.fails(exitNotFound, []string{"no such job"}, "job", "mv", "mail", "a", "--to", "slow")
	sh.fails(exitNotFound, []string{"no such queue", "solw"}, "job", "mv", "mail", "c", "--to", "solw")
	sh.fails(exitUsage, []string{"--to QUEUE"}, "job", "mv", "mail", "c")
	sh.fails(exitUsage, []string{"already"}, "job", "mv", "mail", "c", "--to", "mail")
	if out := sh.ok("job", "ls", "slow", "-o", "json"); strings.Count(out, "\n") != 3 {
		t.Error(out)
	}
	sh.in, sh.terminal = "y\n", true
	_, errs, _ := sh.run("job", "mv", "slow", "--state", "ready", "--to", "mail")
	if !strings.Contains(errs, "Move 3 jobs of queue slow, in state ready? [y/N]") {
		t.Error(errs)
	}
}

func TestDeleteWaiting(t *testing.T) {
	t.Parallel()
	sh := newShell(t, redistest.Start(t))
	sh.ok("enqueue", "email.welcome", "-q", "mail", "--id", "r1")
	sh.ok("enqueue", "email.welcome", "-q", "mail", "--id", "s1", "--after", "1h")
	sh.fails(exitUsage, []string{"--yes", "--dry-run"}, "queue", "delete-waiting", "mail")
	same(t, sh.ok("queue", "delete-waiting", "mail", "--dry-run"), "1 ready job of queue mail would be deleted")
	same(t, sh.ok("queue", "delete-waiting", "mail", "--dry-run", "--scheduled", "-o", "json"), `{"queue":"mail","dry_run":true,"seen":2,"matched":2,"done":0,"moved":0}`)
	sh.terminal, sh.in = true, "n\n"
	out, errs, code := sh.run("queue", "delete-waiting", "mail", "--scheduled")
	if code != exitFailure || out != "" || !strings.Contains(errs, "Delete 2 ready or scheduled jobs of queue mail? [y/N]") || !strings.Contains(errs, "nothing was done") {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
	if sh.state("r1") != "ready" || sh.state("s1") != "scheduled" {
		t.Error("a job is gone")
	}
	sh.terminal = false
	same(t, sh.ok("queue", "delete-waiting", "mail", "--yes"), "1 ready job of queue mail deleted")
	if sh.state("r1") != "" || sh.state("s1") != "scheduled" {
		t.Error("what is scheduled is gone, or what is ready isn't")
	}
	for _, args := range [][]string{{"--yes"}, {"--dry-run"}} {
		out, errs, code := sh.run(append([]string{"queue", "delete-waiting", "mail"}, args...)...)
		if code != exitOK || out != "" || errs != "No job of queue mail is ready. 1 scheduled: --scheduled deletes it, too.\n" {
			t.Errorf("%q of no ready job: %d, %q, %q", args, code, out, errs)
		}
	}
	same(t, sh.ok("queue", "delete-waiting", "mail", "--scheduled", "--yes"), "1 ready or scheduled job of queue mail deleted")
	sh.fails(exitNotFound, []string{"no such queue"}, "queue", "delete-waiting", "mial", "--yes")
}

// A job whose time has come is deleted, too: of a queue that no worker works it counts as scheduled.
func TestDeleteWaitingOfImportedJobs(t *testing.T) {
	t.Parallel()
	sh := newShell(t, redistest.Start(t))
	sh.ok("enqueue", "email.welcome", "-q", "mail", "--id", "r1")
	sh.ok("enqueue", "email.welcome", "-q", "mail", "--id", "s1", "--after", "1h")
	sh.in = sh.ok("export", "mail")
	sh.ok("import", "mail-old")
	if out := sh.ok("job", "ls", "mail-old", "--state", "scheduled", "-o", "json"); strings.Count(out, "\n") != 2 {
		t.Fatalf("want both jobs scheduled: %s", out)
	}
	same(t, sh.ok("queue", "delete-waiting", "mail-old", "--yes"), "1 ready job of queue mail-old deleted")
	if out := sh.ok("job", "ls", "mail-old", "-o", "json"); strings.Count(out, "\n") != 1 || !strings.Contains(out, `"s1"`) {
		t.Errorf("want s1 left: %s", out)
	}
}

func TestFile(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	sh.ended(srv, "d1")
	sh.ok("enqueue", "email.welcome", `{"to":"SECRET"}`, "-q", "mail", "--id", "r1")
	file := sh.ok("export", "mail")
	if strings.Count(file, "\n") != 5 || !strings.HasPrefix(file, `{"signalbox":"export","format":1,`) || !strings.HasSuffix(file, `{"end":true,"jobs":3,"running":0}`+"\n") {
		t.Fatal(file)
	}
	sh.in = file
	same(t, sh.ok("import", "other", "--dry-run"), "3 jobs would be imported into queue other")
	same(t, sh.ok("import", "other", "--settings"), "3 jobs imported into queue other")
	same(t, sh.ok("import", "other"), "0 jobs imported into queue other\n3 jobs left out: the queue has jobs of these IDs")
	same(t, sh.ok("import", "other", "-o", "json"), `{"queue":"other","dry_run":false,"jobs":3,"done":0,"there":3,"bad":0,"past":0,"past_there":0,"past_other":0}`)
	if out := sh.ok("queue", "ls", "other", "-o", "json"); !strings.Contains(out, `"paused":true`) || !strings.Contains(out, `"dead":1`) {
		t.Error(out)
	}
	sh.in = strings.Replace(file, `"priority":"normal"`, `"priority":"SECRET"`, 1)
	out, errs, code := sh.run("import", "third")
	if code != exitFailure || out != "2 jobs imported into queue third\n" || !strings.Contains(errs, "line ") || strings.Contains(errs, "SECRET") {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
	sh.in = "SECRET"
	sh.fails(exitUsage, []string{"its first line"}, "import", "third")
	sh.fails(exitNotFound, []string{"no such queue"}, "export", "mial")
}

// An import into a queue with workers says what that means, unless the queue is paused.
func TestImportBesideWorkers(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	sh.ok("enqueue", "email.welcome", `{}`, "-q", "mail", "--id", "a", "--after", "30d")
	sh.in = sh.ok("export", "mail")
	sh.works(srv)
	redistest.Eventually(t, func() bool { return strings.Contains(sh.ok("queue", "ls", "mail", "-o", "json"), `"workers":["`) }, "the worker is there")
	says := func(want bool, args ...string) {
		t.Helper()
		if _, errs, code := sh.run(append([]string{"import", "mail"}, args...)...); code != exitOK || strings.Contains(errs, "queue mail has 1 worker: jobs start before the whole file is in") != want {
			t.Errorf("%v: %d, %s", args, code, errs)
		}
	}
	says(true)
	says(false, "--dry-run")
	says(false, "-o", "json")
	sh.ok("queue", "pause", "mail")
	says(false)
}
