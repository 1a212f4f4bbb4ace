package fence

import (
	_ "embed" // the schema
	"fmt"
)

// A Dialect is a kind of database. There is no default: name yours.
type Dialect uint8

// The dialects.
const (
	PostgreSQL Dialect = iota + 1 // 12 or later
	MariaDB                       // 10.6 or later, with InnoDB
	SQLite                        // 3.35 or later
)

// String returns the dialect's name.
func (d Dialect) String() string {
	switch d {
	case PostgreSQL:
		return "PostgreSQL"
	case MariaDB:
		return "MariaDB"
	case SQLite:
		return "SQLite"
	}
	return fmt.Sprintf("Dialect(%d)", uint8(d))
}

func (d Dialect) check() error {
	if d.statements() == nil {
		return invalid("%v is no dialect; want PostgreSQL, MariaDB or SQLite", d)
	}
	return nil
}

var (
	//go:embed schema/postgresql.sql
	postgresqlSchema string
	//go:embed schema/mariadb.sql
	mariadbSchema string
	//go:embed schema/sqlite.sql
	sqliteSchema string
)

// Schema returns the statements that make the guards' tables: signalbox_fence, signalbox_once and signalbox_horizon.
// Run them as a migration. They change nothing if the tables exist. Statements end with a semicolon at the end of a
// line: some drivers take one statement at a time. It returns "" for an unknown dialect.
func Schema(d Dialect) string {
	switch d {
	case PostgreSQL:
		return postgresqlSchema
	case MariaDB:
		return mariadbSchema
	case SQLite:
		return sqliteSchema
	}
	return ""
}

// statements are the guards' queries in one dialect.
type statements struct {
	first   string // raise, unless the transaction has written; "" if the database can't tell
	raise   string // raises the mark: name, issuer, holder, token
	mark    string // reads the mark: name. In MariaDB it locks the row, and says whether a transaction runs
	horizon string // reads the horizon, and keeps a sweep away until the transaction ends
	record  string // records an effect: namespace, effect, step, born, token
	look    string // reads a record and locks it: namespace, effect, step
	renew   string // raises born of a record: born, namespace, effect, step
	result  string // sets the result of a record: result, namespace, effect, step
	lift    string // raises the horizon: born
	sweep   string // deletes some records: born
	clock   string // reads the clock, in microseconds
}

func (d Dialect) statements() *statements {
	switch d {
	case PostgreSQL:
		return &postgresqlStatements
	case MariaDB:
		return &mariadbStatements
	case SQLite:
		return &sqliteStatements
	}
	return nil
}

// postgresqlRaise returns the statement that raises a mark. rows are the row to insert, or none.
func postgresqlRaise(rows string) string {
	return `INSERT INTO signalbox_fence AS f (name, issuer, holder, token) ` + rows + `
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, token = excluded.token
WHERE f.issuer = excluded.issuer AND (f.token < excluded.token OR f.token = excluded.token AND f.holder = excluded.holder)` + returningXID
}

// returningXID makes a statement of PostgreSQL return the number of its transaction; see [Guard.write].
const returningXID = `
RETURNING txid_current()`

// sweepBatch is how many records one statement of a sweep deletes, so that none takes long.
const sweepBatch = 10_000

var (
	// At READ COMMITTED the upsert waits for another transaction and compares with what that one has left. Above that it fails with
	// 40001. Reading first and writing then would let a superseded holder win.
	postgresqlStatements = statements{
		first:   postgresqlRaise("SELECT CAST($1 AS text), CAST($2 AS text), CAST($3 AS text), CAST($4 AS bigint) WHERE txid_current_if_assigned() IS NULL"),
		raise:   postgresqlRaise("VALUES ($1, $2, $3, $4)"),
		mark:    `SELECT issuer, holder, token, 1 FROM signalbox_fence WHERE name = $1`,
		horizon: `SELECT born, 1 FROM signalbox_horizon WHERE id = 1 FOR SHARE`, // a plain read above READ COMMITTED would miss a sweep
		record: `INSERT INTO signalbox_once (namespace, effect, step, born, token) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (namespace, effect, step) DO NOTHING` + returningXID,
		look:   `SELECT born, result FROM signalbox_once WHERE namespace = $1 AND effect = $2 AND step = $3 FOR UPDATE`,
		renew:  `UPDATE signalbox_once SET born = $1 WHERE namespace = $2 AND effect = $3 AND step = $4 AND born < $1`,
		result: `UPDATE signalbox_once SET result = $1 WHERE namespace = $2 AND effect = $3 AND step = $4`,
		lift:   `UPDATE signalbox_horizon SET born = GREATEST(born, $1) WHERE id = 1`,
		sweep:  `DELETE FROM signalbox_once WHERE ctid = ANY (ARRAY(SELECT ctid FROM signalbox_once WHERE born < $1 LIMIT 10000))`,
		clock:  `SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS bigint)`,
	}

	// The number of affected rows doesn't say whether the token was stale: it is 0 or 1 for both, as clientFoundRows has it. So a locking
	// read decides. @@in_transaction is 0 if a deadlock has ended the transaction and the caller hasn't noticed: then each
	// statement would commit by itself.
	mariadbStatements = statements{
		raise: `INSERT INTO signalbox_fence (name, issuer, holder, token) VALUES (?, ?, ?, ?)
ON DUPLICATE KEY UPDATE
holder = IF(issuer = VALUES(issuer) AND token < VALUES(token), VALUES(holder), holder),
token = IF(issuer = VALUES(issuer) AND token < VALUES(token), VALUES(token), token)`,
		mark:    `SELECT issuer, holder, token, @@in_transaction FROM signalbox_fence WHERE name = ? FOR UPDATE`,
		horizon: `SELECT born, @@in_transaction FROM signalbox_horizon WHERE id = 1 LOCK IN SHARE MODE`,
		record:  `INSERT INTO signalbox_once (namespace, effect, step, born, token) VALUES (?, ?, ?, ?, ?)`, // 1062 if it is there
		look:    `SELECT born, result FROM signalbox_once WHERE namespace = ? AND effect = ? AND step = ? FOR UPDATE`,
		renew:   `UPDATE signalbox_once SET born = GREATEST(born, ?) WHERE namespace = ? AND effect = ? AND step = ?`,
		result:  `UPDATE signalbox_once SET result = ? WHERE namespace = ? AND effect = ? AND step = ?`,
		lift:    `UPDATE signalbox_horizon SET born = GREATEST(born, ?) WHERE id = 1`,
		sweep:   `DELETE FROM signalbox_once WHERE born < ? LIMIT 10000`,
		clock:   `SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`,
	}

	// Each guard begins with a write, which takes the lock of the database. A read before it could fail with 517. One writer at a time
	// needs no locking reads.
	sqliteStatements = statements{
		raise: `INSERT INTO signalbox_fence AS f (name, issuer, holder, token) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, token = excluded.token
WHERE f.issuer = excluded.issuer AND (f.token < excluded.token OR f.token = excluded.token AND f.holder = excluded.holder)`,
		mark:    `SELECT issuer, holder, token, 1 FROM signalbox_fence WHERE name = ?1`,
		horizon: `SELECT born, 1 FROM signalbox_horizon WHERE id = 1`,
		record: `INSERT INTO signalbox_once (namespace, effect, step, born, token)
SELECT ?1, ?2, ?3, ?4, ?5 FROM signalbox_horizon WHERE id = 1 AND born <= ?4
ON CONFLICT (namespace, effect, step) DO NOTHING`,
		look:   `SELECT born, result FROM signalbox_once WHERE namespace = ?1 AND effect = ?2 AND step = ?3`,
		renew:  `UPDATE signalbox_once SET born = ?1 WHERE namespace = ?2 AND effect = ?3 AND step = ?4 AND born < ?1`,
		result: `UPDATE signalbox_once SET result = ?1 WHERE namespace = ?2 AND effect = ?3 AND step = ?4`,
		lift:   `UPDATE signalbox_horizon SET born = MAX(born, ?1) WHERE id = 1`,
		sweep:  `DELETE FROM signalbox_once WHERE rowid IN (SELECT rowid FROM signalbox_once WHERE born < ?1 LIMIT 10000)`,
		clock:  `SELECT CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)`,
	}
)
