package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/worker"
)

// far is the time of a round trip to a distant Redis.
const far = 50 * time.Millisecond

// BenchmarkStart measures a worker's start on one CPU, with a job waiting in each of its queues. It measures the time from Run to the
// start of the first handler, and to the first start in the last queue. With a distant Redis, it reports both in round trips. Calls
// that are made at the same time count as one round trip.
func BenchmarkStart(b *testing.B) {
	for _, topology := range []string{"single", "cluster"} {
		for _, queues := range []int{1, 60} {
			b.Run(fmt.Sprintf("%s/near/queues=%d", topology, queues), func(b *testing.B) {
				first, last := starts(b, topology, queues, 0)
				b.ReportMetric(first.Seconds()*1000, "ms/first")
				b.ReportMetric(last.Seconds()*1000, "ms/last")
			})
			b.Run(fmt.Sprintf("%s/far/queues=%d", topology, queues), func(b *testing.B) {
				first, last := starts(b, topology, queues, far)
				b.ReportMetric(first.Seconds()/far.Seconds(), "round-trips/first")
				b.ReportMetric(last.Seconds()/far.Seconds(), "round-trips/last")
			})
		}
	}
}

// starts starts b.N workers, one after the other, and returns the mean times of startOf.
func starts(b *testing.B, topology string, queues int, rtt time.Duration) (first, last time.Duration) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	near, client := servers(b, topology)
	for i := range b.N + 1 {
		rdb := client(func(o *redis.UniversalOptions) { o.PoolSize, o.Dialer = 200, dialFar(rtt) })
		f, l := startOf(b, near, rdb, queues)
		if i > 0 { // Redis has all scripts
			first, last = first+f, last+l
		}
	}
	return first / time.Duration(b.N), last / time.Duration(b.N)
}

// servers returns a client of new servers, and a function that makes more such clients.
func servers(b *testing.B, topology string) (redis.UniversalClient, func(func(*redis.UniversalOptions)) redis.UniversalClient) {
	if topology == "cluster" {
		c := redistest.Cluster(b)
		return c.Client(), c.ClientWith
	}
	s := redistest.New(b)
	return s.Client(), s.ClientWith
}

// startOf returns the time from Run to the start of the first handler, and to the first start in the last queue.
func startOf(b *testing.B, near, rdb redis.UniversalClient, queues int) (first, last time.Duration) {
	cfg := worker.Config{Queues: worker.Queues{}, DrainTimeout: -1, Logger: slog.New(slog.DiscardHandler)}
	for i := range queues {
		q := store.New(near, "", fmt.Sprint("q", i))
		cfg.Queues[q.Name()] = worker.Queue{}
		item, err := store.NewItem(&signalbox.Job{ID: store.NewID(), Kind: task{}.Kind(), Payload: []byte(`{}`)}, store.When{})
		if err != nil {
			b.Fatal(err)
		}
		lane := q.NewLane()
		lane.Next()
		if _, err := q.Enqueue(context.Background(), lane, []store.Item{item}); err != nil {
			b.Fatal(err)
		}
	}
	w, err := worker.New(rdb, cfg)
	if err != nil {
		b.Fatal(err)
	}
	began := make(chan time.Time, queues)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { began <- time.Now(); return nil })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	start := time.Now()
	go func() { ended <- w.Run(ctx) }()
	for i := range queues {
		select {
		case at := <-began:
			last = at.Sub(start)
			if i == 0 {
				first = last
			}
		case <-time.After(patience):
			b.Fatal("a job did not run")
		}
	}
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	return first, last
}

// dialFar dials like go-redis. Each round trip on its connections takes rtt.
func dialFar(rtt time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		<-time.After(rtt) // connecting is one, too
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil || rtt == 0 {
			return conn, err
		}
		return &farConn{Conn: conn, rtt: rtt}, nil
	}
}

// A farConn returns an answer only when rtt has passed since the last request.
type farConn struct {
	net.Conn
	rtt time.Duration
	mu  sync.Mutex
	due time.Time
}

func (c *farConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.due = time.Now().Add(c.rtt)
	c.mu.Unlock()
	return c.Conn.Write(p)
}

func (c *farConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	wait := time.Until(c.due)
	c.mu.Unlock()
	<-time.After(wait)
	return n, err
}
