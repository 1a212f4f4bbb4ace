package scheduler

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

// TestNoPassword: if a client gave no password, Redis answers a small command with NOAUTH. It
// answers a command as large as ours with a protocol error.
func TestNoPassword(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	if err := srv.Client().ConfigSet(context.Background(), "requirepass", "secret").Err(); err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	_, err := newScheduler(t, rdb).Enqueue(context.Background(), note{})
	if err == nil || !strings.Contains(err.Error(), "needs a password") {
		t.Errorf("got %v", err)
	}
}

func TestErrorReplies(t *testing.T) {
	t.Parallel()
	for line, uncertain := range map[string]bool{ // with a client that repeats no call by itself
		"-OOM command not allowed when used memory > 'maxmemory'.":            false,
		"-WRONGTYPE Operation against a key":                                  false,
		"-NOPERM this user has no permissions":                                false,
		"-NOAUTH Authentication required.":                                    false,
		"-READONLY You can't write against a read only replica.":              false,
		"-TRYAGAIN Multiple keys request during rehashing of slot":            false,
		"-CLUSTERDOWN The cluster is down":                                    false,
		"-LOADING Redis is loading the dataset in memory":                     false,
		"-ERR Error running script: @user_script:1: -OOM command not allowed": false,
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			s, q, p := proxied(t, noRetries)
			s = withTimeout(t, s, time.Second)
			p.Reply(calls, line, -1)
			var err error
			redistest.Eventually(t, func() bool { // on a busy machine the time may be over while a call is in flight
				_, err = s.Enqueue(context.Background(), note{}, Queue(q.Name()))
				return err == nil || !strings.Contains(err.Error(), "no answer from Redis")
			}, "it ends between two calls")
			if err == nil || errors.Is(err, ErrUncertain) != uncertain || !strings.Contains(err.Error(), line[1:]) {
				t.Errorf("got %v", err)
			}
			var reply redis.Error
			if !errors.As(err, &reply) {
				t.Errorf("Redis's error is lost in %v", err)
			}
			results, err := s.EnqueueMany(context.Background(), many(3), Queue(q.Name()))
			if err == nil || results[0].Err == nil || results[2].Err == nil {
				t.Errorf("got %v", err)
			}
			p.Reset()
			redistest.Eventually(t, func() bool {
				_, err := s.Enqueue(context.Background(), note{}, Queue(q.Name()))
				return err == nil
			}, "a job is enqueued after it")
		})
	}
}

func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t, "--maxmemory", "8mb", "--maxmemory-policy", "noeviction")
	s := newScheduler(t, srv.Client())
	q := checked(t, srv.Client())
	items := make([]Item, 200)
	for i := range items {
		items[i].Args = unencodableArgs{strings.Repeat("x", 100<<10)}
	}
	results, err := s.EnqueueMany(context.Background(), items, Queue(q.Name()))
	if err == nil || errors.Is(err, ErrUncertain) || !strings.Contains(err.Error(), "maxmemory") {
		t.Errorf("got %v", err)
	}
	in := 0
	for _, r := range results {
		if r.New {
			in++
		}
	}
	if in == 0 || in == len(results) {
		t.Errorf("%d of %d jobs are in", in, len(results))
	}
	if n := len(claimAll(t, q)); n != in {
		t.Errorf("%d jobs are there, %d were reported", n, in)
	}
	if _, err := s.Enqueue(context.Background(), note{}, Queue(q.Name())); err != nil {
		t.Errorf("with memory again: %v", err)
	}
}

func TestWrongType(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client()
	s, queue := newScheduler(t, rdb), redistest.Name(t)
	jobs := "signalbox:{default:" + queue + "}:jobs"
	if err := rdb.Set(context.Background(), jobs, "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	_, err := s.Enqueue(context.Background(), note{}, Queue(queue))
	if err == nil || errors.Is(err, ErrUncertain) || !strings.Contains(err.Error(), "another program") {
		t.Errorf("got %v", err)
	}
	if err := rdb.Del(context.Background(), jobs).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Enqueue(context.Background(), note{}, Queue(queue)); err != nil {
		t.Error(err)
	}
}

// timeoutError is the error of a connection that took too long.
type timeoutError struct{}

func (timeoutError) Error() string   { return "i/o timeout" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }

type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

func TestErrorType(t *testing.T) {
	t.Parallel()
	expired, cancel := context.WithDeadlineCause(context.Background(), time.Now(), errors.New("too slow"))
	defer cancel()
	stopped, stop := context.WithCancel(context.Background())
	stop()
	for _, tc := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{errors.New("what"), ""},
		{notSent(expired), "timeout"},
		{cut(expired), "timeout"},
		{notSent(stopped), "cancelled"},
		{uncertain(&net.OpError{Op: "read", Err: timeoutError{}}), "timeout"},
		{uncertain(&net.OpError{Op: "dial", Err: errors.New("refused")}), "connection"},
		{explain(redis.ErrClosed), "closed"},
		{uncertain(store.ErrStale), "uncertain"},
		{explain(reply("OOM command not allowed")), "OOM"},
		{explain(reply("ERR Error running script: user_script:1: -OOM command not allowed")), "OOM"},
		{reply("ERR The user executing the script can't run this command or subcommand script: 50142d, on @user_script:1."), "NOPERM"},
		{reply("ERR ACL failure in script: User user has no permissions to run the 'get' command script: 50142d, on @user_script:1."), "NOPERM"}, // Valkey
		{reply("ERR Protocol error: unauthenticated multibulk length"), "ERR"},
		{reply("EXECABORT Transaction discarded"), "EXECABORT"},
		{reply("redis: nil"), "reply"},
		{reply("the job 12345 is wrong"), "reply"},
		{fmt.Errorf("%w payload: too large", signalbox.ErrInvalid), "invalid"},
	} {
		if got := errorType(tc.err); got != tc.want {
			t.Errorf("%v: %q, want %q", tc.err, got, tc.want)
		}
	}
}
