package outbox

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/signalbox-go/signalbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each statement of each schema ends with a semicolon at the end of a line, and makes tables of the outbox only.
func TestSchema(t *testing.T) {
	t.Parallel()
	for _, d := range []Dialect{PostgreSQL, MariaDB, SQLite} {
		tables := 0
		for statement := range strings.SplitSeq(Schema(d), ";\n") {
			if strings.Contains(statement, "CREATE TABLE IF NOT EXISTS signalbox_outbox") {
				tables++
			}
		}
		if tables != 6 {
			t.Errorf("%s: %d tables", d, tables)
		}
	}
	if Schema("oracle") != "" {
		t.Error("an unknown dialect has a schema")
	}
}

func TestDialect(t *testing.T) {
	t.Parallel()
	for d, want := range map[Dialect]string{
		PostgreSQL: "SELECT a FROM b WHERE c = $1 AND d = $2 FOR UPDATE SKIP LOCKED",
		MariaDB:    "SELECT a FROM b WHERE c = ? AND d = ? FOR UPDATE SKIP LOCKED",
		SQLite:     "SELECT a FROM b WHERE c = ? AND d = ?",
	} {
		if got := d.sql("SELECT a FROM b WHERE c = ? AND d = ?{skip}"); got != want {
			t.Errorf("%s: %s", d, got)
		}
	}
	if got := list([]int64{1, -2, 3}); got != "(1,-2,3)" {
		t.Errorf("got %s", got)
	}
}

// The name of a shard says its queue, whatever that has in its name.
func TestShardName(t *testing.T) {
	t.Parallel()
	s, ok := parseShard(shardName("", "mail/7:x", 3))
	if !ok || s.namespace != "default" || s.queue != "mail/7:x" || s.number != 3 || s.strict() {
		t.Errorf("got %+v, %v", s, ok)
	}
	for _, name := range []string{"", "mail", "default:mail", "default:mail/x", "default:mail/03", "de fault:mail/3", "default:/3"} {
		if _, ok := parseShard(name); ok {
			t.Errorf("%q is a shard", name)
		}
	}
}

// A database's error about the tables says what to run.
func TestExplain(t *testing.T) {
	t.Parallel()
	for text, schema := range map[string]bool{
		`ERROR: relation "signalbox_outbox" does not exist (SQLSTATE 42P01)`:               true,
		`ERROR: column "shard" of relation "signalbox_outbox" does not exist`:              true,
		"Error 1146 (42S02): Table 'test.signalbox_outbox' doesn't exist":                  true,
		"Error 1054 (42S22): Unknown column 'shard' in 'field list'":                       true,
		"SQL logic error: no such table: signalbox_outbox (1)":                             true,
		"SQL logic error: table signalbox_outbox has no column named shard (1)":            true,
		"ERROR: current transaction is aborted, commands ignored until end of transaction": false,
		"driver: bad connection": false,
	} {
		cause := errors.New(text)
		if err := explain(SQLite, cause); errors.Is(err, ErrSchema) != schema || !errors.Is(err, cause) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Without a transaction a job would be enqueued whatever becomes of the caller's changes.
func TestEnqueueWithoutATransaction(t *testing.T) {
	t.Parallel()
	box, err := New(SQLite, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := box.Enqueue(t.Context(), new(sql.DB), empty{}); !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), "want a transaction") {
		t.Errorf("got %v", err)
	}
}

type empty struct{}

func (empty) Kind() string { return "empty" }
