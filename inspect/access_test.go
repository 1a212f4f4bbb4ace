package inspect_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/lock"
)

// viewerRule returns the ACL rule for a user that only looks, from docs/operations/access.md.
func viewerRule(t *testing.T) []any { return ruleOf(t, "viewer") }

// ruleOf returns the ACL rule for a user, from docs/operations/access.md.
func ruleOf(t *testing.T, user string) []any {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "docs", "operations", "access.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rule, found := strings.Cut(string(page), "\nACL SETUSER "+user+" ")
	if !found {
		t.Fatalf("docs/operations/access.md has no rule for %s", user)
	}
	rule, _, _ = strings.Cut(rule, "\n")
	words := []any{"ACL", "SETUSER", user}
	for _, word := range strings.Fields(rule) {
		words = append(words, word)
	}
	return words
}

// A scheduler whose entries cancel other jobs needs two rights besides those of a producer. docs/operations/access.md says so.
func TestSchedulerThatCancels(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	admin, ctx := srv.Client(), t.Context()
	s := newStage(t, admin)
	s.must(admin.Do(ctx, ruleOf(t, "producer")...).Err())
	rdb := srv.ClientWith(func(o *redis.UniversalOptions) { o.Username, o.Password = "producer", "CHANGE-ME" })
	q := store.New(rdb, s.namespace, s.Name())
	enqueue := func(id string) {
		t.Helper()
		now, err := q.Now(ctx)
		s.must(err)
		when := store.When{At: now, Entry: "e", Plan: "abc", Late: time.Hour, Overlap: store.OverlapCancel}
		item, err := store.NewItem(&signalbox.Job{ID: id, Kind: "task"}, when)
		s.must(err)
		lane := q.NewLane()
		lane.Next()
		if fates, err := q.Enqueue(ctx, lane, []store.Item{item}); err != nil || !fates.Of(0).In() {
			t.Fatal(fates, err)
		}
	}
	enqueue("first")
	begin, err := q.Now(ctx)
	s.must(err)
	redistest.Eventually(t, func() bool { now, err := q.Now(ctx); return err == nil && now.After(begin) }, "the clock goes on")
	enqueue("second")
	if _, err := q.Cron().CancelOverlapped(ctx, "e"); err == nil || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("without the rights: %v", err)
	}
	s.one("first", signalbox.StateReady)
	s.must(admin.Do(ctx, "ACL", "SETUSER", "producer", "+lpos", "+lrem").Err())
	if n, err := q.Cron().CancelOverlapped(ctx, "e"); n != 1 || err != nil {
		t.Errorf("with them: %d, %v", n, err)
	}
	s.one("first", signalbox.StateCancelled)
	s.one("second", signalbox.StateReady)
}

// A user with the viewer's rights can look at everything and change nothing.
func TestViewer(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	admin, ctx := srv.Client(), t.Context()
	s := newStage(t, admin)
	s.states()
	s.must(admin.Do(ctx, viewerRule(t)...).Err())
	rdb := srv.ClientWith(func(o *redis.UniversalOptions) { o.Username, o.Password = "viewer", "CHANGE-ME" })
	ins := inspector(t, rdb, s.namespace)
	for _, state := range []signalbox.State{
		signalbox.StateScheduled, signalbox.StateReady, signalbox.StateRunning, signalbox.StateDead, signalbox.StateCancelled,
	} {
		n := 0
		for job, err := range ins.Jobs(ctx, s.Name(), inspect.Filter{State: state}) {
			s.must(err)
			if _, err := ins.Job(ctx, s.Name(), job.ID); err != nil {
				t.Errorf("job %s: %v", job.ID, err)
			}
			n++
		}
		if n < 2 {
			t.Errorf("%d %s jobs", n, state)
		}
	}
	announce(t, s.Queue, "digest", "@daily", "UTC")
	if entries, err := ins.Entries(ctx); err != nil || len(entries) != 1 || entries[0].Err != nil {
		t.Errorf("Entries = %+v, %v", entries, err)
	}
	if changed, err := ins.PauseEntry(ctx, s.Name(), "digest"); err == nil || changed {
		t.Errorf("PauseEntry = %v, %v", changed, err)
	}
	if id, err := ins.RunEntry(ctx, s.Name(), "digest"); err == nil {
		t.Errorf("RunEntry = %q", id)
	}
	if workers, err := ins.Workers(ctx); err != nil || len(workers) != 1 {
		t.Errorf("Workers = %+v, %v", workers, err)
	}
	if queues, err := ins.Queues(ctx); err != nil || len(queues) != 1 {
		t.Errorf("Queues = %+v, %v", queues, err)
	}
	if dead, err := ins.DeadByError(ctx, s.Name()); err != nil || dead.Looked != 2 {
		t.Errorf("DeadByError = %+v, %v", dead, err)
	}
	s.batch("news", "member")
	if flows, _, err := ins.Flows(ctx, s.Name(), 10); err != nil || len(flows) != 1 {
		t.Errorf("Flows = %+v, %v", flows, err)
	}
	if jobs, err := ins.FlowJobs(ctx, s.Name(), "news"); err != nil || len(jobs.Callbacks) != 3 {
		t.Errorf("FlowJobs = %+v, %v", jobs, err)
	}
	if f, err := ins.CancelFlow(ctx, s.Name(), "news"); err == nil {
		t.Errorf("CancelFlow = %+v", f)
	}
	if stats, err := ins.Stats(ctx, s.Name(), inspect.ByHour); err != nil || stats.Total.Enqueued == 0 {
		t.Errorf("Stats = %+v, %v", stats, err)
	}
	if _, err := ins.Job(ctx, "mial", "a"); !errors.Is(err, inspect.ErrNoQueue) {
		t.Errorf("a queue that isn't there: %v", err)
	}
	if changed, err := ins.Pause(ctx, s.Name()); err == nil || changed {
		t.Errorf("Pause = %v, %v", changed, err)
	}
	if q, err := ins.Queue(ctx, s.Name()); err != nil || q.Paused {
		t.Errorf("after it: %+v, %v", q, err)
	}

	locker, err := lock.New(admin, lock.Config{TTL: time.Hour})
	s.must(err)
	held, err := locker.Acquire(ctx, "signalbox:lock:orders")
	s.must(err)
	locks := func() (keys []string, err error) {
		for l, err := range ins.Locks(ctx, "signalbox:lock:*") {
			if err != nil {
				return keys, err
			}
			keys = append(keys, l.Key)
		}
		return keys, nil
	}
	if keys, err := locks(); err == nil || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("locks without the rights: %v, %v", keys, err)
	}
	s.must(admin.Do(ctx, "ACL", "SETUSER", "viewer", "~signalbox:lock:*", "+scan", "+get", "+pttl").Err())
	if keys, err := locks(); err != nil || len(keys) != 1 {
		t.Errorf("locks: %v, %v", keys, err)
	}
	s.must(held.Release(ctx))
}
