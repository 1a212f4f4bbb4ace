package outboxsql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/check"
	"github.com/signalbox-go/signalbox/outbox"
	"github.com/signalbox-go/signalbox/scheduler"
)

var errNo = errors.New("no")

// A job is enqueued if its transaction commits, and isn't if that is rolled back.
func TestCommitAndRollback(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *database) {
		rdb := redistest.New(t).Client()
		box := b.box(outbox.Config{})
		b.relay(rdb, outbox.RelayConfig{})
		var kept []string
		for i := range 10 {
			var id string
			err := b.try(func(tx *sql.Tx) (err error) {
				if id, err = box.Enqueue(bg, tx, note{N: i}); err == nil && i%2 == 1 {
					err = errNo
				}
				return err
			})
			if i%2 == 0 {
				kept = append(kept, id)
			} else if !errors.Is(err, errNo) {
				t.Fatal(err)
			}
		}
		redistest.Eventually(t, func() bool { return enqueued(t, rdb, "default") >= 5 }, "not enqueued")
		redistest.Eventually(t, func() bool {
			return b.number("SELECT COUNT(*) FROM signalbox_outbox WHERE batch = 0")+b.number("SELECT COUNT(*) FROM signalbox_outbox_batch WHERE sent = 0") == 0
		}, "not all rows are sent")
		q := store.New(rdb, "", "default")
		for _, id := range kept {
			if _, _, found, err := q.Looks().Show(bg, id); err != nil || !found {
				t.Errorf("job %s: %v, %v", id, found, err)
			}
		}
		if n := enqueued(t, rdb, "default"); n != 5 {
			t.Errorf("%d jobs are enqueued, want 5", n)
		}
		if err := check.Queue(bg, q.Site()); err != nil {
			t.Error(err)
		}
	})
}

// A job has what the scheduler would have given it: each option, with absolute times.
func TestOptions(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *database) {
		rdb := redistest.New(t).Client()
		box := b.box(outbox.Config{Namespace: "ns"})
		before := time.Now()
		b.in(func(tx *sql.Tx) error {
			_, err := box.Enqueue(bg, tx, note{N: 1}, scheduler.ID("plain"), scheduler.Queue("mail/7"), scheduler.Priority(signalbox.PriorityHigh),
				scheduler.MaxAttempts(3), scheduler.Header("k", "v"), scheduler.Timeout(time.Minute), scheduler.EffectKey("effect"))
			return err
		})
		for id, opts := range map[string][]scheduler.EnqueueOption{
			"later":   {scheduler.After(time.Hour)},
			"at":      {scheduler.At(before.Add(2 * time.Hour))},
			"unique":  {scheduler.Unique("one", scheduler.UntilEnded)},
			"serial":  {scheduler.Serial("acme"), scheduler.ExpireAfter(time.Hour)},
			"grouped": {scheduler.Group("acme")},
		} {
			b.in(func(tx *sql.Tx) error {
				_, err := box.Enqueue(bg, tx, note{}, append(opts, scheduler.Queue("mail/7"), scheduler.ID(id))...)
				return err
			})
		}
		b.in(func(tx *sql.Tx) error { // it meets the unique key of the other
			_, err := box.Enqueue(bg, tx, note{}, scheduler.Unique("one", scheduler.UntilEnded), scheduler.Queue("mail/7"), scheduler.ID("unique2"))
			return err
		})
		after := time.Now()
		b.relay(rdb, outbox.RelayConfig{})
		redistest.Eventually(t, func() bool {
			return b.number("SELECT COUNT(*) FROM signalbox_outbox_batch WHERE sent > 0") > 0 && b.number("SELECT COUNT(*) FROM signalbox_outbox WHERE batch = 0") == 0
		}, "not sent")
		q := store.New(rdb, "ns", "mail/7")
		redistest.Eventually(t, func() bool { c, err := q.Looks().Counts(bg); return err == nil && c.Total.Enqueued == 6 }, "not enqueued")
		job := func(id string) *signalbox.Job {
			job, _, found, err := q.Looks().Show(bg, id)
			if err != nil || !found {
				t.Fatalf("job %s: %v, %v", id, found, err)
			}
			return &job.Job
		}
		got := job("plain")
		if string(got.Payload) != `{"n":1}` || got.Kind != "note" || got.Priority != signalbox.PriorityHigh || got.MaxAttempts != 3 || got.Headers["k"] != "v" || got.Timeout != time.Minute || got.Effect != "effect" {
			t.Errorf("got %+v", got)
		}
		if at := job("later").ScheduledAt; at.Before(before.Add(time.Hour).Truncate(time.Microsecond)) || at.After(after.Add(time.Hour)) {
			t.Errorf("it is due at %v, and was enqueued between %v and %v", at, before, after)
		}
		if at := job("at").ScheduledAt; !at.Equal(before.Add(2 * time.Hour).Truncate(time.Microsecond)) {
			t.Errorf("it is due at %v", at)
		}
		// Whenever the row is sent, the job was to run first at the same time: fence.Once relies on that.
		if born := job("plain").Born; born.Before(before.Truncate(time.Microsecond)) || born.After(after) {
			t.Errorf("it was to run first at %v, and was enqueued between %v and %v", born, before, after)
		}
		for _, id := range []string{"later", "at"} {
			if got := job(id); !got.Born.Equal(got.ScheduledAt) {
				t.Errorf("%s was to run first at %v, and is due at %v", id, got.Born, got.ScheduledAt)
			}
		}
		if got := job("serial"); got.Group != "acme" || !got.Serial || got.ExpireAfter > time.Hour || got.ExpireAfter < 59*time.Minute {
			t.Errorf("got %+v", got)
		}
		names, err := store.Queues(bg, rdb, "ns")
		if err != nil || len(names) != 1 {
			t.Errorf("queues %v, %v", names, err)
		}
		if err := check.Queue(bg, q.Site()); err != nil {
			t.Error(err)
		}
	})
}

// A mistake in the arguments leaves the transaction untouched. Any other mistake says what is wrong.
func TestBadInput(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *database) {
		b.exec("CREATE TABLE mine (n bigint)")
		box := b.box(outbox.Config{})
		if _, err := box.Enqueue(bg, nil, note{}); !errors.Is(err, signalbox.ErrInvalid) {
			t.Errorf("no transaction: %v", err)
		}
		b.in(func(tx *sql.Tx) error {
			if _, err := tx.Exec("INSERT INTO mine VALUES (1)"); err != nil {
				return err
			}
			for what, enqueue := range map[string]func() (string, error){
				"secret payload": func() (string, error) { return box.Enqueue(bg, tx, unencodable{Secret: math.NaN()}) },
				"too large":      func() (string, error) { return box.Enqueue(bg, tx, large{strings.Repeat("secret", 1<<18)}) },
				"no args":        func() (string, error) { return box.Enqueue(bg, tx, nil) },
				"queue":          func() (string, error) { return box.Enqueue(bg, tx, note{}, scheduler.Queue("a b")) },
				"two times": func() (string, error) {
					return box.Enqueue(bg, tx, note{}, scheduler.After(time.Hour), scheduler.At(time.Now()))
				},
				"replicas": func() (string, error) { return box.Enqueue(bg, tx, note{}, scheduler.WaitReplicas(1, time.Second)) },
			} {
				if id, err := enqueue(); !errors.Is(err, signalbox.ErrInvalid) || id != "" || strings.Contains(err.Error(), "secretsecret") {
					t.Errorf("%s: %q, %v", what, id, err)
				}
			}
			_, err := box.Enqueue(bg, tx, note{})
			return err // the transaction goes on
		})
		if n := b.number("SELECT COUNT(*) FROM mine"); n != 1 {
			t.Errorf("the caller's transaction has %d rows", n)
		}
		if n := b.number("SELECT COUNT(*) FROM signalbox_outbox"); n != 1 {
			t.Errorf("%d rows", n)
		}

		// Without the tables the error says what to run, and the caller can roll back.
		bare := empty(t, b.dialect)
		bare.exec("CREATE TABLE mine (n bigint)")
		err := bare.try(func(tx *sql.Tx) error {
			if _, err := tx.Exec("INSERT INTO mine VALUES (1)"); err != nil {
				return err
			}
			_, err := box.Enqueue(bg, tx, note{})
			return err
		})
		if !errors.Is(err, outbox.ErrSchema) || !strings.Contains(err.Error(), "outbox.Schema") {
			t.Errorf("without the tables: %v", err)
		}
		if n := bare.number("SELECT COUNT(*) FROM mine"); n != 0 {
			t.Errorf("the caller's row is there")
		}
		bare.exec("CREATE TABLE signalbox_outbox (pos bigint)")
		if err := bare.try(func(tx *sql.Tx) error { _, err := box.Enqueue(bg, tx, note{}); return err }); !errors.Is(err, outbox.ErrSchema) {
			t.Errorf("with another table of that name: %v", err)
		}
		r, err := outbox.NewRelay(bare.db, redistest.New(t).Client(), outbox.RelayConfig{Dialect: b.dialect, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Run(bg); !errors.Is(err, outbox.ErrSchema) {
			t.Errorf("a relay without the tables: %v", err)
		}
		b.exec("UPDATE signalbox_outbox_box SET version = 7")
		if r, err = outbox.NewRelay(b.db, redistest.New(t).Client(), outbox.RelayConfig{Dialect: b.dialect, Logger: quiet}); err != nil {
			t.Fatal(err)
		}
		if err := r.Run(bg); !errors.Is(err, outbox.ErrSchema) || !strings.Contains(err.Error(), "version 7") {
			t.Errorf("a relay on tables of another version: %v", err)
		}
	})
}

var quiet = slog.New(slog.DiscardHandler)

type unencodable struct{ Secret float64 }

func (unencodable) Kind() string { return "unencodable" }

type large struct{ Text string }

func (large) Kind() string { return "large" }

// In a transaction that has failed before, the error says so.
func TestAbortedTransaction(t *testing.T) {
	t.Parallel()
	b := open(t, outbox.PostgreSQL)
	box := b.box(outbox.Config{})
	err := b.try(func(tx *sql.Tx) error {
		if _, err := tx.Exec("SELECT 1/0"); err == nil {
			t.Error("no error")
		}
		_, err := box.Enqueue(bg, tx, note{})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "roll it back") {
		t.Errorf("got %v", err)
	}
	wrong, err := outbox.New(outbox.MariaDB, outbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.try(func(tx *sql.Tx) error { _, err := wrong.Enqueue(bg, tx, note{}); return err }); err == nil || !strings.Contains(err.Error(), "really mariadb?") {
		t.Errorf("the wrong dialect: %v", err)
	}
}

// Every wrong argument is named.
func TestBadConfig(t *testing.T) {
	t.Parallel()
	if _, err := outbox.New("oracle", outbox.Config{Namespace: "a b"}); !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), "Dialect") || !strings.Contains(err.Error(), "Namespace") {
		t.Errorf("got %v", err)
	}
	_, err := outbox.NewRelay(nil, nil, outbox.RelayConfig{Poll: 1, Window: 1, TakeOver: 1, Concurrency: 1000})
	for _, word := range []string{"Dialect", "db", "Poll", "Window", "TakeOver", "Concurrency"} {
		if !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", word, err)
		}
	}
}

// pgxTx makes a pgx.Tx an outbox.Execer.
type pgxTx struct{ pgx.Tx }

func (t pgxTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := t.Exec(ctx, query, args...)
	return driver.RowsAffected(tag.RowsAffected()), err
}

func TestPgx(t *testing.T) {
	t.Parallel()
	b := open(t, outbox.PostgreSQL)
	rdb := redistest.New(t).Client()
	box := b.box(outbox.Config{Ordered: true})
	conn, err := pgx.Connect(bg, b.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(bg)
	for i := range 4 {
		err := pgx.BeginFunc(bg, conn, func(tx pgx.Tx) error {
			if _, err := box.Enqueue(bg, pgxTx{tx}, note{N: i}, scheduler.Serial("s")); err != nil {
				return err
			}
			if i%2 == 1 {
				return errNo
			}
			return nil
		})
		if err != nil && !errors.Is(err, errNo) {
			t.Fatal(err)
		}
	}
	b.relay(rdb, outbox.RelayConfig{})
	redistest.Eventually(t, func() bool { return enqueued(t, rdb, "default") == 2 }, "not enqueued")
}

func TestGorm(t *testing.T) {
	t.Parallel()
	b := open(t, outbox.PostgreSQL)
	rdb := redistest.New(t).Client()
	box := b.box(outbox.Config{})
	g, err := gorm.Open(postgres.New(postgres.Config{Conn: b.db}), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		err := g.Transaction(func(tx *gorm.DB) error {
			if _, err := box.Enqueue(bg, tx.Statement.ConnPool, note{N: i}); err != nil {
				return err
			}
			if i%2 == 1 {
				return errNo
			}
			return nil
		})
		if err != nil && !errors.Is(err, errNo) {
			t.Fatal(err)
		}
	}
	b.relay(rdb, outbox.RelayConfig{})
	redistest.Eventually(t, func() bool { return enqueued(t, rdb, "default") == 2 }, "not enqueued")
}

// What the relays publish and measure says what waits, for how long, and what is dead.
func TestState(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *database) {
		srv := redistest.New(t)
		rdb := srv.Client()
		q := store.New(rdb, "", "default")
		box := b.box(outbox.Config{})
		add := func(n int) {
			b.in(func(tx *sql.Tx) error {
				for i := range n {
					if _, err := box.Enqueue(bg, tx, note{N: i}); err != nil {
						return err
					}
				}
				return nil
			})
		}
		add(1)
		b.exec("UPDATE signalbox_outbox SET class = '9'")
		reader := sdkmetric.NewManualReader()
		c := outbox.RelayConfig{Logger: quiet, MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}
		stop := b.relay(rdb, c)
		redistest.Eventually(t, func() bool { return b.number("SELECT COUNT(*) FROM signalbox_outbox_dead") == 1 }, "not dead")
		if err := rdb.HSet(bg, "signalbox:{default:default}:settings", "max_length", "2", "layout", "3").Err(); err != nil {
			t.Fatal(err)
		}
		add(9)
		redistest.Eventually(t, func() bool { return enqueued(t, rdb, "default") >= 2 }, "not enqueued")
		stop() // the next relay publishes at once
		if err := rdb.Del(bg, "signalbox:{default:default}:outboxes").Err(); err != nil {
			t.Fatal(err)
		}
		b.relay(rdb, c)
		redistest.Eventually(t, func() bool {
			all, err := q.Outboxes().All(bg)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range all {
				return strings.Contains(text, `"dead":1`) && strings.Contains(text, `"oldest":`) && strings.Contains(text, fmt.Sprintf(`"backlog":%d`, 9-enqueued(t, rdb, "default")))
			}
			return false
		}, "not published")
		redistest.Eventually(t, func() bool {
			got := measured(t, reader)
			return got["signalbox.outbox.dead"] == 1 && got["signalbox.outbox.backlog"] > 0 && got["signalbox.outbox.lag"] > 0
		}, "not measured")
		if n := b.number("SELECT COUNT(*) FROM signalbox_outbox_dead"); n != 1 {
			t.Errorf("%d dead rows", n)
		}
		// Overshoot is at most one batch a shard; when there is room, the rest comes.
		if err := rdb.HDel(bg, "signalbox:{default:default}:settings", "max_length").Err(); err != nil {
			t.Fatal(err)
		}
		redistest.Eventually(t, func() bool { return enqueued(t, rdb, "default") == 9 }, "the others aren't enqueued")
		redistest.Eventually(t, func() bool {
			got := measured(t, reader)
			return got["signalbox.outbox.relayed enqueued"] >= 9 && got["signalbox.outbox.relayed dead"] == 1
		}, "the rows that were sent aren't counted")
	})
}

// measured returns the values of all metrics, by name and outcome.
func measured(t *testing.T, reader sdkmetric.Reader) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(bg, &all); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Gauge[int64]:
				got[m.Name] = float64(d.DataPoints[0].Value)
			case metricdata.Gauge[float64]:
				got[m.Name] = d.DataPoints[0].Value
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					outcome, _ := p.Attributes.Value("signalbox.outbox.outcome")
					got[m.Name+" "+outcome.AsString()] = float64(p.Value)
				}
			}
		}
	}
	return got
}

// A relay of another dialect than the database's ends at once, and says so.
func TestRelayOfAnotherDialect(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *database) {
		for _, d := range []outbox.Dialect{outbox.PostgreSQL, outbox.MariaDB, outbox.SQLite} {
			if d == b.dialect {
				continue
			}
			r, err := outbox.NewRelay(b.db, redistest.New(t).Client(), outbox.RelayConfig{Dialect: d})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(bg, time.Minute)
			if err := r.Run(ctx); err == nil || !strings.Contains(err.Error(), "is it really "+string(d)+"?") {
				t.Errorf("a relay for %s: %v", d, err)
			}
			cancel()
		}
	})
}
