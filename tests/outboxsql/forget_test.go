package outboxsql

import (
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/outbox"
)

// listed reports whether the queue of the tests is among those of its namespace.
func listed(t *testing.T, rdb redis.UniversalClient) bool {
	t.Helper()
	names, err := rdb.SMembers(bg, "signalbox:{default:}:queues").Result()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Contains(names, "default")
}

// A relay lists the queue when it has registered it lately, and Redis has forgotten that: with its first batch, not ten minutes later.
func TestRelayListsANewQueue(t *testing.T) {
	t.Parallel()
	b := open(t, outbox.SQLite)
	rdb := redistest.New(t).Client()
	b.relay(rdb, outbox.RelayConfig{})
	b.add(3)
	if !listed(t, rdb) {
		t.Fatal("the queue isn't listed")
	}
	if err := rdb.FlushDB(bg).Err(); err != nil {
		t.Fatal(err)
	}
	b.add(1)
	redistest.Eventually(t, func() bool { return listed(t, rdb) }, "the queue is there again, and isn't listed")
}

// An outbox that no program uses any more is forgotten, and its queue removed, by the steps of docs/effects/outbox.md. A relay that comes back within a day repeats nothing. One that
// comes later sends again what it had sent in its last window.
func TestForgottenOutbox(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *database) {
		rdb := redistest.New(t).Client()
		ins, err := inspect.New(rdb, inspect.Config{})
		if err != nil {
			t.Fatal(err)
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		said := &log{}
		box := b.box(outbox.Config{})
		put := func() {
			b.in(func(tx *sql.Tx) error { _, err := box.Enqueue(bg, tx, note{}); return err })
		}
		run := func(n int) { deliveries(t, rdb, n, func(note) bool { return false }) }
		stop := b.relay(rdb, outbox.RelayConfig{Logger: slog.New(said)})
		for range 3 {
			put()
		}
		run(3)
		redistest.Eventually(t, func() bool { return settled(b, 0) }, "not settled")
		var id string
		must(b.db.QueryRow("SELECT id FROM signalbox_outbox_box").Scan(&id))
		lanes := func() []string { return rdb.Keys(bg, "signalbox:{default:default}:outbox:*").Val() }

		// While a relay runs, nothing is forgotten: it has reported the queue.
		redistest.Eventually(t, func() bool { return rdb.HExists(bg, "signalbox:{default:default}:outboxes", id).Val() }, "no report")
		if err := ins.ForgetOutbox(bg, "default", id); !errors.Is(err, inspect.ErrState) {
			t.Fatalf("a relay runs: %v", err)
		}
		stop()
		must(rdb.Del(bg, "signalbox:{default:default}:outboxes").Err()) // as a minute later
		removed := func(settings bool) error { return ins.RemoveQueue(bg, "default", inspect.Removal{Settings: settings}) }
		if err := removed(true); !errors.Is(err, inspect.ErrInUse) || !strings.Contains(err.Error(), "signalbox outbox rm default "+id) {
			t.Fatalf("the outbox has sent jobs: %v", err)
		}
		must(ins.ForgetOutbox(bg, "default", id))
		must(removed(true))
		if listed(t, rdb) || len(lanes()) == 0 {
			t.Errorf("the queue is listed: %v; what is known: %q", listed(t, rdb), lanes())
		}

		// It was too early: a relay comes back with a row, within a day.
		put()
		stop = b.relay(rdb, outbox.RelayConfig{Logger: slog.New(said)})
		run(1)
		redistest.Eventually(t, func() bool { return settled(b, 0) && listed(t, rdb) }, "not settled")
		if n := enqueued(t, rdb, "default"); n != 1 || said.has("ERROR") || said.has("WARN") {
			t.Errorf("%d jobs were enqueued, want the one; said %s", n, said)
		}
		stop()

		// Later than that, what was sent in the window is sent again.
		must(rdb.Del(bg, "signalbox:{default:default}:outboxes").Err())
		must(ins.ForgetOutbox(bg, "default", id))
		for _, lane := range lanes() {
			if ttl := rdb.PTTL(bg, lane).Val(); ttl < 24*time.Hour || ttl > 25*time.Hour {
				t.Errorf("%s stays for %v", lane, ttl)
			}
		}
		must(rdb.Del(bg, lanes()...).Err()) // as 25 hours later
		if err := ins.ForgetOutbox(bg, "default", id); !errors.Is(err, inspect.ErrNoOutbox) {
			t.Errorf("it is forgotten: %v", err)
		}
		stop = b.relay(rdb, outbox.RelayConfig{Logger: slog.New(said)})
		run(4)
		redistest.Eventually(t, func() bool { return settled(b, 0) }, "not settled")
		if !said.has("ERROR", "has it lost everything") {
			t.Errorf("said %s", said)
		}
		stop()

		// A queue that goes while its outbox stays: its shards leave the database, if nothing of them is there; then its relays report it no more.
		shards := make([]string, 8)
		for i := range shards {
			shards[i] = fmt.Sprintf("'default:default/%d'", i)
		}
		leave := "DELETE FROM signalbox_outbox_shard WHERE shard IN (" + strings.Join(shards, ", ") +
			") AND shard NOT IN (SELECT shard FROM signalbox_outbox) AND shard NOT IN (SELECT shard FROM signalbox_outbox_batch)"
		known := func() int64 { return b.number("SELECT COUNT(*) FROM signalbox_outbox_shard") }
		if b.exec(leave); known() == 0 {
			t.Error("shards with rows of the window have left")
		}
		b.relay(rdb, outbox.RelayConfig{Logger: slog.New(said), Window: time.Second})
		redistest.Eventually(t, func() bool { b.exec(leave); return known() == 0 }, "the window is over, and shards stay")
		must(rdb.Del(bg, "signalbox:{default:default}:outboxes").Err()) // as a minute later, if it isn't reported again
		must(ins.ForgetOutbox(bg, "default", id))
		must(removed(true))
		put()
		run(1)
		redistest.Eventually(t, func() bool { return settled(b, 0) }, "not settled")
		if n := enqueued(t, rdb, "default"); n != 1 {
			t.Errorf("%d jobs were enqueued, want the one", n)
		}
	})
}
