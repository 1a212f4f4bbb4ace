package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// The users of docs/operations/access.md have the rights that docs/cli.md says they have.
func TestRights(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations", "access.md"))
	if err != nil {
		t.Fatal(err)
	}
	srv := redistest.New(t)
	rdb := srv.Client()
	sh := newShell(t, srv)
	sh.ok("enqueue", "mail", "--id", "j1", "--queue", "mail", "--group", "acme")
	as := func(role string) {
		t.Helper()
		_, rule, ok := strings.Cut(string(page), "\nACL SETUSER "+role+" ")
		if !ok {
			t.Fatalf("docs/operations/access.md has no rule for %s", role)
		}
		rule, _, _ = strings.Cut(rule, "\n")
		args := []any{"ACL", "SETUSER", role}
		for word := range strings.FieldsSeq(rule) {
			args = append(args, word)
		}
		if err := rdb.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
		sh.env["REDIS_URL"] = "redis://" + role + ":CHANGE-ME@" + srv.Addr()
	}
	look := [][]string{{"queue", "ls"}, {"queue", "ls", "mail"}, {"queue", "groups", "mail"}, {"queue", "hold", "mail"}, {"job", "ls"}, {"job", "ls", "mail"}, {"job", "show", "mail", "j1"}, {"job", "errors", "mail"}, {"queue", "stats"}, {"queue", "memory"}, {"redis"}, {"worker", "ls"}, {"cron", "ls"}, {"cron", "next", "digest"}, {"doctor"}}
	sh.declares(rdb, "mail", "digest", "0 9 29 2 *")
	as("viewer")
	for _, args := range look {
		sh.ok(args...)
	}
	file := sh.ok("export", "mail")
	sh.fails(exitFailure, []string{"/docs/operations/access.md"}, "queue", "pause", "mail")
	sh.fails(exitFailure, []string{"/docs/operations/access.md"}, "cron", "pause", "digest")
	as("operator")
	for _, args := range append(look, []string{"queue", "pause", "mail"}, []string{"queue", "resume", "mail"}, []string{"queue", "hold", "mail", "--for", "1s"}, []string{"queue", "hold", "mail", "--lift"},
		[]string{"cron", "pause", "digest"}, []string{"cron", "run", "digest"}, []string{"cron", "resume", "digest"},
		[]string{"queue", "set", "mail", "--slots", "1", "--keep-jobs", "1"}, []string{"doctor", "--repair", "--yes"},
		[]string{"import", "other"}, []string{"queue", "delete-waiting", "other", "--yes", "--scheduled"}, []string{"job", "mv", "mail", "j1", "--to", "other"}) {
		sh.in = file
		sh.ok(args...)
	}
	as("producer")
	sh.ok("enqueue", "mail", "--queue", "mail")
}
