package main

import (
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// spoil loses the job with that ID: it has a record, and no place.
func (s *shell) spoil(srv *redistest.Server, id string) {
	s.t.Helper()
	if n, err := srv.Client().LRem(s.t.Context(), "signalbox:{"+s.namespace+":mail}:ready:normal", 0, id).Result(); err != nil || n != 1 {
		s.t.Fatal(n, err)
	}
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	same(t, sh.ok("doctor", "-o", "json"), `{"queues":0,"jobs":0,"findings":[]}`)
	for _, id := range []string{"j1", "j2"} {
		sh.ok("enqueue", "email.welcome", "-q", "mail", "--id", id)
	}
	sh.ok("enqueue", "report", "-q", "reports")
	out, errs, code := sh.run("doctor", "-o", "json")
	if out != `{"queues":2,"jobs":3,"findings":[]}`+"\n" || errs != "" || code != exitOK {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
	same(t, sh.ok("doctor"), "2 queues, 3 jobs: no finding")
	same(t, sh.ok("doctor", "reports"), "1 queue, 1 job: no finding")

	sh.spoil(srv, "j1")
	out, errs, code = sh.run("doctor", "-o", "json")
	var got doctorJSON
	decode(t, out, &got)
	want := findingJSON{Queue: "mail", Fault: "no_place", Job: "j1", Text: `job "j1" has a record and no state`, Repair: "put the job where it waits"}
	if code != exitFindings || len(got.Findings) != 1 || got.Findings[0] != want || errs != "signalbox: 1 finding; "+guide+"doctor.md says what each means\n" {
		t.Errorf("%d, %q, %+v", code, errs, got)
	}
	out, _, code = sh.run("doctor", "mail")
	if code != exitFindings || !strings.Contains(out, "no_place") || !strings.Contains(out, "1 queue, 2 jobs: 1 finding\n") {
		t.Errorf("%d, %q", code, out)
	}
	sh.fails(exitUsage, []string{"--yes"}, "doctor", "--repair")
	sh.fails(exitUsage, []string{"--repair"}, "doctor", "--yes")
	sh.fails(exitNotFound, []string{"no such queue"}, "doctor", "mial")

	// A repair is asked for.
	sh.terminal, sh.in = true, "n\n"
	out, errs, code = sh.run("doctor", "--repair")
	if code != exitFailure || !strings.Contains(out, "no_place") || !strings.Contains(errs, "Repair 1 of 1 finding (1 no_place)? [y/N]") || !strings.Contains(errs, "nothing was done") {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
	if _, _, code = sh.run("doctor"); code != exitFindings {
		t.Errorf("after a no: %d", code)
	}
	sh.in = "y\n"
	if out = sh.ok("doctor", "--repair"); !strings.Contains(out, "done") || !strings.HasSuffix(out, "2 queues, 3 jobs: 1 finding, 1 repaired\n") {
		t.Errorf("%q", out)
	}
	sh.terminal = false
	if got := sh.state("j1"); got != "ready" {
		t.Errorf("j1 is %q", got)
	}
	sh.spoil(srv, "j2")
	sh.into(&got, "doctor", "--repair", "--yes")
	if len(got.Findings) != 1 || !got.Findings[0].Repaired {
		t.Errorf("%+v", got)
	}
	same(t, sh.ok("doctor", "--repair", "--yes", "-o", "json"), `{"queues":2,"jobs":3,"findings":[]}`)

	// What can only be reported is left.
	if err := srv.Client().HSet(t.Context(), "signalbox:{"+sh.namespace+":mail}:settings", "slots", "many").Err(); err != nil {
		t.Fatal(err)
	}
	if out, _, code = sh.run("doctor", "--repair", "--yes"); code != exitFindings || !strings.Contains(out, "bad_setting") {
		t.Errorf("%d, %q", code, out)
	}
}

// A job without a place says so, and what to do.
func TestShowJobWithoutPlace(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	for _, id := range []string{"j1", "j2"} {
		sh.ok("enqueue", "email.welcome", "-q", "mail", "--id", id)
	}
	sh.spoil(srv, "j1")
	if out := sh.ok("job", "show", "mail", "j1"); !strings.Contains(out, "state      in no place: signalbox doctor mail --repair\nwaits      in vain: ") {
		t.Error(out)
	}
	var got showJSON
	if sh.into(&got, "job", "show", "mail", "j1"); !got.Nowhere {
		t.Errorf("%+v", got)
	}
	sh.ok("doctor", "mail", "--repair", "--yes")
	for _, id := range []string{"j1", "j2"} {
		if sh.into(&got, "job", "show", "mail", id); got.Nowhere || got.State != "ready" {
			t.Errorf("%+v", got)
		}
	}
}

// What was found is printed, also if another queue can't be checked.
func TestDoctorOfSomeQueues(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	sh.ok("enqueue", "email.welcome", "-q", "mail", "--id", "j1")
	sh.spoil(srv, "j1")
	for _, queues := range [][]string{{"mial", "mail"}, {"mail", "mial"}} {
		out, errs, code := sh.run(append([]string{"doctor", "-o", "json"}, queues...)...)
		var got doctorJSON
		decode(t, out, &got)
		if code != exitNotFound || got.Queues != 1 || len(got.Findings) != 1 || !strings.Contains(errs, "no such queue") {
			t.Errorf("%v: %d, %q, %+v", queues, code, errs, got)
		}
	}
	out, errs, code := sh.run("doctor", "--repair", "--yes", "mail", "mial")
	if code != exitNotFound || !strings.Contains(out, "1 finding, 1 repaired") || !strings.Contains(errs, "no such queue") {
		t.Errorf("a repair: %d, %q, %q", code, out, errs)
	}
}
