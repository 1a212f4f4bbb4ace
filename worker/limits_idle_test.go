package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/worker"
)

// TestLimitedQueuesDontPoll: three workers work an empty queue, and queues whose jobs wait since a limit, a rate, a hold or a pause lets none start. While the leases of
// the empty queue are renewed, these have as many calls as it has.
func TestLimitedQueuesDontPoll(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	rdb := server.Client()
	r := newRigOn(t, rdb) // its queue is the empty one
	hourly := signalbox.Limits{Rate: signalbox.Rate{Jobs: 1, Per: time.Hour, Burst: 2}}
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	type kind struct {
		set    func(q *store.Queue)
		then   func(q *store.Queue) // when the first jobs have started
		group  func(n int) (group string, serial bool)
		starts int
		rig    *rig
		began  atomic.Int64
	}
	of := func(group string) func(int) (string, bool) { return func(int) (string, bool) { return group, false } }
	serial := func(int) (string, bool) { return "a", true }
	kinds := map[string]*kind{
		"running":              {set: func(q *store.Queue) { must(q.Settings().SetLimits(ctx, running(2))) }, group: of(""), starts: 2},
		"rate":                 {set: func(q *store.Queue) { must(q.Settings().SetLimits(ctx, hourly)) }, group: of(""), starts: 2},
		"group running":        {set: func(q *store.Queue) { must(q.Settings().SetGroupLimits(ctx, running(2))) }, group: of("a"), starts: 2},
		"group rate":           {set: func(q *store.Queue) { must(q.Settings().SetGroupLimits(ctx, hourly)) }, group: of("a"), starts: 2},
		"many group":           {set: func(q *store.Queue) { must(q.Settings().SetGroupLimits(ctx, running(1))) }, group: func(n int) (string, bool) { return fmt.Sprint(n % 6), false }, starts: 6},
		"serial":               {set: func(*store.Queue) {}, group: serial, starts: 1},
		"queue held":           {set: func(q *store.Queue) { must(q.Settings().HoldBack(ctx, "", "", time.Hour)) }, group: of("")},
		"queue paused":         {set: func(q *store.Queue) { must(q.Settings().Pause(ctx)) }, group: of("")},
		"group held":           {set: func(q *store.Queue) { must(q.Settings().HoldBack(ctx, "ga", "", time.Hour)) }, group: of("a")},
		"group paused":         {set: func(q *store.Queue) { must(q.Settings().PauseGroup(ctx, "ga")) }, group: of("a")},
		"serial paused":        {set: func(q *store.Queue) { must(q.Settings().PauseGroup(ctx, "sa")) }, group: serial},
		"paused when one runs": {set: func(*store.Queue) {}, then: func(q *store.Queue) { must(q.Settings().PauseGroup(ctx, "sa")) }, group: serial, starts: 1},
	}
	queues := worker.Queues{r.name(): {Concurrency: 10}}
	byQueue := make(map[string]*kind)
	for _, k := range kinds {
		k.rig = newRigOn(t, rdb)
		k.set(k.rig.queue)
		byQueue[k.rig.name()] = k
		queues[k.rig.name()] = worker.Queue{Concurrency: 10}
		for n := range 12 {
			job := signalbox.Job{}
			job.Group, job.Serial = k.group(n)
			k.rig.add(job)
		}
	}
	for range 3 {
		w := r.workerOn(proxy.Client(), worker.Config{Queues: queues, Logger: slog.New(r.log), SessionTTL: 3 * time.Second, DrainTimeout: -1, Concurrency: 200})
		worker.Handle(w, func(ctx context.Context, job *signalbox.Job, _ task) error {
			byQueue[job.Queue].began.Add(1)
			<-ctx.Done() // until the test ends
			return ctx.Err()
		})
		r.start(w)
	}
	for name, k := range kinds {
		redistest.Eventually(t, func() bool {
			return k.began.Load() == int64(k.starts) && rdb.ZCard(ctx, k.rig.key("sessions")).Val() == 3
		}, "%s: %d jobs start", name, k.starts)
		if k.then != nil {
			k.then(k.rig.queue)
		}
	}
	redistest.Eventually(t, func() bool { return rdb.ZCard(ctx, r.key("sessions")).Val() == 3 }, "three workers are there")
	callsOf := func(name string) int {
		return proxy.Count(func(cmd []string) bool {
			return len(cmd) > 3 && strings.EqualFold(cmd[0], "EVALSHA") && strings.Contains(cmd[3], "{default:"+name+"}")
		})
	}
	renewed := func() {
		before := rdb.ZRangeWithScores(ctx, r.key("sessions"), 0, -1).Val()
		redistest.Eventually(t, func() bool {
			for _, z := range before {
				if score, err := rdb.ZScore(ctx, r.key("sessions"), z.Member.(string)).Result(); err == redis.Nil || err == nil && score == z.Score {
					return false
				}
			}
			return true
		}, "all leases are renewed")
	}
	// What the start left to do may come in the first window. A queue that is polled has more calls in each.
	polled := kinds
	for window := 0; len(polled) > 0; window++ {
		plain, calls := callsOf(r.name()), make(map[string]int)
		for name, k := range polled {
			calls[name] = callsOf(k.rig.name())
		}
		for range 4 {
			renewed()
		}
		more := make(map[string]*kind)
		plain = callsOf(r.name()) - plain
		for name, k := range polled {
			n := callsOf(k.rig.name()) - calls[name]
			t.Logf("%s: %d calls, %d of the empty queue", name, n, plain)
			if n > plain+6 { // a lease of each worker may have been renewed twice at the ends of the window
				more[name] = k
				if window == 2 {
					t.Errorf("%s: %d calls while an empty queue has %d", name, n, plain)
				}
			}
		}
		if polled = more; window == 2 {
			break
		}
	}
	for name, k := range kinds {
		if n := k.began.Load(); n != int64(k.starts) {
			t.Errorf("%s: %d jobs have started, want %d", name, n, k.starts)
		}
	}
}
