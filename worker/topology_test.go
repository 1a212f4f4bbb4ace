package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/worker"
)

func TestLifeInACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.Cluster(t)
	lifeOn(t, func(*testing.T) redis.UniversalClient { return cluster.Client() })
}

func TestLifeBehindSentinel(t *testing.T) {
	t.Parallel()
	sentinel := redistest.Sentinel(t)
	lifeOn(t, func(*testing.T) redis.UniversalClient { return sentinel.Client() })
}

// The queues of one worker are in several slots of a Cluster.
func TestQueuesInACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.Cluster(t)
	var rigs []*rig
	queues := worker.Queues{}
	for range 6 {
		r := newRigOn(t, cluster.Client())
		rigs = append(rigs, r)
		queues[r.name()] = worker.Queue{Concurrency: 3}
	}
	cfg := rigs[0].patient(1)
	cfg.Queues = queues
	w := rigs[0].workerWith(cfg)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	rigs[0].start(w)
	for n := range 5 {
		for _, r := range rigs {
			r.addOne(signalbox.Job{})
		}
		for _, r := range rigs {
			r.completed(n + 1)
		}
	}
}

// A master hands over to its replica while jobs run. Every job runs. Jobs whose outcomes were lost with the old master run again.
func TestFailover(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) (redis.UniversalClient, func(queue string)){
		"cluster": func(t *testing.T) (redis.UniversalClient, func(string)) {
			c := redistest.ClusterWithReplicas(t)
			return c.Client(), func(queue string) { c.Failover(t, "signalbox:{default:"+queue+"}:jobs") }
		},
		"sentinel": func(t *testing.T) (redis.UniversalClient, func(string)) {
			s := redistest.Sentinel(t)
			return s.Client(), func(string) { s.Failover(t) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb, failover := start(t)
			r := newRigOn(t, rdb)
			w := r.workerWith(r.brief(4))
			w.Use(func(next signalbox.Handler) signalbox.Handler {
				return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
					<-time.After(5 * time.Millisecond) // 2,000 of them last for 2.5 s, longer than the failover
					return next.Handle(ctx, job)
				})
			})
			ran := r.reporter(w)
			const n = 2000
			ids := r.add(make([]signalbox.Job, n)...)
			// Writes that the replica doesn't have when it takes over are lost.
			r.waitReplica()
			r.start(w)
			seen := make(map[string]bool)
			for len(seen) < n/10 {
				seen[get(t, ran, "jobs run")] = true
			}
			failover(r.name())
			for len(seen) < n {
				seen[get(t, ran, "the others run as well")] = true
			}
			for _, id := range ids {
				if !seen[id] {
					t.Errorf("job %s did not run", id)
				}
			}
			r.until("none is left", func(c looks.Counts) bool { return c.Ready+c.Due+c.Running == 0 })
			if c := r.counts(); c.Dead+c.Cancelled != 0 {
				t.Errorf("counts %+v", c)
			}
			r.works(ran, "new jobs run")
		})
	}
}

// waitReplica waits until a replica has all writes to the rig's queue. WAIT covers the writes of its own connection, and all writes
// before them.
func (r *rig) waitReplica() {
	r.Helper()
	ctx := context.Background()
	var master redis.Cmdable = r.rdb
	if cluster, ok := r.rdb.(*redis.ClusterClient); ok {
		m, err := cluster.MasterForKey(ctx, r.key("jobs"))
		if err != nil {
			r.Fatal(err)
		}
		master = m
	}
	var replicas *redis.Cmd
	_, err := master.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, r.key("lane:last"), "", time.Minute)
		replicas = p.Do(ctx, "WAIT", 1, patience.Milliseconds())
		return nil
	})
	if n, _ := replicas.Int(); err != nil || n != 1 {
		r.Fatalf("%d replicas have the jobs: %v", n, err)
	}
}
