// Package deadline warns of Redis clients that ignore the deadlines of contexts.
package deadline

import (
	"log/slog"
	"runtime"
	"sync"
	"weak"

	"github.com/redis/go-redis/v9"
)

// told has the clients that were warned of, as weak pointers.
var told sync.Map

// Warn logs a warning if go-redis ignores the deadlines of contexts in calls of this client: ContextTimeoutEnabled isn't set. A call
// then waits for ReadTimeout, and again for each of MaxRetries, whatever its context says. It warns once in a process for each client, however many
// workers, schedulers and lockers use it. Of a client of another type than those of go-redis nobody knows, so it logs nothing.
func Warn(rdb any, log *slog.Logger) {
	var server any
	switch c := rdb.(type) {
	case *redis.Client:
		if c == nil || c.Options().ContextTimeoutEnabled || !first(c) {
			return
		}
		server = c.Options().Addr
	case *redis.ClusterClient:
		if c == nil || c.Options().ContextTimeoutEnabled || !first(c) {
			return
		}
		server = c.Options().Addrs
	case *redis.Ring:
		if c == nil || c.Options().ContextTimeoutEnabled || !first(c) {
			return
		}
		server = c.Options().Addrs
	default:
		return
	}
	log.Warn("signalbox: the Redis client ignores the deadlines of contexts: while Redis hangs, a call waits for the client's timeouts, not its own; set ContextTimeoutEnabled: true in the client's options",
		"server", server)
}

// first reports whether it is called for the first time with this client.
func first[T any](client *T) bool {
	key := weak.Make(client)
	if _, again := told.LoadOrStore(key, true); again {
		return false
	}
	runtime.AddCleanup(client, func(key weak.Pointer[T]) { told.Delete(key) }, key)
	return true
}
