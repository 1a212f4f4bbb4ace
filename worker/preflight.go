package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/server"
)

// preflight waits until Redis answers, and until it is no replica: nobody knows how long a failover takes. It refuses a server that would lose jobs, and one
// whose ACL forbids calls that a worker needs. waited says that Redis was away, or was silent for the given time.
func preflight(ctx context.Context, rdb redis.UniversalClient, log *slog.Logger, queues []*store.Queue, silent time.Duration) (found *server.Findings, waited bool, err error) {
	b := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond), backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0))
	for {
		began := time.Now()
		answered := server.Watch(rdb, log)
		found, err := server.Inspect(ctx, rdb, store.Keys(queues), server.Worker)
		answered()
		wait := b.NextBackOff()
		switch {
		case ctx.Err() != nil:
			return nil, waited, ctx.Err()
		case errors.Is(err, redis.ErrClosed):
			return nil, waited, fmt.Errorf("worker: the client is closed: %w", err)
		case err == nil && found.Err() == nil:
			return found, waited || time.Since(began) >= silent, nil
		case err == nil && !found.Passing:
			return nil, waited, found.Err()
		case err == nil:
			err = found.Err()
		}
		waited = true
		log.WarnContext(ctx, "signalbox: waiting for Redis", "error", err, "next_try", wait.String())
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, waited, ctx.Err()
		}
	}
}
