package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/servertest"
)

// envProgram is set if the test binary must act as the program.
const envProgram = "LOCK_EFFECTS_TEST_PROGRAM"

// TestMain is also the main function of the processes that the tests start.
func TestMain(m *testing.M) {
	if _, ok := os.LookupEnv(envTask); ok || os.Getenv(envProgram) != "" {
		main()
		return
	}
	logging.Disable()
	redistest.Main(m)
}

// small has each kind of fault once.
var small = size{increments: 40, faults: 12, members: 1, ttl: 400 * time.Millisecond}

// runSmall runs a small form on one Redis, and returns what it found.
func runSmall(t *testing.T, database string) total {
	t.Helper()
	var out bytes.Buffer
	c := choices{lockers: []string{"single"}, database: database, seed: 1, size: small}
	tot, err := run(t.Context(), c, &out)
	var missing servertest.ErrMissing
	if errors.As(err, &missing) && os.Getenv("SIGNALBOX_TEST_REDIS") != "required" {
		t.Skip(missing)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	return tot
}

// check runs a small form. Guarded increments must be right in each run. On a busy machine the faults may be too weak, so
// there are three runs.
func check(t *testing.T, database string) {
	t.Helper()
	for range 3 {
		tot := runSmall(t, database)
		if r := tot.results[0]; r.guarded != (verdict{acked: small.increments}) {
			t.Fatalf("guarded: %+v", r.guarded)
		}
		err := tot.problem()
		if err == nil {
			return
		}
		t.Log(err)
	}
	t.Error("no run was valid")
}

// The guard loses and doubles nothing under faults that make the twin lose. The long form of this is make effects.
func TestGuarded(t *testing.T) {
	t.Parallel()
	check(t, "postgres")
}

// The counters may be in another database.
func TestDatabases(t *testing.T) {
	t.Parallel()
	for _, database := range []string{"mariadb", "sqlite"} {
		t.Run(database, func(t *testing.T) {
			t.Parallel()
			check(t, database)
		})
	}
}

// What each kind of fault does to the twin, it doesn't do to a guarded increment. Seeded bugs are found here.
func TestKinds(t *testing.T) {
	t.Parallel()
	server := servertest.PostgreSQL(t, "fsync=off")
	for name, kind := range map[string]fault{
		"stale":     {at: held, guarded: true},
		"race":      {at: held, guarded: true, race: true},
		"uncertain": {kill: true, at: wrote, guarded: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			admin, err := postgres(servertest.PostgresURL(server.Addr())).open(1)
			if err != nil {
				t.Fatal(err)
			}
			defer admin.Close()
			if _, err := admin.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
				t.Fatal(err)
			}
			db := postgres(strings.Replace(servertest.PostgresURL(server.Addr()), "/postgres?", "/"+name+"?", 1))
			if err := db.prepare(t.Context()); err != nil {
				t.Fatal(err)
			}
			s := size{increments: 30, faults: 2, kinds: []fault{kind}, ttl: 400 * time.Millisecond}
			r, err := runLocker(t.Context(), "single", choices{size: s, seed: 1}, db)
			if err != nil {
				t.Fatal(err)
			}
			if r.guarded != (verdict{acked: s.increments}) || r.stops+r.kills != s.faults {
				t.Errorf("guarded: %+v after %d stops and %d kills", r.guarded, r.stops, r.kills)
			}
		})
	}
}

// A run that can't be done says why, and its status is not 0.
func TestExit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args   []string
		env    string
		status int
		stdout string // its end
		stderr string // part of it
	}{
		"help":        {[]string{"-h"}, "", 0, "", "-quick"},
		"wrong":       {[]string{"-lock", "two"}, "", 2, "", "-lock=two: want one of"},
		"no database": {[]string{"-quick", "-database", "mariadb"}, "PATH=", 1, "effects: FAILED lockers=0 increments=0 lost=0 doubled=0 unguarded_lost=0\n", "Debian's package is mariadb-server"},
		"no servers":  {[]string{"-quick", "-database", "sqlite", "-lock", "etcd"}, "PATH=", 1, "effects: FAILED lockers=0 increments=0 lost=0 doubled=0 unguarded_lost=0\n", "the run is invalid: 0 of 1 lockers were tried"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), path, c.args...)
			cmd.Env = append(os.Environ(), envProgram+"=1", c.env)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Run(); cmd.ProcessState == nil {
				t.Fatal(err)
			}
			if status := cmd.ProcessState.ExitCode(); status != c.status || !strings.HasSuffix(stdout.String(), c.stdout) || !strings.Contains(stderr.String(), c.stderr) {
				t.Errorf("exit status %d, want %d; want %q and %q in:\n%s\n%s", status, c.status, c.stdout, c.stderr, &stdout, &stderr)
			}
		})
	}
}
