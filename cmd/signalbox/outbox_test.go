package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

func TestOutboxLs(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	if out, errs, code := sh.run("outbox", "ls"); out != "" || code != 0 || !strings.Contains(errs, "No relay has reported") || !strings.Contains(errs, "outbox.NewRelay") || !strings.Contains(errs, "namespace") {
		t.Errorf("%q, %q, %d", out, errs, code)
	}
	q := store.New(srv.Client(), sh.namespace, "mail")
	if err := q.Presence().Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	for id, text := range map[string]string{"b0": `{"at":90000000,"backlog":7,"oldest":15000000,"dead":2,"strays":3}`, "b1": `{"at":90000000,"backlog":100000,"more":true}`, "b2": "of a later release"} {
		if err := q.Outboxes().Set(t.Context(), id, text, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	out, errs, code := sh.run("outbox", "ls")
	if code != 0 || !strings.Contains(errs, "Outbox b0 has 3 dead rows of no queue") || strings.Contains(errs, "Outbox b1") || strings.Contains(errs, "No relay") {
		t.Errorf("%q, %d", errs, code)
	}
	for _, want := range []string{"QUEUE ", "mail", "b0", "1m15s", "100000+"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	var got []outboxJSON
	decode(t, sh.ok("outbox", "ls", "-o", "json"), &got)
	if len(got) != 2 || got[0].Queue != "mail" || got[0].Outbox != "b0" || got[0].Backlog != 7 || got[0].LagSeconds != 75 || got[0].Dead != 2 || got[0].Strays != 3 || got[1].Strays != 0 || !got[1].More || got[0].At == nil {
		t.Errorf("%+v", got)
	}
}

// An outbox is forgotten after a question, and then no longer keeps its queue.
func TestOutboxRm(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	sh := newShell(t, srv)
	ctx := t.Context()
	q := store.New(srv.Client(), sh.namespace, "mail")
	_, err := q.Outboxes().Relay(ctx, "box", 3, &store.Batch{Place: store.Place{Seq: 1, Nonce: "n"}})
	if err = errors.Join(err, q.Presence().Register(ctx)); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := sh.run("queue", "rm", "mail"); code != exitState || !strings.Contains(errs, "\n  - outbox box has sent jobs") || !strings.Contains(errs, "signalbox outbox rm mail box") {
		t.Errorf("%d, %s", code, errs)
	}
	sh.fails(exitUsage, []string{"want --yes", "25 hours"}, "outbox", "rm", "mail", "box")
	sh.fails(exitNotFound, []string{"no such outbox", "has sent nothing to queue mail"}, "outbox", "rm", "mail", "bix", "-y")
	sh.fails(exitNotFound, []string{"no such queue"}, "outbox", "rm", "mial", "box", "-y")
	sh.fails(exitUsage, []string{"signalbox_outbox_box"}, "outbox", "rm", "mail", "", "-y")
	if err := q.Outboxes().Set(ctx, "box", fmt.Sprintf(`{"at":%d}`, time.Now().UnixMicro()), time.Minute); err != nil {
		t.Fatal(err)
	}
	sh.fails(exitState, []string{"a relay has reported rows of queue mail"}, "outbox", "rm", "mail", "box", "-y")
	if err := q.Outboxes().Set(ctx, "box", "{}", time.Millisecond); err != nil { // as a minute later
		t.Fatal(err)
	}
	redistest.Eventually(t, func() bool {
		found, err := q.Outboxes().All(ctx)
		return err == nil && len(found) == 0
	}, "the report stays")
	sh.terminal, sh.width, sh.in = true, 80, "n\n"
	sh.run("outbox", "rm", "mail", "box")
	if _, errs, code := sh.run("queue", "rm", "mail"); code != exitState || !strings.Contains(errs, "outbox box has sent jobs") {
		t.Errorf("%d, %s", code, errs)
	}
	sh.in = "y\n"
	if out := sh.ok("outbox", "rm", "mail", "box"); !strings.Contains(out, "is forgotten in 25 hours") {
		t.Errorf("%q", out)
	}
	var got struct{ Queue, Outbox string }
	decode(t, sh.ok("outbox", "rm", "mail", "box", "-y", "-o", "json"), &got) // it may be repeated
	if got.Queue != "mail" || got.Outbox != "box" {
		t.Errorf("%+v", got)
	}
	sh.ok("queue", "rm", "mail")
}
