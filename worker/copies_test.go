package worker_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/internal/store/settings"
	"github.com/signalbox-go/signalbox/worker"
)

// failing returns a worker of the rig's queue whose jobs die at their first attempt, unless their payload has a number below 0.
func (r *rig) failing(rdb redis.UniversalClient, cfg worker.Config) *worker.Worker {
	r.Helper()
	w := r.workerOn(rdb, cfg)
	worker.Handle(w, func(_ context.Context, _ *signalbox.Job, a task) error {
		if a.N < 0 {
			return nil
		}
		return errors.New("boom")
	})
	return w
}

// copying is config for a worker whose dead jobs are copied.
func (r *rig) copying(to *rig) worker.Config {
	cfg := r.config(4)
	cfg.Queues[r.name()] = worker.Queue{Concurrency: 4, CopyDead: to.name()}
	return cfg
}

// copies waits until the queue has n jobs that are ready, and returns of which jobs they are copies.
func (r *rig) copies(n int64) (of map[string]int) {
	r.Helper()
	r.until("there are copies", func(c looks.Counts) bool { return c.Ready >= n })
	of = make(map[string]int)
	for _, id := range r.rdb.LRange(r.Context(), r.key("ready:normal"), 0, -1).Val() {
		of[r.job(id).Headers[signalbox.HeaderDeadID]]++
	}
	return of
}

// noteless waits until no death is noted.
func (r *rig) noteless() {
	r.Helper()
	redistest.Eventually(r.T, func() bool { return r.rdb.Exists(r.Context(), r.key("notes")).Val() == 0 }, "no death is noted")
}

// dies is a job that fails at its only attempt.
var dies = signalbox.Job{MaxAttempts: 1}

// A worker copies the jobs that die in it, at once.
func TestDeadJobsAreCopied(t *testing.T) {
	t.Parallel()
	r, to := newRig(t), newRig(t)
	r.start(r.failing(r.rdb, r.copying(to)))
	r.until("the worker has begun", func(looks.Counts) bool {
		return r.rdb.HGet(t.Context(), r.key("settings"), "copy_dead").Val() == to.name()
	})
	r.ready()
	failed := r.add(dies, dies)
	for _, id := range failed {
		if of := to.copies(2); of[id] != 1 {
			t.Errorf("copies %v, want one of %s", of, id)
		}
	}
	for id := range to.copies(2) {
		if e := r.job(id).LastError; e != "boom" {
			t.Errorf("the dead job's error is %q", e)
		}
	}
	r.noteless()
	if c := r.counts(); c.Dead != 2 {
		t.Errorf("counts %+v", c)
	}
	if n := r.log.count("dead jobs") - r.log.count("DEBUG", "dead jobs were copied"); n > 0 {
		t.Errorf("%d lines are about copies", n)
	}
}

// So are jobs that crash for the last time.
func TestDeathsByCrashAreCopied(t *testing.T) {
	t.Parallel()
	r, to := newRig(t), newRig(t)
	poison := r.poison()
	r.die(1)
	w := r.failing(r.rdb, r.copying(to))
	r.start(w)
	if of := to.copies(1); of[poison] != 1 {
		t.Errorf("copies %v, want one of %s", of, poison)
	}
	r.noteless()
}

// A worker that starts copies what another one has left: here one that was stopped between the copy and the end of its note, so that there is no
// second copy. The first one goes on with its jobs, and renews its session, while it can't copy.
func TestCopiesThatAWorkerLeft(t *testing.T) {
	t.Parallel()
	for name, forgets := range map[string]bool{"copied": false, "copied and forgotten": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, to := newRig(t), newRig(t)
			proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
			held, free := proxy.HoldRequests(func(cmd []string) bool { // the end of a note: a script whose fourth and last key is that of the notes
				return len(cmd) > 6 && strings.HasPrefix(strings.ToUpper(cmd[0]), "EVAL") && cmd[2] == "4" && cmd[6] == r.key("notes")
			})
			defer free()
			r.start(r.failing(proxy.Client(), r.copying(to)))
			r.ready()
			dead := r.addOne(dies)
			get(t, held, "the worker has copied the job")
			r.addOne(signalbox.Job{Payload: []byte(`{"n":-1}`)})
			r.completed(1)
			first := to.rdb.LRange(t.Context(), to.key("ready:normal"), 0, -1).Val()
			if forgets { // as after a FLUSHALL, or a failover
				if err := to.rdb.Del(t.Context(), to.key("jobs"), to.key("ready:normal"), to.key("stats")).Err(); err != nil {
					t.Fatal(err)
				}
			}
			cfg := r.copying(to)
			log := &logbook{}
			cfg.Logger = slog.New(log)
			r.start(r.failing(r.rdb, cfg))
			r.noteless()
			second := to.rdb.LRange(t.Context(), to.key("ready:normal"), 0, -1).Val()
			if len(first) != 1 || len(second) != 1 || first[0] != second[0] {
				t.Errorf("the copy was %q, and is %q", first, second)
			}
			if of := to.copies(1); of[dead] != 1 {
				t.Errorf("copies %v", of)
			}
		})
	}
}

// If the other queue takes no jobs, the log says so once, and the jobs are copied later. The worker's own queue goes on.
func TestCopiesAreTriedAgain(t *testing.T) {
	t.Parallel()
	r, to := newRig(t), newRig(t)
	ctx := t.Context()
	if err := to.rdb.HSet(ctx, to.key("settings"), "layout", layout.Protocol+1).Err(); err != nil {
		t.Fatal(err)
	}
	w := r.failing(r.rdb, r.copying(to))
	r.start(w)
	r.ready()
	r.add(dies, dies, dies)
	r.log.says(t, "dead jobs can't be copied, and are tried again", "WARN", "to="+to.name())
	r.addOne(signalbox.Job{Payload: []byte(`{"n":-1}`)})
	r.until("the jobs have ended", func(c looks.Counts) bool { return c.Dead == 3 && c.Total.Completed == 1 })
	if problems := w.Health().Problems; len(problems) > 0 {
		t.Errorf("the worker has problems: %+v", problems)
	}
	if err := to.rdb.HSet(ctx, to.key("settings"), "layout", layout.Protocol).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.queue.Settings().SetSlots(ctx, 2); err != nil { // then workers look at the settings, as they do each minute
		t.Fatal(err)
	}
	if of := to.copies(3); len(of) != 3 {
		t.Errorf("copies %v, want one of each", of)
	}
	r.noteless()
	if n := r.log.count("dead jobs can't be copied"); n != 1 {
		t.Errorf("%d lines say so, want 1", n)
	}
}

// The other queue is full. As soon as it has room, or a few seconds later, it gets the copies.
func TestCopiesWaitForRoom(t *testing.T) {
	t.Parallel()
	r, to := newRig(t), newRig(t)
	ctx := t.Context()
	if _, err := to.queue.Settings().SetMaxLength(ctx, 1); err != nil {
		t.Fatal(err)
	}
	to.addOne(signalbox.Job{ID: "first"})
	r.start(r.failing(r.rdb, r.copying(to)))
	r.ready()
	r.add(dies, dies, dies)
	r.log.says(t, "dead jobs can't be copied, and are tried again", "WARN", "to="+to.name())
	r.until("the jobs are dead", func(c looks.Counts) bool { return c.Dead == 3 })
	if _, err := to.queue.Settings().SetMaxLength(ctx, 4); err != nil {
		t.Fatal(err)
	}
	to.until("the copies are there", func(c looks.Counts) bool { return c.Ready == 4 })
	r.noteless()
}

// What an operator sets counts more than a Config that was there before, also where they say that there are to be no copies. A worker that runs hears of a change.
func TestCopiesBySettings(t *testing.T) {
	t.Parallel()
	r, to := newRig(t), newRig(t)
	ctx := t.Context()
	if _, err := r.queue.Settings().Tell(ctx, "another", settings.Wanted{CopyDead: to.name()}); err != nil {
		t.Fatal(err)
	}
	if err := r.queue.Settings().SetCopies(ctx, ""); err != nil {
		t.Fatal(err)
	}
	r.start(r.failing(r.rdb, r.copying(to)))
	r.log.says(t, "another value than this worker's Config", "INFO", "field=CopyDead", "queue_has=none")
	r.addOne(dies)
	r.until("the job is dead", func(c looks.Counts) bool { return c.Dead == 1 })
	if n := r.rdb.Exists(ctx, r.key("notes")).Val(); n > 0 {
		t.Error("its death is noted")
	}
	if err := r.queue.Settings().SetCopies(ctx, to.name()); err != nil {
		t.Fatal(err)
	}
	id := r.addOne(dies)
	if of := to.copies(1); len(of) != 1 || of[id] != 1 {
		t.Errorf("copies %v, want one of %s", of, id)
	}
	r.noteless()
}

func TestCopyDeadOfConfig(t *testing.T) {
	t.Parallel()
	for to, right := range map[string]bool{"": true, "other": true, "q": false, "a b": false, "{off}": false, strings.Repeat("x", 201): false} {
		_, err := worker.New(unused(t), worker.Config{Queues: worker.Queues{"q": {CopyDead: to}}})
		if (err == nil) != right || err != nil && (!errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), `Queues["q"].CopyDead`)) {
			t.Errorf("CopyDead %q: %v", to, err)
		}
	}
}

// Worker processes are killed while jobs die in them. In the end there is one copy of each.
func TestCopiesSurviveKills(t *testing.T) {
	t.Parallel()
	const n = 60
	r, to := newRig(t), newRig(t)
	if err := r.queue.Settings().SetCopies(t.Context(), to.name()); err != nil {
		t.Fatal(err)
	}
	jobs := make([]signalbox.Job, n)
	for i := range jobs {
		jobs[i] = signalbox.Job{Kind: order{}.Kind(), MaxAttempts: 1, Timeout: 50 * time.Millisecond, Payload: payload(order{Do: "wait", N: i})}
	}
	ids := r.add(jobs...)
	for range 4 {
		c := r.child(2, 2*time.Second)
		for range 5 {
			c.await("end")
		}
		c.kill()
	}
	w := r.worker(20)
	worker.Handle(w, func(context.Context, *signalbox.Job, order) error { return errors.New("boom") })
	r.start(w)
	r.until("all jobs are dead", func(c looks.Counts) bool { return c.Dead == n })
	of := to.copies(n)
	r.noteless()
	for _, id := range ids {
		if of[id] != 1 {
			t.Errorf("%d copies of %s", of[id], id)
		}
	}
	if c := to.counts(); c.Total.Enqueued != n {
		t.Errorf("%d copies were put in, want %d", c.Total.Enqueued, n)
	}
}
