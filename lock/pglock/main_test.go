package pglock_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/locktest"
	"github.com/signalbox-go/signalbox/lock/pglock"
)

func TestMain(m *testing.M) {
	locktest.Child(func(url string, ttl time.Duration) (lock.Locker, error) {
		pool, err := pgxpool.New(context.Background(), url)
		if err != nil {
			return nil, err
		}
		return pglock.New(pool, pglock.Config{TTL: ttl})
	})
	flag.Parse()
	parallel := false
	flag.Visit(func(f *flag.Flag) { parallel = parallel || f.Name == "test.parallel" })
	if !parallel {
		_ = flag.Set("test.parallel", "8") // the tests mostly wait
	}
	code := m.Run()
	if s := common.server; s != nil {
		s.Close()
	}
	if code == 0 {
		if err := left(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines left after the tests:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// left waits until no goroutine is left. An ear lingers for a second, and goleak waits half a second.
func left() (err error) {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		if err = goleak.Find(); err == nil {
			return nil
		}
	}
	return err
}

// common is the server that tests share which don't break it.
var common struct {
	sync.Mutex
	server *servertest.Server
}

// noFlush makes servers of tests quick where many tests use the disk. They crash, but the machine doesn't, so nothing is
// lost.
const noFlush = "fsync=off"

// sharedURL returns the URL of the server that tests share. It has the default table.
func sharedURL(t testing.TB) string {
	t.Helper()
	common.Lock()
	defer common.Unlock()
	if common.server == nil {
		s, err := servertest.NewPostgreSQL("max_connections=400", noFlush)
		if err != nil {
			servertest.PostgreSQL(t) // skips the test, or says why there is none
			t.Fatal(err)
		}
		common.server = s
		migrate(t, url(s))
	}
	return url(common.server)
}

// own starts a server for this test alone, with the default table.
func own(t testing.TB, settings ...string) *servertest.Server {
	t.Helper()
	s := servertest.PostgreSQL(t, append(settings, noFlush)...)
	migrate(t, url(s))
	return s
}

func url(s interface{ Addr() string }) string { return servertest.PostgresURL(s.Addr()) }

func migrate(t testing.TB, url string) {
	t.Helper()
	schema, err := pglock.Schema("")
	if err != nil {
		t.Fatal(err)
	}
	exec(t, dial(t, url), schema)
}

// dial returns a pool that is closed when the test ends.
func dial(t testing.TB, url string, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 4
	for _, f := range change {
		f(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func exec(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(context.Background(), sql, args...); err != nil {
		t.Fatalf("%.60s: %v", sql, err)
	}
}

// locker returns a locker that must be right.
func locker(t testing.TB, pool *pgxpool.Pool, c pglock.Config) *pglock.Locker {
	t.Helper()
	p, err := pglock.New(pool, c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// acquire acquires a lock that is free or soon will be.
func acquire(t testing.TB, p lock.Locker, key string) lock.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	l, err := p.Acquire(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// patience bounds every wait. It costs nothing if all goes well.
const patience = 30 * time.Second

// eventually waits until cond is true.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !cond(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not after %v: %s", patience, what)
		}
	}
}
