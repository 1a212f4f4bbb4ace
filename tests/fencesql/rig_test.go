package fencesql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/fence"
)

// patience bounds waits that end at once if all goes well.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(envChild) != "" {
		runChild()
		return
	}
	_ = mysql.SetLogger(&mysql.NopLogger{}) // it would say that connections are killed
	code := m.Run()
	for _, s := range []*shared{&postgres, &maria} {
		s.mu.Lock()
		if s.server != nil {
			s.server.Close()
		}
		s.mu.Unlock()
	}
	if code == 0 {
		err := goleak.Find()
		for end := time.Now().Add(patience); err != nil && time.Now().Before(end); { // it waits half a second, which is short on a busy machine
			err = goleak.Find()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "goroutines left after the tests:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// A shared server is started by the first test that needs it.
type shared struct {
	start  func() (*servertest.Server, error)
	mu     sync.Mutex
	server *servertest.Server
	err    error
}

var (
	postgres = shared{start: func() (*servertest.Server, error) {
		return servertest.NewPostgreSQL("fsync=off", "max_connections=300")
	}}
	maria = shared{start: func() (*servertest.Server, error) {
		return servertest.NewMariaDB("--innodb-flush-log-at-trx-commit=0", "--max-connections=300")
	}}
	names atomic.Int64
)

func (s *shared) addr(t testing.TB) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil && s.err == nil {
		s.server, s.err = s.start()
	}
	if s.err != nil {
		var missing servertest.ErrMissing
		if errors.As(s.err, &missing) && os.Getenv("SIGNALBOX_TEST_REDIS") != "required" {
			t.Skip(s.err)
		}
		t.Fatal(s.err)
	}
	return s.server.Addr()
}

// A database is one of this test alone.
type database struct {
	dialect fence.Dialect
	driver  string
	dsn     string
	pool    *sql.DB
}

// dialects are those that the tests run on.
var dialects = []fence.Dialect{fence.PostgreSQL, fence.MariaDB, fence.SQLite}

// each runs a test on each database, with the guards' tables and a ledger in it.
func each(t *testing.T, test func(t *testing.T, d *database)) {
	t.Helper()
	t.Parallel()
	for _, dialect := range dialects {
		t.Run(dialect.String(), func(t *testing.T) {
			t.Parallel()
			test(t, newDatabase(t, dialect))
		})
	}
}

// eachLevel runs a test on each database at each of its isolation levels.
func eachLevel(t *testing.T, test func(t *testing.T, d *database, db *fence.DB)) {
	t.Helper()
	each(t, func(t *testing.T, d *database) {
		if d.dialect == fence.SQLite {
			test(t, d, d.fence(t, fence.Config{Tries: 100}))
			return
		}
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
			t.Run(strings.ReplaceAll(level.String(), " ", ""), func(t *testing.T) {
				t.Parallel()
				d := newDatabase(t, d.dialect)
				test(t, d, d.fence(t, fence.Config{Isolation: level, Tries: 100}))
			})
		}
	})
}

// newDatabase makes an empty database with the guards' tables, and two of the tests': ledger, in which each effect adds a row, and
// account, with a balance of 0.
func newDatabase(t testing.TB, dialect fence.Dialect) *database {
	t.Helper()
	d := emptyDatabase(t, dialect)
	d.run(t, fence.Schema(dialect))
	serial := map[fence.Dialect]string{fence.PostgreSQL: "BIGSERIAL PRIMARY KEY", fence.MariaDB: "BIGINT AUTO_INCREMENT PRIMARY KEY", fence.SQLite: "INTEGER PRIMARY KEY AUTOINCREMENT"}[dialect]
	d.run(t, "CREATE TABLE ledger (n "+serial+", effect VARCHAR(700) NOT NULL)")
	d.run(t, "CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, token BIGINT NOT NULL)")
	d.run(t, "INSERT INTO account (id, balance, token) VALUES (7, 0, 0)")
	return d
}

func emptyDatabase(t testing.TB, dialect fence.Dialect) *database {
	t.Helper()
	name := fmt.Sprintf("test%d", names.Add(1))
	d := &database{dialect: dialect}
	switch dialect {
	case fence.PostgreSQL:
		d.driver = "pgx"
		url := servertest.PostgresURL(postgres.addr(t))
		admin(t, d.driver, url, "CREATE SCHEMA "+name)
		d.dsn = url + "&search_path=" + name
	case fence.MariaDB:
		d.driver = "mysql"
		dsn := servertest.MariaDSN(maria.addr(t))
		admin(t, d.driver, dsn, "CREATE DATABASE "+name)
		d.dsn = strings.Replace(dsn, "/test?", "/"+name+"?", 1)
	case fence.SQLite:
		d.driver = "sqlite"
		d.dsn = "file:" + filepath.Join(t.TempDir(), "db") + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"
	}
	d.pool = d.open(t, "")
	return d
}

// open opens another pool on the database, with more parameters in its name.
func (d *database) open(t testing.TB, more string) *sql.DB {
	t.Helper()
	pool, err := sql.Open(d.driver, d.dsn+more)
	if err != nil {
		t.Fatal(err)
	}
	pool.SetMaxIdleConns(20)
	t.Cleanup(func() { pool.Close() })
	return pool
}

func admin(t testing.TB, driver, dsn, query string) {
	t.Helper()
	pool, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(query); err != nil {
		t.Fatal(err)
	}
}

// run runs statements, one after the other.
func (d *database) run(t testing.TB, queries string) {
	t.Helper()
	for query := range strings.SplitSeq(queries, ";\n") {
		if strings.TrimSpace(query) == "" {
			continue
		}
		if _, err := d.pool.ExecContext(context.Background(), query); err != nil {
			t.Fatalf("%v: %s", err, query)
		}
	}
}

// number returns the number that a query finds.
func (d *database) number(t testing.TB, query string) (n int64) {
	t.Helper()
	if err := d.pool.QueryRowContext(context.Background(), query).Scan(&n); err != nil {
		t.Fatalf("%v: %s", err, query)
	}
	return n
}

func (d *database) fence(t testing.TB, c fence.Config) *fence.DB {
	t.Helper()
	db, err := fence.New(d.pool, d.dialect, c)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// arg returns the n-th placeholder of the dialect.
func (d *database) arg(n int) string {
	if d.dialect == fence.PostgreSQL {
		return fmt.Sprint("$", n)
	}
	return "?"
}

// earn returns the effect of the tests: a row in the ledger.
func (d *database) earn(ctx context.Context, tx execer, name string) func() error {
	return func() error {
		_, err := tx.ExecContext(ctx, "INSERT INTO ledger (effect) VALUES ("+d.arg(1)+")", name)
		return err
	}
}

type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// had returns how often an effect was had.
func (d *database) had(t testing.TB, name string) (n int64) {
	t.Helper()
	if err := d.pool.QueryRowContext(context.Background(), "SELECT count(*) FROM ledger WHERE effect = "+d.arg(1), name).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// a lease is one that a test holds.
type lease struct {
	key, issuer, holder string
	token               int64
}

func (l lease) Key() string      { return l.key }
func (l lease) Token() int64     { return l.token }
func (l lease) Until() time.Time { return time.Now().Add(time.Hour) }
func (l lease) Issuer() string   { return l.issuer }
func (l lease) Holder() string   { return l.holder }

// under returns a context with a lease on the account, of a holder named after its token.
func under(token int64) context.Context { return on("account:7", token) }

func on(key string, token int64) context.Context {
	return lock.NewContext(context.Background(), lease{key, "redis", fmt.Sprint("holder-", token), token})
}

// effect returns a context with an effect.
func effect(key string, born time.Time) context.Context {
	return fence.WithEffect(context.Background(), fence.Effect{Key: key, Born: born, Token: 1})
}

// within ends the test if f takes too long.
func within(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s takes more than %v", what, patience)
	}
}
