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
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock/fence"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// One worker works a queue and the queue of copies of its dead jobs, with the same handler. Whichever of a job and its copies is first has the effect, and it is had once: if
// the job had it before it died, if only a copy does, if the job dies again, and if it is retried beside its copy. What a handler does once for each death names its step by
// the time of the death.
func TestCopiesHaveTheEffectOnce(t *testing.T) {
	rdb := redistest.New(t).Client()
	each(t, func(t *testing.T, d *database) {
		for name, opts := range map[string][]scheduler.EnqueueOption{
			"drawn":  nil,
			"chosen": {scheduler.ID("charge-7")},
			"named":  {scheduler.EffectKey("order-7")},
			"due":    {scheduler.After(time.Millisecond)},
		} {
			for _, has := range []bool{true, false} {
				t.Run(fmt.Sprint(name, has), func(t *testing.T) {
					t.Parallel()
					d := newDatabase(t, d.dialect)
					db := d.fence(t, fence.Config{Tries: 100})
					queue := redistest.Name(t)
					w, err := worker.New(rdb, worker.Config{Queues: worker.Queues{queue: {CopyDead: queue + "-dead"}, queue + "-dead": {}}, Logger: slog.New(slog.DiscardHandler)})
					if err != nil {
						t.Fatal(err)
					}
					type end struct {
						copyOf string
						key    string
					}
					ended := make(chan end, 100)
					deaths := 0 // of the job
					worker.Handle(w, func(ctx context.Context, job *signalbox.Job, _ charge) error {
						died, copied := job.Headers[signalbox.HeaderDeadAt]
						var err error
						if copied || has || deaths == 2 {
							err = db.InTx(ctx, func(tx *fence.Tx) error {
								if copied {
									if err := tx.Once(ctx, "alert:"+died, d.earn(ctx, tx, "alert")); err != nil {
										return err
									}
								}
								return tx.Once(ctx, "debit", d.earn(ctx, tx, "debit"))
							})
						}
						if !copied && deaths < 2 {
							deaths++
							return signalbox.Dead(errors.Join(err, errors.New("boom")))
						}
						if err == nil {
							ended <- end{job.Headers[signalbox.HeaderDeadID], job.EffectKey()}
						}
						return err
					})
					ctx, stop := context.WithCancel(t.Context())
					var running sync.WaitGroup
					running.Go(func() {
						if err := w.Run(ctx); err != nil {
							t.Error(err)
						}
					})
					defer running.Wait()
					defer stop()
					ins, err := inspect.New(rdb, inspect.Config{})
					if err != nil {
						t.Fatal(err)
					}
					copied(t, ins, queue)
					s, err := scheduler.New(rdb, scheduler.Config{})
					if err != nil {
						t.Fatal(err)
					}
					res, err := s.Enqueue(ctx, charge{7}, append(opts, scheduler.Queue(queue))...)
					if err != nil {
						t.Fatal(err)
					}
					keys := make(map[string]bool)
					await := func(copyOf string) {
						t.Helper()
						select {
						case e := <-ended:
							if keys[e.key] = true; e.copyOf != copyOf {
								t.Errorf("a job has completed that is a copy of %q, want %q", e.copyOf, copyOf)
							}
						case <-time.After(patience):
							t.Fatal("the job isn't done")
						}
						if n := d.had(t, "debit"); n != 1 {
							t.Errorf("the effect was had %d times", n)
						}
					}
					await(res.ID)
					for _, copyOf := range []string{res.ID, ""} { // it dies again, and then it completes
						if _, err := ins.Do(ctx, queue, res.ID, inspect.Retry{}); err != nil {
							t.Fatal(err)
						}
						await(copyOf)
					}
					if n := d.had(t, "alert"); n != 2 || len(keys) != 1 {
						t.Errorf("%d alerts of two deaths, under %v", n, keys)
					}
				})
			}
		}
	})
}

// copied waits until the worker has said where copies of the queue's dead jobs go.
func copied(t *testing.T, ins *inspect.Inspector, queue string) {
	t.Helper()
	redistest.Eventually(t, func() bool {
		q, err := ins.Queue(t.Context(), queue)
		return err == nil && q.CopyDead != ""
	}, "the queue's dead jobs are copied")
}

// A copy that is younger than the oldest record that is kept, of a job that is older, doesn't have the effect again: nobody knows any more whether the job had it.
func TestCopyOfAForgottenEffect(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, fence.SQLite)
	db := d.fence(t, fence.Config{})
	rdb := redistest.New(t).Client()
	queue := redistest.Name(t)
	w, err := worker.New(rdb, worker.Config{Queues: worker.Queues{queue: {CopyDead: queue + "-dead"}, queue + "-dead": {}}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, _ charge) error {
		err := db.InTx(ctx, func(tx *fence.Tx) error { return tx.Once(ctx, "debit", d.earn(ctx, tx, "debit")) })
		if _, copied := job.Headers[signalbox.HeaderDeadID]; copied {
			ended <- err
			return nil
		}
		if err != nil {
			return err
		}
		// All records that are older than now are swept, as after weeks.
		d.run(t, fmt.Sprintf("DELETE FROM signalbox_once;\nUPDATE signalbox_horizon SET born = %d", time.Now().UnixMicro()))
		return signalbox.Dead(errors.New("boom"))
	})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer running.Wait()
	defer stop()
	ins, err := inspect.New(rdb, inspect.Config{})
	if err != nil {
		t.Fatal(err)
	}
	copied(t, ins, queue)
	s, err := scheduler.New(rdb, scheduler.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Enqueue(ctx, charge{7}, scheduler.Queue(queue)); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if n := d.had(t, "debit"); n != 1 || !errors.Is(err, fence.ErrForgotten) {
			t.Errorf("the effect was had %d times; the copy's is %v, want an ErrForgotten", n, err)
		}
	case <-time.After(patience):
		t.Fatal("there is no copy")
	}
}
