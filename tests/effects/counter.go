package main

import (
	"context"
	"database/sql"
	"strings"
)

// A counter is a number, and the IDs of its increments.
type counter struct {
	N   int
	IDs []string
}

func (c counter) with(id string) counter {
	return counter{c.N + 1, append(append([]string(nil), c.IDs...), id)}
}

// querier is a *sql.DB or a transaction.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

const createCounters = `CREATE TABLE counters (name VARCHAR(64) NOT NULL PRIMARY KEY, n BIGINT NOT NULL, ids TEXT NOT NULL)`

// counters read and write whole counters, as an application does that knows nothing of other writers.
type counters struct{ db database }

func (c counters) create(ctx context.Context, q querier, name string) error {
	_, err := q.ExecContext(ctx, c.db.query(`INSERT INTO counters (name, n, ids) VALUES (?, 0, '')`), name)
	return err
}

func (c counters) read(ctx context.Context, q querier, name string) (counter, error) {
	var n int
	var ids string
	err := q.QueryRowContext(ctx, c.db.query(`SELECT n, ids FROM counters WHERE name = ?`), name).Scan(&n, &ids)
	return counter{n, strings.Fields(ids)}, err
}

func (c counters) write(ctx context.Context, q querier, name string, to counter) error {
	_, err := q.ExecContext(ctx, c.db.query(`UPDATE counters SET n = ?, ids = ? WHERE name = ?`), to.N, strings.Join(to.IDs, " "), name)
	return err
}

// counterName returns the name of one of the two counters of a locker.
func counterName(locker string, guarded bool) string {
	if guarded {
		return locker + " guarded"
	}
	return locker + " unguarded"
}
