package worker_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/worker"
)

// A server that is short of memory deletes keys with a TTL: another application's, and Signalbox's. No job is lost, whether it waits,
// runs or is scheduled.
func TestEvictionLosesNoJob(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"volatile-lru", "volatile-random"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			server := redistest.New(t, "--maxmemory", "4mb", "--maxmemory-policy", policy, "--notify-keyspace-events", "Ee")
			r := newRigOn(t, server.Client())
			cfg := r.config(4)
			cfg.SessionTTL = 2 * time.Second
			w := r.workerWith(cfg)
			var runs atomic.Int32
			worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
				if runs.Add(1); job.Attempt == 1 {
					return errBoom // it is due again later
				}
				return nil
			}, worker.Retry(func(int, error) time.Duration { return 10 * time.Millisecond }))
			r.start(w)
			r.ready()
			r.log.says(t, "maxmemory-policy is "+policy)

			ours := evicted(t, server.Client(), r.key(""))
			fill(t, server.Client())
			redistest.Eventually(t, func() bool { return evictions(t, r.rdb) > 0 }, "Redis evicts keys")
			const batches, batch = 40, 25
			total, begin := 0, time.Now()
			for n := 0; n < batches || policy == "volatile-random" && ours.Load() < 4; n++ {
				if n >= batches && time.Since(begin) > 2*patience {
					t.Fatalf("Redis evicted %d keys of ours in %v", ours.Load(), time.Since(begin))
				}
				total += batch
				r.add(make([]signalbox.Job, batch)...)
				r.completed(total) // so that calls are made all the time, whose numbers can be evicted
			}
			if c := r.counts(); c.Dead+c.Cancelled != 0 {
				t.Errorf("counts %+v", c)
			}
		})
	}
}

// evictions returns how many keys the server has evicted.
func evictions(t *testing.T, rdb redis.UniversalClient) (n int) {
	t.Helper()
	info, err := rdb.Info(context.Background(), "stats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(info, "evicted_keys:")
	_, _ = fmt.Sscan(after, &n)
	return n
}

// evicted returns a function that counts the keys with a prefix that the server evicts from now on.
func evicted(t *testing.T, rdb redis.UniversalClient, prefix string) *atomic.Int32 {
	t.Helper()
	events := rdb.Subscribe(context.Background(), "__keyevent@0__:evicted")
	if _, err := events.Receive(context.Background()); err != nil {
		t.Fatal(err)
	}
	var n atomic.Int32
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range events.Channel(redis.WithChannelSize(10_000)) {
			if strings.HasPrefix(event.Payload, prefix) {
				n.Add(1)
			}
		}
	}()
	t.Cleanup(func() {
		_ = events.Close()
		<-done
	})
	return &n
}

// fill writes keys with a TTL until the test ends, as another application could.
func fill(t *testing.T, rdb redis.UniversalClient) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		value := strings.Repeat("x", 1000)
		for n := 0; ctx.Err() == nil; n++ {
			_, _ = rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
				for i := range 100 {
					p.Set(ctx, fmt.Sprintf("cache:%d", 100*n+i), value, time.Hour)
				}
				return nil
			})
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}
