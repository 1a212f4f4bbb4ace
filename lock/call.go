package lock

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed scripts/*.lua
var scripts embed.FS

var (
	acquireScript = loadScript("acquire")
	extendScript  = loadScript("extend")
	releaseScript = loadScript("release")
)

func loadScript(name string) *redis.Script {
	src, err := scripts.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic(err) // embedded by the compiler
	}
	return redis.NewScript(string(src))
}

// call runs a script and returns when it has its reply, when ctx ends or after the timeout.
// go-redis by default ignores the end of a context once it has sent a command, so the
// command runs in a goroutine of its own, which ends by the client's own timeouts.
//
// orphan, which may be nil, is called from there if the reply reached nobody, or if there
// is none and so nobody knows whether the script ran.
func (r *Redis) call(
	ctx context.Context, timeout time.Duration, script *redis.Script, keys []string, args []any,
	orphan func(ctx context.Context, reply any, err error),
) (any, error) {
	type answer struct {
		reply any
		err   error
	}
	detached := context.WithoutCancel(ctx)
	callCtx, cancel := context.WithTimeout(detached, timeout)
	answers := make(chan answer)
	left := make(chan struct{})
	go func() {
		defer cancel()
		reply, err := script.Run(callCtx, r.rdb, keys, args...).Result()
		taken := false
		select {
		case answers <- answer{reply, err}:
			taken = true
		case <-left:
		}
		if orphan != nil && (!taken || err != nil && !isAnswer(err)) {
			orphan(detached, reply, err)
		}
	}()
	select {
	case a := <-answers:
		return a.reply, a.err
	case <-ctx.Done():
		close(left)
		return nil, ended(ctx)
	case <-callCtx.Done():
		close(left)
		return nil, fmt.Errorf("no answer from Redis within %v", timeout)
	}
}

// isAnswer tells whether an error is Redis' own answer. Our scripts write nothing then.
func isAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// ended is why ctx ended: its cause and, if that is another error, its Err.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// parseGrant reads a reply of acquire.lua: the token, or the holder's remaining TTL in ms.
func parseGrant(reply any) (granted bool, number int64, err error) {
	fields, _ := reply.([]any)
	if len(fields) == 2 {
		switch status, _ := fields[0].(int64); n := fields[1].(type) {
		case string:
			if token, err := strconv.ParseInt(n, 10, 64); status == 1 && err == nil {
				return true, token, nil
			}
		case int64:
			if fields[0] == int64(0) {
				return false, n, nil
			}
		}
	}
	return false, 0, fmt.Errorf("unexpected reply of Redis: %v", reply)
}

// parseDone reads a reply of extend.lua or release.lua.
func parseDone(reply any) (bool, error) {
	if n, ok := reply.(int64); ok && (n == 0 || n == 1) {
		return n == 1, nil
	}
	return false, fmt.Errorf("unexpected reply of Redis: %v", reply)
}
