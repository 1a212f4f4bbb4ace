package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/lock/internal/lua"
	"github.com/signalbox-go/signalbox/lock/internal/spec"
)

// Info says who holds a lock, for people to read. It may be out of date at once.
type Info struct {
	Key  string
	Held bool
	// Owner is the holder's name (see [Config]). It is empty if the holder uses another library.
	Owner string
	// Token is the last token granted for the key; 0 if none is known. If the holder uses another library
	// it isn't the holder's.
	Token int64
	// Since is when the holder got the lock, by the server's clock; zero if unknown.
	Since time.Time
	// For is how long the lock lives unless it is extended; negative: for ever.
	For time.Duration
}

// Inspect returns who holds the lock of a key. It changes nothing.
func (r *Redis) Inspect(ctx context.Context, key string) (Info, error) {
	places, err := placesOf([]string{key})
	if err != nil {
		return Info{}, err
	}
	info := Info{Key: key}
	reply, err := r.caller.Call(ctx, callTimeout, inspectScript, []string{key, places[0].fence}, nil, nil)
	if lua.IsWrongType(err) || redis.HasErrorPrefix(err, "BADRECORD") {
		err = fmt.Errorf("%w: the key, or its record, which ends in %q, holds something else: %w", ErrInvalid, spec.FenceSuffix, err)
	}
	if err == nil {
		err = parseInfo(reply, &info)
	}
	if err != nil {
		return Info{}, fmt.Errorf("lock: inspect %.200q: %w", key, err)
	}
	return info, nil
}
