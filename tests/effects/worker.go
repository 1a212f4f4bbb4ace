package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/fence"
)

// envTask is the environment variable with the task of a process.
const envTask = "LOCK_EFFECTS_TASK"

const (
	// patience bounds one try of an increment.
	patience = time.Minute
	// pause is between two tries.
	pause = 10 * time.Millisecond
)

// A task says what a process works with.
type task struct {
	Service  service
	Database database
}

// A worker makes increments, one after the other, each until it succeeds.
type worker struct {
	task     task
	locker   lock.Locker
	pool     *sql.DB
	guarded  *fence.DB
	counters counters
	out      io.Writer
}

// runWorker is the main function of a process. It makes the increments that it reads from in. The process ends with in:
// the parent closes that, or has ended.
func runWorker(text string, in io.Reader, out io.Writer) error {
	signal.Ignore(os.Interrupt) // Ctrl-C reaches all processes of a terminal; the parent handles it
	logging.Disable()           // go-redis logs each call that a fault hit
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return err
	}
	locker, closeLocker, err := t.Service.newLocker()
	if err != nil {
		return err
	}
	defer closeLocker()
	pool, err := t.Database.open(2)
	if err != nil {
		return err
	}
	defer pool.Close()
	guarded, err := fence.New(pool, t.Database.Dialect, fence.Config{})
	if err != nil {
		return err
	}
	w := &worker{task: t, locker: locker, pool: pool, guarded: guarded, counters: counters{t.Database}, out: out}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var inc increment
		if err := json.Unmarshal(lines.Bytes(), &inc); err != nil {
			return err
		}
		if err := w.make(inc); err != nil {
			return err
		}
	}
	return nil
}

// make makes an increment until it succeeds. It returns an error if it can't report.
func (w *worker) make(inc increment) error {
	for {
		if err := w.say(asked, inc, ""); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		note, err := w.try(ctx, inc)
		cancel()
		if err == nil {
			return w.say(done, inc, note)
		}
		if err := w.say(retry, inc, reason(err)); err != nil {
			return err
		}
		time.Sleep(pause)
	}
}

// repeated is the note of an acknowledgement: an earlier try had succeeded.
const repeated = "repeated"

func (w *worker) try(ctx context.Context, inc increment) (note string, err error) {
	if inc.Guarded {
		had := true
		err := w.doGuarded(ctx, inc, func() { had = false })
		if err == nil && had {
			note = repeated
		}
		return note, err
	}
	return "", w.doUnguarded(ctx, inc)
}

// doGuarded makes an increment under the lock and the guard. Its database calls go on if the lock is lost. It calls
// fresh if the increment was not had before.
func (w *worker) doGuarded(ctx context.Context, inc increment, fresh func()) error {
	name := counterName(w.task.Service.Locker, true)
	return lock.Do(ctx, w.locker, w.task.Service.Key, func(ctx context.Context) error {
		if err := w.step(held, inc); err != nil {
			return err
		}
		ctx = context.WithoutCancel(ctx)
		ctx = fence.WithEffect(ctx, fence.Effect{Namespace: w.task.Service.Locker, Key: inc.ID, Born: inc.Born})
		err := w.guarded.InTx(ctx, func(tx *fence.Tx) error {
			if err := tx.Enter(ctx); err != nil {
				return err
			}
			return tx.Once(ctx, "increment", func() error {
				fresh()
				before, err := w.counters.read(ctx, tx, name)
				if err != nil {
					return err
				}
				if err := w.step(read, inc); err != nil {
					return err
				}
				return w.counters.write(ctx, tx, name, before.with(inc.ID))
			})
		})
		if err != nil {
			return err
		}
		return w.step(wrote, inc)
	})
}

// doUnguarded makes an increment under the lock alone. It asks whether it still has the lock, and reads and writes. If
// it has written, it is content, even if the lock was lost meanwhile.
func (w *worker) doUnguarded(ctx context.Context, inc increment) error {
	name := counterName(w.task.Service.Locker, false)
	written := false
	err := lock.Do(ctx, w.locker, w.task.Service.Key, func(ctx context.Context) error {
		before, err := w.counters.read(ctx, w.pool, name)
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := w.step(read, inc); err != nil {
			return err
		}
		if err := w.counters.write(context.WithoutCancel(ctx), w.pool, name, before.with(inc.ID)); err != nil {
			return err
		}
		written = true
		return w.step(wrote, inc)
	})
	if written {
		return nil
	}
	return err
}

// step reports a phase and works for a moment.
func (w *worker) step(at phase, inc increment) error {
	if err := w.say(at, inc, ""); err != nil {
		return err
	}
	if at == inc.Slow {
		time.Sleep(aimed)
		return nil
	}
	time.Sleep(inc.Work)
	return nil
}

// say reports in one call. So a kill doesn't leave half a report.
func (w *worker) say(at phase, inc increment, note string) error {
	_, err := fmt.Fprintf(w.out, "%s %s %s\n", at, inc.ID, note)
	return err
}

// reason returns the kind of an error, in one line.
func reason(err error) string {
	switch {
	case errors.Is(err, fence.ErrStale):
		return stale
	case errors.Is(err, fence.ErrBlocked):
		return "blocked"
	case errors.Is(err, lock.ErrLost):
		return "lost"
	case errors.Is(err, lock.ErrHeld):
		return "held"
	}
	return "other: " + strings.ReplaceAll(err.Error(), "\n", " ")
}

// stale is the reason of an increment that the guard refused.
const stale = "stale"
