package fencesql

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/fence"
	"github.com/signalbox-go/signalbox/middleware"
	"github.com/signalbox-go/signalbox/worker"
)

// The calls of docs/effects.md about guards, as a program makes them.

type Transfer struct{ From, To, Amount int64 }

func (Transfer) Kind() string { return "transfer" }

type bank struct {
	db     *fence.DB
	pgpool *pgxpool.Pool
	redis  *fence.Redis
}

func newBank(ctx context.Context, pool *sql.DB) (*bank, error) {
	db, err := fence.New(pool, fence.PostgreSQL, fence.Config{})
	if err != nil {
		return nil, err
	}
	if err := db.Check(ctx); err != nil { // the tables are there, the clocks agree
		return nil, err
	}
	return &bank{db: db}, nil
}

func (b *bank) transfer(ctx context.Context, job *signalbox.Job, in Transfer) error {
	return b.db.InTx(ctx, func(tx *fence.Tx) error {
		return tx.Once(ctx, "transfer", func() error {
			_, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = balance + CASE id WHEN $1 THEN -$3::bigint ELSE $3::bigint END WHERE id IN ($1, $2)", in.From, in.To, in.Amount)
			return err
		})
	})
}

func (b *bank) charge(ctx context.Context, job *signalbox.Job, in Transfer) (receipt string, err error) {
	err = b.db.InTx(ctx, func(tx *fence.Tx) error {
		receipt, err = fence.Result(ctx, tx.Guard, "charge", func() (id string, err error) {
			err = tx.QueryRowContext(ctx, "INSERT INTO charges (amount) VALUES ($1) RETURNING id", in.Amount).Scan(&id)
			return id, err
		})
		return err
	})
	return receipt, err
}

type Interest struct{ Account int64 }

func (Interest) Kind() string { return "interest" }

func register(w *worker.Worker, locker lock.Locker, b *bank) {
	worker.Handle(w, b.interest, worker.With(middleware.Lock(locker, middleware.LockName("account:7"))))
}

func (b *bank) interest(ctx context.Context, job *signalbox.Job, in Interest) error {
	err := b.db.InTx(ctx, func(tx *fence.Tx) error {
		if err := tx.Enter(ctx); err != nil { // before the first read
			return err
		}
		var balance int64
		if err := tx.QueryRowContext(ctx, "SELECT balance FROM accounts WHERE id = $1", in.Account).Scan(&balance); err != nil {
			return err
		}
		return tx.Once(ctx, "interest", func() error {
			_, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = $1 WHERE id = $2", balance+balance/100, in.Account)
			return err
		})
	})
	if errors.Is(err, fence.ErrBlocked) {
		return signalbox.Snooze(time.Second) // another holder's transaction is still open
	}
	return err
}

func (b *bank) native(ctx context.Context) error {
	return fence.Replay(ctx, fence.PostgreSQL, func() error {
		return pgx.BeginFunc(ctx, b.pgpool, func(tx pgx.Tx) error {
			guard := fence.Pgx(tx)
			if err := guard.Enter(ctx); err != nil {
				return err
			}
			return guard.Once(ctx, "book", func() error {
				_, err := tx.Exec(ctx, "INSERT INTO bookings DEFAULT VALUES")
				return err
			})
		})
	})
}

func (b *bank) own(ctx context.Context, tx *sql.Tx) error {
	return fence.SQL(tx, fence.MariaDB).Enter(ctx)
}

func (b *bank) sweep(ctx context.Context) error {
	_, err := b.db.Sweep(ctx, 30*24*time.Hour)
	return err
}

var addInterest = fence.NewScript(`
local balance = tonumber(redis.call('GET', KEYS[1]) or '0')
return redis.call('SET', KEYS[1], balance + balance * ARGV[1] / 100)`)

func (b *bank) inRedis(ctx context.Context) error {
	if err := b.redis.Set(ctx, "{account:7}:balance", 100, 0); err != nil {
		return err
	}
	_, err := b.redis.Run(ctx, addInterest, []string{"{account:7}:balance"}, 1)
	return err
}

var client = &http.Client{Transport: &fence.Transport{}}

func put(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, nil) // ctx has the lease
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return fence.CheckResponse(resp) // fence.ErrStale after a 409
}

func serveAccounts(b *bank, authorize func(*http.Request, fence.Grant) error) http.Handler {
	gate := &fence.Gate{Authorize: authorize}
	return gate.Require(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := b.db.InTx(r.Context(), func(tx *fence.Tx) error {
			if err := tx.Enter(r.Context()); err != nil {
				return err
			}
			_, err := tx.ExecContext(r.Context(), "UPDATE accounts SET seen = now() WHERE id = 7")
			return err
		})
		if err != nil && !fence.Problem(w, err) {
			http.Error(w, "internal error", http.StatusInternalServerError)
		}
	}))
}

func report(ctx context.Context, data []byte) error {
	return fence.WriteFile(ctx, "report.csv", data, 0o644)
}

// The code of the guide runs, as far as PostgreSQL and Redis are concerned.
func TestGuide(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, fence.PostgreSQL)
	d.run(t, "CREATE TABLE accounts (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, seen timestamptz);\nINSERT INTO accounts VALUES (7, 1000), (8, 0);\nCREATE TABLE charges (id TEXT PRIMARY KEY DEFAULT 'charge-1', amount BIGINT);\nCREATE TABLE bookings (n BIGSERIAL)")
	b, err := newBank(t.Context(), d.pool)
	if err != nil {
		t.Fatal(err)
	}
	if b.pgpool, err = pgxpool.New(t.Context(), d.dsn); err != nil {
		t.Fatal(err)
	}
	defer b.pgpool.Close()
	job := &signalbox.Job{ID: "7", Queue: "bank", EnqueuedAt: time.Now()}
	ctx := signalbox.NewContext(under(5), job)
	for range 2 {
		receipt, err := b.charge(ctx, job, Transfer{7, 8, 100})
		if err := errors.Join(err, b.transfer(ctx, job, Transfer{7, 8, 100}), b.interest(ctx, job, Interest{7}), b.native(ctx), b.sweep(ctx)); err != nil || receipt != "charge-1" {
			t.Errorf("%q, %v", receipt, err)
		}
	}
	if n := d.number(t, "SELECT balance FROM accounts WHERE id = 7") + d.number(t, "SELECT count(*) FROM bookings"); n != 909+1 {
		t.Errorf("it makes %d", n)
	}
	if err := b.interest(signalbox.NewContext(under(4), job), job, Interest{7}); !errors.Is(err, fence.ErrStale) {
		t.Errorf("a superseded holder: %v", err)
	}
}

var (
	_ = register
	_ = (*bank).own
	_ = (*bank).inRedis
	_ = put
	_ = serveAccounts
	_ = report
)
