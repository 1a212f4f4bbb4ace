package fencesql

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/fence"
	"github.com/signalbox-go/signalbox/middleware"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

type charge struct{ Account int }

func (charge) Kind() string { return "charge" }

// kill ends the connection of a transaction on the server, as a crash of the process would.
func (d *database) kill(ctx context.Context, tx *fence.Tx) error {
	switch d.dialect {
	case fence.PostgreSQL:
		_, err := tx.ExecContext(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
		return err
	case fence.MariaDB:
		_, err := tx.ExecContext(ctx, "KILL CONNECTION_ID()")
		return err
	}
	return errors.New("the connection is gone") // SQLite has none
}

// A job of a real queue is delivered five times, under a named lock: before the transaction, in it, after it. In it, the connection is killed. Its effect is had once. Lease and
// effect key come from the context. Then the job's ID is used again, and has its effect again.
func TestHandler(t *testing.T) {
	rdb := redistest.New(t).Client()
	eachLevel(t, func(t *testing.T, d *database, db *fence.DB) {
		queue := redistest.Name(t)
		s, err := scheduler.New(rdb, scheduler.Config{})
		if err != nil {
			t.Fatal(err)
		}
		locker, err := lock.New(rdb, lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		w, err := worker.New(rdb, worker.Config{Queues: worker.Queues{queue: {Concurrency: 1}}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		crash := errors.New("crash")
		completed := make(chan int, 2)
		account := middleware.LockName(queue)
		worker.Handle(w, func(ctx context.Context, job *signalbox.Job, in charge) error {
			if job.Attempt == 1 {
				return crash // before
			}
			err := db.InTx(ctx, func(tx *fence.Tx) error {
				if err := tx.Enter(ctx); err != nil {
					return err
				}
				if err := tx.Once(ctx, "debit", d.earn(ctx, tx, "debit")); err != nil {
					return err
				}
				if err := tx.Once(ctx, "credit", d.earn(ctx, tx, "credit")); err != nil {
					return err
				}
				if job.Attempt == 2 || job.Attempt == 4 {
					return errors.Join(d.kill(ctx, tx), crash) // inside
				}
				return nil
			})
			if err != nil || job.Attempt < 5 {
				return errors.Join(err, crash) // after
			}
			completed <- job.Attempt
			return nil
		}, worker.With(middleware.Lock(locker, account)), worker.Retry(worker.ExponentialJitter(time.Millisecond, 2*time.Millisecond)))
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := w.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		defer running.Wait()
		defer stop()
		for n := int64(1); n <= 2; n++ {
			redistest.Eventually(t, func() bool { // until the one before has completed
				res, err := s.Enqueue(ctx, charge{7}, scheduler.Queue(queue), scheduler.ID("charge-7"))
				if err != nil {
					t.Fatal(err)
				}
				return res.New
			}, "the job is new")
			select {
			case attempt := <-completed:
				if attempt != 5 {
					t.Errorf("completed by attempt %d", attempt)
				}
			case <-time.After(patience):
				t.Fatal("the job isn't done")
			}
			if debits, credits := d.had(t, "debit"), d.had(t, "credit"); debits != n || credits != n {
				t.Errorf("after job %d there are %d debits and %d credits", n, debits, credits)
			}
		}
		if n := d.number(t, fmt.Sprintf("SELECT count(*) FROM signalbox_fence WHERE name = '%s%s' AND issuer = 'redis'", middleware.KeyPrefix, queue)); n != 1 {
			t.Errorf("%d marks of the lock", n)
		}
	})
}

// A lock of several keys enters each of them.
func TestLockOfSeveralKeys(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, fence.SQLite)
	locker, err := lock.New(redistest.New(t).Client(), lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	a, b := redistest.Name(t)+"-a", redistest.Name(t)+"-b"
	l, err := locker.AcquireAll(t.Context(), b, a)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release(t.Context())
	db := d.fence(t, fence.Config{})
	if err := db.InTx(t.Context(), func(tx *fence.Tx) error { return tx.Enter(t.Context(), l) }); err != nil {
		t.Error(err)
	}
	if n := d.number(t, fmt.Sprintf("SELECT count(*) FROM signalbox_fence WHERE name IN ('%s', '%s') AND token = %d", a, b, l.Token())); n != 2 {
		t.Errorf("%d marks", n)
	}
}
