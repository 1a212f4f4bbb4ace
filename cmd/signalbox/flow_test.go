package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/scheduler"
)

// A letter is a job of a batch.
type letter struct{}

func (letter) Kind() string { return "letter" }

// Batches are listed, shown and cancelled.
func TestFlow(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	s, err := scheduler.New(rdb, scheduler.Config{Namespace: sh.namespace})
	if err != nil {
		t.Fatal(err)
	}
	sh.ok("enqueue", "letter", `{}`, "-q", "mail", "--id", "alone")
	if _, errs, code := sh.run("flow", "ls", "mail"); code != exitOK || !strings.Contains(errs, "no batches") {
		t.Errorf("without batches: %d, %s", code, errs)
	}
	b, err := s.Batch(t.Context(), "mail", scheduler.FlowID("news-7"), scheduler.OnEnd(letter{}, scheduler.ID("end")))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b"} {
		if _, err := b.Add(t.Context(), letter{}, scheduler.ID(id)); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Split(strings.TrimSpace(sh.ok("flow", "ls", "mail")), "\n")
	if len(lines) != 2 || strings.Join(strings.Fields(lines[0]), " ") != "BATCH STATE JOBS OPEN COMPLETED DEAD GONE CALLBACKS AGE" || !strings.HasPrefix(strings.Join(strings.Fields(lines[1]), " "), "news-7 unsealed 2 2 0 0 0 1 ") {
		t.Errorf("%q", lines)
	}
	var all struct {
		Queue string
		Flows []flowJSON
		More  bool
	}
	if sh.into(&all, "flow", "ls", "mail"); all.Queue != "mail" || all.More || len(all.Flows) != 1 || all.Flows[0].ID != "news-7" || all.Flows[0].SealBy == nil || all.Flows[0].EndBy != nil {
		t.Errorf("%+v", all)
	}
	if out := sh.ok("flow", "show", "mail", "news-7"); !strings.Contains(out, "2: 2 open, 0 completed") || !strings.Contains(out, "seal by") {
		t.Error(out)
	}
	if out := sh.ok("job", "show", "mail", "end"); !strings.Contains(out, "awaiting") || !strings.Contains(out, "for batch news-7 to be over") {
		t.Error(out)
	}
	if out := sh.ok("job", "ls", "mail", "--state", "awaiting"); !strings.Contains(out, "end ") || strings.Contains(out, "alone") {
		t.Error(out)
	}
	sh.fails(exitState, []string{"waits for its batch"}, "job", "retry", "mail", "end")
	callback := strings.Fields("CALLBACK KIND AWAITS RELEASED STATE end letter end no awaiting")
	if out := sh.ok("flow", "show", "mail", "news-7"); !strings.HasSuffix(strings.Join(strings.Fields(out), " "), strings.Join(callback, " ")) {
		t.Error(out)
	}
	for n := range 3 {
		if _, err := b.Add(t.Context(), letter{}, scheduler.ID(fmt.Sprint("bad", n))); err != nil {
			t.Fatal(err)
		}
		sh.ok("job", "archive", "mail", fmt.Sprint("bad", n), "--why", "no stamp")
	}
	out, errs, code := sh.run("flow", "show", "mail", "news-7", "--limit", "2")
	if words := strings.Join(strings.Fields(out), " "); code != exitOK || !strings.Contains(words, "FAILED KIND STATE ENDED LAST ERROR bad0 letter dead ") || !strings.Contains(words, "no stamp bad1 letter") || strings.Contains(words, "bad2") {
		t.Errorf("%d, %s", code, out)
	}
	if !strings.Contains(errs, "1 member more failed") || strings.Contains(errs, "no record") {
		t.Error(errs)
	}
	var shown flowShowJSON
	sh.into(&shown, "flow", "show", "mail", "news-7", "--limit", "1")
	if shown.ID != "news-7" || shown.Callbacks != 1 || len(shown.Jobs) != 1 || shown.Jobs[0].ID != "end" || shown.Jobs[0].Awaits != "end" || shown.Jobs[0].Released || shown.Partial {
		t.Errorf("%+v", shown)
	}
	if len(shown.Failed) != 1 || shown.Failed[0].ID != "bad0" || shown.Failed[0].State != "dead" || shown.Failed[0].EndedAt == nil || !strings.Contains(shown.Failed[0].LastError, "no stamp") || shown.FailedMore != 2 {
		t.Errorf("%+v", shown)
	}
	sh.fails(exitUsage, []string{"--limit 101"}, "flow", "show", "mail", "news-7", "--limit", "101")
	var f flowJSON
	if sh.into(&f, "flow", "cancel", "mail", "news-7"); f.State != "over" || !f.Cancelled || f.Gone != 2 || f.Callbacks != 1 {
		t.Errorf("%+v", f)
	}
	out, errs, _ = sh.run("flow", "show", "mail", "news-7")
	if words := strings.Join(strings.Fields(out), " "); !strings.Contains(words, "end letter end yes ready") || !strings.Contains(words, "bad2 letter dead") {
		t.Error(out)
	}
	if !strings.Contains(errs, "Of 2 members that didn't complete there is no record") {
		t.Error(errs)
	}
	sh.fails(exitUsage, []string{"--limit"}, "flow", "ls", "mail", "--limit", "0")
	sh.fails(exitNotFound, []string{"no such batch"}, "flow", "show", "mail", "news-8")
	sh.fails(exitNotFound, []string{"no such queue"}, "flow", "ls", "mial")
	if out, errs, code := sh.run("queue", "rm", "mail"); code == exitOK || !strings.Contains(out+errs, "batches that aren't over") {
		t.Errorf("%d, %s%s", code, out, errs)
	}
}
