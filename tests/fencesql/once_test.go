package fencesql

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/lock/fence"
)

// A step is done once, with its result. The steps of a handler don't collide, nor do jobs, namespaces, or a job with the same ID later.
func TestOnce(t *testing.T) {
	eachLevel(t, func(t *testing.T, d *database, db *fence.DB) {
		job := func(change func(*signalbox.Job)) context.Context {
			j := &signalbox.Job{ID: "7", Queue: "mail", Incarnation: 1, EnqueuedAt: time.Now(), Token: 3}
			change(j)
			return signalbox.NewContext(t.Context(), j)
		}
		first := job(func(*signalbox.Job) {})
		deliver := func(ctx context.Context, step string, result string) (string, error) {
			var got string
			err := db.InTx(ctx, func(tx *fence.Tx) (err error) {
				got, err = fence.Result(ctx, tx.Guard, step, func() (string, error) {
					return result, d.earn(ctx, tx, "once")()
				})
				return err
			})
			return got, err
		}
		for i, c := range []struct {
			ctx    context.Context
			step   string
			result string
			want   string
			had    int64
		}{
			{first, "debit", "r1", "r1", 1},
			{first, "debit", "r2", "r1", 1},
			{job(func(j *signalbox.Job) { j.Token, j.Attempt = 9, 4 }), "debit", "r2", "r1", 1},
			{first, "credit", "r3", "r3", 2},
			{first, "Debit", "r4", "r4", 3},
			{job(func(j *signalbox.Job) { j.Incarnation = 2 }), "debit", "r5", "r5", 4}, // the ID is used again
			{job(func(j *signalbox.Job) { j.ID = "8" }), "debit", "r6", "r6", 5},
			{job(func(j *signalbox.Job) { j.Effect = "order-1" }), "debit", "r7", "r7", 6},
			{job(func(j *signalbox.Job) { j.Effect, j.ID = "order-1", "9" }), "debit", "r8", "r7", 6},
			{job(func(j *signalbox.Job) { j.Effect, j.Namespace = "order-1", "eu" }), "debit", "r9", "r9", 7},
			{job(func(j *signalbox.Job) { j.Effect = "Order-1" }), "debit", "r10", "r10", 8},
		} {
			if got, err := deliver(c.ctx, c.step, c.result); err != nil || got != c.want || d.had(t, "once") != c.had {
				t.Errorf("case %d: %q, %v, and %d effects; want %q and %d", i, got, err, d.had(t, "once"), c.want, c.had)
			}
		}
	})
}

// What fails leaves neither effect nor record: an effect that fails or panics, a result that doesn't encode or is too large. A stored result
// of another type is an error, and the effect isn't had again.
func TestOnceFails(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db := d.fence(t, fence.Config{})
		ctx := effect("e", time.Now())
		mine := errors.New("mine")
		for name, fail := range map[string]func(tx *fence.Tx) error{
			"the effect fails": func(tx *fence.Tx) error {
				return tx.Once(ctx, "s", func() error { return errors.Join(d.earn(ctx, tx, "e")(), mine) })
			},
			"the handler fails later": func(tx *fence.Tx) error {
				return errors.Join(tx.Once(ctx, "s", d.earn(ctx, tx, "e")), mine)
			},
			"its error is ignored": func(tx *fence.Tx) error {
				_ = tx.Once(ctx, "s", func() error { return errors.Join(d.earn(ctx, tx, "e")(), mine) })
				return nil
			},
			"the result doesn't encode": func(tx *fence.Tx) error {
				_, err := fence.Result(ctx, tx.Guard, "s", func() (chan int, error) { return nil, d.earn(ctx, tx, "e")() })
				if err == nil || !strings.Contains(err.Error(), "doesn't encode") {
					t.Errorf("a channel as a result: %v", err)
				}
				return errors.Join(err, mine)
			},
			"the result is too large": func(tx *fence.Tx) error {
				_, err := fence.Result(ctx, tx.Guard, "s", func() (string, error) { return strings.Repeat("x", 1<<20), d.earn(ctx, tx, "e")() })
				if !errors.Is(err, fence.ErrInvalid) {
					t.Errorf("a large result: %v", err)
				}
				return errors.Join(err, mine)
			},
			"a statement of the effect fails, and is ignored": func(tx *fence.Tx) error {
				if d.dialect != fence.PostgreSQL {
					return mine // there the transaction goes on
				}
				err := tx.Once(ctx, "s", func() error {
					_, _ = tx.ExecContext(ctx, "SELECT nothing")
					_, err := tx.ExecContext(ctx, "SELECT 1")
					if err == nil {
						t.Error("a statement runs in an aborted transaction")
					}
					return nil
				})
				if err == nil {
					t.Error("Once has no error")
				}
				return errors.Join(err, mine)
			},
		} {
			if err := db.InTx(ctx, fail); !errors.Is(err, mine) {
				t.Errorf("%s: %v", name, err)
			}
			if n := d.had(t, "e") + d.number(t, "SELECT count(*) FROM signalbox_once"); n != 0 {
				t.Fatalf("%s: there are %d effects and records", name, n)
			}
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a panic is swallowed")
				}
			}()
			_ = db.InTx(ctx, func(tx *fence.Tx) error {
				return tx.Once(ctx, "s", func() error { _ = d.earn(ctx, tx, "e")(); panic("mine") })
			})
		}()
		if n := d.had(t, "e"); n != 0 {
			t.Errorf("after a panic: %d effects", n)
		}
		err := db.InTx(ctx, func(tx *fence.Tx) error {
			_, err := fence.Result(ctx, tx.Guard, "s", func() (string, error) { return "a text", d.earn(ctx, tx, "e")() })
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		err = db.InTx(ctx, func(tx *fence.Tx) error {
			_, err := fence.Result(ctx, tx.Guard, "s", func() (int, error) { return 1, d.earn(ctx, tx, "e")() })
			return err
		})
		if err == nil || !strings.Contains(err.Error(), "doesn't decode") || d.had(t, "e") != 1 {
			t.Errorf("a result of another type: %v, %d effects", err, d.had(t, "e"))
		}
		for name, ctx := range map[string]context.Context{
			"no job":        t.Context(),
			"no Born":       effect("e", time.Time{}),
			"no key":        effect("", time.Now()),
			"a long key":    effect(strings.Repeat("k", 641), time.Now()),
			"a space":       effect("a b", time.Now()),
			"not enqueued":  signalbox.NewContext(t.Context(), &signalbox.Job{ID: "7", Queue: "mail"}),
			"in no queue":   fence.WithEffect(t.Context(), fence.Effect{Namespace: "a b", Key: "e", Born: time.Now()}),
			"the long step": context.WithValue(effect("e", time.Now()), stepKey{}, strings.Repeat("s", 129)),
			"the step":      context.WithValue(effect("e", time.Now()), stepKey{}, ""),
		} {
			step, ok := ctx.Value(stepKey{}).(string)
			if !ok {
				step = "s"
			}
			err := db.InTx(ctx, func(tx *fence.Tx) error { return tx.Once(ctx, step, d.earn(ctx, tx, "e")) })
			if !errors.Is(err, fence.ErrInvalid) || d.had(t, "e") != 1 {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

type stepKey struct{}

// Many deliveries of one job at once have its effect once. All learn its result.
func TestOnceRaces(t *testing.T) {
	eachLevel(t, func(t *testing.T, d *database, db *fence.DB) {
		for round := range 3 {
			key := fmt.Sprint("race-", round)
			ctx := effect(key, time.Now())
			var all sync.WaitGroup
			var results sync.Map
			for i := range 8 {
				all.Go(func() {
					err := db.InTx(ctx, func(tx *fence.Tx) error {
						got, err := fence.Result(ctx, tx.Guard, "s", func() (int, error) { return i, d.earn(ctx, tx, key)() })
						if err == nil && i == 0 && round == 0 {
							return errGiveUp // three inserters deadlock in MariaDB after a rollback
						}
						results.Store(got, true)
						return err
					})
					if err != nil && err != errGiveUp {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if n := d.had(t, key); n != 1 {
				t.Errorf("%d effects", n)
			}
		}
	})
}

var errGiveUp = errors.New("given up")

// A job that is older than the horizon is refused if it has no record. If it has one, it has its result.
func TestForgotten(t *testing.T) {
	eachLevel(t, func(t *testing.T, d *database, db *fence.DB) {
		now := time.Now()
		deliver := func(key string, age time.Duration) error {
			ctx := effect(key, now.Add(-age))
			return db.InTx(ctx, func(tx *fence.Tx) error { return tx.Once(ctx, "s", d.earn(ctx, tx, key)) })
		}
		sweep := func(keep time.Duration) int64 {
			n, err := db.Sweep(t.Context(), keep)
			if err != nil {
				t.Error(err)
			}
			return n
		}
		for key, age := range map[string]time.Duration{"old": 3 * time.Hour, "middle": 90 * time.Minute, "young": 0} {
			if err := deliver(key, age); err != nil {
				t.Error(err)
			}
		}
		// A later job has the key of an old one. Its own redelivery must not have the effect again after the old job was swept.
		if err := deliver("shared", 3*time.Hour); err != nil {
			t.Error(err)
		}
		if err := deliver("shared", time.Minute); err != nil {
			t.Error(err)
		}
		if n := sweep(2 * time.Hour); n != 1 {
			t.Errorf("%d records were deleted, want that of old", n)
		}
		for _, c := range []struct {
			key  string
			age  time.Duration
			want error
			had  int64
		}{
			{"old", 3 * time.Hour, fence.ErrForgotten, 1},
			{"never", 3 * time.Hour, fence.ErrForgotten, 0},
			{"middle", 90 * time.Minute, nil, 1},
			{"young", 0, nil, 1},
			{"new", 0, nil, 1},
			{"shared", time.Minute, nil, 1},
		} {
			if err := deliver(c.key, c.age); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || d.had(t, c.key) != c.had {
				t.Errorf("%s: %v, and had %d times; want %v and %d", c.key, err, d.had(t, c.key), c.want, c.had)
			}
		}
		horizon := d.number(t, "SELECT born FROM signalbox_horizon")
		if sweep(3 * time.Hour); d.number(t, "SELECT born FROM signalbox_horizon") != horizon {
			t.Error("the horizon went back")
		}
		if _, err := db.Sweep(t.Context(), time.Millisecond); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("keep of 1 ms: %v", err)
		}
	})
}

// Sweeps run beside redeliveries. No effect is had twice. What isn't had is refused.
func TestSweepBesideRedeliveries(t *testing.T) {
	eachLevel(t, func(t *testing.T, d *database, db *fence.DB) {
		const effects, hands, rounds = 40, 4, 2
		begin := time.Now()
		born := func(i int) time.Time { return begin.Add(-time.Duration(i) * time.Minute) }
		var refused [effects]atomic.Int64
		var all sync.WaitGroup
		sweeps := make(chan struct{})
		for hand := range hands {
			all.Go(func() {
				for n, i := range append(rand.Perm(effects), rand.Perm(effects)...) {
					key := fmt.Sprintf("e%02d", i)
					ctx := effect(key, born(i))
					err := db.InTx(ctx, func(tx *fence.Tx) error { return tx.Once(ctx, "s", d.earn(ctx, tx, key)) })
					switch {
					case errors.Is(err, fence.ErrForgotten):
						refused[i].Add(1)
					case err != nil:
						t.Errorf("%s: %v", key, err)
					}
					if n%hands == hand { // the others go on beside the sweep
						sweeps <- struct{}{}
					}
				}
			})
		}
		all.Go(func() { // the horizon comes nearer, and ends before the ten youngest
			const all = rounds * effects
			for n := range all {
				<-sweeps
				if _, err := db.Sweep(t.Context(), 10*time.Minute+time.Duration(all-1-n)*30*time.Second); err != nil {
					t.Error(err)
				}
			}
		})
		all.Wait()
		forgotten := 0
		for i := range effects {
			n := d.had(t, fmt.Sprintf("e%02d", i))
			if n > 1 || n == 0 && refused[i].Load() == 0 || i < 10 && (n != 1 || refused[i].Load() > 0) {
				t.Errorf("the effect that is %d minutes old was had %d times, and refused %d times", i, n, refused[i].Load())
			}
			if refused[i].Load() > 0 {
				forgotten++
			}
		}
		if forgotten == 0 {
			t.Error("nothing was refused: the sweeps came too late to test anything")
		}
	})
}
