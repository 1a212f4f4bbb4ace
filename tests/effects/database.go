package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	_ "github.com/go-sql-driver/mysql" // the driver mysql
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	_ "modernc.org/sqlite"             // the driver sqlite

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock/fence"
)

var databases = []string{"postgres", "mariadb", "sqlite"}

// A database is where the counters are. The processes get it as JSON.
type database struct {
	Driver  string
	Source  string
	Dialect fence.Dialect
}

// startDatabase starts a database with empty tables. A stopped process' open transaction ends after a second, and a
// lock of the database is waited for for three seconds.
func startDatabase(ctx context.Context, kind string) (db database, stop func(), err error) {
	stop = func() {}
	switch kind {
	case "postgres":
		// What survives a crash of the machine is not the question here, so it needn't wait for the disk.
		s, err := servertest.NewPostgreSQL("fsync=off", "max_connections=300")
		if err != nil {
			return db, stop, err
		}
		stop = s.Close
		db = postgres(servertest.PostgresURL(s.Addr()))
	case "mariadb":
		s, err := servertest.NewMariaDB("--innodb-flush-log-at-trx-commit=0", "--max-connections=300")
		if err != nil {
			return db, stop, err
		}
		stop = s.Close
		db = database{"mysql", servertest.MariaDSN(s.Addr()) + "&innodb_lock_wait_timeout=3&idle_transaction_timeout=1", fence.MariaDB}
	case "sqlite":
		dir, err := os.MkdirTemp("", "effects-")
		if err != nil {
			return db, stop, err
		}
		stop = func() { os.RemoveAll(dir) }
		db = database{"sqlite", "file:" + filepath.Join(dir, "effects.db") + "?_pragma=busy_timeout(3000)&_pragma=journal_mode(wal)&_pragma=synchronous(off)", fence.SQLite}
	default:
		return db, stop, fmt.Errorf("the database %q; want one of %s", kind, strings.Join(databases, ", "))
	}
	if err := db.prepare(ctx); err != nil {
		stop()
		return db, func() {}, err
	}
	return db, stop, nil
}

// postgres returns a database of PostgreSQL.
func postgres(url string) database {
	return database{"pgx", url + "&lock_timeout=3000&idle_in_transaction_session_timeout=1000", fence.PostgreSQL}
}

// prepare makes the tables of the guards and of the counters.
func (d database) prepare(ctx context.Context) error {
	pool, err := d.open(1)
	if err != nil {
		return err
	}
	defer pool.Close()
	for _, statement := range append(strings.SplitAfter(fence.Schema(d.Dialect), ";\n"), createCounters) {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := pool.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("the tables: %w", err)
		}
	}
	return nil
}

// open returns a pool of few connections.
func (d database) open(connections int) (*sql.DB, error) {
	pool, err := sql.Open(d.Driver, d.Source)
	if err != nil {
		return nil, errors.New("the database's address can't be read")
	}
	pool.SetMaxOpenConns(connections)
	return pool, nil
}

// query replaces each ? by PostgreSQL's placeholder, if it is that.
func (d database) query(q string) string {
	if d.Dialect != fence.PostgreSQL {
		return q
	}
	for n := 1; strings.Contains(q, "?"); n++ {
		q = strings.Replace(q, "?", "$"+strconv.Itoa(n), 1)
	}
	return q
}
