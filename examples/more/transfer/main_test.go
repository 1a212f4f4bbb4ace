package main

import (
	"bytes"
	"database/sql"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock/fence"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "-role" || os.Args[1] == "-transfers") {
		main()
		return
	}
	os.Exit(m.Run())
}

// Each committed transfer is made once, on each database, and nothing is left.
func TestTransfer(t *testing.T) {
	t.Parallel()
	for name, database := range map[string]func(t *testing.T) string{
		"sqlite":     func(*testing.T) string { return "" },
		"postgresql": func(t *testing.T) string { return servertest.PostgresURL(servertest.PostgreSQL(t, "fsync=off").Addr()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := database(t)
			var out bytes.Buffer
			err := demonstrate(t.Context(), 100, url, &out)
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if last := lines[len(lines)-1]; err != nil || !regexp.MustCompile(`^transfer: ok transfers=[1-9]\d{2,} lost=0 doubled=0 kills=[1-9]\d*$`).MatchString(last) {
				t.Errorf("%v\n%s", err, &out)
			}
			if url == "" {
				return
			}
			db, err := sql.Open("pgx", url)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if n, err := count(t.Context(), db, "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name LIKE 'transfer%'"); n != 0 || err != nil {
				t.Errorf("%d schemas are left, %v", n, err)
			}
		})
	}
}

// Money that went to the wrong place, twice or nowhere is seen.
func TestJudge(t *testing.T) {
	t.Parallel()
	const right = "INSERT INTO transfers VALUES (1); INSERT INTO moves VALUES (1, 0, 1, 5); UPDATE accounts SET balance = 995 WHERE id = 0; UPDATE accounts SET balance = 1005 WHERE id = 1"
	for name, c := range map[string]struct{ does, says string }{
		"right":              {right, "transfer: ok transfers=1 lost=0 doubled=0 kills=3"},
		"lost":               {right + "; INSERT INTO transfers VALUES (2)", "transfer: failed transfers=2 lost=1 doubled=0 kills=3"},
		"doubled":            {right + "; INSERT INTO moves VALUES (1, 1, 0, 5); UPDATE accounts SET balance = 1000", "transfer: failed transfers=1 lost=0 doubled=1 kills=3"},
		"of no transfer":     {right + "; DELETE FROM transfers", "moves of no transfer: 1\ntransfer: failed"},
		"another account":    {right + "; UPDATE accounts SET balance = 1000 WHERE id = 1; UPDATE accounts SET balance = 1005 WHERE id = 2", "2 with a wrong balance"},
		"money from nowhere": {right + "; UPDATE accounts SET balance = 1001 WHERE id = 9", "sum=10001 of 10000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			here := site{file: t.TempDir() + "/bank.db"}
			db, d, err := here.open()
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if err := here.install(t.Context(), db, d); err != nil {
				t.Fatal(err)
			}
			if _, err := db.ExecContext(t.Context(), c.does); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := judge(t.Context(), db, 3, &out); (err == nil) != (name == "right") || !strings.Contains(out.String(), c.says) {
				t.Errorf("%v\n%s; want %q", err, &out, c.says)
			}
		})
	}
}

// A job that runs twice moves the money once. (When TestTransfer kills the worker, a job may or may not be between its transaction and its end.)
func TestMoveTwice(t *testing.T) {
	t.Parallel()
	here := site{file: t.TempDir() + "/bank.db"}
	db, d, err := here.open()
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := here.install(t.Context(), db, d); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "INSERT INTO transfers VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	bank, err := fence.New(db, guards[d], fence.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := fence.WithEffect(t.Context(), fence.Effect{Namespace: "test", Key: "job", Born: time.Now()})
	for range 2 {
		if err := (Move{Transfer: 1, Payer: 3, Payee: 2, Amount: 7}).once(ctx, bank); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := judge(t.Context(), db, 0, &out); err != nil {
		t.Errorf("%v\n%s", err, &out)
	}
}

// A wrong URL is an error that doesn't repeat it: it may hold a password.
func TestWrongURL(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := demonstrate(t.Context(), 1, "postgres://user:secret@host:port/x", &out); err == nil || strings.Contains(err.Error()+out.String(), "secret") || !strings.Contains(err.Error(), "DATABASE_URL") {
		t.Error(err)
	}
}
