package server

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
)

// CheckClient returns an error that wraps signalbox.ErrInvalid if rdb is nil. It does the same for types of client that lose or delay
// jobs.
func CheckClient(rdb redis.UniversalClient) error {
	if IsNil(rdb) {
		return fmt.Errorf("%w rdb: it is nil; pass a client of go-redis", signalbox.ErrInvalid)
	}
	switch c := rdb.(type) {
	case *redis.Ring:
		return fmt.Errorf("%w rdb: it is a Ring, whose servers know nothing of each other: when one is away, its queues begin anew on another; pass a *redis.Client or a *redis.ClusterClient", signalbox.ErrInvalid)
	case *redis.AutoPipeliner:
		return fmt.Errorf("%w rdb: it is an AutoPipeliner, in which calls wait behind others; pass the client that it was made from", signalbox.ErrInvalid)
	case *redis.ClusterClient:
		if c.Options().ReadOnly { // RouteByLatency and RouteRandomly set it, too
			return fmt.Errorf("%w rdb: it reads from replicas, which may be behind: jobs could be lost; leave out ReadOnly, RouteByLatency and RouteRandomly", signalbox.ErrInvalid)
		}
	}
	return nil
}

// IsNil reports whether there is no client: rdb is nil, or a nil pointer to a go-redis client.
func IsNil(rdb redis.UniversalClient) bool {
	switch c := rdb.(type) {
	case nil:
		return true
	case *redis.Client:
		return c == nil
	case *redis.ClusterClient:
		return c == nil
	case *redis.Ring:
		return c == nil
	case *redis.AutoPipeliner:
		return c == nil
	}
	return false
}
