package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/scheduler"
)

// declares runs a scheduler with a cron entry until the entry is listed.
func (s *shell) declares(rdb redis.UniversalClient, queue, entry, spec string, opts ...scheduler.CronOption) {
	s.t.Helper()
	sched, err := scheduler.New(rdb, scheduler.Config{Namespace: s.namespace, Logger: discard})
	if err == nil {
		err = sched.Cron(entry, spec, mail{To: "ann@example.org"}, append(opts, scheduler.Queue(queue))...)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- sched.Run(ctx) }()
	redistest.Eventually(s.t, func() bool { return s.entry(queue, entry) != nil }, "entry %s is listed", entry)
	stop()
	if err := <-ended; err != nil {
		s.t.Fatal(err)
	}
}

// entry returns a cron entry, or nil.
func (s *shell) entry(queue, entry string) *entryJSON {
	s.t.Helper()
	var got struct{ Entries []entryJSON }
	s.into(&got, "cron", "ls")
	for i := range got.Entries {
		if e := &got.Entries[i]; e.Queue == queue && e.Entry == entry {
			return e
		}
	}
	return nil
}

// leaves makes it an hour ago that a scheduler had the entry.
func (s *shell) leaves(rdb redis.UniversalClient, queue, entry string) {
	s.t.Helper()
	key := "signalbox:{" + s.namespace + ":" + queue + "}:entries"
	value, err := rdb.HGet(s.t.Context(), key, "seen:"+entry).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	_, digest, _ := strings.Cut(value, " ")
	if err := rdb.HSet(s.t.Context(), key, "seen:"+entry, fmt.Sprintf("%d %s", time.Now().Add(-time.Hour).UnixMicro(), digest)).Err(); err != nil {
		s.t.Fatal(err)
	}
}

// TestCronThatSkips: cron ls shows the options of an entry, and cron run follows its policy.
func TestCronThatSkips(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	start := time.Date(2026, time.July, 1, 0, 0, 0, 0, time.UTC)
	sh.declares(srv.Client(), "mail", "sync", "0 9 * * *", scheduler.Overlap(scheduler.SkipIfRunning), scheduler.Jitter(90*time.Second),
		scheduler.Starting(start), scheduler.Ending(start.AddDate(30, 0, 0)))
	if out := sh.ok("cron", "ls"); !strings.Contains(out, "OVERLAP") || !strings.Contains(out, "  skip  ") {
		t.Errorf("cron ls:\n%s", out)
	}
	e := sh.entry("mail", "sync")
	if e.Overlap != "skip" || e.Jitter != 90 || e.Start == nil || *e.Start != "2026-07-01T00:00:00Z" || e.End == nil || *e.End != "2056-07-01T00:00:00Z" || e.Error != "" {
		t.Errorf("cron ls shows %+v", e)
	}
	out := sh.ok("cron", "run", "sync")
	id := strings.Fields(out)[1]
	sh.fails(exitState, []string{"cron entry sync of queue mail has a live job", id}, "cron", "run", "sync")
	sh.ok("job", "cancel", "mail", id)
	sh.ok("cron", "run", "sync")
}

func TestCron(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	rdb := srv.Client()
	if out, errs, code := sh.run("cron", "ls"); out != "" || code != 0 || !strings.Contains(errs, `no cron entry in namespace "`+sh.namespace) {
		t.Errorf("with no entry: %q, %q, %d", out, errs, code)
	}
	same(t, sh.ok("cron", "ls", "-o", "json"), `{"entries":[]}`)
	sh.declares(rdb, "mail", "digest", "CRON_TZ=Europe/Berlin 0 9 29 2 *")
	sh.declares(rdb, "mail", "old", "0 0 1 1 *")
	sh.declares(rdb, "reports", "digest", "0 9 29 2 *")
	sh.leaves(rdb, "mail", "old")

	same(t, sh.ok("cron", "pause", "digest", "--queue", "mail"), "cron entry digest of queue mail is paused; its ticks pass without jobs")
	same(t, sh.ok("cron", "pause", "digest", "-q", "mail"), "cron entry digest of queue mail was paused already")
	out := ages(sh.ok("cron", "ls"))
	for _, line := range strings.Split(strings.TrimSpace(out), "\n")[1:] {
		if n := len(strings.Fields(line)); n < 10 {
			t.Errorf("%d fields in %q", n, line)
		}
	}
	for _, part := range []string{
		"QUEUE    ENTRY   STATE   SPEC", "mail     digest  paused  CRON_TZ=Europe/Berlin 0 9 29 2 *  Europe/Berlin  -", "mail     old     gone ", "reports  digest  active",
		"default  allow    email.welcome", "MISSED",
	} {
		if !strings.Contains(out, part) {
			t.Errorf("cron ls has no %q:\n%s", part, out)
		}
	}
	sh.width = 80
	for line := range strings.SplitSeq(sh.ok("cron", "ls"), "\n") {
		if cells(line) > 80 {
			t.Errorf("%d cells in %q", cells(line), line)
		}
	}
	sh.width = 0
	if out := sh.ok("cron", "ls", "reports"); strings.Contains(out, "mail ") || !strings.Contains(out, "digest") {
		t.Errorf("cron ls reports:\n%s", out)
	}
	sh.fails(exitNotFound, []string{"no such queue", "mial"}, "cron", "ls", "mial")

	same(t, sh.ok("cron", "resume", "digest", "--queue", "mail"), "cron entry digest of queue mail is resumed")
	same(t, sh.ok("cron", "resume", "old"), "cron entry old of queue mail was not paused")

	if out := sh.ok("cron", "run", "old"); !strings.HasPrefix(out, "job ") || !strings.HasSuffix(out, " is in queue mail\n") {
		t.Errorf("cron run: %q", out)
	}
	id := strings.Fields(sh.ok("cron", "run", "digest", "--queue", "reports"))[1]
	var job showJSON
	if sh.into(&job, "job", "show", "reports", id); job.Kind != "email.welcome" || job.State != string(signalbox.StateReady) || !strings.Contains(string(job.Payload), "ann@example.org") {
		t.Errorf("the job is %+v", job)
	}

	sh.fails(exitUsage, []string{"mail, reports", "--queue"}, "cron", "run", "digest")
	sh.fails(exitNotFound, []string{"no such cron entry", "digets", "there are digest, old"}, "cron", "run", "digets")
	sh.fails(exitNotFound, []string{"no such cron entry", "old", "there are digest."}, "cron", "run", "old", "--queue", "reports")
	sh.fails(exitNotFound, []string{"no such queue", "mial"}, "cron", "pause", "digest", "--queue", "mial")
	sh.fails(exitUsage, []string{"cron pause ENTRY"}, "cron", "pause")
	sh.fails(exitState, []string{"a scheduler has it"}, "cron", "rm", "digest", "--queue", "reports")
	same(t, sh.ok("cron", "rm", "old"), "cron entry old of queue mail is forgotten")
	sh.fails(exitNotFound, []string{"no such cron entry"}, "cron", "rm", "old")

	for args, want := range map[string]string{
		"cron run ":                  "digest",
		"cron run digest ":           "",
		"cron run --queue ":          "mail reports",
		"cron pause --queue mail ":   "digest",
		"cron pause --queue other ":  "",
		"cron next --queue reports ": "digest",
		"cron ls ":                   "mail reports",
	} {
		out := sh.ok(append([]string{"__complete"}, strings.Split(args, " ")...)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if got := strings.Join(lines[:len(lines)-1], " "); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
}

// The ticks of cron next follow the clock of the entry's zone.
func TestCronNext(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	sh.declares(srv.Client(), "mail", "digest", "CRON_TZ=Europe/Berlin 30 2 * * *")
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	out := strings.TrimSpace(sh.ok("cron", "next", "digest", "--limit", "400"))
	lines := strings.Split(out, "\n")
	if len(lines) != 401 || strings.Join(strings.Fields(lines[0]), " ") != "DAY TICK IN" {
		t.Fatalf("%d lines: %s", len(lines), lines[0])
	}
	before, gaps := time.Time{}, map[time.Duration]int{}
	for _, line := range lines[1:] {
		fields := strings.Fields(line)
		at, err := time.Parse(time.RFC3339, fields[1])
		if err != nil {
			t.Fatal(err)
		}
		local := at.In(berlin)
		if text := local.Format("15:04"); text != "02:30" && text != "03:00" || fields[1] != local.Format(time.RFC3339) || fields[0] != local.Format("Mon") {
			t.Errorf("the line %q, in Berlin %v", line, local)
		}
		if !before.IsZero() {
			gaps[at.Sub(before)]++
		}
		before = at
	}
	if len(gaps) < 3 { // a day of 23.5 h, one of 23.5 h after it, and one of 25 h
		t.Errorf("the ticks of 400 days are apart by %v", gaps)
	}
	if lines := strings.Split(strings.TrimSpace(sh.ok("cron", "next", "digest")), "\n"); len(lines) != 6 {
		t.Errorf("%d lines", len(lines))
	}
	var got struct {
		Queue, Entry, Zone string
		Paused, Gone       bool
		Ticks              []time.Time
	}
	sh.into(&got, "cron", "next", "digest", "--limit", "2")
	if got.Queue != "mail" || got.Entry != "digest" || got.Zone != "Europe/Berlin" || got.Paused || got.Gone || len(got.Ticks) != 2 || got.Ticks[0].Before(now) {
		t.Errorf("%+v", got)
	}
	sh.ok("cron", "pause", "digest")
	if _, errs, code := sh.run("cron", "next", "digest"); code != 0 || !strings.Contains(errs, "The entry is paused") {
		t.Errorf("of a paused entry: %q, %d", errs, code)
	}
	for _, n := range []string{"0", "-1", "1001"} {
		sh.fails(exitUsage, []string{"--limit"}, "cron", "next", "digest", "--limit", n)
	}

	// A zone that this machine doesn't know is no mistake in flags or arguments.
	rdb, key := srv.Client(), "signalbox:{"+sh.namespace+":mail}:entries"
	about, err := rdb.HGet(t.Context(), key, "spec:digest").Result()
	if err != nil {
		t.Fatal(err)
	}
	at := strings.LastIndex(about, "Berlin")
	if err := rdb.HSet(t.Context(), key, "spec:digest", about[:at]+"Merlin"+about[at+6:]).Err(); err != nil {
		t.Fatal(err)
	}
	sh.fails(exitFailure, []string{"Europe/Merlin", "not known on this machine"}, "cron", "next", "digest")
}

// TestCronJSON pins the fields that programs read. A change here is one of docs/cli/json.md.
func TestCronJSON(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	rdb := srv.Client()
	sh.declares(rdb, "mail", "digest", "0 0 29 2 *")
	out := sh.ok("cron", "ls", "-o", "json")
	e := sh.entry("mail", "digest")
	want := fmt.Sprintf(`{"entries":[{"queue":"mail","entry":"digest","kind":"email.welcome","spec":"0 0 29 2 *","zone":"UTC","missed":"default","overlap":"","jitter_seconds":0,"start":null,"end":null,"last":null,"next":%q,`+
		`"paused":false,"paused_since":null,"seen":%q,"gone":false,"error":""}]}`, *e.Next, *e.Seen)
	same(t, out, want)
	if !strings.HasSuffix(*e.Next, "-02-29T00:00:00Z") {
		t.Errorf("next %s", *e.Next)
	}
	same(t, sh.ok("cron", "pause", "digest", "-o", "json"), `{"queue":"mail","entry":"digest","paused":true,"changed":true}`)
	if e := sh.entry("mail", "digest"); !e.Paused || e.PausedSince == nil {
		t.Errorf("%+v", e)
	}
	same(t, sh.ok("cron", "resume", "digest", "-o", "json"), `{"queue":"mail","entry":"digest","paused":false,"changed":true}`)
	same(t, sh.ok("cron", "resume", "digest", "-o", "json"), `{"queue":"mail","entry":"digest","paused":false,"changed":false}`)
	var run struct{ Queue, Entry, ID string }
	if sh.into(&run, "cron", "run", "digest"); run.Queue != "mail" || run.Entry != "digest" || layout.ValidateID(run.ID) != nil {
		t.Errorf("%+v", run)
	}
	sh.leaves(rdb, "mail", "digest")
	if e := sh.entry("mail", "digest"); !e.Gone {
		t.Errorf("%+v", e)
	}
	same(t, sh.ok("cron", "rm", "digest", "-o", "json"), `{"queue":"mail","entry":"digest"}`)
}
