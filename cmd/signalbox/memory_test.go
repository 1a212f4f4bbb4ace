package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

func TestQueueMemory(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	sh := newShell(t, srv)
	if out, errs, code := sh.run("queue", "memory"); out != "" || code != 0 || !strings.Contains(errs, "no queue in namespace") {
		t.Errorf("with no queue: %q, %q, %d", out, errs, code)
	}
	sh.ok("enqueue", "mail", `"`+strings.Repeat("x", 3000)+`"`, "--queue", "mail")
	sh.ok("enqueue", "report", "{}", "--queue", "a-report")
	got := regexp.MustCompile(`\d+(\.\d)? (bytes|KiB)`).ReplaceAllString(sh.ok("queue", "memory"), "N")
	if got := regexp.MustCompile(` +`).ReplaceAllString(got, " "); strings.TrimSpace(got) != "QUEUE MEMORY RECORDS PLACES GROUPS UNIQUE BATCHES STATISTICS OTHER\nmail N N N - - - N N\na-report N N N - - - N N" {
		t.Errorf("it prints\n%s", got)
	}
	if got := sh.ok("queue", "memory", "a-report"); strings.Contains(got, "mail") || !strings.Contains(got, "a-report") {
		t.Errorf("of one queue:\n%s", got)
	}
	sh.fails(exitNotFound, []string{"no such queue", "mial"}, "queue", "memory", "mial")

	var list struct{ Queues []memoryJSON }
	sh.into(&list, "queue", "memory")
	if len(list.Queues) != 2 {
		t.Fatalf("%+v", list)
	}
	m := list.Queues[0]
	if m.Queue != "mail" || m.Records < 3000 || m.Bytes != m.Records+m.Places+m.Groups+m.Unique+m.Batches+m.Statistics+m.Other || m.Bytes <= list.Queues[1].Bytes {
		t.Errorf("%+v", list)
	}
	same(t, regexp.MustCompile(`:\d+`).ReplaceAllString(sh.ok("queue", "memory", "mail", "-o", "json"), ":0"),
		`{"queues":[{"queue":"mail","bytes":0,"records":0,"places":0,"groups":0,"unique":0,"batches":0,"statistics":0,"other":0}]}`)

	if err := srv.Client().Do(t.Context(), "ACL", "SETUSER", "default", "-memory").Err(); err != nil {
		t.Fatal(err)
	}
	sh.fails(exitFailure, []string{"not known", "+memory|usage", "/docs/operations/access.md"}, "queue", "memory", "mail")
}
