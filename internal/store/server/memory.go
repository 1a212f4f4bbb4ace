package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// ErrUnsaid is wrapped by the error of a question about itself that a server doesn't answer: it lacks the command, or denies it to the user.
var ErrUnsaid = errors.New("the server doesn't say")

// MemoryUsage returns how many bytes of the server's memory each key takes. It is 0 for a key that isn't there. The server estimates it from that many
// elements of each key. All keys are in one slot of a Cluster.
func MemoryUsage(ctx context.Context, rdb redis.UniversalClient, samples int, keys []string) ([]int64, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	usage := make([]*redis.IntCmd, len(keys))
	_, _ = rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its error
		for i, key := range keys {
			usage[i] = p.MemoryUsage(ctx, key, samples)
		}
		return nil
	})
	bytes := make([]int64, len(keys))
	for i, u := range usage {
		n, err := u.Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, unsaid(ctx, rdb, "MEMORY USAGE", "memory|usage", err)
		}
		bytes[i] = n
	}
	return bytes, nil
}

// unsaid returns err, the error of a command. If the server won't answer it later either, the error wraps ErrUnsaid, and says what allows it.
func unsaid(ctx context.Context, rdb redis.UniversalClient, command, rule string, err error) error {
	var answer redis.Error
	switch {
	case !errors.As(err, &answer) || isPassing(answer) || isAuth(answer):
		return err
	case IsDenied(answer):
		return fmt.Errorf("%w: its user may not call %s; allow it with: ACL SETUSER %s +%s: %w", ErrUnsaid, command, user(ctx, rdb), rule, err)
	}
	return fmt.Errorf("%w: it doesn't answer %s: %w", ErrUnsaid, command, err)
}
