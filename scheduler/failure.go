package scheduler

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/server"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// A verdict says whether it makes sense to repeat a call that failed.
type verdict int

const (
	again verdict = iota
	final
)

// judge returns the verdict on the error of a call. Error replies of the script itself are final: a repeated call
// gets the same reply.
func judge(err error) verdict {
	var reply redis.Error
	switch {
	case errors.Is(err, redis.ErrClosed), errors.Is(err, store.ErrStale), misfit(err) != nil:
		return final
	case !errors.As(err, &reply):
		return again
	}
	for _, passing := range []string{"LOADING", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "ERR max number of clients"} {
		if is(err, passing) {
			return again
		}
	}
	return final
}

// misfit returns the part of the error of a call that says that the queue's layout isn't one of this release, or nil. The queue has refused the call, and
// refuses it again until somebody acts.
func misfit(err error) *layout.Error {
	layout, _ := errors.AsType[*layout.Error](err)
	return layout
}

// maybeRun reports whether a try that failed may have been run, or may still be run. writes is how often the client
// gave the call to a connection. It matters because the client repeats calls by itself, after a broken connection
// and after some replies, and returns only the last error.
func maybeRun(err error, writes int) bool {
	var reply redis.Error
	switch {
	case writes == 0:
		return false
	case writes > 1 || !errors.As(err, &reply):
		return true
	}
	// A command was denied in the middle of the script. The commands before it were run.
	return is(err, "NOPERM") && strings.Contains(reply.Error(), "@user_script")
}

// doubtful reports whether a call that failed may have been run, or may still be run. It is for calls of which the
// number of writes isn't known.
func doubtful(err error) bool {
	return maybeRun(err, 1) || judge(err) == again || errors.Is(err, store.ErrStale) ||
		is(err, "READONLY") || is(err, "MASTERDOWN") || is(err, "NOREPLICAS")
}

// is reports whether Redis replied with an error of that code, to a command or to a command in a script.
func is(err error, code string) bool {
	if code == "NOPERM" {
		return server.IsDenied(err)
	}
	text := err.Error()
	return strings.HasPrefix(text, code) || strings.Contains(text, "-"+code+" ") || strings.Contains(text, ": "+code+" ")
}

var hints = []struct{ code, hint string }{
	{"OOM", "Redis is at its maxmemory; jobs can be put in again when others are done, or with more memory"},
	{"READONLY", "this Redis is a read-only replica, or a failover is under way; the client must reach the master"},
	{"WRONGTYPE", "a key of this queue holds a value that is not ours; does another program write to signalbox:*?"},
	{"NOPERM", "the client's Redis user needs EVALSHA, EVAL, the commands in the scripts, the keys and channels signalbox:*, and SELECT for another database than 0: see docs/operations/access.md"},
	{"NOAUTH", "the Redis client needs a password"},
	{"ERR Protocol error: unauthenticated", "the Redis client needs a password"}, // the reply to a large command
	{"LOADING", "Redis has just started and loads its data"},
	{"MISCONF", "Redis can't save its data and refuses writes"},
}

// explain adds to an error of Redis what to do about it.
func explain(err error) error {
	if errors.Is(err, redis.ErrClosed) {
		return fmt.Errorf("the Redis client that scheduler.New was given has been closed: %w", err)
	}
	for _, h := range hints {
		if is(err, h.code) {
			return fmt.Errorf("%s: %w", h.hint, err)
		}
	}
	return err
}

// ended returns the error of a context, with its cause.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// errorType returns the error.type of spans and metrics, which is one of few values. It returns "" for nil, and for
// an error whose Go type is used instead.
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
	case errors.As(err, &late) && late.Timeout(): // also the error of a context
		return telemetry.ErrorTimeout
	case errors.As(err, &reply):
		return replyCode(reply)
	case errors.Is(err, redis.ErrClosed):
		return "closed"
	case errors.Is(err, signalbox.ErrInvalid):
		return "invalid"
	case errors.As(err, &late):
		return "connection"
	case errors.Is(err, ErrUncertain):
		return "uncertain"
	}
	return ""
}

// unwritable reports whether a call failed since Redis didn't answer, or refuses all writes. Such a failure says nothing about the call.
func unwritable(err error) bool {
	var reply redis.Error
	if errors.As(err, &reply) {
		for _, code := range []string{"LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "READONLY", "OOM", "MISCONF", "NOREPLICAS", "BUSY", "ERR max number of clients"} {
			if is(reply, code) {
				return true
			}
		}
		return false
	}
	return err != nil && !errors.Is(err, signalbox.ErrInvalid) && misfit(err) == nil
}

// replyCode returns the code at the beginning of an error reply of Redis, or "reply" if it has none.
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
