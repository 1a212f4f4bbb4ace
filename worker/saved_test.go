package worker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/worker"
)

// A step that has finished is not run again: after a failed attempt, a snooze, the death of the job and its retry. Its value comes back, and the checkpoint with it. When the
// job has completed, and somebody runs it again, it begins anew.
func TestStepsAreRunOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(1)
	var mu sync.Mutex
	var ran, seen []string
	deliveries := 0
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, _ task) error {
		mu.Lock()
		defer mu.Unlock()
		deliveries++
		job.Saved, job.ID, job.Token = nil, "another", 0 // its own copy
		at := -1
		found, err := signalbox.Resume(ctx, &at)
		if err != nil {
			return signalbox.Dead(err)
		}
		seen = append(seen, fmt.Sprint(found, at))
		step := func(name string, then error) (string, error) {
			return signalbox.Step(ctx, name, func(context.Context) (string, error) {
				ran = append(ran, name)
				return "value of " + name, then
			})
		}
		for i, name := range []string{"a", "b", "c"} {
			var fails error
			if deliveries == 1 && name == "b" {
				fails = errBoom
			}
			value, err := step(name, fails)
			if err != nil {
				return err
			}
			if value != "value of "+name {
				return signalbox.Dead(fmt.Errorf("%s has the value %q", name, value))
			}
			if _, err := step(name, nil); !errors.Is(err, signalbox.ErrStepName) {
				return signalbox.Dead(fmt.Errorf("a second step %s: %w", name, err))
			}
			if err := signalbox.Checkpoint(ctx, i); err != nil {
				return err
			}
			if deliveries == 2 && name == "b" {
				return signalbox.Snooze(0)
			}
			if deliveries == 3 && name == "c" {
				return signalbox.Dead(errBoom)
			}
		}
		return nil
	}, worker.Retry(func(int, error) time.Duration { return 0 }))
	r.start(w)
	id := r.addOne(signalbox.Job{Retain: time.Hour})
	r.until("it is dead", func(c looks.Counts) bool { return c.Dead == 1 })
	if _, err := r.queue.Do(context.Background(), store.RunJobs(time.Time{}), []string{id}); err != nil {
		t.Fatal(err)
	}
	r.completed(1)
	if job := r.job(id); len(job.Saved) != 0 {
		t.Errorf("the job is kept with %d bytes that it has saved", len(job.Saved))
	}
	if _, err := r.queue.Do(context.Background(), store.RunJobs(time.Time{}), []string{id}); err != nil {
		t.Fatal(err)
	}
	r.completed(2)
	mu.Lock()
	defer mu.Unlock()
	if got, want := strings.Join(ran, " "), "a b b c a b c"; got != want {
		t.Errorf("the steps that were run are %s, want %s", got, want)
	}
	if got, want := strings.Join(seen, ", "), "false -1, true 0, true 1, true 2, false -1"; got != want {
		t.Errorf("the checkpoints are %s, want %s", got, want)
	}
}

// What can't be saved is an error, and the step hasn't finished. A delivery that is over saves nothing.
func TestStepErrors(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(1)
	type result struct {
		what string
		got  error
		want error
	}
	results := make(chan []result, 1)
	var late context.Context
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		late = ctx
		var all []result
		step := func(ctx context.Context, what, name string, value any, want error) {
			_, err := signalbox.Step(ctx, name, func(context.Context) (any, error) { return value, nil })
			all = append(all, result{what, err, want})
		}
		step(ctx, "no name", "", 1, signalbox.ErrStepName)
		step(ctx, "a long name", strings.Repeat("x", signalbox.MaxStepName+1), 1, signalbox.ErrStepName)
		step(ctx, "no UTF-8", "\xff", 1, signalbox.ErrStepName)
		step(ctx, "a large value", "large", strings.Repeat("x", signalbox.MaxSaved), signalbox.ErrStateSize)
		step(ctx, "one of the same name that fits", "large", 7, nil)
		all = append(all, result{"a large checkpoint", signalbox.Checkpoint(ctx, strings.Repeat("x", signalbox.MaxSaved)), signalbox.ErrStateSize})
		all = append(all, result{"one that fits", signalbox.Checkpoint(ctx, "text"), nil})
		n := 0
		_, err := signalbox.Resume(ctx, &n)
		all = append(all, result{"a checkpoint of another type", err, signalbox.ErrStepChanged})
		func() {
			defer func() { _ = recover() }()
			_, _ = signalbox.Step(ctx, "panics", func(context.Context) (int, error) { panic("no") })
		}()
		step(ctx, "the name of one that has panicked", "panics", 1, nil)
		results <- all
		return nil
	})
	r.start(w)
	id := r.addOne(signalbox.Job{})
	r.completed(1)
	for _, c := range <-results {
		if c.want == nil && c.got != nil || !errors.Is(c.got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
	if err := signalbox.Checkpoint(late, 1); !errors.Is(err, signalbox.ErrSuperseded) {
		t.Errorf("after the end of the delivery: %v", err)
	}
	if r.rdb.HExists(context.Background(), r.key("jobs"), id).Val() {
		t.Error("the job has a record again")
	}
	if _, err := signalbox.Step(t.Context(), "a", func(context.Context) (int, error) { return 1, nil }); err == nil {
		t.Error("a step of no delivery")
	}
	if _, err := signalbox.Resume(t.Context(), new(int)); err == nil || signalbox.Checkpoint(t.Context(), 1) == nil {
		t.Error("a checkpoint of no delivery")
	}
}

// A step whose value could not be saved has an error. It isn't run again by this delivery, nor by the next one if that gets the record of a failed attempt.
func TestSaveFails(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(1)
	ctx := context.Background()
	var mu sync.Mutex
	var ran []string
	worker.Handle(w, func(hctx context.Context, job *signalbox.Job, _ task) error {
		mu.Lock()
		defer mu.Unlock()
		step := func(name string, lost bool) error {
			leases, err := r.queue.Looks().Leases(ctx)
			if err != nil {
				return signalbox.Dead(err)
			}
			inflight := r.key("inflight") + ":" + leases[0].Session
			value, err := signalbox.Step(hctx, name, func(context.Context) (string, error) {
				ran = append(ran, name)
				if lost { // then Redis refuses to save it
					return name, r.rdb.Rename(ctx, inflight, r.key("aside")).Err()
				}
				return name, nil
			})
			if lost {
				if err := r.rdb.Rename(ctx, r.key("aside"), inflight).Err(); err != nil {
					return signalbox.Dead(err)
				}
			}
			if err == nil && value != name {
				return signalbox.Dead(fmt.Errorf("%s has the value %q", name, value))
			}
			return err
		}
		if job.Attempt == 1 {
			if err := step("a", true); !errors.Is(err, signalbox.ErrSuperseded) {
				return signalbox.Dead(fmt.Errorf("a: %w", err))
			}
			if err := step("a", false); err != nil {
				return err
			}
			if err := step("b", true); !errors.Is(err, signalbox.ErrSuperseded) {
				return signalbox.Dead(fmt.Errorf("b: %w", err))
			}
			return errBoom
		}
		if err := step("a", false); err != nil {
			return err
		}
		return step("b", false)
	}, worker.Retry(func(int, error) time.Duration { return 0 }))
	r.start(w)
	r.addOne(signalbox.Job{})
	r.completed(1)
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(ran, " "); got != "a b" {
		t.Errorf("the steps that were run are %s, want a b", got)
	}
}

// A job of a hundred steps whose worker is killed again and again runs no step twice that has finished, and loses no value.
func TestStepsAcrossKills(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const steps, kills = 100, 3 // with five it is dead
	dir := t.TempDir()
	r.orders(1, order{Do: "steps", MS: steps, Dir: dir})
	lines := func(name string) []string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil
		}
		return strings.Fields(string(b))
	}
	for i, place := range []string{"in it", "saved", "behind it"} {
		stop := fmt.Sprint((i+1)*steps/(kills+1), " ", place)
		if err := os.WriteFile(filepath.Join(dir, "stop"), []byte(stop), 0o600); err != nil {
			t.Fatal(err)
		}
		c := r.child(1, time.Second)
		redistest.Eventually(t, func() bool { return slices.Contains(lines("stopped"), strings.ReplaceAll(stop, " ", "-")) }, "it stands at step %s", stop)
		c.kill()
	}
	if err := os.WriteFile(filepath.Join(dir, "stop"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.child(1, time.Second)
	r.completed(1)
	if finished, ran := len(lines("finished")), len(lines("ran")); finished != steps || ran > steps+kills {
		t.Errorf("%d steps have finished, of %d, in %d calls", finished, steps, ran)
	}
	if bad := lines("bad"); len(bad) > 0 {
		t.Errorf("steps ran again that had finished, or lost their values: %v", bad)
	}
	if c := r.counts(); c.Total.Crashed != kills {
		t.Errorf("%d crashes, want %d", c.Total.Crashed, kills)
	}
}

// steps does so many steps as MS says. It writes down which begin, and which have finished. It stands for ever at the place that the file stop has.
func (o order) steps(ctx context.Context) error {
	write := func(name string, what any) {
		f, err := os.OpenFile(filepath.Join(o.Dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			panic(err)
		}
		defer f.Close()
		fmt.Fprintln(f, what)
	}
	finished := make(map[string]bool)
	if b, err := os.ReadFile(filepath.Join(o.Dir, "finished")); err == nil {
		for _, n := range strings.Fields(string(b)) {
			finished[n] = true
		}
	}
	stop, err := os.ReadFile(filepath.Join(o.Dir, "stop"))
	if err != nil {
		return err
	}
	stand := func(n int, place string) {
		if at := fmt.Sprint(n, " ", place); at == string(stop) {
			write("stopped", strings.ReplaceAll(at, " ", "-"))
			select {}
		}
	}
	at := 0
	if _, err := signalbox.Resume(ctx, &at); err != nil {
		return err
	}
	if at < len(finished) {
		write("bad", at)
	}
	for n := range o.MS {
		value, err := signalbox.Step(ctx, fmt.Sprint("step ", n), func(context.Context) (int, error) {
			write("ran", n)
			if finished[fmt.Sprint(n)] {
				write("bad", n)
			}
			stand(n, "in it")
			return n * n, nil
		})
		if err != nil {
			return err
		}
		if value != n*n {
			write("bad", n)
		}
		stand(n, "saved")
		if n >= at {
			if err := signalbox.Checkpoint(ctx, n+1); err != nil {
				return err
			}
		}
		stand(n, "behind it")
		if !finished[fmt.Sprint(n)] {
			write("finished", n)
		}
	}
	return nil
}
