package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"

	"github.com/signalbox-go/signalbox/lock/fence"
	"github.com/signalbox-go/signalbox/outbox"
)

// guards are the dialects of package fence.
var guards = map[outbox.Dialect]fence.Dialect{outbox.PostgreSQL: fence.PostgreSQL, outbox.SQLite: fence.SQLite}

// A site is where the database and Redis are.
type site struct {
	url    string // of PostgreSQL; empty: the database is the file
	schema string // that the tables are in, in PostgreSQL
	file   string
	redis  string // a Unix socket
}

// env has the site, for a process of it.
func (s site) env() []string {
	return []string{"DATABASE_URL=" + s.url, "TRANSFER_SCHEMA=" + s.schema, "TRANSFER_FILE=" + s.file, "TRANSFER_REDIS=" + s.redis}
}

func siteOfEnv() site {
	return site{os.Getenv("DATABASE_URL"), os.Getenv("TRANSFER_SCHEMA"), os.Getenv("TRANSFER_FILE"), os.Getenv("TRANSFER_REDIS")}
}

func (s site) client() *redis.Client {
	return redis.NewClient(&redis.Options{Network: "unix", Addr: s.redis, ContextTimeoutEnabled: true})
}

// open opens the database. The error doesn't have the URL, which may have a password.
func (s site) open() (*sql.DB, outbox.Dialect, error) {
	if s.url != "" {
		cfg, err := pgx.ParseConfig(s.url)
		if err != nil {
			return nil, "", errors.New("DATABASE_URL is no URL of PostgreSQL; want postgres://user:password@host:port/database")
		}
		cfg.RuntimeParams["search_path"] = `"` + s.schema + `"`
		return stdlib.OpenDB(*cfg), outbox.PostgreSQL, nil
	}
	db, err := sql.Open("sqlite", "file:"+s.file+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	if err == nil {
		db.SetMaxOpenConns(4)
	}
	return db, outbox.SQLite, err
}

// install makes the tables and the accounts.
func (s site) install(ctx context.Context, db *sql.DB, d outbox.Dialect) error {
	var statements []string
	if s.url != "" {
		statements = append(statements, fmt.Sprintf("CREATE SCHEMA %q", s.schema))
	}
	statements = append(statements, strings.Split(outbox.Schema(d), ";\n")...)
	statements = append(statements, strings.Split(fence.Schema(guards[d]), ";\n")...)
	statements = append(statements, "CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL)", "CREATE TABLE transfers (id bigint PRIMARY KEY)",
		"CREATE TABLE moves (transfer bigint, payer bigint, payee bigint, amount bigint)")
	for id := range accounts {
		statements = append(statements, fmt.Sprintf("INSERT INTO accounts VALUES (%d, %d)", id, each))
	}
	for _, statement := range statements {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("make the tables: %w", err)
		}
	}
	return nil
}

// remove drops what install made. A file goes with its folder.
func (s site) remove(ctx context.Context, db *sql.DB) error {
	if s.url == "" {
		return nil
	}
	if _, err := db.ExecContext(ctx, fmt.Sprintf("DROP SCHEMA IF EXISTS %q CASCADE", s.schema)); err != nil {
		return fmt.Errorf("drop the tables: %w", err)
	}
	return nil
}
