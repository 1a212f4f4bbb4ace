package main

import (
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
	var f flowJSON
	if sh.into(&f, "flow", "cancel", "mail", "news-7"); f.State != "over" || !f.Cancelled || f.Gone != 2 || f.Callbacks != 1 {
		t.Errorf("%+v", f)
	}
	sh.fails(exitUsage, []string{"--limit"}, "flow", "ls", "mail", "--limit", "0")
	sh.fails(exitNotFound, []string{"no such batch"}, "flow", "show", "mail", "news-8")
	sh.fails(exitNotFound, []string{"no such queue"}, "flow", "ls", "mial")
	if out, errs, code := sh.run("queue", "rm", "mail"); code == exitOK || !strings.Contains(out+errs, "batches that aren't over") {
		t.Errorf("%d, %s%s", code, out, errs)
	}
}
