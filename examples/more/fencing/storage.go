package main

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/signalbox-go/signalbox/lock/fence"
)

// A storage is the database that the clients change.
type storage struct {
	dialect fence.Dialect
	pool    *sql.DB
	db      *fence.DB
}

// openStorage opens a PostgreSQL (postgres://...) or a SQLite (file:...).
func openStorage(url string) (*storage, error) {
	s := &storage{dialect: fence.SQLite}
	driver := "sqlite"
	switch {
	case strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://"):
		s.dialect, driver = fence.PostgreSQL, "pgx"
	case strings.HasPrefix(url, "file:"):
		url += "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)"
	default:
		return nil, errors.New(envDatabase + " can't be read; want postgres://user@host:5432/database")
	}
	pool, err := sql.Open(driver, url)
	if err != nil {
		return nil, errors.New(envDatabase + " can't be read; want postgres://user@host:5432/database") // the driver's error may hold the password
	}
	s.pool = pool
	if s.db, err = fence.New(pool, s.dialect, fence.Config{}); err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	return s, nil
}

func (s *storage) close() { _ = s.pool.Close() }

// create makes the tables, and a row for an account.
func (s *storage) create(ctx context.Context, account string) error {
	for _, query := range []string{
		fence.Schema(s.dialect),
		"CREATE TABLE IF NOT EXISTS fencing_example (account VARCHAR(100) PRIMARY KEY, content TEXT NOT NULL)",
	} {
		if _, err := s.pool.ExecContext(ctx, query); err != nil {
			return err
		}
	}
	_, err := s.pool.ExecContext(ctx, "INSERT INTO fencing_example (account, content) VALUES ($1, '')", account)
	return err
}

func (s *storage) content(ctx context.Context, account string) (content string, err error) {
	err = s.pool.QueryRowContext(ctx, "SELECT content FROM fencing_example WHERE account = $1", account).Scan(&content)
	return content, err
}

// remove deletes what the run has left. The mark may go, since nobody locks that account again.
func (s *storage) remove(ctx context.Context, account string) error {
	_, err1 := s.pool.ExecContext(ctx, "DELETE FROM fencing_example WHERE account = $1", account)
	_, err2 := s.pool.ExecContext(ctx, "DELETE FROM signalbox_fence WHERE name = $1", account)
	return errors.Join(err1, err2)
}

func parseRedis(url string) (*redis.Options, error) {
	opt, err := redis.ParseURL(url)
	if err != nil {
		return nil, errors.New(envRedis + " can't be read; want redis://host:6379/0, rediss://... or unix:///path/to.sock")
	}
	opt.ContextTimeoutEnabled = true
	return opt, nil
}
