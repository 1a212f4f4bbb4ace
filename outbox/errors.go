package outbox

import (
	"errors"
	"fmt"
	"strings"
)

// ErrSchema says that the database's tables are missing, or not those of this version: run the statements of [Schema].
var ErrSchema = errors.New("the tables of the outbox are missing, or not those of this version")

// ErrNoTransaction says that the database has no transaction for the job, which would be enqueued whatever becomes of the caller's changes. An earlier
// error, such as MariaDB's deadlock, has rolled it back, or a statement has committed it, or none was begun. Nothing was written. Roll back, and run all of it again.
// In PostgreSQL it is never returned: see [Outbox.Enqueue].
var ErrNoTransaction = errors.New("the database has no transaction: an earlier error has rolled it back, or a statement such as CREATE TABLE has committed it, or none was begun; roll it back, and begin again")

// errDialect says that the database doesn't understand the dialect.
var errDialect = errors.New("the database refused a statement of its dialect")

// explain adds to a database's error what to do about it, where that is known.
func explain(d Dialect, err error) error {
	if err == nil {
		return nil
	}
	text := strings.ToLower(err.Error())
	has := func(parts ...string) bool {
		for _, part := range parts {
			if strings.Contains(text, part) {
				return true
			}
		}
		return false
	}
	switch {
	case d == MariaDB && has("error 1048") && has("'shard'"): // see Outbox.insert
		return fmt.Errorf("%w: %w", ErrNoTransaction, err)
	case has("signalbox_outbox", "unknown column") && has("does not exist", "doesn't exist", "no such table", "no such column", "has no column", "unknown column"):
		return fmt.Errorf("%w: run the statements of outbox.Schema for %s: %w", ErrSchema, d, err)
	case has("25p02", "current transaction is aborted"):
		return fmt.Errorf("the transaction had failed before: roll it back, and begin again: %w", err)
	case has("no such table", "no such column"):
		return fmt.Errorf("%w: run the statements of outbox.Schema for %s: %w", ErrSchema, d, err)
	case has("syntax", "unrecognized configuration parameter", "unknown system variable"):
		return fmt.Errorf("%w: is it really %s? %w", errDialect, d, err)
	}
	return err
}
