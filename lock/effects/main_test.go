package main

import (
	"bytes"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/signalbox-go/signalbox/internal/servertest"
)

// TestMain is also the main function of the processes that the tests start.
func TestMain(m *testing.M) {
	if _, ok := os.LookupEnv(envTask); ok {
		main()
		return
	}
	logging.Disable()
	goleak.VerifyTestMain(m)
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

// The guard loses and doubles nothing under faults that make the twin lose. The long form of this is make effects.
func TestGuarded(t *testing.T) {
	t.Parallel()
	if err := runSmall(t, "postgres").problem(); err != nil {
		t.Error(err)
	}
}

// The counters may be in another database.
func TestDatabases(t *testing.T) {
	t.Parallel()
	for _, database := range []string{"mariadb", "sqlite"} {
		t.Run(database, func(t *testing.T) {
			t.Parallel()
			if err := runSmall(t, database).problem(); err != nil {
				t.Error(err)
			}
		})
	}
}
