package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/scheduler"
)

const (
	manyQueues = 60
	// between is the mean time from one timed job to the next, over all queues.
	between = 5 * time.Millisecond
)

// hold is a job that runs until the measurement is over, one in each queue.
type hold struct{}

func (hold) Kind() string { return "hold" }

// timed is a job whose start is timed.
type timed struct {
	At time.Time `json:"at"` // just before the call that enqueued it
}

func (timed) Kind() string { return "timed" }

func queueName(i int) string { return fmt.Sprintf("queue-%d", i) }

// topologies make a client with default options.
var topologies = map[string]func(addrs []string) redis.UniversalClient{
	"cluster": func(addrs []string) redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true})
	},
	"single": func(addrs []string) redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: addrs[0], ContextTimeoutEnabled: true})
	},
}

// queuesInCluster times n jobs in 60 queues on a Cluster of three masters.
func queuesInCluster(ctx context.Context, _ *server, n int) (samples [][]float64, err error) {
	nodes, err := startCluster(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, nodes.close()) }()
	return timeQueues(ctx, "cluster", nodes.addrs(), n)
}

// queuesOnOne is queuesInCluster on one Redis.
func queuesOnOne(ctx context.Context, srv *server, n int) (samples [][]float64, err error) {
	return timeQueues(ctx, "single", []string{srv.addr}, n)
}

// timeQueues times n jobs, from the calls that enqueue them to the starts of their handlers, in ms. They are
// spread over all queues of a worker in a process with one CPU, which is idle otherwise: it only holds a job of each
// queue. It fails if the worker itself ended a context, or a call of it waited too long for a connection.
func timeQueues(ctx context.Context, topology string, addrs []string, n int) (samples [][]float64, err error) {
	rdb := topologies[topology](addrs)
	defer func() { err = errors.Join(err, rdb.Close()) }()
	s, err := scheduler.New(rdb, scheduler.Config{Logger: silent})
	if err != nil {
		return nil, err
	}
	for i := range manyQueues {
		if _, err := s.Enqueue(ctx, hold{}, scheduler.Queue(queueName(i))); err != nil {
			return nil, err
		}
	}
	w, err := startChild(ctx, fmt.Sprintf("%s=%s %s %d", queuesEnv, topology, strings.Join(addrs, ","), n), "GOMAXPROCS=1")
	if err != nil {
		return nil, err
	}
	defer w.kill()
	for _, i := range rand.Perm(n) {
		select {
		case <-time.After(rand.N(2 * between)):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if _, err := s.Enqueue(ctx, timed{time.Now()}, scheduler.Queue(queueName(i%manyQueues))); err != nil {
			return nil, err
		}
	}
	var r queuesReport
	if err := errors.Join(w.out.Decode(&r), w.cmd.Wait()); err != nil {
		return nil, fmt.Errorf("the process of the worker: %w", err)
	}
	return [][]float64{r.Starts}, r.check(n)
}

// A queuesReport is what the process of the worker has seen.
type queuesReport struct {
	Starts   []float64 // of the timed jobs, in ms
	Ended    int       // contexts of handlers that ended while they ran
	Timeouts uint32    // calls that found no connection in time
	Said     []string  // errors and warnings of the worker's
}

// check returns an error unless all was well.
func (r *queuesReport) check(n int) error {
	switch {
	case len(r.Starts) != n:
		return fmt.Errorf("%d jobs were run %d times", n, len(r.Starts))
	case r.Ended > 0:
		return fmt.Errorf("%d contexts of handlers were ended; the worker said: %q", r.Ended, r.Said)
	case r.Timeouts > 0:
		return fmt.Errorf("%d calls of the worker found no connection in time; it said: %q", r.Timeouts, r.Said)
	case len(r.Said) > 0:
		return fmt.Errorf("the worker said: %q", r.Said)
	}
	return nil
}
