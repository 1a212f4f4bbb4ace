package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/outbox"
	"github.com/signalbox-go/signalbox/scheduler"
)

type Charge struct {
	Order int64 `json:"order"`
}

func (Charge) Kind() string { return "charge" }

type pgxTx struct{ pgx.Tx }

func (t pgxTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := t.Exec(ctx, query, args...)
	return driver.RowsAffected(tag.RowsAffected()), err
}

type ChargeWorker struct {
	river.WorkerDefaults[Charge]
	pool *pgxpool.Pool
	box  *outbox.Outbox
}

func (w *ChargeWorker) Work(ctx context.Context, job *river.Job[Charge]) error {
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		id := strconv.FormatInt(job.ID, 10)
		if _, err := w.box.Enqueue(ctx, pgxTx{tx}, job.Args, scheduler.Queue("cards"), scheduler.MaxAttempts(job.MaxAttempts),
			scheduler.ID("river-"+id), scheduler.EffectKey("river/"+id)); err != nil {
			return err
		}
		done, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		if err == nil && (done.State != rivertype.JobStateCompleted || done.Attempt != job.Attempt) {
			err = errors.New("rescued by River meanwhile")
		}
		return err
	})
}

// TestFromRiver: the worker of docs/from-river.md moves each job into the outbox once: also one that River rescues in between, and a discarded one that is retried.
func TestFromRiver(t *testing.T) {
	t.Parallel()
	page, err1 := os.ReadFile("../docs/from-river.md")
	code, err2 := os.ReadFile("fromriver_test.go")
	words := func(text []byte) string { return strings.Join(strings.Fields(string(text)), " ") }
	_, work, _ := strings.Cut(words(page), "```go func (w *ChargeWorker) Work(ctx context.Context, job *river.Job[Charge]) error { return pgx.BeginFunc(")
	if work, _, found := strings.Cut(work, " ```"); !found || !strings.Contains(words(code), work) {
		t.Error("the code of the page is another one", err1, err2)
	}
	if err := missingPostgres(); err != nil && os.Getenv(redistest.Env) != "required" {
		t.Skip(err)
	}
	ctx := t.Context()
	pool, err := riverPool(ctx, servertest.PostgreSQL(t, noDisk...), 8)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	_, err1 = pool.Exec(ctx, outbox.Schema(outbox.PostgreSQL)+`; CREATE FUNCTION rescue() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			UPDATE river_job SET state = 'retryable', scheduled_at = now() WHERE 'river-' || id = NEW.id AND priority = 2 AND attempt = 1;
			RETURN NULL; END $$;
		CREATE TRIGGER rescue AFTER INSERT ON signalbox_outbox FOR EACH ROW EXECUTE FUNCTION rescue();
		INSERT INTO river_job (kind, queue, args, max_attempts, priority, state) SELECT 'charge', 'cards', jsonb_build_object('order', n), 5, 1 + n % 2, 'available' FROM generate_series(1, 20) n;
		INSERT INTO river_job (kind, queue, args, max_attempts, attempt, state, finalized_at) SELECT 'charge', 'cards', jsonb_build_object('order', n), 5, 5, 'discarded', now() FROM generate_series(21, 30) n`)
	box, err2 := outbox.New(outbox.PostgreSQL, outbox.Config{})
	workers := river.NewWorkers()
	river.AddWorker(workers, &ChargeWorker{pool: pool, box: box})
	client, err3 := river.NewClient(riverpgxv5.New(pool), &river.Config{Queues: map[string]river.QueueConfig{"cards": {MaxWorkers: 4}}, Workers: workers})
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	if err := client.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer client.Stop(context.Background())
	for id := int64(21); id <= 30; id++ {
		if _, err := client.JobRetry(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	var left, rescued, rows, ids int
	redistest.Eventually(t, func() bool {
		return pool.QueryRow(ctx, `SELECT count(*) FILTER (WHERE state <> 'completed'), count(errors) FROM river_job`).Scan(&left, &rescued) == nil && left == 0
	}, "River isn't empty")
	if err := pool.QueryRow(ctx, `SELECT count(*), count(DISTINCT id) FROM signalbox_outbox`).Scan(&rows, &ids); err != nil || rows != 30 || ids != 30 || rescued != 10 {
		t.Errorf("%v, %d rows, %d IDs, %d rescued; want 30, 30, 10", err, rows, ids, rescued)
	}
}
