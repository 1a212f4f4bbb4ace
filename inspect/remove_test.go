package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/check"
	"github.com/signalbox-go/signalbox/scheduler"
)

// unused makes a queue of that name that nothing keeps: it has had a job, which is completed.
func unused(t *testing.T, rdb redis.UniversalClient, namespace, name string) *store.Queue {
	t.Helper()
	q := store.New(rdb, namespace, name)
	item, err := store.NewItem(&signalbox.Job{ID: "once", Kind: "task"}, store.When{})
	if err == nil {
		lane := q.NewLane()
		lane.Next()
		_, err = q.Enqueue(t.Context(), lane, []store.Item{item})
	}
	if err := errors.Join(err, q.Presence().Register(t.Context())); err != nil {
		t.Fatal(err)
	}
	if got := work(t, q); !slices.Equal(got, []string{"once"}) {
		t.Fatal(got)
	}
	return q
}

// work has a worker run what is ready of the queue, and end. It returns the IDs.
func work(t *testing.T, q *store.Queue) (ids []string) {
	t.Helper()
	ctx, session, lane := context.Background(), store.NewSession("w"), q.NewLane()
	alive, _, err := q.Sessions().Open(ctx, session, time.Minute)
	if err != nil || !alive {
		t.Error(alive, err)
		return nil
	}
	var done []store.Settlement
	for {
		lane.Next()
		reply, err := q.Sessions().Claim(ctx, lane, &store.ClaimRequest{Session: session, Want: 5, Settle: done})
		if err != nil {
			t.Error(err)
			return nil
		}
		if done = nil; len(reply.Deliveries) == 0 {
			break
		}
		for _, d := range reply.Deliveries {
			ids = append(ids, d.Job.ID)
			done = append(done, store.Settlement{ID: d.Job.ID, Token: d.Job.Token, Outcome: store.Completed, Prio: d.Job.Priority})
		}
	}
	if left, err := q.Sessions().Close(ctx, session, true, lane); left != 0 || err != nil {
		t.Error(left, err)
	}
	return ids
}

func TestRemoveQueue(t *testing.T) {
	t.Parallel()
	for kind, rdb := range map[string]redis.UniversalClient{"server": redistest.Start(t).Client(), "cluster": redistest.Cluster(t).Client()} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			namespace, ctx := redistest.Name(t), t.Context()
			ins := inspector(t, rdb, namespace)
			q := unused(t, rdb, namespace, "old")
			for range 2 { // the second time it is there anew
				if err := ins.RemoveQueue(ctx, "old", inspect.Removal{DryRun: true}); err != nil {
					t.Fatal(err)
				}
				if _, err := ins.Queue(ctx, "old"); err != nil {
					t.Errorf("after a dry run: %v", err)
				}
				if err := ins.RemoveQueue(ctx, "old", inspect.Removal{UnusedFor: time.Hour}); !errors.Is(err, inspect.ErrInUse) {
					t.Errorf("used a moment ago: %v", err)
				}
				if err := ins.RemoveQueue(ctx, "old", inspect.Removal{}); err != nil {
					t.Fatal(err)
				}
				if queues, err := ins.Queues(ctx); err != nil || len(queues) != 0 {
					t.Errorf("Queues = %v, %v", queues, err)
				}
				if err := ins.RemoveQueue(ctx, "old", inspect.Removal{}); !errors.Is(err, inspect.ErrNoQueue) {
					t.Errorf("again: %v", err)
				}
				q = unused(t, rdb, namespace, "old")
			}
			if err := check.Queue(ctx, q.Site()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Each thing that keeps a queue is named, with what to do. What Redis doesn't see in one step is seen before.
func TestRemoveQueueSaysWhy(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	for want, do := range map[string]func(ctx context.Context, ins *inspect.Inspector, q *store.Queue) error{
		"outbox box has sent jobs": func(ctx context.Context, _ *inspect.Inspector, q *store.Queue) error {
			_, err := q.Outboxes().Relay(ctx, "box", 3, &store.Batch{Place: store.Place{Seq: 1, Nonce: "n"}})
			return err
		},
		"copies of the dead jobs of queue other come here": func(ctx context.Context, ins *inspect.Inspector, q *store.Queue) error {
			return errors.Join(q.Sibling("other").Presence().Register(ctx), ins.SetCopyDead(ctx, "other", q.Name()))
		},
		"deliveries of session gone": func(ctx context.Context, _ *inspect.Inspector, q *store.Queue) error {
			return rdb.HSet(ctx, prefixOf(q)+"inflight:gone", "a", "1").Err()
		},
		"keys that this release doesn't know": func(ctx context.Context, _ *inspect.Inspector, q *store.Queue) error {
			return rdb.Set(ctx, prefixOf(q)+"later", "1", 0).Err()
		},
		"cron entries, digest": func(_ context.Context, _ *inspect.Inspector, q *store.Queue) error {
			announce(t, q, "digest", "@daily", "UTC")
			return nil
		},
		"ticks of cron entries that no scheduler has described": func(ctx context.Context, _ *inspect.Inspector, q *store.Queue) error {
			return rdb.HSet(ctx, prefixOf(q)+"cron", "e", 1).Err()
		},
		"worker web-1 works the queue": func(ctx context.Context, _ *inspect.Inspector, q *store.Queue) error {
			_, _, err := q.Sessions().Open(ctx, store.NewSession("web-1"), time.Minute)
			return err
		},
		"a pause: resume the queue": func(ctx context.Context, ins *inspect.Inspector, q *store.Queue) error {
			_, err := ins.Pause(ctx, q.Name())
			return err
		},
		"jobs are held back until": func(ctx context.Context, ins *inspect.Inspector, q *store.Queue) error {
			_, err := ins.HoldBack(ctx, q.Name(), "", time.Hour)
			return err
		},
		"settings, limits of the queue: remove them, too": func(ctx context.Context, ins *inspect.Inspector, q *store.Queue) error {
			return ins.SetLimits(ctx, q.Name(), signalbox.Limits{Running: 3})
		},
		"jobs that haven't ended, 1": func(ctx context.Context, _ *inspect.Inspector, q *store.Queue) error {
			item, err := store.NewItem(&signalbox.Job{ID: "a", Kind: "task"}, store.When{After: time.Hour})
			lane := q.NewLane()
			lane.Next()
			_, err2 := q.Enqueue(ctx, lane, []store.Item{item})
			return errors.Join(err, err2)
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			namespace, ctx := redistest.Name(t), t.Context()
			ins := inspector(t, rdb, namespace)
			q := unused(t, rdb, namespace, "q")
			if err := do(ctx, ins, q); err != nil {
				t.Fatal(err)
			}
			var used *inspect.InUseError
			err := ins.RemoveQueue(ctx, "q", inspect.Removal{})
			if !errors.As(err, &used) || !errors.Is(err, inspect.ErrInUse) || len(used.Reasons) != 1 || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v", err)
			}
			removed, kept, err := ins.RemoveQueues(ctx, "q", inspect.Removal{})
			if err != nil || len(removed) != 0 || len(kept) != 1 || !strings.Contains(kept[0].Error(), want) {
				t.Errorf("RemoveQueues = %v, %v, %v", removed, kept, err)
			}
			if _, err := ins.Queue(ctx, "q"); err != nil {
				t.Error(err)
			}
			if _, err := ins.Totals(ctx, "q"); err != nil {
				t.Error(err)
			}
			loose := ins.RemoveQueue(ctx, "q", inspect.Removal{Settings: true})
			if want == "settings, limits of the queue: remove them, too" != (loose == nil) {
				t.Errorf("with its settings: %v", loose)
			}
		})
	}
}

func prefixOf(q *store.Queue) string { return strings.TrimSuffix(q.Channels().Control(), "control") }

// Queues that are named at run time go by a pattern.
func TestRemoveQueues(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	namespace, ctx := redistest.Name(t), t.Context()
	ins := inspector(t, rdb, namespace)
	for _, name := range []string{"tenant-1", "tenant-2", "tenant/3", "tenant-4", "mail"} {
		unused(t, rdb, namespace, name)
	}
	if _, err := ins.Pause(ctx, "tenant-2"); err != nil {
		t.Fatal(err)
	}
	check := func(what, pattern string, r inspect.Removal, want []string, kept int) {
		t.Helper()
		removed, left, err := ins.RemoveQueues(ctx, pattern, r)
		if err != nil || !slices.Equal(removed, want) || len(left) != kept {
			t.Errorf("%s: removed %v, kept %v, %v", what, removed, left, err)
		}
	}
	check("used a moment ago", "tenant*", inspect.Removal{UnusedFor: time.Hour}, nil, 4)
	check("a dry run", "tenant*", inspect.Removal{DryRun: true}, []string{"tenant-1", "tenant-4", "tenant/3"}, 1)
	check("one", "tenant-[4]", inspect.Removal{}, []string{"tenant-4"}, 0)
	check("all", "tenant*", inspect.Removal{}, []string{"tenant-1", "tenant/3"}, 1)
	check("none", "nobody-*", inspect.Removal{}, nil, 0)
	for _, pattern := range []string{"", "[a"} {
		if _, _, err := ins.RemoveQueues(ctx, pattern, inspect.Removal{}); !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), "pattern") {
			t.Errorf("pattern %q: %v", pattern, err)
		}
	}
	for _, d := range []time.Duration{-1, 721 * time.Hour} {
		if err := ins.RemoveQueue(ctx, "mail", inspect.Removal{UnusedFor: d}); !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), "UnusedFor") {
			t.Errorf("UnusedFor %v: %v", d, err)
		}
	}
	queues, err := ins.Queues(ctx)
	if err != nil || len(queues) != 2 || queues[0].Name != "mail" || queues[1].Name != "tenant-2" {
		t.Errorf("Queues = %v, %v", queues, err)
	}
}

// A user with the rights of an operator can forget an outbox, and remove a queue; one with those of a viewer can do neither.
func TestRemoveQueueRights(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	admin, ctx, namespace := srv.Client(), t.Context(), redistest.Name(t)
	q := unused(t, admin, namespace, "old")
	if _, err := q.Outboxes().Relay(ctx, "box", 3, &store.Batch{Place: store.Place{Seq: 1, Nonce: "n"}}); err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"viewer", "operator"} {
		if err := admin.Do(ctx, ruleOf(t, user)...).Err(); err != nil {
			t.Fatal(err)
		}
		ins := inspector(t, srv.ClientWith(func(o *redis.UniversalOptions) { o.Username, o.Password = user, "CHANGE-ME" }), namespace)
		forget, remove := ins.ForgetOutbox(ctx, "old", "box"), ins.RemoveQueue(ctx, "old", inspect.Removal{})
		if (forget == nil) != (remove == nil) {
			t.Errorf("%s: to forget an outbox: %v; to remove the queue: %v", user, forget, remove)
		}
		err := forget
		denied := err != nil && (strings.Contains(err.Error(), "can't run this command") || strings.Contains(err.Error(), "has no permissions")) // Redis's words, and Valkey's
		if allowed := user == "operator"; allowed != (err == nil) || allowed == denied {
			t.Errorf("%s: %v", user, err)
		}
	}
	if queues, err := inspector(t, admin, namespace).Queues(ctx); err != nil || len(queues) != 0 {
		t.Errorf("Queues = %v, %v", queues, err)
	}
}

// Queues are removed while producers, which have listed them long ago, and workers use them. No job is lost, none runs twice, and each queue with a job is
// listed.
func TestRemoveWalk(t *testing.T) {
	t.Parallel()
	for kind, rdb := range map[string]redis.UniversalClient{"server": redistest.Start(t).Client(), "cluster": redistest.Cluster(t).Client()} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			namespace := redistest.Name(t)
			ins := inspector(t, rdb, namespace)
			sched, err := scheduler.New(rdb, scheduler.Config{Namespace: namespace})
			if err != nil {
				t.Fatal(err)
			}
			var users, removers sync.WaitGroup
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			removals := make([]int, 3)
			for n := range removals {
				name := fmt.Sprint("q", n)
				removers.Go(func() {
					for ctx.Err() == nil {
						switch err := ins.RemoveQueue(ctx, name, inspect.Removal{}); {
						case err == nil:
							removals[n]++
						case ctx.Err() == nil && !errors.Is(err, inspect.ErrInUse) && !errors.Is(err, inspect.ErrNoQueue):
							t.Error(err)
							return
						}
					}
				})
				users.Go(func() {
					q := store.New(rdb, namespace, name)
					for i := range 60 {
						res, err := sched.Enqueue(ctx, task{}, scheduler.Queue(name))
						if err != nil {
							t.Error(err)
							return
						}
						id := res.ID
						listed := func() bool {
							names, err := store.Queues(ctx, rdb, namespace)
							return err == nil && slices.Contains(names, name)
						}
						if rand.IntN(4) == 0 && !within(listed) {
							t.Errorf("job %d of queue %s waits, and the queue isn't listed", i, name)
							return
						}
						if got := work(t, q); !slices.Equal(got, []string{id}) {
							t.Errorf("job %d of queue %s: the worker got %v", i, name, got)
							return
						}
						if rand.IntN(3) == 0 {
							redistest.Eventually(t, func() bool { known, err := q.Presence().Known(ctx); return err == nil && !known }, "queue %s isn't removed", name)
						}
					}
				})
			}
			users.Wait()
			cancel()
			removers.Wait()
			for n, some := range removals {
				if some < 10 {
					t.Errorf("queue %d was removed %d times only", n, some)
				}
			}
		})
	}
}

// within reports whether something is so within 10 s, and is so still when a removal that was under way has ended.
func within(is func() bool) bool {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		if is() {
			return true
		}
	}
	return false
}
