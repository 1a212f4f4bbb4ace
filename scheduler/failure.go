package scheduler

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// A verdict is what the error of a call to Redis says of the call.
type verdict int

const (
	unknown verdict = iota // it may have been run; making it again can help
	refused                // it was not run, and making it again at once is of no use
	hidden                 // it was not run now, but the client may have sent it before
)

// judge reads an error of a call. The client makes a call again by itself after a broken
// connection and after some replies, and tells of the last time only. A script that
// was run before answers as it did then, so that replies of the script itself are final.
func judge(err error) verdict {
	var reply redis.Error
	switch {
	case errors.Is(err, redis.ErrClosed):
		return hidden
	case !errors.As(err, &reply):
		return unknown
	}
	for _, again := range []string{"READONLY", "LOADING", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "NOREPLICAS", "ERR max number of clients"} {
		if is(err, again) {
			return hidden
		}
	}
	return refused
}

// is tells whether an error is Redis's of that code, be it of a command or of one in a script.
func is(err error, code string) bool {
	text := err.Error()
	return strings.HasPrefix(text, code) || strings.Contains(text, "-"+code+" ") || strings.Contains(text, ": "+code+" ")
}

var hints = []struct{ code, hint string }{
	{"OOM", "Redis is at its maxmemory; jobs can be put in again when others are done, or with more memory"},
	{"READONLY", "this Redis is a read-only replica, or a failover is under way; the client must reach the master"},
	{"WRONGTYPE", "a key of this queue holds a value that is not ours; does another program write to signalbox:*?"},
	{"NOPERM", "the client's Redis user needs EVALSHA, EVAL, the commands in the scripts and the keys signalbox:*"},
	{"NOAUTH", "the Redis client needs a password"},
	{"ERR Protocol error: unauthenticated", "the Redis client needs a password"}, // to a large command
	{"LOADING", "Redis has just started and loads its data"},
	{"MISCONF", "Redis can't save its data and refuses writes"},
}

// explain adds to an error of Redis what to do about it.
func explain(err error) error {
	for _, h := range hints {
		if is(err, h.code) {
			return fmt.Errorf("%s: %w", h.hint, err)
		}
	}
	return err
}

// ended is the error of a context, and its cause.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// errorType is what spans and metrics call an error: one of few values. It is "" for nil, and where
// the type of the Go error has to do.
func errorType(err error) string {
	var (
		reply redis.Error
		late  net.Error
	)
	switch {
	case err == nil:
		return ""
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.As(err, &late) && late.Timeout(): // that of a context too
		return telemetry.ErrorTimeout
	case errors.As(err, &reply):
		return replyCode(reply)
	case errors.Is(err, signalbox.ErrInvalid):
		return "invalid"
	case errors.As(err, &late):
		return "connection"
	case errors.Is(err, ErrUncertain):
		return "uncertain"
	}
	return ""
}

// replyCode is the code that an error reply of Redis begins with.
func replyCode(reply redis.Error) string {
	for _, h := range hints {
		if is(reply, h.code) {
			code, _, _ := strings.Cut(h.code, " ")
			return code
		}
	}
	code, _, _ := strings.Cut(reply.Error(), " ")
	if code == "" || len(code) > 20 || strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return "reply"
	}
	return code
}
