package scheduler

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

// An asking call is an Enqueue, or an EnqueueMany with one item.
type asking func(ctx context.Context, args signalbox.Args, opts ...EnqueueOption) (Result, error)

func askings(s *Scheduler, queue string) map[string]asking {
	return map[string]asking{
		"Enqueue": func(ctx context.Context, args signalbox.Args, opts ...EnqueueOption) (Result, error) {
			return s.Enqueue(ctx, args, append(opts, Queue(queue))...)
		},
		"EnqueueMany": func(ctx context.Context, args signalbox.Args, opts ...EnqueueOption) (Result, error) {
			results, err := s.EnqueueMany(ctx, []Item{{args, opts}}, Queue(queue))
			return results[0], err
		},
	}
}

// lostReply makes a call that ends while Redis may have run it. Redis never runs it.
func lostReply(t *testing.T, s *Scheduler, q *store.Queue, p *redistest.Proxy, in asking, opts ...EnqueueOption) *UncertainError {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p.Reply(func(cmd []string) bool {
		if calls(cmd) {
			cancel()
		}
		return calls(cmd)
	}, "+what is that", -1)
	res, err := in(ctx, note{}, opts...)
	c := s.lanes(q.Name())
	redistest.Eventually(t, func() bool { // before the caller had left, the call may have been repeated
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.idle) == len(c.lanes)
	}, "no call is under way")
	p.Reset()
	var u *UncertainError
	if !errors.As(err, &u) || !errors.Is(err, ErrUncertain) || u.ID == "" || res.ID != u.ID {
		t.Fatalf("the first call: %+v, %v", res, err)
	}
	return u
}

// stillUncertain checks the error of a call that was made again and failed. It returns the error.
func stillUncertain(t *testing.T, first *UncertainError, err error) *UncertainError {
	t.Helper()
	var u *UncertainError
	switch {
	case !errors.As(err, &u) || !errors.Is(err, ErrUncertain):
		t.Fatalf("it claims to know: %v", err)
	case u.ID != first.ID || u.incarnation != first.incarnation:
		t.Errorf("it is of job %s, incarnation %x; was %s, %x", u.ID, u.incarnation, first.ID, first.incarnation)
	case strings.Contains(err.Error(), "not enqueued:"):
		t.Errorf("its text claims to know: %v", err)
	}
	return u
}

// TestAgainStaysUncertain: if a call that is made again fails, its error is uncertain, because the first call may have
// enqueued the job. That is so for each kind of failure.
func TestAgainStaysUncertain(t *testing.T) {
	t.Parallel()
	const oom = "-OOM command not allowed when used memory > 'maxmemory'."
	s, q, p := proxied(t, noRetries)
	away := withTimeout(t, offline(t), 50*time.Millisecond)
	closed := withTimeout(t, offline(t), time.Hour)
	if err := closed.rdb.Close(); err != nil {
		t.Fatal(err)
	}
	for name, in := range askings(s, q.Name()) {
		onAway, onClosed := askings(away, q.Name())[name], askings(closed, q.Name())[name]
		for what, opts := range map[string][]EnqueueOption{"random ID": nil, "chosen ID": {ID("chosen")}} {
			t.Run(name+", "+what, func(t *testing.T) {
				u := lostReply(t, s, q, p, in, opts...)
				ended, cancel := context.WithCancel(context.Background())
				cancel()
				fail := func(want error, in asking, ctx context.Context, args signalbox.Args, more ...EnqueueOption) {
					t.Helper()
					_, err := in(ctx, args, append(append(opts[:len(opts):len(opts)], u.Again()), more...)...)
					if want != nil && !errors.Is(err, want) {
						t.Errorf("got %v, want one of %v", err, want)
					}
					u = stillUncertain(t, u, err)
				}
				fail(nil, onAway, context.Background(), note{})
				p.Reply(calls, oom, -1)
				fail(nil, in, context.Background(), note{})
				p.Reset()
				fail(context.Canceled, in, ended, note{})
				fail(redis.ErrClosed, onClosed, context.Background(), note{})
				fail(signalbox.ErrInvalid, in, context.Background(), note{}, MaxAttempts(-1))
				fail(signalbox.ErrInvalid, in, context.Background(), nil)
				if _, err := in(context.Background(), note{}, append(opts[:len(opts):len(opts)], u.Again())...); err != nil {
					t.Errorf("Redis answers: %v", err)
				}
				if jobs := claimAll(t, q); len(jobs) != 1 || jobs[0].ID != u.ID {
					t.Errorf("%d jobs", len(jobs))
				}
			})
		}
	}
}

// TestAgainInABulk: new items of a bulk can fail for certain. Items that are made again stay uncertain.
func TestAgainInABulk(t *testing.T) {
	t.Parallel()
	s, q, p := proxied(t, noRetries)
	u := lostReply(t, s, q, p, askings(s, q.Name())["Enqueue"])
	away := withTimeout(t, offline(t), 50*time.Millisecond)
	items := many(3000) // in several chunks: some are skipped after one has failed
	for i := 1; i < len(items); i += 2 {
		items[i].Options = []EnqueueOption{u.Again()}
	}
	check := func(what string, results []Result) {
		t.Helper()
		for i, r := range results {
			if i%2 == 1 {
				stillUncertain(t, u, r.Err)
			} else if r.Err == nil || errors.Is(r.Err, ErrUncertain) {
				t.Fatalf("%s: item %d was never sent, its error is %v", what, i, r.Err)
			}
		}
	}
	results, err := s.EnqueueMany(context.Background(), items, Queue(q.Name()), MaxAttempts(-1))
	check("a mistake", results)
	if !errors.Is(err, signalbox.ErrInvalid) {
		t.Errorf("a mistake: %v", err)
	}
	results, _ = away.EnqueueMany(context.Background(), items, Queue(q.Name()))
	check("unreachable", results)
}
