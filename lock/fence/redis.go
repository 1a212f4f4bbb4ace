package fence

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis guards writes to a Redis. Each write is one script: it compares the token with the mark, and then writes. The lease is the
// innermost one of the context.
//
// Call [Redis.Enter] before the first read, if a write depends on what was read.
//
// The mark of a resource is the key signalbox:fence:{resource}, or signalbox:fence:resource if the resource has a hash tag. It never expires. In a Cluster the keys
// of a write must be in the slot of the mark. So put the same hash tag in the name of the lock and in the keys that it protects: {account:7}:lock and {account:7}:balance.
//
// The guard rests on that Redis: a failover or a restart that loses the last writes loses marks too. It must not evict keys (maxmemory-policy noeviction).
type Redis struct{ rdb redis.Scripter }

// NewRedis returns guards that use the caller's client. Any [redis.UniversalClient] will do. It stays the caller's to close.
func NewRedis(rdb redis.Scripter) *Redis { return &Redis{rdb} }

// A Script is a script of the caller's, with the check in front. Make it once.
type Script struct{ script *redis.Script }

// NewScript returns a guarded script. The source is what EVAL takes. It sees its own KEYS and ARGV only. It runs after the mark was raised,
// in the same step. If it fails the mark stays raised, and so does what it has written before: that is how Redis' scripts are.
func NewScript(source string) *Script { return &Script{redis.NewScript(guarded(source))} }

var (
	enterScript = NewScript("return 1")
	setScript   = NewScript(`if ARGV[2] == '0' then return redis.call('SET', KEYS[1], ARGV[1]) end
return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])`)
	hsetScript = NewScript(`return redis.call('HSET', KEYS[1], unpack(ARGV))`)
)

// Enter raises the mark of the lease's key. Call it before the first read. The error is a [StaleError] if a newer holder has entered, or
// an [ErrForeign].
func (r *Redis) Enter(ctx context.Context) error {
	_, err := r.Run(ctx, enterScript, nil)
	return err
}

// Set sets a key, for ttl in ms, or without an expiry if ttl is 0. The value is one that go-redis takes.
func (r *Redis) Set(ctx context.Context, key string, value any, ttl time.Duration) error {
	if ttl != 0 && ttl < time.Millisecond {
		return invalid("ttl is %v; want 0, or at least 1ms", ttl)
	}
	_, err := r.Run(ctx, setScript, []string{key}, value, ttl.Milliseconds())
	return err
}

// maxFields bounds the fields of an HSet: Lua can't unpack more.
const maxFields = 3000

// HSet sets fields of a hash: name, value, name, value, up to 3000 of them. Values are those that go-redis takes.
func (r *Redis) HSet(ctx context.Context, key string, fields ...any) error {
	if len(fields) == 0 || len(fields)%2 != 0 || len(fields) > 2*maxFields {
		return invalid("HSet got %d names and values; want pairs of them, 1 to %d", len(fields), maxFields)
	}
	_, err := r.Run(ctx, hsetScript, []string{key}, fields...)
	return err
}

// Run runs a script of the caller's, if the context's lease isn't stale. It returns what the script returns, as go-redis decodes it; nil for
// nil. keys and args are those of the script.
//
// If a reply is lost, go-redis makes the call again, so the script may run twice. A script for which that does harm needs a client with MaxRetries -1, or a record of its own.
func (r *Redis) Run(ctx context.Context, s *Script, keys []string, args ...any) (any, error) {
	g, err := oneGrant(ctx)
	if err != nil {
		return nil, err
	}
	all := append([]string{markKey(g.resource)}, keys...)
	reply, err := s.script.Run(ctx, r.rdb, all, append([]any{strconv.FormatInt(g.token, 10), g.issuer, g.holder}, args...)...).Slice()
	switch {
	case err == nil:
	case redis.HasErrorPrefix(err, "CROSSSLOT"):
		return nil, fmt.Errorf("fence: %w: in a Redis Cluster the keys need the hash tag of the lock's key %q: %w", ErrInvalid, g.resource, err)
	case redis.HasErrorPrefix(err, "BADMARK"):
		return nil, fmt.Errorf("fence: the key %s holds something else than a mark; delete it if nobody needs it: %w", all[0], err)
	default:
		return nil, fmt.Errorf("fence: write under %s: %w", g.resource, err)
	}
	if len(reply) > 0 && reply[0] == int64(1) {
		if len(reply) == 1 {
			return nil, nil
		}
		return reply[1], nil
	}
	return nil, g.refusal(reply)
}

// refusal returns the error for a reply of check.lua that refuses.
func (g Grant) refusal(reply []any) error {
	if len(reply) == 4 && reply[0] == int64(0) {
		text, ok1 := reply[1].(string)
		issuer, ok2 := reply[2].(string)
		holder, ok3 := reply[3].(string)
		token, err := strconv.ParseInt(text, 10, 64)
		if ok1 && ok2 && ok3 && err == nil {
			if err := g.judge(issuer, holder, token); err != nil {
				return err
			}
		}
	}
	return errors.New("fence: an unknown reply of Redis")
}

// markKey returns the key of a resource's mark. It is in the slot of the resource's hash tag, or of the resource.
func markKey(resource string) string {
	const prefix = "signalbox:fence:"
	if _, rest, ok := strings.Cut(resource, "{"); ok {
		if i := strings.Index(rest, "}"); i > 0 {
			return prefix + resource
		}
	}
	return prefix + "{" + resource + "}"
}
