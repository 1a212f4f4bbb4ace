package pglock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/pglock"
)

// New names every mistake.
func TestNewNamesMistakes(t *testing.T) {
	t.Parallel()
	_, err := pglock.New(nil, pglock.Config{TTL: time.Millisecond, Owner: "a\nb", Table: "a; b"})
	if !errors.Is(err, lock.ErrInvalid) {
		t.Fatalf("error %v; want ErrInvalid", err)
	}
	for _, part := range []string{"pool", "TTL", "Owner", "Table"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("it doesn't name %s: %v", part, err)
		}
	}
}

// A table's name is checked, since it becomes part of statements.
func TestTableNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "_a1", "order", "locks.of_mine", strings.Repeat("a", 63)} {
		if _, err := pglock.Schema(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{" ", "A", "1a", "a-b", "a.b.c", "a.", ".a", `a"b`, "a b", "a;", "\u00e4", "a\n", strings.Repeat("a", 64)} {
		if s, err := pglock.Schema(name); !errors.Is(err, lock.ErrInvalid) || s != "" {
			t.Errorf("%q: %v; want ErrInvalid", name, err)
		}
	}
}

// Any table can be used: in a schema, with a long name, or with the name of a keyword. The schema can be applied again.
func TestTables(t *testing.T) {
	t.Parallel()
	pool := dial(t, sharedURL(t))
	exec(t, pool, "CREATE SCHEMA select_")
	other := locker(t, pool, pglock.Config{TTL: time.Minute})
	acquire(t, other, "table")
	for _, name := range []string{"order", "select_." + strings.Repeat("t", 63)} {
		schema, err := pglock.Schema(name)
		if err != nil {
			t.Fatal(err)
		}
		exec(t, pool, schema)
		exec(t, pool, schema)
		a := locker(t, pool, pglock.Config{TTL: time.Minute, Table: name})
		b := locker(t, dial(t, sharedURL(t)), pglock.Config{TTL: time.Minute, Table: name})
		l := acquire(t, a, "table")
		got := make(chan lock.Lock, 1)
		go func() {
			heir, err := b.Acquire(t.Context(), "table")
			if err != nil {
				t.Error(err)
			}
			got <- heir
		}()
		eventually(t, "it waits", func() bool { return pglock.Waiting(b, "table") == 1 })
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if heir := <-got; heir.Token() <= l.Token() {
			t.Errorf("%s: token %d after %d", name, heir.Token(), l.Token())
		}
	}
}

// Two roles with other search_paths find different tables of one name. Neither may lock, unless it names the schema: both
// would hold the lock.
func TestTablesOfOneName(t *testing.T) {
	t.Parallel()
	base := dial(t, sharedURL(t))
	schema, err := pglock.Schema("twin")
	if err != nil {
		t.Fatal(err)
	}
	pools := map[string]*pgxpool.Pool{}
	for _, role := range []string{"left_", "right_"} {
		exec(t, base, "CREATE ROLE "+role+" LOGIN")
		exec(t, base, "CREATE SCHEMA "+role+" AUTHORIZATION "+role)
		pools[role] = dial(t, sharedURL(t), func(c *pgxpool.Config) {
			c.ConnConfig.User, c.ConnConfig.RuntimeParams["search_path"] = role, role
		})
	}
	exec(t, pools["left_"], schema)
	first := locker(t, pools["left_"], pglock.Config{Table: "twin"})
	if err := acquire(t, first, "a").Release(t.Context()); err != nil {
		t.Errorf("while there is one table: %v", err)
	}
	exec(t, pools["right_"], schema)
	for role, pool := range pools {
		_, err := locker(t, pool, pglock.Config{Table: "twin"}).TryAcquire(t.Context(), "a")
		if !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), "left_, right_") || !strings.Contains(err.Error(), "schema.twin") {
			t.Errorf("%s, without a schema: %v", role, err)
		}
		if err := acquire(t, locker(t, pool, pglock.Config{Table: role + ".twin"}), "a").Release(t.Context()); err != nil {
			t.Errorf("%s, with its schema: %v", role, err)
		}
	}
}

// A table of the same name in a schema that nobody's search_path has is no other table: a backup, or that of a tenant whose connections name their
// schema. It is one as soon as the settings of a role or of the database have its schema.
func TestTablesThatNobodyFinds(t *testing.T) {
	t.Parallel()
	base := dial(t, sharedURL(t))
	schema, err := pglock.Schema("hidden_twin")
	if err != nil {
		t.Fatal(err)
	}
	in := func(schema string) *pgxpool.Pool {
		return dial(t, sharedURL(t), func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["search_path"] = schema })
	}
	exec(t, base, "CREATE ROLE finder LOGIN")
	for _, name := range []string{"hidden_one", "hidden_two"} {
		exec(t, base, "CREATE SCHEMA "+name)
		exec(t, in(name), schema)
	}
	try := func(path string) error {
		l, err := locker(t, in(path), pglock.Config{Table: "hidden_twin"}).TryAcquire(t.Context(), "a "+path)
		if err != nil {
			return err
		}
		return l.Release(t.Context())
	}
	for _, path := range []string{"hidden_one", "hidden_two"} {
		if err := try(path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	for name, path := range map[string]string{"both": "hidden_two, hidden_one", "one and public": "public, hidden_two, hidden_one"} {
		if err := try(path); !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), "hidden_one, hidden_two") {
			t.Errorf("%s in its own search_path: %v", name, err)
		}
	}
	exec(t, base, `ALTER ROLE finder SET search_path = "$user", hidden_two`)
	if err := try("hidden_one"); !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), "hidden_one, hidden_two") {
		t.Errorf("a role finds the other table: %v", err)
	}
	if err := try("hidden_two"); err != nil {
		t.Errorf("the role finds the same table: %v", err)
	}
	exec(t, base, "ALTER ROLE finder RESET search_path")
	exec(t, base, "CREATE ROLE hidden_one NOLOGIN")
	if err := try("hidden_two"); err != nil {
		t.Errorf("nobody can log in as the role of that name: %v", err)
	}
	exec(t, base, "ALTER ROLE hidden_one LOGIN")
	if err := try("hidden_two"); !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("a role finds the table in the schema of its name: %v", err)
	}
}

// Keys that no row can have are refused, with their reason.
func TestKeys(t *testing.T) {
	t.Parallel()
	p := locker(t, dial(t, sharedURL(t)), pglock.Config{TTL: time.Minute})
	if err := acquire(t, p, strings.Repeat("k", 1024)).Release(t.Context()); err != nil {
		t.Error(err)
	}
	for key, part := range map[string]string{"": "empty", strings.Repeat("k", 1025): "1025 bytes", "a\x00": "zero", "\xff": "UTF-8"} {
		if _, err := p.TryAcquire(t.Context(), key); !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), part) {
			t.Errorf("%.20q: %v", key, err)
		}
		if _, err := p.Inspect(t.Context(), key); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("inspect %.20q: %v", key, err)
		}
	}
}

// A database that is not ready for locks gives an error that says what to do. The error isn't ErrHeld.
func TestDatabaseNotReady(t *testing.T) {
	t.Parallel()
	base := dial(t, sharedURL(t))
	param := func(name, value string) func(*pgxpool.Config) {
		return func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams[name] = value }
	}
	exec(t, base, "CREATE ROLE stranger LOGIN")
	stranger := func(c *pgxpool.Config) { c.ConnConfig.User = "stranger" }
	reader := func(c *pgxpool.Config) { c.ConnConfig.User = "reader" }
	exec(t, base, "CREATE ROLE reader LOGIN")
	exec(t, base, "GRANT SELECT ON signalbox_lock TO reader")
	exec(t, base, "CREATE TABLE foreign_columns (id int primary key, key bytea unique)")
	exec(t, base, "CREATE TABLE no_constraint AS SELECT * FROM signalbox_lock WITH NO DATA")
	exec(t, base, "CREATE TABLE foreign_types (key text primary key, token text, holder text, owner text, since text, until text, wanted text)")
	exec(t, base, "CREATE VIEW a_view AS SELECT * FROM signalbox_lock LIMIT 1")
	unlogged, err := pglock.Schema("unlogged")
	if err != nil {
		t.Fatal(err)
	}
	exec(t, base, strings.Replace(unlogged, "CREATE TABLE", "CREATE UNLOGGED TABLE", 1))

	for name, c := range map[string]struct {
		change  func(*pgxpool.Config)
		table   string
		part    string
		invalid bool
	}{
		"no table":           {nil, "missing", "pglock.Schema", true},
		"no schema":          {nil, "missing.missing", "pglock.Schema", true},
		"other columns":      {nil, "foreign_columns", "pglock.Schema", true},
		"no primary key":     {nil, "no_constraint", "pglock.Schema", true},
		"other types":        {nil, "foreign_types", "pglock.Schema", true},
		"a view":             {nil, "a_view", "pglock.Schema", true},
		"no permission":      {stranger, "", "SELECT, INSERT and UPDATE", true},
		"only for reading":   {reader, "", "SELECT, INSERT and UPDATE", true},
		"read-only":          {param("default_transaction_read_only", "on"), "", "takes no writes", false},
		"unlogged":           {nil, "unlogged", "SET LOGGED", true},
		"no durable commits": {param("synchronous_commit", "off"), "", "synchronous_commit", true},
	} {
		pool := dial(t, sharedURL(t), func(config *pgxpool.Config) {
			if c.change != nil {
				c.change(config)
			}
		})
		p := locker(t, pool, pglock.Config{Table: c.table})
		for range 2 {
			_, err := p.TryAcquire(t.Context(), "not ready")
			if err == nil || errors.Is(err, lock.ErrHeld) || errors.Is(err, lock.ErrInvalid) != c.invalid || !strings.Contains(err.Error(), c.part) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// Tokens are the server's clock in µs. If the last token is ahead of that, the next is one more.
func TestTokens(t *testing.T) {
	t.Parallel()
	pool := dial(t, sharedURL(t))
	p := locker(t, pool, pglock.Config{TTL: time.Minute})
	before := time.Now()
	l := acquire(t, p, "tokens")
	if at := time.UnixMicro(l.Token()); at.Before(before.Add(-time.Second)) || at.After(time.Now().Add(time.Second)) {
		t.Errorf("the first token is that of %v", at)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	ahead := time.Now().Add(time.Hour).UnixMicro() // the clock stepped back by an hour since
	exec(t, pool, "UPDATE signalbox_lock SET token = $1 WHERE key = 'tokens'", ahead)
	if l := acquire(t, p, "tokens"); l.Token() != ahead+1 {
		t.Errorf("token %d after %d", l.Token(), ahead)
	}
}

// Inspect says who holds the lock.
func TestInspect(t *testing.T) {
	t.Parallel()
	p := locker(t, dial(t, sharedURL(t)), pglock.Config{TTL: time.Minute, Owner: "worker 7"})
	inspect := func() lock.Info {
		info, err := p.Inspect(t.Context(), "inspect")
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	if info := inspect(); info != (lock.Info{Key: "inspect"}) {
		t.Errorf("never locked: %+v", info)
	}
	l := acquire(t, p, "inspect")
	info := inspect()
	if !info.Held || info.Owner != "worker 7" || info.Token != l.Token() || info.For <= 0 || info.For > time.Minute || time.Since(info.Since).Abs() > time.Minute {
		t.Errorf("held: %+v", info)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if info := inspect(); info != (lock.Info{Key: "inspect", Token: l.Token()}) {
		t.Errorf("released: %+v", info)
	}
}

// A pool whose connections are all in use isn't a lock that is held.
func TestPoolExhausted(t *testing.T) {
	t.Parallel()
	pool := dial(t, sharedURL(t), func(c *pgxpool.Config) { c.MaxConns = 1 })
	p := locker(t, pool, pglock.Config{TTL: 100 * time.Millisecond})
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := p.TryAcquire(t.Context(), "exhausted"); err == nil || errors.Is(err, lock.ErrHeld) || !strings.Contains(err.Error(), "connections of the pool") {
		t.Errorf("error %v", err)
	}
}
