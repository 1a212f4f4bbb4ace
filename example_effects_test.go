package signalbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/fence"
	"github.com/signalbox-go/signalbox/middleware"
	"github.com/signalbox-go/signalbox/outbox"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// The Go code of docs/effects.md and docs/effects is from this file, or from tests/outboxsql if it needs pgx or gorm: TestDocsEffects
// compares them. It is only compiled. The tests of tests/outboxsql and tests/fencesql run the same calls.

var _ = func() (*outbox.Outbox, error) {
	box, err := outbox.New(outbox.PostgreSQL, outbox.Config{}) // one for the whole program
	return box, err
}

var _ = func(ctx context.Context, tx *sql.Tx, box *outbox.Outbox) error {
	items := []scheduler.Item{{Args: Charge{Account: 7, Cents: 100}}, {Args: Charge{Account: 8, Cents: 50}}}
	if _, err := box.EnqueueMany(ctx, tx, items, scheduler.Queue("cards")); err != nil {
		return err
	}
	return nil
}

var _ = func(w *worker.Worker, db *sql.DB) {
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, in Address) error {
		sequence, ok := outbox.Sequence(job)
		if !ok {
			return errors.New("the job has no sequence: was it enqueued without Ordered, or without a group?")
		}
		_, err := db.ExecContext(ctx, `UPDATE customers SET address = $1, sequence = $2 WHERE id = $3 AND sequence < $2`, in.Text, sequence, in.Customer)
		return err
	})
}

// An Address is that of a customer from now on.
type Address struct {
	Customer int64
	Text     string
}

// Kind names the work.
func (Address) Kind() string { return "customer.address" }

var _ = func(ctx context.Context, db *sql.DB, box *outbox.Outbox, order, account, cents int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id, cents) VALUES ($1, $2)`, order, cents); err != nil {
		return err
	}
	if _, err := box.Enqueue(ctx, tx, Charge{Account: account, Cents: cents}, scheduler.Queue("cards")); err != nil {
		return err
	}
	return tx.Commit() // the job is enqueued soon after, or never if this fails
}

var _ = func(ctx context.Context, db *sql.DB, rdb redis.UniversalClient) error {
	relay, err := outbox.NewRelay(db, rdb, outbox.RelayConfig{Dialect: outbox.PostgreSQL})
	if err != nil {
		return err
	}
	return relay.Run(ctx) // until ctx ends
}

var _ = func(ctx context.Context, db *sql.DB, w *worker.Worker, locker lock.Locker) error {
	guarded, err := fence.New(db, fence.PostgreSQL, fence.Config{}) // db is a *sql.DB
	if err != nil {
		return err
	}
	if err := guarded.Check(ctx); err != nil { // the tables are there, and the clocks agree
		return err
	}

	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, in Charge) error {
		return guarded.InTx(ctx, func(tx *fence.Tx) error {
			return tx.Once(ctx, "debit", func() error {
				_, err := tx.ExecContext(ctx, `UPDATE accounts SET cents = cents - $1 WHERE id = $2`, in.Cents, in.Account)
				return err
			})
		})
	})

	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, in Charge) error {
		return guarded.InTx(ctx, func(tx *fence.Tx) error {
			if err := tx.Enter(ctx); err != nil { // first, before anything is read
				return err
			}
			return tx.Once(ctx, "debit", func() error { return debit(ctx, tx, in) })
		})
	}, worker.LockBy(locker, func(in Charge) string { return fmt.Sprintf("account:%d", in.Account) }))
	return nil
}

func debit(context.Context, *fence.Tx, Charge) error { return nil }

func pay(context.Context, *fence.Tx) error { return nil }

var _ = func(ctx context.Context, tx *fence.Tx) (int64, error) {
	number, err := fence.Result(ctx, tx.Guard, "number", func() (n int64, err error) {
		err = tx.QueryRowContext(ctx, `UPDATE counters SET n = n + 1 WHERE name = 'invoice' RETURNING n`).Scan(&n)
		return n, err
	})
	return number, err
}

var _ = func(ctx context.Context, guarded *fence.DB) (int64, error) {
	deleted, err := guarded.Sweep(ctx, 30*24*time.Hour) // in a cron entry, such as once a day
	return deleted, err
}

var _ = func(ctx context.Context, guarded *fence.DB, locker lock.Locker) error {
	err := lock.Do(ctx, locker, middleware.KeyPrefix+"account:7", func(ctx context.Context) error {
		return guarded.InTx(ctx, func(tx *fence.Tx) error {
			if err := tx.Enter(ctx); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, `UPDATE accounts SET cents = 0 WHERE id = 7`)
			return err
		})
	})
	return err
}

var _ = func(ctx context.Context, rdb redis.UniversalClient, cents int64) error {
	store := fence.NewRedis(rdb)
	if err := store.Enter(ctx); err != nil { // if what is written depends on what is read
		return err
	}
	return store.HSet(ctx, "account:7", "cents", cents)
}

var _ = func(ctx context.Context, report []byte) error {
	client := &http.Client{Transport: &fence.Transport{}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://accounts.example/account", nil)
	if err != nil {
		return err
	}
	res, err := client.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if err := fence.CheckResponse(res); err != nil { // 409: stale, or foreign
		return err
	}

	if err := fence.WriteFile(ctx, "report.json", report, 0o644); err != nil {
		return err
	}
	return nil
}

var _ = func(mux *http.ServeMux, guarded *fence.DB, mayWrite func(*http.Request, fence.Grant) error) {
	gate := &fence.Gate{Authorize: mayWrite}
	mux.Handle("POST /account", gate.Require(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := guarded.InTx(r.Context(), func(tx *fence.Tx) error {
			if err := tx.Enter(r.Context()); err != nil {
				return err
			}
			return pay(r.Context(), tx)
		})
		switch {
		case err == nil:
			w.WriteHeader(http.StatusNoContent)
		case !fence.Problem(w, err): // 409 or 503 with a problem document, RFC 9457
			http.Error(w, "failed", http.StatusInternalServerError)
		}
	})))
}
