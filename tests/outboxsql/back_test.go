package outboxsql

import (
	"context"
	"database/sql"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/check"
	"github.com/signalbox-go/signalbox/outbox"
	"github.com/signalbox-go/signalbox/scheduler"
)

// A log keeps all messages but those for debugging.
type log struct {
	mu   sync.Mutex
	said []string
}

func (l *log) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }
func (l *log) WithAttrs([]slog.Attr) slog.Handler               { return l }
func (l *log) WithGroup(string) slog.Handler                    { return l }

func (l *log) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said = append(l.said, r.Level.String()+" "+r.Message+attrs(r))
	return nil
}

func attrs(r slog.Record) (text string) {
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	return text
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.said, "\n")
}

func (l *log) has(parts ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.said {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(line, part)
		}
		if all {
			return true
		}
	}
	return false
}

// add enqueues n rows, each in a transaction of its own, and waits until they are sent.
func (b *database) add(n int) (ids []string) {
	b.t.Helper()
	box := b.box(outbox.Config{})
	for i := range n {
		b.in(func(tx *sql.Tx) error {
			id, err := box.Enqueue(bg, tx, note{N: i})
			ids = append(ids, id)
			return err
		})
	}
	redistest.Eventually(b.t, func() bool { return settled(b, 0) }, "not settled")
	return ids
}

// there returns how many of these jobs Redis has.
func there(rdb redis.UniversalClient, ids []string) (n int) {
	for _, id := range ids {
		if ok, err := rdb.HExists(bg, "signalbox:{default:default}:jobs", id).Result(); err == nil && ok {
			n++
		}
	}
	return n
}

// Redis comes back with an older file: the batches that it lost are sent again, each job once.
func TestRedisGoesBack(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *database) {
		srv := redistest.New(t)
		rdb := srv.Client()
		said := &log{}
		b.relay(rdb, outbox.RelayConfig{Logger: slog.New(said)})
		ids := b.add(20)
		for b.number("SELECT COUNT(DISTINCT shard) FROM signalbox_outbox_batch") < 4 {
			ids = append(ids, b.add(5)...) // a shard of which Redis then has nothing would be an error
		}
		if err := rdb.Save(bg).Err(); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, b.add(20)...)
		if n := there(rdb, ids); n != len(ids) {
			t.Fatalf("%d jobs of %d", n, len(ids))
		}
		srv.Kill()
		srv.Restart() // with the file of 20 jobs ago
		redistest.Eventually(t, func() bool { return there(rdb, ids) == len(ids) && settled(b, 0) }, "not healed: %q", said)
		if !said.has("WARN", "Redis has lost batches") || said.has("ERROR") {
			t.Errorf("said %q", said.said)
		}
		ids = append(ids, b.add(5)...)
		if n, m := enqueued(t, rdb, "default"), there(rdb, ids); int(n) != len(ids) || m != len(ids) {
			t.Errorf("%d jobs were enqueued, and %d are there; want %d", n, m, len(ids))
		}
		if err := check.Queue(bg, store.New(rdb, "", "default").Site()); err != nil {
			t.Error(err)
		}
	})
}

// What Redis lost from before the window is reported. What the database still has is sent again.
func TestRedisGoesBackTooFar(t *testing.T) {
	t.Parallel()
	b := open(t, outbox.PostgreSQL)
	srv := redistest.New(t)
	rdb := srv.Client()
	said := &log{}
	b.relay(rdb, outbox.RelayConfig{Logger: slog.New(said), Window: time.Second})
	old := b.add(20)
	redistest.Eventually(t, func() bool { return b.number("SELECT COUNT(*) FROM signalbox_outbox") == 0 }, "not purged")
	if n := b.number("SELECT COUNT(*) FROM signalbox_outbox_batch"); n != 0 {
		t.Errorf("%d batches are left", n)
	}
	if err := rdb.FlushDB(bg).Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, func() bool { return said.has("ERROR", "are lost") }, "not reported")
	ids := b.add(5)
	redistest.Eventually(t, func() bool { return there(rdb, ids) == 5 }, "the others aren't enqueued")
	if n := there(rdb, old); n != 0 {
		t.Errorf("%d jobs that are purged are there", n)
	}
}

var tables = []string{"signalbox_outbox", "signalbox_outbox_shard", "signalbox_outbox_batch"}

// The database comes back from an older copy: that is said, and its rows are enqueued at least once.
func TestDatabaseGoesBack(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *database) {
		srv := redistest.New(t)
		rdb := srv.Client()
		said := &log{}
		stop := b.relay(rdb, outbox.RelayConfig{Logger: slog.New(said)})
		b.add(10)
		stop()
		for _, name := range tables {
			b.exec("CREATE TABLE old_" + name + " AS SELECT * FROM " + name)
		}
		stop = b.relay(rdb, outbox.RelayConfig{Logger: slog.New(said)})
		b.add(10)
		stop()
		before := enqueued(t, rdb, "default")
		for _, name := range tables {
			b.exec("DELETE FROM " + name)
			columns, overriding := "*", ""
			if name == "signalbox_outbox" && b.dialect == outbox.PostgreSQL {
				overriding = " OVERRIDING SYSTEM VALUE"
			}
			b.exec("INSERT INTO " + name + overriding + " SELECT " + columns + " FROM old_" + name)
		}
		b.relay(rdb, outbox.RelayConfig{Logger: slog.New(said)})
		ids := b.add(10)
		redistest.Eventually(t, func() bool { return there(rdb, ids) == 10 }, "rows of the restored database aren't enqueued")
		redistest.Eventually(t, func() bool { return said.has("ERROR", "the database went back") }, "not said")
		if n := enqueued(t, rdb, "default"); n < before+10 {
			t.Errorf("%d jobs were enqueued, and before %d", n, before)
		}
	})
}

// A row that Redis refuses goes to the dead rows after some tries, and holds up no other.
func TestPoison(t *testing.T) {
	t.Parallel()
	b := open(t, outbox.SQLite)
	rdb := redistest.New(t).Client()
	box := b.box(outbox.Config{Ordered: true})
	said := &log{}
	b.in(func(tx *sql.Tx) error {
		for i := range 20 {
			if _, err := box.Enqueue(bg, tx, note{N: i}); err != nil {
				return err
			}
		}
		return nil
	})
	// Go sees nothing wrong with these extras; the script does.
	b.exec("UPDATE signalbox_outbox SET shard = 'default:default/1'")
	b.exec("UPDATE signalbox_outbox SET class = x'312b0402ff' WHERE pos = 7")
	b.relay(rdb, outbox.RelayConfig{Logger: slog.New(said)})
	redistest.Eventually(t, func() bool { return enqueued(t, rdb, "default") == 19 && settled(b, 0) }, "the others aren't enqueued")
	if n := b.number("SELECT COUNT(*) FROM signalbox_outbox_dead WHERE pos = 7 AND reason <> ''"); n != 1 {
		t.Errorf("%d dead rows", n)
	}
	if !said.has("ERROR", "signalbox_outbox_dead") {
		t.Errorf("said %q", said.said)
	}
}

// A batch that had become void, and that Redis lost, holds up nobody.
func TestVoidGoesBack(t *testing.T) {
	t.Parallel()
	b := open(t, outbox.SQLite)
	srv := redistest.New(t)
	rdb := srv.Client()
	stop := b.relay(rdb, outbox.RelayConfig{Logger: quiet})
	ids := b.add(20)
	if err := rdb.Save(bg).Err(); err != nil {
		t.Fatal(err)
	}
	stop()
	box := b.box(outbox.Config{})
	b.in(func(tx *sql.Tx) error {
		for range 8 {
			if _, err := box.Enqueue(bg, tx, note{}, scheduler.ID("poison")); err != nil {
				return err
			}
		}
		return nil
	})
	b.exec("UPDATE signalbox_outbox SET class = x'312b0402ff' WHERE id = 'poison'")
	stop = b.relay(rdb, outbox.RelayConfig{Logger: quiet})
	redistest.Eventually(t, func() bool { return b.number("SELECT COUNT(*) FROM signalbox_outbox_dead") == 8 && settled(b, 0) }, "not dead")
	srv.Kill()
	srv.Restart()
	ids = append(ids, b.add(20)...)
	redistest.Eventually(t, func() bool { return there(rdb, ids) == 40 && settled(b, 0) }, "the shards stand still")
	stop()
}

// A backlog of any length drains with flat memory, and how fast is said. -drain.rows 1000000 is the long form.
func TestDrain(t *testing.T) {
	t.Parallel()
	each(t, drain)
}
