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
)

// TestNoPassword: to a client that gave no password Redis says NOAUTH to a small command, but to
// one as large as ours that it breaks the protocol.
func TestNoPassword(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	if err := srv.Client().ConfigSet(context.Background(), "requirepass", "secret").Err(); err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer rdb.Close()
	_, err := newScheduler(t, rdb).Enqueue(context.Background(), note{})
	if err == nil || !strings.Contains(err.Error(), "needs a password") {
		t.Errorf("got %v", err)
	}
}

// timeoutError is what a connection says that took too long.
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
		{uncertain(redis.ErrClosed), "uncertain"},
		{explain(reply("OOM command not allowed")), "OOM"},
		{explain(reply("ERR Error running script: user_script:1: -OOM command not allowed")), "OOM"},
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
