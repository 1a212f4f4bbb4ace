package main

import (
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
	if err := q.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	for id, text := range map[string]string{"b0": `{"at":90000000,"backlog":7,"oldest":15000000,"dead":2,"strays":3}`, "b1": `{"at":90000000,"backlog":100000,"more":true}`, "b2": "of a later release"} {
		if err := q.SetOutbox(t.Context(), id, text, time.Minute); err != nil {
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
