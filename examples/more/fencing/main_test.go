//go:build unix

package main

import (
	"bytes"
	"database/sql"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/servertest"
)

func TestMain(m *testing.M) {
	if os.Getenv(envClient) != "" {
		main()
		return
	}
	redistest.Main(m)
}

// Without the check the late write corrupts the storage. With it, it is refused. On each storage, nothing is left.
func TestFencing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		redis, database func(t *testing.T) string
	}{
		"as it comes": {func(*testing.T) string { return "" }, func(*testing.T) string { return "" }},
		"on real servers": {
			func(t *testing.T) string { return "redis://" + redistest.New(t).Addr() },
			func(t *testing.T) string { return servertest.PostgresURL(servertest.PostgreSQL(t, "fsync=off").Addr()) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redisURL, databaseURL := c.redis(t), c.database(t)
			for check, want := range map[bool]string{
				false: "fencing: check=false accepted=2 rejected=0 corrupted=1",
				true:  "fencing: check=true accepted=1 rejected=1 corrupted=0",
			} {
				var out bytes.Buffer
				sum, err := run(t.Context(), check, redisURL, databaseURL, &out)
				if err != nil || sum.String() != want || sum.problem() != nil {
					t.Errorf("%v, %v; want %s\n%s", sum, err, want, &out)
				}
				tokens := regexp.MustCompile(`with token (\d+)`).FindAllStringSubmatch(out.String(), -1)
				if len(tokens) != 2 || len(tokens[0][1]) != len(tokens[1][1]) || tokens[0][1] >= tokens[1][1] {
					t.Errorf("the tokens are %v\n%s", tokens, &out)
				}
			}
			if databaseURL == "" {
				return
			}
			pool, err := sql.Open("pgx", databaseURL)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			var left int
			if err := pool.QueryRow("SELECT (SELECT count(*) FROM fencing_example) + (SELECT count(*) FROM signalbox_fence)").Scan(&left); err != nil || left != 0 {
				t.Errorf("%d rows are left, %v", left, err)
			}
		})
	}
}

// A run that shows something else is a problem.
func TestProblem(t *testing.T) {
	t.Parallel()
	for _, s := range []summary{{check: true, accepted: 2, corrupted: 1}, {check: true, accepted: 1}, {accepted: 1, rejected: 1}, {}} {
		if s.problem() == nil {
			t.Errorf("%v is no problem", s)
		}
	}
}

// A wrong URL is an error that doesn't repeat it: it may hold a password.
func TestWrongURLs(t *testing.T) {
	t.Parallel()
	for _, urls := range [][2]string{{"secret", ""}, {"", "mysql://secret"}, {"", "postgres://user:secret@host:port/x"}} {
		var out bytes.Buffer
		if _, err := run(t.Context(), true, urls[0], urls[1], &out); err == nil || strings.Contains(err.Error()+out.String(), "secret") {
			t.Errorf("%q: %v", urls, err)
		}
	}
}
