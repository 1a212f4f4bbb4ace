package worker_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// manyQueues runs a worker of many queues with a client that has few connections. A job of each queue runs for two renewals of its
// lease, all at the same time. It returns the worker's log.
func manyQueues(t *testing.T, admin, rdb redis.UniversalClient, queues int) (log *logbook) {
	t.Helper()
	ctx := context.Background()
	rigs := make([]*rig, queues)
	cfg := worker.Config{Queues: worker.Queues{}, SessionTTL: 12 * time.Second, DrainTimeout: -1}
	for i := range rigs {
		rigs[i] = newRigOn(t, admin)
		cfg.Queues[rigs[i].name()] = worker.Queue{Concurrency: 2}
	}
	r := rigs[0]
	cfg.Logger = r.config(1).Logger
	w := r.workerOn(rdb, cfg)
	began := make(chan string, queues)
	release, open := r.gate()
	var ended atomic.Int32
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, _ task) error {
		began <- job.Queue
		select {
		case <-release:
		case <-ctx.Done():
			ended.Add(1)
			t.Errorf("a handler's context ended: %v", context.Cause(ctx))
		}
		return nil
	})
	run := r.start(w)
	for _, r := range rigs {
		r.until("there is a session", func(looks.Counts) bool { return admin.ZCard(ctx, r.key("sessions")).Val() == 1 })
	}
	until := make([]float64, queues)
	for i, r := range rigs {
		until[i] = admin.ZRangeWithScores(ctx, r.key("sessions"), 0, 0).Val()[0].Score
		r.addOne(signalbox.Job{})
	}
	for range rigs {
		get(t, began, "a job of each queue runs")
	}
	for i, r := range rigs {
		redistest.Eventually(t, func() bool {
			all := admin.ZRangeWithScores(ctx, r.key("sessions"), 0, -1).Val()
			return len(all) == 1 && all[0].Score > until[i]+float64(5*time.Second/time.Microsecond) // two thirds of a TTL
		}, "the lease of queue %d is renewed twice", i)
	}
	open()
	for _, r := range rigs {
		r.completed(1)
		if c := r.counts(); c.Total.Crashed+c.Total.Returned != 0 {
			t.Errorf("counts %+v", c)
		}
	}
	run.stop()
	if n := ended.Load(); n > 0 || r.log.count("lease was lost") > 0 {
		t.Errorf("%d handlers' contexts ended", n)
	}
	if s := rdb.PoolStats(); s.Timeouts > 0 {
		t.Errorf("%d calls found no connection in time", s.Timeouts)
	}
	return r.log
}

// Queues that wait for work take no connections from the caller's pool, however many they are. Renewals need none.
func TestQueuesDontStarveThePool(t *testing.T) {
	t.Parallel()
	t.Run("one Redis", func(t *testing.T) {
		t.Parallel()
		server := redistest.New(t)
		rdb := server.ClientWith(func(o *redis.UniversalOptions) { o.PoolSize = 1 })
		log := manyQueues(t, server.Client(), rdb, 3)
		log.says(t, "pool is smaller", "pool_size=1", "needed=6", "queues=3")
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := redistest.Cluster(t)
		rdb := cluster.ClientWith(func(o *redis.UniversalOptions) { o.PoolSize = 2 })
		log := manyQueues(t, cluster.Client(), rdb, 15)
		log.says(t, "pool is smaller", "pool_size=2", "queues=15")
	})
}

// A claim that waits for a connection in a full pool does not delay the renewals.
func TestRenewalsDontWaitBehindClaims(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	rdb := proxy.ClientWith(func(o *redis.UniversalOptions) { o.PoolSize = 1 })
	w := r.workerOn(rdb, r.short(2))
	began := make(chan struct{})
	release, open := r.gate()
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, _ task) error {
		close(began)
		select {
		case <-release:
		case <-ctx.Done():
			t.Errorf("the handler's context ended: %v", context.Cause(ctx))
		}
		return nil
	})
	r.start(w)
	r.addOne(signalbox.Job{})
	get(t, began, "the job runs")
	conn := rdb.(*redis.Client).Conn() // the only one
	defer conn.Close()
	if err := conn.Ping(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	before := proxy.Count(r.isRenew())
	redistest.Eventually(t, func() bool { return proxy.Count(r.isRenew()) > before+3 }, "the lease is renewed")
	_ = conn.Close()
	open()
	r.completed(1)
}

// A pool that is large enough causes no warning.
func TestPoolThatIsLargeEnough(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.workerOn(redistest.Start(t).ClientWith(func(o *redis.UniversalOptions) { o.PoolSize = 2 }), r.config(1))
	ran := r.reporter(w)
	r.start(w)
	r.works(ran, "a job runs")
	if r.log.count("pool is smaller") > 0 {
		t.Error("the log warns of the pool")
	}
}

// A client that wraps another one still works, with its own pool, and the log reports it.
func TestClientOfAnUnknownType(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.workerOn(struct{ redis.UniversalClient }{r.rdb}, r.config(1))
	ran := r.reporter(w)
	run := r.start(w)
	r.works(ran, "a job runs")
	r.log.says(t, "unknown type")
	run.stop()
}

// A worker can't work correctly with a Ring or an AutoPipeliner.
func TestClientThatIsRefused(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "redis-1:1"}})
	defer ring.Close()
	for name, rdb := range map[string]redis.UniversalClient{"Ring": ring, "AutoPipeliner": &redis.AutoPipeliner{}} {
		if _, err := worker.New(rdb, worker.Config{}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("New with a %s: %v; want an error that names it", name, err)
		}
		if _, err := worker.ReportDepths(t.Context(), rdb, worker.ReportConfig{}, "mail"); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("ReportDepths with a %s: %v; want an error that names it", name, err)
		}
	}
}

// TestClientThatIgnoresDeadlines: a worker, a scheduler and a locker on one client warn once. The worker works all the same.
func TestClientThatIgnoresDeadlines(t *testing.T) {
	t.Parallel()
	const warning = "ignores the deadlines"
	for name, heeds := range map[string]bool{"by default": false, "ContextTimeoutEnabled": true} {
		r := newRig(t)
		rdb := redistest.Start(t).ClientWith(func(o *redis.UniversalOptions) { o.ContextTimeoutEnabled = heeds })
		want := 1
		if heeds {
			want = 0
		}
		for _, config := range []worker.Config{r.config(1), r.config(1)} {
			w := r.workerOn(rdb, config)
			ran := r.reporter(w)
			run := r.start(w)
			r.works(ran, "a job runs")
			run.stop()
		}
		if _, err := scheduler.New(rdb, scheduler.Config{Logger: slog.New(r.log)}); err != nil {
			t.Fatal(err)
		}
		if n := r.log.count("WARN", warning, "set ContextTimeoutEnabled: true"); n != want || r.log.count(warning) != want {
			t.Errorf("%s: %d warnings, want %d", name, n, want)
		}
	}
	said := &logbook{} // a program that only enqueues never calls Run
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = rdb.Close() }()
	if _, err := scheduler.New(rdb, scheduler.Config{Logger: slog.New(said)}); err != nil || said.count("WARN", warning, "server=127.0.0.1:1") != 1 {
		t.Errorf("a scheduler says %v, %v", said, err)
	}
}
