package fence

import (
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A fault is what an error of a database means to a guard.
type fault uint8

const (
	faultOther     fault = iota
	faultReplay          // the whole transaction must be replayed
	faultBusy            // another holds a lock for too long; a replay may help
	faultBlocked         // another held a lock for longer than the user allows
	faultDuplicate       // the key is there
	faultSchema          // a table or a column is missing
	faultAborted         // an earlier error has ended the transaction
)

// faultOf classifies an error. No driver is imported for that. The drivers of PostgreSQL (pgx, lib/pq) have a method for the code. So has
// modernc.org/sqlite. That of MariaDB (go-sql-driver/mysql) has it in a field, and at the beginning of the message: "Error 1213 (40001): ". The
// message is read, since reading the field takes reflection. The other driver of SQLite (mattn/go-sqlite3) is known by its message, too.
func (d Dialect) faultOf(err error) fault {
	if errors.Is(err, sql.ErrTxDone) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, ErrNoTransaction) {
		return faultAborted
	}
	switch d {
	case PostgreSQL:
		var coded interface{ SQLState() string }
		if errors.As(err, &coded) {
			return postgresqlFault(coded.SQLState())
		}
	case MariaDB:
		return find(err, mariadbFault)
	case SQLite:
		return find(err, sqliteFault)
	}
	return faultOther
}

// find returns the first fault that is known in the tree of err.
func find(err error, known func(error) fault) fault {
	if err == nil {
		return faultOther
	}
	if f := known(err); f != faultOther {
		return f
	}
	switch x := err.(type) {
	case interface{ Unwrap() error }:
		return find(x.Unwrap(), known)
	case interface{ Unwrap() []error }:
		for _, e := range x.Unwrap() {
			if f := find(e, known); f != faultOther {
				return f
			}
		}
	}
	return faultOther
}

func postgresqlFault(state string) fault {
	switch state {
	case "40001", "40P01":
		return faultReplay
	case "55P03":
		return faultBlocked
	case "42P01", "42703", "42804", "42P10", "42883": // table, column, type, index for ON CONFLICT, operator
		return faultSchema
	case "25P02":
		return faultAborted
	}
	return faultOther
}

// code returns the number of an error of MariaDB, or 0.
func code(err error) int {
	text, ok := strings.CutPrefix(err.Error(), "Error ")
	if !ok {
		return 0
	}
	end := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	if end <= 0 || text[end] != ' ' && text[end] != ':' {
		return 0
	}
	n, _ := strconv.Atoi(text[:end])
	return n
}

func mariadbFault(err error) fault {
	switch code(err) {
	case 1213, 1020: // deadlock; record has changed since last read
		return faultReplay
	case 1205:
		return faultBusy
	case 1062:
		return faultDuplicate
	case 1146, 1054, 1136, 1406: // table, column, number of columns, data too long
		return faultSchema
	}
	return faultOther
}

func sqliteFault(err error) fault {
	const busy, snapshot = 5, 517
	text := err.Error()
	if coded, ok := err.(interface{ Code() int }); ok {
		if code := coded.Code(); code == busy || code == snapshot || code&0xff == busy || code&0xff == 6 {
			return faultBusy
		}
	} else if _, nested := err.(interface{ Unwrap() error }); !nested && (strings.HasPrefix(text, "database is locked") || strings.HasPrefix(text, "database table is locked")) {
		return faultBusy
	}
	if strings.Contains(text, "no such table: signalbox_") || strings.Contains(text, "no such column") || strings.Contains(text, "has no column named") || strings.Contains(text, "does not match any PRIMARY KEY or UNIQUE") {
		return faultSchema
	}
	return faultOther
}

// explain says what an error of a guard's own statement means.
func (d Dialect) explain(doing string, err error) error {
	switch d.faultOf(err) {
	case faultSchema:
		return fmt.Errorf("%w: %s: run the statements of fence.Schema(fence.%v): %w", ErrSchema, doing, d, err)
	case faultBlocked:
		return fmt.Errorf("%w: %s: %w", ErrBlocked, doing, err)
	case faultAborted:
		return fmt.Errorf("fence: %s: an earlier error has ended the transaction; roll it back and begin another: %w", doing, err)
	}
	return fmt.Errorf("fence: %s: %w", doing, err)
}
