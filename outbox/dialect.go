package outbox

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"

	"github.com/signalbox-go/signalbox"
)

// A Dialect is the SQL of a kind of database.
type Dialect string

// The dialects.
const (
	PostgreSQL Dialect = "postgresql" // 12 or later
	MariaDB    Dialect = "mariadb"    // 10.6 or later
	SQLite     Dialect = "sqlite"     // 3.35 or later
)

var (
	//go:embed schema_postgresql.sql
	schemaPostgreSQL string
	//go:embed schema_mariadb.sql
	schemaMariaDB string
	//go:embed schema_sqlite.sql
	schemaSQLite string
)

// version is that of the tables.
const version = 1

// Schema returns the statements that make the tables, for a migration. They can be run again. Each statement ends with a semicolon at the end of a line.
// It returns "" for an unknown dialect.
func Schema(d Dialect) string {
	switch d {
	case PostgreSQL:
		return schemaPostgreSQL
	case MariaDB:
		return schemaMariaDB
	case SQLite:
		return schemaSQLite
	}
	return ""
}

func (d Dialect) validate() error {
	if Schema(d) == "" {
		return fmt.Errorf("%w Dialect: %.20q; want outbox.PostgreSQL, outbox.MariaDB or outbox.SQLite", signalbox.ErrInvalid, string(d))
	}
	return nil
}

// sql returns a statement in the dialect. In it ? stands for an argument, {now} for the database's clock in µs, {skip} for what passes over rows that are
// locked, and {lock} for what locks rows.
func (d Dialect) sql(text string) string {
	now, lock, skip := "", " FOR UPDATE", " FOR UPDATE SKIP LOCKED"
	switch d {
	case PostgreSQL:
		now = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS bigint)"
	case MariaDB:
		now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
	case SQLite: // its transactions exclude each other
		now, lock, skip = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000", "", ""
	}
	text = strings.NewReplacer("{now}", now, "{lock}", lock, "{skip}", skip).Replace(text)
	if d != PostgreSQL {
		return text
	}
	var out strings.Builder
	for n := 1; ; n++ {
		before, after, found := strings.Cut(text, "?")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		out.WriteString("$" + strconv.Itoa(n))
		text = after
	}
}

// ignore returns an INSERT that does nothing if the row is there. rest is what follows INTO.
func (d Dialect) ignore(rest string) string {
	if d == MariaDB {
		return "INSERT IGNORE INTO " + rest
	}
	return d.sql("INSERT INTO " + rest + " ON CONFLICT DO NOTHING")
}

// list returns numbers with commas between, in parentheses.
func list(numbers []int64) string {
	b := []byte{'('}
	for i, n := range numbers {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, n, 10)
	}
	return string(append(b, ')'))
}
