package server

import (
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience is how long a first call may take before the log reports it.
const patience = 3 * time.Second

// Watch logs a warning if stop isn't called within 3 s: a call has had no answer for so long. The client may wait much longer before it
// returns an error, for example five times its DialTimeout.
func Watch(rdb redis.UniversalClient, log *slog.Logger) (stop func() bool) {
	return time.AfterFunc(patience, func() {
		var address []any
		if host, port := Address(rdb); host != "" {
			address = []any{"address", host}
			if port != 0 {
				address[1] = net.JoinHostPort(host, strconv.Itoa(port))
			}
		}
		if usesTLS(rdb) {
			log.Warn("signalbox: Redis has not answered yet; the client uses TLS (rediss://): does the server, at this port?", address...)
			return
		}
		log.Warn("signalbox: Redis has not answered yet; is it there, at this port, and without TLS (redis://)?", address...)
	}).Stop
}

// usesTLS reports whether the client encrypts its connections.
func usesTLS(rdb redis.UniversalClient) bool {
	switch c := rdb.(type) {
	case *redis.Client:
		return c.Options().TLSConfig != nil
	case *redis.ClusterClient:
		return c.Options().TLSConfig != nil
	}
	return false
}
