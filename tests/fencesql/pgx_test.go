package fencesql

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/signalbox-go/signalbox/lock/fence"
)

// A transaction of native pgx is guarded in one line, and replayed by Replay.
func TestPgx(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, fence.PostgreSQL)
	pool, err := pgxpool.New(t.Context(), d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	tries := 0
	inTx := func(fn func(tx pgx.Tx) error) error {
		return fence.Replay(t.Context(), fence.PostgreSQL, func() error {
			tries++
			return pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: pgx.Serializable}, fn)
		})
	}
	enter := func(ctx context.Context) error {
		return inTx(func(tx pgx.Tx) error { return fence.Pgx(tx).Enter(ctx) })
	}
	if err := enter(under(5)); err != nil {
		t.Error(err)
	}
	if stale, ok := errors.AsType[*fence.StaleError](enter(under(4))); !ok || stale.Highest != 5 {
		t.Errorf("an older one: %v", stale)
	}
	ctx := effect("e", time.Now())
	for range 2 {
		got := ""
		tries = 0
		err := inTx(func(tx pgx.Tx) (err error) {
			if tries == 1 { // another one comes between the snapshot and the guard
				if _, err := tx.Exec(ctx, "SELECT count(*) FROM ledger"); err != nil {
					return err
				}
				if err := inOther(d, ctx); err != nil {
					return err
				}
			}
			got, err = fence.Result(ctx, fence.Pgx(tx), "s", func() (string, error) {
				_, err := tx.Exec(ctx, "INSERT INTO ledger (effect) VALUES ('e')")
				return "done", err
			})
			return err
		})
		if err != nil || got != "other" {
			t.Errorf("%q, %v", got, err)
		}
	}
	if n := d.had(t, "e"); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// A pool of pgx can be used by InTx.
func TestPgxPool(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, fence.PostgreSQL)
	pool, err := pgxpool.New(t.Context(), d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	d.pool = stdlib.OpenDBFromPool(pool)
	defer d.pool.Close()
	ctx := effect("e", time.Now())
	for range 2 {
		if err := d.fence(t, fence.Config{}).InTx(ctx, func(tx *fence.Tx) error { return tx.Once(ctx, "s", d.earn(ctx, tx, "e")) }); err != nil {
			t.Error(err)
		}
	}
	if n := d.had(t, "e"); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// inOther has the effect by another transaction.
func inOther(d *database, ctx context.Context) error {
	db, err := fence.New(d.pool, d.dialect, fence.Config{})
	if err != nil {
		return err
	}
	return db.InTx(ctx, func(tx *fence.Tx) error {
		_, err := fence.Result(ctx, tx.Guard, "s", func() (string, error) { return "other", d.earn(ctx, tx, "e")() })
		return err
	})
}

// What isn't a transaction doesn't compile: each statement would commit by itself, so that a record could stay without its effect.
func TestPgxTakesOnlyTransactions(t *testing.T) {
	t.Parallel()
	takes := reflect.TypeOf(fence.Pgx[pgconn.CommandTag, pgx.Row]).In(0)
	for of, want := range map[reflect.Type]bool{
		reflect.TypeFor[pgx.Tx]():        true,
		reflect.TypeFor[*pgxpool.Tx]():   true,
		reflect.TypeFor[*pgxpool.Pool](): false,
		reflect.TypeFor[*pgxpool.Conn](): false,
		reflect.TypeFor[*pgx.Conn]():     false,
	} {
		if got := of.Implements(takes); got != want {
			t.Errorf("%v can be passed: %v, want %v", of, got, want)
		}
	}
}
