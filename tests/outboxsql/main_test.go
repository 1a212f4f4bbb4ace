package outboxsql

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/outbox"
)

var bg = context.Background()

// relayEnv has the settings of a process that is a relay, as JSON.
const relayEnv = "SIGNALBOX_SQLTEST_RELAY"

// A relayProcess is what a process that is a relay is told.
type relayProcess struct {
	Driver, DSN string
	Dialect     outbox.Dialect
	Redis       string
	StopAt      int           // it stops itself by SIGSTOP after so many calls that put jobs in, before it knows the last one's reply; 0: never
	TakeOver    time.Duration // of its config
	Window      time.Duration
}

func TestMain(m *testing.M) {
	if text := os.Getenv(relayEnv); text != "" {
		var p relayProcess
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			panic(err)
		}
		if err := p.run(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if text := os.Getenv(workerEnv); text != "" {
		var p workerProcess
		err := json.Unmarshal([]byte(text), &p)
		if err == nil {
			err = p.run()
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	servers.close()
	err := goleak.Find()
	for range 20 { // each waits half a second, which is short on a busy machine
		if err == nil {
			break
		}
		err = goleak.Find()
	}
	if err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// run is a relay until the process is killed.
func (p *relayProcess) run() error {
	db, err := sql.Open(p.Driver, p.DSN)
	if err != nil {
		return err
	}
	rdb := redis.NewClient(&redis.Options{Addr: p.Redis, MaxRetries: 1, ContextTimeoutEnabled: true})
	if p.StopAt > 0 {
		rdb.AddHook(&stopHook{at: int64(p.StopAt), rdb: redis.NewClient(&redis.Options{Addr: p.Redis, ContextTimeoutEnabled: true}), alone: p.Dialect == outbox.SQLite})
	}
	r, err := outbox.NewRelay(db, rdb, outbox.RelayConfig{
		Dialect: p.Dialect, TakeOver: p.TakeOver, Window: p.Window, Poll: 20 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	return r.Run(bg)
}

// stoppedKey is set in Redis when a process is about to stop itself.
const stoppedKey = "stopped"

// A stopHook stops the process between the script and the second transaction, until SIGCONT.
//
// On SQLite it stops only the goroutine that waits for the reply. Another goroutine of the process may be in a transaction. If that were stopped, the file would
// stay locked, and nobody could write any more. The servers end such a transaction.
type stopHook struct {
	at    int64
	calls atomic.Int64
	rdb   *redis.Client
	alone bool
}

func (h *stopHook) stop(ctx context.Context) {
	goOn := make(chan os.Signal, 1)
	signal.Notify(goOn, syscall.SIGCONT)
	if err := h.rdb.Set(ctx, stoppedKey, 1, 0).Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if !h.alone {
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // it may return before the process stops
	}
	<-goOn
}

func (h *stopHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *stopHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *stopHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if name := strings.ToLower(cmd.Name()); err == nil && (name == "evalsha" || name == "eval") && h.calls.Add(1) == h.at {
			h.stop(ctx)
		}
		return err
	}
}

// A database is one that a test has for itself, with the tables of the outbox.
type database struct {
	t           testing.TB
	dialect     outbox.Dialect
	driver, dsn string
	db          *sql.DB
}

// The servers that all tests share.
var servers shared

type shared struct {
	mu       sync.Mutex
	postgres *servertest.Server
	mariadb  *servertest.Server
	n        atomic.Int64
}

func (s *shared) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, server := range []*servertest.Server{s.postgres, s.mariadb} {
		if server != nil {
			server.Close()
		}
	}
}

// open returns a new database of a dialect.
func open(t testing.TB, d outbox.Dialect) *database {
	t.Helper()
	b := empty(t, d)
	b.install()
	return b
}

// empty returns a new database without tables.
func empty(t testing.TB, d outbox.Dialect) *database {
	t.Helper()
	b := &database{t: t, dialect: d}
	servers.mu.Lock()
	defer servers.mu.Unlock()
	name := fmt.Sprint("test", servers.n.Add(1))
	create := func(driver, dsn string) {
		admin, err := sql.Open(driver, dsn)
		if err == nil {
			_, err = admin.Exec("CREATE DATABASE " + name)
			_ = admin.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	switch d {
	case outbox.PostgreSQL:
		if servers.postgres == nil {
			if servers.postgres, err = servertest.NewPostgreSQL("fsync=off", "max_connections=200"); err != nil {
				t.Fatal(err)
			}
		}
		dsn := servertest.PostgresURL(servers.postgres.Addr())
		create("pgx", dsn)
		u, err := url.Parse(dsn)
		if err != nil {
			t.Fatal(err)
		}
		u.Path = "/" + name
		b.driver, b.dsn = "pgx", u.String()
	case outbox.MariaDB:
		if servers.mariadb == nil {
			if servers.mariadb, err = servertest.NewMariaDB("--innodb-flush-log-at-trx-commit=0", "--max-connections=200"); err != nil {
				t.Fatal(err)
			}
		}
		dsn := servertest.MariaDSN(servers.mariadb.Addr())
		create("mysql", dsn)
		b.driver, b.dsn = "mysql", strings.Replace(dsn, "/test", "/"+name, 1)
	case outbox.SQLite:
		path := filepath.Join(t.TempDir(), "box.db")
		b.driver, b.dsn = "sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(off)&_txlock=immediate"
	}
	if b.db, err = sql.Open(b.driver, b.dsn); err != nil {
		t.Fatal(err)
	}
	conns := 32
	if d == outbox.SQLite { // its transactions exclude each other: waiting here is fair
		conns = 4
	}
	b.db.SetMaxOpenConns(conns)
	b.db.SetMaxIdleConns(conns)
	t.Cleanup(func() { _ = b.db.Close() })
	return b
}

// install runs the statements of the schema.
func (b *database) install() {
	b.t.Helper()
	for statement := range strings.SplitSeq(outbox.Schema(b.dialect), ";\n") {
		if strings.TrimSpace(statement) != "" {
			b.exec(statement)
		}
	}
}

func (b *database) exec(query string, args ...any) {
	b.t.Helper()
	if _, err := b.db.Exec(query, args...); err != nil {
		b.t.Fatalf("%s: %v", query, err)
	}
}

// number returns the number that a query has.
func (b *database) number(query string) (n int64) {
	b.t.Helper()
	if err := b.db.QueryRow(query).Scan(&n); err != nil {
		b.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// box returns an outbox.
func (b *database) box(c outbox.Config) *outbox.Outbox {
	b.t.Helper()
	box, err := outbox.New(b.dialect, c)
	if err != nil {
		b.t.Fatal(err)
	}
	return box
}

// in runs fn in a transaction, and commits it.
func (b *database) in(fn func(tx *sql.Tx) error) {
	b.t.Helper()
	if err := b.try(fn); err != nil {
		b.t.Fatal(err)
	}
}

func (b *database) try(fn func(tx *sql.Tx) error) error {
	tx, err := b.db.BeginTx(bg, nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}

// relay runs a relay in this process until stop is called, or until the test ends.
func (b *database) relay(rdb redis.UniversalClient, c outbox.RelayConfig) (stop func()) {
	b.t.Helper()
	c.Dialect = b.dialect
	if c.Poll == 0 {
		c.Poll = 20 * time.Millisecond
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(b.t.Output(), nil))
	}
	r, err := outbox.NewRelay(b.db, rdb, c)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(bg)
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("the relay: %v", err)
		}
	})
	b.t.Cleanup(stop)
	return stop
}

// process starts a relay as a process.
func (b *database) process(redis string, p relayProcess) *exec.Cmd {
	b.t.Helper()
	p.Driver, p.DSN, p.Dialect, p.Redis = b.driver, b.dsn, b.dialect, redis
	cmd, _ := b.child(relayEnv, p)
	return cmd
}

// child starts this program as a process of another kind, with its settings. The channel is closed when the process has ended.
func (b *database) child(env string, settings any) (cmd *exec.Cmd, ended <-chan struct{}) {
	b.t.Helper()
	text, err := json.Marshal(settings)
	if err != nil {
		b.t.Fatal(err)
	}
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), env+"="+string(text))
	if ended, err = servertest.Start(cmd); err != nil {
		b.t.Fatal(err)
	}
	return cmd, ended
}

// enqueued returns how many jobs were ever put into a queue.
func enqueued(t testing.TB, rdb redis.UniversalClient, queue string) int64 {
	t.Helper()
	c, err := store.New(rdb, "", queue).Looks().Counts(bg)
	if err != nil {
		t.Fatal(err)
	}
	return int64(c.Total.Enqueued)
}

// each runs a test on every database, in parallel.
func each(t *testing.T, test func(t *testing.T, b *database)) {
	for _, d := range []outbox.Dialect{outbox.PostgreSQL, outbox.MariaDB, outbox.SQLite} {
		t.Run(string(d), func(t *testing.T) {
			t.Parallel()
			test(t, open(t, d))
		})
	}
}

// A note is the args of the tests' jobs.
type note struct {
	N     int    `json:"n"`
	Group string `json:"group,omitempty"`
}

func (note) Kind() string { return "note" }
