package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/server"
)

// inspection bounds one check of the servers, which takes several round trips.
const inspection = 10 * time.Second

// preflight waits until Redis answers, and until it is no replica: nobody knows how long a failover takes. It returns an error if the server would lose
// jobs, or if its ACL forbids what a scheduler does. If ctx ends first, it returns nil and nil.
func (r *runner) preflight(ctx context.Context, queues []*store.Queue) (*server.Findings, error) {
	for n := 0; ; n++ {
		call, cancel := context.WithTimeout(ctx, inspection)
		answered := server.Watch(r.s.rdb, r.s.log)
		found, err := server.Inspect(call, r.s.rdb, store.Keys(queues), server.Producer)
		answered()
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil, nil
		case errors.Is(err, redis.ErrClosed):
			return nil, fmt.Errorf("scheduler: the client is closed: %w", err)
		case err != nil:
			r.outage.begin("", r.s.now(), err)
		case found.Err() == nil:
			r.outage.end("", r.s.now())
			return found, nil
		case found.Passing:
			r.outage.begin("", r.s.now(), readOnly(found.Err().Error()))
		default:
			return nil, fmt.Errorf("scheduler: %w", found.Err())
		}
		select {
		case <-time.After(backoff(n)):
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// readOnly is the error of a replica: the one that a write would get there.
type readOnly string

func (e readOnly) Error() string { return "READONLY " + string(e) }

// RedisError makes it a redis.Error.
func (readOnly) RedisError() {}

// stores returns the queues of all registered entries.
func (r *runner) stores() []*store.Queue {
	seen := make(map[string]bool)
	var queues []*store.Queue
	entries, _, _ := r.s.cron.after(0, 0)
	for _, e := range entries {
		if q := e.job.Queue; !seen[q] {
			seen[q] = true
			queues = append(queues, store.New(r.s.rdb, r.s.namespace, q))
		}
	}
	return queues
}
