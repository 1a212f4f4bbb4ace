package lock

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const maxOwner = 128

// defaultOwner is the host's name and the process ID.
var defaultOwner = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil || checkOwner(host) != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s:%d", host[:min(len(host), maxOwner-12)], os.Getpid())
})

// checkOwner refuses what would break a record: it is the last of three words there, and
// "*" is a reservation's.
func checkOwner(name string) error {
	if name == "" || name == "*" || len(name) > maxOwner || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) {
		return fmt.Errorf("%w: Owner must be 1 to %d bytes of printable ASCII, and not %q", ErrInvalid, maxOwner, "*")
	}
	return nil
}

// Info is who holds a lock, for people to read. It is out of date when it is read.
type Info struct {
	Key  string
	Held bool
	// Owner is the holder's name (see [Owner]); empty if the holder is none of this library.
	Owner string
	// Token is the last token granted for the key; 0 if none is known. It is the holder's
	// unless that one is none of this library.
	Token int64
	// Since is when the holder got the lock, by the server's clock; zero if unknown.
	Since time.Time
	// For is how long the lock lives unless it is extended; negative: for ever.
	For time.Duration
}

// Inspect tells who holds the lock of a key. It changes nothing.
func (r *Redis) Inspect(ctx context.Context, key string) (Info, error) {
	places, err := placesOf([]string{key})
	if r.err != nil {
		err = r.err
	}
	if err != nil {
		return Info{}, err
	}
	info := Info{Key: key}
	reply, err := r.caller.call(ctx, callTimeout, inspectScript, []string{key, places[0].fence}, nil, nil)
	if isWrongType(err) || redis.HasErrorPrefix(err, "BADRECORD") {
		err = fmt.Errorf("%w: the key, or its record, which ends in %q, holds something else: %w", ErrInvalid, fenceSuffix, err)
	}
	if err == nil {
		err = parseInfo(reply, &info)
	}
	if err != nil {
		return Info{}, fmt.Errorf("lock: inspect %q: %w", key, err)
	}
	return info, nil
}
