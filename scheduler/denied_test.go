package scheduler

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// The user loses the right to one command, at any point of a call. A job that is reported as not enqueued is not
// in Redis. When the right is given back, the job is enqueued and runs once.
func TestCommandIsDenied(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	admin, ctx := srv.Client(), context.Background()
	acl := func(rules ...any) {
		t.Helper()
		if err := admin.Do(ctx, append([]any{"ACL", "SETUSER", "user", "on", ">secret", "~*", "&*"}, rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, when := range []string{"from the start", "later"} {
		for _, command := range []string{"rpush", "hset", "hmget", "hget", "llen", "publish", "hincrby", "set", "get", "time", "evalsha", "zadd"} {
			acl("+@all")
			q := checked(t, admin)
			queue := Queue(q.Name())
			rdb := srv.ClientWith(func(o *redis.UniversalOptions) { o.Username, o.Password = "user", "secret" })
			s := newScheduler(t, rdb)
			if when == "later" {
				if _, err := s.Enqueue(ctx, note{}, queue); err != nil {
					t.Fatal(err)
				}
				claimAll(t, q)
			}
			acl("-" + command)
			res, err := s.Enqueue(ctx, note{1}, queue)
			var u *UncertainError
			switch {
			case err == nil: // that command was not needed
			case errors.As(err, &u) && when == "later":
				if !strings.Contains(err.Error(), "the client's Redis user needs") {
					t.Errorf("%s denied %s: no hint in %v", command, when, err)
				}
			case u != nil:
				t.Errorf("%s denied %s: %v", command, when, err)
			default:
				n, err := admin.HLen(ctx, "signalbox:{default:"+q.Name()+"}:jobs").Result()
				if err != nil || n != 0 {
					t.Errorf("%s denied %s: %d jobs are in, %v", command, when, n, err)
				}
				u = &UncertainError{ID: res.ID}
			}
			// The lane is given up. The first call of the next lane finds the missing right before it writes.
			if errors.Is(err, ErrUncertain) {
				if _, err := s.Enqueue(ctx, note{2}, queue, After(0)); err == nil || errors.Is(err, ErrUncertain) {
					t.Errorf("%s denied %s, another call: %v", command, when, err)
				}
			}
			acl("+" + command)
			if err != nil {
				if _, err := s.Enqueue(ctx, note{1}, queue, u.Again()); err != nil {
					t.Errorf("%s granted again: %v", command, err)
				}
			}
			if jobs := claimAll(t, q); len(jobs) != 1 || jobs[0].ID != res.ID {
				t.Errorf("%s denied %s: %d jobs ran", command, when, len(jobs))
			}
		}
	}
}
