package outboxsql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/outbox"
	"github.com/signalbox-go/signalbox/scheduler"
)

// A reply is an error that Redis replies.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// A scriptCounter counts the calls of scripts that had an error. While says is set, calls have that reply.
type scriptCounter struct {
	refused atomic.Int64
	says    atomic.Pointer[reply]
}

func (c *scriptCounter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *scriptCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (c *scriptCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.HasPrefix(strings.ToLower(cmd.Name()), "eval") {
			return next(ctx, cmd)
		}
		if says := c.says.Load(); says != nil {
			c.refused.Add(1)
			cmd.SetErr(*says)
			return *says
		}
		err := next(ctx, cmd)
		if err != nil && !redis.HasErrorPrefix(err, "NOSCRIPT") {
			c.refused.Add(1)
		}
		return err
	}
}

// What is wrong with Redis or with the queue is no row's fault: the shard stands still, that is said as an error, and no row is dead however often it was tried. When
// the fault is gone, all rows are enqueued. A shard of another queue goes on meanwhile.
func TestRedisRefuses(t *testing.T) {
	t.Parallel()
	const key = "signalbox:{default:default}:"
	for name, fault := range map[string]struct {
		break_, mend []any
		says         string
	}{
		"out of memory":      {[]any{"CONFIG", "SET", "maxmemory", "1"}, []any{"CONFIG", "SET", "maxmemory", "0"}, "OOM"},
		"key of other type":  {[]any{"SET", key + "jobs", "x"}, []any{"DEL", key + "jobs"}, "WRONGTYPE"},
		"key of the room":    {[]any{"SET", key + "dead", "x"}, []any{"DEL", key + "dead"}, "WRONGTYPE"},
		"bug of a script":    {[]any{"SAY", "ERR user_script:12: too many results to unpack script: abc, on @user_script:12."}, []any{"SAY"}, "unpack"},
		"script of others":   {[]any{"SAY", "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."}, []any{"SAY"}, "BUSY"},
		"another lane":       {[]any{"SET", "LANE", "nonsense"}, []any{"DEL", "LANE"}, "not its own"},
		"newer layout":       {[]any{"HSET", key + "settings", "layout", "99"}, []any{"HSET", key + "settings", "layout", "3"}, "layout"},
		"read-only replica":  {[]any{"REPLICAOF", "127.0.0.1", "1"}, []any{"REPLICAOF", "NO", "ONE"}, "READONLY"},
		"permission missing": {[]any{"ACL", "SETUSER", "default", "-hset"}, []any{"ACL", "SETUSER", "default", "+hset"}, "NOPERM"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t, outbox.SQLite)
			srv := redistest.New(t)
			rdb := srv.Client()
			var boxID string
			if err := b.db.QueryRow("SELECT id FROM signalbox_outbox_box").Scan(&boxID); err != nil {
				t.Fatal(err)
			}
			calls, said := &scriptCounter{}, &log{}
			do := func(args []any) {
				t.Helper()
				if args = append([]any(nil), args...); args[0] == "SAY" {
					if calls.says.Store(nil); len(args) > 1 {
						says := reply(args[1].(string))
						calls.says.Store(&says)
					}
					return
				}
				if len(args) > 1 && args[1] == "LANE" {
					args[1] = key + "outbox:" + boxID + ":1"
				}
				if err := rdb.Do(bg, args...).Err(); err != nil {
					t.Fatal(err)
				}
			}
			box := b.box(outbox.Config{})
			var ids []string
			b.in(func(tx *sql.Tx) error {
				id, err := box.Enqueue(bg, tx, note{})
				ids = append(ids, id)
				return err
			})
			b.exec("UPDATE signalbox_outbox SET shard = 'default:default/1'")
			if name == "key of the room" { // the relay looks at it only if the queue has a maximum
				do([]any{"HSET", key + "settings", "max_length", "100", "layout", "3"})
			}
			do(fault.break_)
			relays := redis.NewClient(&redis.Options{Addr: srv.Addr()})
			t.Cleanup(func() { _ = relays.Close() })
			relays.AddHook(calls)
			b.relay(relays, outbox.RelayConfig{Logger: slog.New(said)})
			redistest.Eventually(t, func() bool {
				return calls.refused.Load() >= 6 || name == "key of the room" && said.has("stands still") || b.number("SELECT COUNT(*) FROM signalbox_outbox_dead") > 0
			}, "it isn't tried again: %q", said)
			if n := b.number("SELECT COUNT(*) FROM signalbox_outbox_dead"); n != 0 {
				t.Fatalf("%d dead rows: %q", n, said)
			}
			if n := b.number("SELECT COUNT(*) FROM signalbox_outbox_batch WHERE void <> 0"); n != 0 {
				t.Fatalf("the batch is void: %q", said)
			}
			if !said.has("ERROR", "default:default/1", "stands still", fault.says) {
				t.Errorf("said %q", said)
			}
			do(fault.mend)
			redistest.Eventually(t, func() bool { return there(rdb, ids) == 1 && settled(b, 0) }, "not enqueued: %q", said)
			redistest.Eventually(t, func() bool { return said.has("INFO", "works again", "outage=", "backlog=") }, "the end isn't said: %q", said)
			if n := enqueued(t, rdb, "default"); n != 1 {
				t.Errorf("%d jobs were enqueued", n)
			}
		})
	}
}

// A shard that stands still holds up no other queue.
func TestOneQueueStandsStill(t *testing.T) {
	t.Parallel()
	b := open(t, outbox.SQLite)
	rdb := redistest.New(t).Client()
	if err := rdb.Set(bg, "signalbox:{default:broken}:jobs", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	box := b.box(outbox.Config{})
	var ids []string
	b.in(func(tx *sql.Tx) error {
		for i := range 40 {
			if _, err := box.Enqueue(bg, tx, note{N: i}, scheduler.Queue("broken")); err != nil {
				return err
			}
			id, err := box.Enqueue(bg, tx, note{N: i})
			if err != nil {
				return err
			}
			ids = append(ids, id)
		}
		return nil
	})
	said := &log{}
	b.relay(rdb, outbox.RelayConfig{Logger: slog.New(said), Concurrency: 1})
	redistest.Eventually(t, func() bool { return there(rdb, ids) == len(ids) }, "the other queue waits: %q", said)
	redistest.Eventually(t, func() bool { return said.has("ERROR", "stands still", "default:broken/") }, "said %q", said)
	if n := b.number("SELECT COUNT(*) FROM signalbox_outbox_dead"); n != 0 {
		t.Errorf("%d dead rows", n)
	}
}

// Rows whose shard has a name that is none can't be enqueued: they are dead, and that is said in the log, in the metrics and for the CLI. Other rows go on.
func TestRowsOfNoShard(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *database) {
		rdb := redistest.New(t).Client()
		box := b.box(outbox.Config{Namespace: "ns"})
		b.in(func(tx *sql.Tx) error {
			for i := range 9 {
				if _, err := box.Enqueue(bg, tx, note{N: i}, scheduler.ID(fmt.Sprint("id", i))); err != nil {
					return err
				}
			}
			return nil
		})
		strays := []string{"default", "ns:/1", "ns:default/01", "ns:default/x", "a b:default/1", ""}
		for i, name := range strays {
			b.exec(fmt.Sprintf("UPDATE signalbox_outbox SET shard = '%s' WHERE id = 'id%d'", name, i))
		}
		reader, said := sdkmetric.NewManualReader(), &log{}
		c := outbox.RelayConfig{Logger: slog.New(said), MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}
		stop := b.relay(rdb, c)
		redistest.Eventually(t, func() bool {
			return b.number("SELECT COUNT(*) FROM signalbox_outbox_dead WHERE reason LIKE '%namespace:queue/number%'") == int64(len(strays)) && settled(b, 0)
		}, "not dead: %q", said)
		for _, name := range strays {
			if !said.has("ERROR", "signalbox_outbox_dead", fmt.Sprintf("%q", name)) && !said.has("ERROR", "signalbox_outbox_dead", "shard="+name+" ") {
				t.Errorf("shard %q: said %q", name, said)
			}
		}
		redistest.Eventually(t, func() bool { return measured(t, reader)["signalbox.outbox.relayed dead"] == float64(len(strays)) }, "not counted")
		stop() // the next relay publishes at once
		if err := rdb.Del(bg, "signalbox:{ns:default}:outboxes").Err(); err != nil {
			t.Fatal(err)
		}
		b.relay(rdb, c)
		redistest.Eventually(t, func() bool {
			all, err := rdb.HVals(bg, "signalbox:{ns:default}:outboxes").Result()
			if err != nil {
				t.Fatal(err)
			}
			return strings.Contains(fmt.Sprint(all), fmt.Sprintf(`"strays":%d`, len(strays)))
		}, "not published")
		if n := b.number("SELECT COUNT(*) FROM signalbox_outbox WHERE batch > 0"); n != int64(9-len(strays)) {
			t.Errorf("%d rows are sent", n)
		}
	})
}

// A relay says that it begins and ends, and that it works again after an outage. While all is well it says nothing else.
func TestRelayLog(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *database) {
		srv := redistest.New(t)
		rdb := srv.Client()
		said := &log{}
		stop := b.relay(rdb, outbox.RelayConfig{Logger: slog.New(said), Window: time.Minute})
		for range 5 {
			b.add(3)
		}
		stop()
		lines := strings.Split(said.String(), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "INFO outbox: the relay runs") || !strings.Contains(lines[1], "INFO outbox: the relay has stopped") {
			t.Errorf("said %q", said)
		}
		for _, part := range []string{"dialect=" + string(b.dialect), "table=signalbox_outbox", "window=1m0s", "shards=0"} {
			if !strings.Contains(lines[0], part) {
				t.Errorf("%q isn't in %q", part, lines[0])
			}
		}
		if !strings.Contains(lines[len(lines)-1], "enqueued=15") {
			t.Errorf("said %q", lines[len(lines)-1])
		}

		said = &log{}
		stop = b.relay(srv.ClientWith(func(o *redis.UniversalOptions) { o.ContextTimeoutEnabled = false }), outbox.RelayConfig{Logger: slog.New(said)})
		redistest.Eventually(t, func() bool { return said.has("WARN", "set ContextTimeoutEnabled: true") }, "said %q", said)
		stop()

		said = &log{}
		b.relay(rdb, outbox.RelayConfig{Logger: slog.New(said), Window: time.Minute})
		redistest.Eventually(t, func() bool { return said.has("INFO", "the relay runs", "default:default") }, "said %q", said)
		if err := rdb.Save(bg).Err(); err != nil {
			t.Fatal(err)
		}
		srv.Kill()
		box := b.box(outbox.Config{})
		b.in(func(tx *sql.Tx) error {
			_, err := box.Enqueue(bg, tx, note{})
			return err
		})
		redistest.Eventually(t, func() bool { return said.has("WARN", "can't reach Redis") }, "said %q", said)
		if said.has("INFO", "works again") {
			t.Errorf("said %q", said)
		}
		srv.Restart()
		redistest.Eventually(t, func() bool { return settled(b, 0) && said.has("INFO", "works again", "outage=", "backlog=") }, "said %q", said)
	})
}

// A stopper stops a relay in a certain moment.
type stopper struct {
	scripts     atomic.Int64
	afterScript func()
	afterRoom   func() // when the relay has asked for room after a script
}

func (s *stopper) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *stopper) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if s.scripts.Load() > 0 && cmds[0].Name() == "hget" {
			s.afterRoom()
		}
		return err
	}
}

func (s *stopper) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && strings.HasPrefix(strings.ToLower(cmd.Name()), "eval") {
			s.scripts.Add(1)
			s.afterScript()
		}
		return err
	}
}

// A relay that is stopped when Redis has just taken a batch notes that in the database. Else another relay would send the batch again, after TakeOver.
func TestStopAfterScript(t *testing.T) {
	t.Parallel()
	for name, inTransaction := range map[string]bool{"at once": false, "in its transaction": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t, outbox.SQLite)
			srv := redistest.New(t)
			box := b.box(outbox.Config{})
			b.in(func(tx *sql.Tx) error {
				_, err := box.Enqueue(bg, tx, note{})
				return err
			})
			ctx, cancel := context.WithCancel(bg)
			defer cancel()
			rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
			t.Cleanup(func() { _ = rdb.Close() })
			hook := &stopper{afterScript: cancel, afterRoom: func() {}}
			if inTransaction {
				// The relay's transaction waits for another one, and ctx ends meanwhile.
				other, err := b.db.Driver().Open(b.dsn)
				if err != nil {
					t.Fatal(err)
				}
				defer other.Close()
				run := func(query string) {
					if _, err := other.(driver.ExecerContext).ExecContext(bg, query, nil); err != nil {
						t.Error(err)
					}
				}
				var ended sync.WaitGroup
				defer ended.Wait()
				hook.afterScript, hook.afterRoom = func() {}, sync.OnceFunc(func() {
					run("BEGIN IMMEDIATE")
					ended.Go(func() {
						ticker := time.NewTicker(time.Millisecond)
						defer ticker.Stop()
						for b.db.Stats().InUse == 0 {
							<-ticker.C
						}
						cancel()
						run("ROLLBACK")
					})
				})
			}
			rdb.AddHook(hook)
			r, err := outbox.NewRelay(b.db, rdb, outbox.RelayConfig{Dialect: b.dialect, Poll: 20 * time.Millisecond, Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Run(ctx); err != nil {
				t.Error(err)
			}
			if n, sent := enqueued(t, rdb, "default"), b.number("SELECT COUNT(*) FROM signalbox_outbox_batch WHERE sent > 0"); n != 1 || sent != 1 {
				t.Errorf("%d jobs are enqueued, and the database knows of %d batches; want 1 each", n, sent)
			}
		})
	}
}

// While Redis is away, the metrics say how much waits and for how long.
func TestMetricsWithoutRedis(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *database) {
		srv := redistest.New(t)
		proxy := redistest.NewProxy(t, srv.Addr())
		rdb := proxy.ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries = -1 })
		box := b.box(outbox.Config{})
		add := func() {
			b.in(func(tx *sql.Tx) error {
				_, err := box.Enqueue(bg, tx, note{})
				return err
			})
		}
		reader := sdkmetric.NewManualReader()
		c := outbox.RelayConfig{Logger: quiet, MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}
		stop := b.relay(rdb, c)
		add()
		redistest.Eventually(t, func() bool { return settled(b, 0) }, "not sent")
		stop() // the next relay publishes at once
		proxy.Refuse(true)
		proxy.Sever()
		add()
		b.relay(rdb, c)
		redistest.Eventually(t, func() bool {
			got := measured(t, reader)
			return got["signalbox.outbox.backlog"] == 1 && got["signalbox.outbox.lag"] > 0
		}, "not measured")
	})
}
