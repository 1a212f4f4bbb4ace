package worker

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/server"
)

// maxKeepers limits the connections for renewals to each server. Each session makes one renewal, of one round trip, every third of
// its TTL.
const maxKeepers = 32

// spare is how many more connections there may be: to read depths, to look at the server, and for failed tries. If as many
// tries in a row fail as a pool may have connections, go-redis makes no new connection for a second.
const spare = 4

// reachFor limits the time in which the worker's own client must get its first answers.
const reachFor = 5 * time.Second

// An ownClient is a client with the same settings as the caller's and its own connections. Renewals use it: they must not
// wait behind claims for a connection, since the lease could end meanwhile. The listener's subscriptions use it as well. It has these
// connections to each server: one for the subscription, up to maxKeepers for renewals, one to read depths, and one to look at
// the server.
type ownClient struct {
	w      *Worker
	rdb    redis.UniversalClient // nil: it can't be made
	tried  chan struct{}         // closed when the first try to reach the servers is over
	err    error                 // the error of that try, set when it is over
	cancel context.CancelFunc    // ends that try
}

// connect makes the worker's own client and begins to reach the servers with it. It does not wait: meanwhile the worker looks at
// the servers with the caller's client. Call close when the client is no longer needed.
func (w *Worker) connect(ctx context.Context) *ownClient {
	o := &ownClient{w: w, tried: make(chan struct{}), cancel: func() {}}
	if o.rdb = server.Own(w.rdb, min(len(w.cfg.Queues), maxKeepers)+spare); o.rdb == nil {
		close(o.tried)
		return o
	}
	ctx, o.cancel = context.WithTimeout(ctx, reachFor)
	go func() {
		defer close(o.tried)
		o.err = server.Reach(ctx, o.rdb)
	}()
	return o
}

// client returns the own client. The caller's client must have reached the servers before. If the own client can't be used, client
// logs that and returns the caller's.
func (o *ownClient) client(ctx context.Context) redis.UniversalClient {
	w := o.w
	if o.rdb == nil {
		w.log.Warn("signalbox: the client is of an unknown type, so renewals and subscriptions use its connections; pass a *redis.Client or a *redis.ClusterClient")
		return w.rdb
	}
	if <-o.tried; o.err == nil {
		return o.rdb
	}
	// The first try may have been too early, before the servers were there.
	ctx, cancel := context.WithTimeout(ctx, reachFor)
	defer cancel()
	if err := server.Reach(ctx, o.rdb); err != nil && isOutage(err) && ctx.Err() == nil && server.Reach(ctx, w.rdb) == nil {
		w.log.Warn("signalbox: no connection could be made with the client's settings, so renewals and subscriptions use the client itself; does a hook of it dial?", "error", err)
		return w.rdb
	}
	return o.rdb
}

// close closes the own client. It may be called more than once.
func (o *ownClient) close() {
	o.cancel()
	if o.rdb != nil {
		_ = o.rdb.Close()
	}
	<-o.tried
}

// checkPool warns if the client has fewer connections than the queues on one server may use at the same time. Calls then wait
// for each other, and jobs start late.
func (w *Worker) checkPool(ctx context.Context, queues []*store.Queue) {
	var size int
	switch c := w.rdb.(type) {
	case *redis.Client:
		size = poolSize(c.Options().PoolSize, c.Options().MaxActiveConns)
	case *redis.ClusterClient:
		size = poolSize(c.Options().PoolSize, c.Options().MaxActiveConns)
	default:
		return
	}
	if needed := lanes * server.Crowd(ctx, w.rdb, store.Keys(queues)); size < needed {
		w.log.Warn("signalbox: the client's pool is smaller than what the queues may need at the same time, so calls may wait for each other; set PoolSize to what is needed, and more for what else uses the client",
			"pool_size", size, "needed", needed, "queues", len(queues))
	}
}

// poolSize returns the maximum number of connections in a pool.
func poolSize(size, active int) int {
	if active > 0 {
		return min(size, active)
	}
	return size
}
