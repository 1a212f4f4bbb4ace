package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/signalbox-go/signalbox/examples/internal/demo"
	"github.com/signalbox-go/signalbox/internal/servertest"
)

// envProgram is set if the test binary must act as the program.
const envProgram = "ITEMS_TEST_PROGRAM"

// TestMain is also the main function of the processes that the tests start.
func TestMain(m *testing.M) {
	if demo.IsChild() || os.Getenv(envProgram) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// runOn runs the program and returns its last line. Without the servers' programs the test is skipped, unless CI
// requires them.
func runOn(t *testing.T, args string) string {
	t.Helper()
	var out bytes.Buffer
	sum, err := demo.Run(t.Context(), locks, strings.Fields(args), "", &out)
	var missing servertest.ErrMissing
	if errors.As(err, &missing) && os.Getenv("SIGNALBOX_TEST_REDIS") != "required" {
		t.Skip(missing)
	}
	if err == nil {
		err = sum.Problem()
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", args, err, &out)
	}
	return sum.String()
}

// Each lock keeps the limit, also with a minority of its servers killed. Without a majority it returns an error in time.
func TestLocks(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-lock etcd -kill 1":      "items: lock=etcd created=3 rejected=2 limit=3",
		"-lock etcd -kill 2":      "items: lock=etcd created=0 rejected=0 unavailable=5 limit=3",
		"-lock zookeeper -kill 1": "items: lock=zookeeper created=3 rejected=2 limit=3",
		"-lock postgres":          "items: lock=postgres created=3 rejected=2 limit=3",
		"-lock postgres -kill 1":  "items: lock=postgres created=0 rejected=0 unavailable=5 limit=3",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			if line := runOn(t, args); line != want {
				t.Errorf("last line %q, want %q", line, want)
			}
		})
	}
}

// Servers that run already are used, their addresses are not shown, and they stay as they were.
func TestGivenServers(t *testing.T) {
	postgres := servertest.PostgreSQL(t)
	t.Setenv("DATABASE_URL", servertest.PostgresURL(postgres.Addr()))
	t.Setenv("ETCD_ENDPOINTS", servertest.Etcd(t, 1)[0].Addr())
	t.Setenv("ZOOKEEPER_SERVERS", servertest.ZooKeeper(t, 1)[0].Addr())
	for _, l := range locks {
		var out bytes.Buffer
		sum, err := demo.Run(t.Context(), locks, []string{"-lock", l.Name}, "", &out)
		if err == nil {
			err = sum.Problem()
		}
		if err != nil {
			t.Errorf("%s: %v\n%s", l.Name, err, &out)
		}
		if strings.Contains(out.String(), os.Getenv(l.Nodes.Env)) || !strings.Contains(out.String(), "of "+l.Nodes.Env) {
			t.Errorf("%s: the output should name %s, and not its value:\n%s", l.Name, l.Nodes.Env, &out)
		}
	}
	left, err := tables(t.Context(), postgres)
	if err != nil || len(left) > 0 {
		t.Errorf("left in the database: %q, %v", left, err)
	}
}

// The URL of a database is in no error: it may contain a password.
func TestWrongURL(t *testing.T) {
	for _, url := range []string{"postgres://user:secret word@127.0.0.1:1/db", "postgres://user:secret@127.0.0.1:1/db?sslmode=disable", "secret"} {
		t.Setenv("DATABASE_URL", url)
		var out bytes.Buffer
		_, err := demo.Run(t.Context(), locks, []string{"-lock", "postgres"}, "", &out)
		if err == nil || strings.Contains(err.Error()+out.String(), "secret") {
			t.Errorf("%v\n%s", err, &out)
		}
	}
}

// Scripts depend on the exit status and the output.
func TestExit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args   string
		env    string
		status int
		stderr string // part of it
	}{
		"help":           {"-h", "", 0, "-lock which"},
		"unknown lock":   {"-lock single", "", 2, "want one of etcd, zookeeper, postgres"},
		"many members":   {"-lock etcd -members 6", "", 2, "-members=6: want 1 to 5"},
		"without use":    {"-lock postgres -members 3", "", 2, "-members is for -lock=etcd or zookeeper only"},
		"others' server": {"-lock etcd -kill 1", "ETCD_ENDPOINTS=127.0.0.1:1", 2, "ETCD_ENDPOINTS names others"},
		"no etcd":        {"-lock etcd", "PATH=", 1, "Debian's package is etcd-server"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), path, strings.Fields(c.args)...)
			cmd.Env = append(os.Environ(), envProgram+"=1", "REDIS_URL=", c.env)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Run(); cmd.ProcessState == nil {
				t.Fatal(err)
			}
			if status := cmd.ProcessState.ExitCode(); status != c.status || !strings.Contains(stderr.String(), c.stderr) {
				t.Errorf("exit status %d, want %d; want %q in:\n%s", status, c.status, c.stderr, &stderr)
			}
		})
	}
}

// tables returns the names of the locks' tables.
func tables(ctx context.Context, server *servertest.Server) ([]string, error) {
	conn, err := pgx.Connect(ctx, servertest.PostgresURL(server.Addr()))
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, "SELECT tablename FROM pg_tables WHERE tablename LIKE 'items%'")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
