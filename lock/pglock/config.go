package pglock

import (
	"cmp"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/metric"

	"github.com/signalbox-go/signalbox/lock/internal/spec"
)

// Config says how a locker works. Zero values are defaults.
type Config struct {
	// TTL is how long a lock lives in PostgreSQL unless it is extended: from 10 ms to 24 h, in whole µs. The default
	// is 30 s. The promised validity is 1 % + 2 ms shorter.
	TTL time.Duration

	// Owner names the holder to people; see [Locker.Inspect]. It is at most 128 bytes of printable ASCII. The default
	// is the host's name and the process ID.
	Owner string

	// Table is the table of locks, as name or schema.name. Names have 1 to 63 of a-z, 0-9 and _, and don't begin with a
	// digit. The default is [DefaultTable]. See [Schema]. Without a schema the table is the one that the user's search_path
	// finds. If users may find other tables of that name in other schemas, it is refused: by the search_path of this connection, by the default one,
	// or by one that is set for a role or the database. A schema that no such path has doesn't count. What others set when they connect isn't
	// known. With a schema, no other table counts.
	Table string

	// Listen says how to connect for LISTEN. The default is to connect as the pool does. Set it if the pool goes through
	// a transaction pooler, such as PgBouncer: LISTEN needs a connection to the server itself. There is one such
	// connection for each locker, and only while somebody waits.
	Listen *pgx.ConnConfig

	// MeterProvider receives the metrics of locks. The default is OpenTelemetry's global provider. The caller flushes it
	// and shuts it down.
	MeterProvider metric.MeterProvider
}

func (c Config) withDefaults() Config {
	c.TTL = cmp.Or(c.TTL, spec.DefaultTTL)
	c.Owner = cmp.Or(c.Owner, spec.DefaultOwner())
	c.Table = cmp.Or(c.Table, DefaultTable)
	return c
}

// check returns every mistake.
func (c Config) check() error {
	return errors.Join(spec.Settings{TTL: c.TTL, Owner: c.Owner}.Check(), checkTable(c.Table))
}
