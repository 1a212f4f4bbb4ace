package comeover

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/fromasynq"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/worker"
)

var (
	moved     = flag.Int("comeover.tasks", 600, "how many tasks TestComeOver and TestComeOverKilled move in each of their three deployments")
	killEvery = flag.Duration("comeover.every", 500*time.Millisecond, "how often TestComeOverKilled kills a process")
)

// errKilled is the error of each call of a mover from the one on at which it is killed.
var errKilled = errors.New("killed")

// A killer fails all calls from one on. That one is not sent, or its reply is lost.
type killer struct {
	left  atomic.Int64
	after bool
}

func (k *killer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (k *killer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		left := k.left.Add(-1)
		if left < 0 || left == 0 && !k.after {
			cmd.SetErr(errKilled)
			return errKilled
		}
		err := next(ctx, cmd)
		if left == 0 {
			cmd.SetErr(errKilled)
			return errKilled
		}
		return err
	}
}

func (k *killer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if k.left.Add(-1) <= 0 {
			for _, cmd := range cmds {
				cmd.SetErr(errKilled)
			}
			return errKilled
		}
		return next(ctx, cmds)
	}
}

// A ledger has what became of tasks. It isn't in Redis.
type ledger struct {
	mu    sync.Mutex
	made  map[string]string          // their kinds, by their IDs
	tries map[string]int             // runs, by ID
	ended map[string]int             // runs that have returned nil, by ID
	keys  map[string]map[string]bool // effect keys under which a task had its effect, by ID
	here  int                        // of the ended: in Signalbox
}

// run notes a run. It fails the first one of the kind flaky.
func (l *ledger) run(id, key string, here bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tries[id]++
	if l.made[id] == "flaky" && l.tries[id] == 1 {
		return errors.New("the first run fails")
	}
	l.ended[id]++
	if l.keys[id] == nil {
		l.keys[id] = make(map[string]bool)
	}
	l.keys[id][key] = true
	if here {
		l.here++
	}
	return nil
}

// open returns how many tasks have not ended that have to.
func (l *ledger) open() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, kind := range l.made {
		if l.ended[id] == 0 && kind != "archived" {
			n++
		}
	}
	return n
}

// TestComeOver moves the tasks of a service while asynq's server and its producer go on, and several movers are killed again and again. Each task ends once, in one of the two systems.
func TestComeOver(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) (from, to func() redis.UniversalClient){
		"two": func(t *testing.T) (from, to func() redis.UniversalClient) {
			a, b := redistest.New(t), redistest.New(t)
			return a.Client, b.Client
		},
		"same": func(t *testing.T) (from, to func() redis.UniversalClient) {
			a := redistest.New(t)
			return a.Client, a.Client
		},
		"cluster": func(t *testing.T) (from, to func() redis.UniversalClient) {
			a := redistest.Cluster(t)
			return a.Client, a.Client
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := open(t)
			comeOver(t, from, to, *moved)
		})
	}
}

// kinds are those of the service. Tasks of the kind text have payloads that can't be moved.
var kinds = []string{"plain", "email:welcome", "flaky", "later", "unique", "text", "image.resize", "report", "sync", "archived"}

// effectKey is the key of a task's effect, in both systems.
func effectKey(queue, id string) string { return "asynq/" + queue + "/" + id }

// taskOf returns the task of an ID, "t" and a number. The number says its kind.
func taskOf(id, queue string) (*asynq.Task, []asynq.Option) {
	i, _ := strconv.Atoi(id[1:])
	kind, payload := kinds[i%len(kinds)], fmt.Sprintf(`{"n":%d}`, i)
	opts := []asynq.Option{asynq.Queue(queue), asynq.TaskID(id), asynq.MaxRetry(25)}
	switch kind {
	case "text":
		payload = "not json"
	case "later":
		opts = append(opts, asynq.ProcessIn(time.Duration(i%4)*time.Second))
	case "unique":
		opts = append(opts, asynq.Unique(time.Hour))
	case "archived":
		opts = append(opts, asynq.ProcessIn(time.Hour))
	}
	return asynq.NewTask(kind, []byte(payload)), opts
}

func comeOver(t *testing.T, from, to func() redis.UniversalClient, total int) {
	old, here := from(), to()
	queue := redistest.Name(t)
	l := &ledger{made: make(map[string]string), tries: make(map[string]int), ended: make(map[string]int), keys: make(map[string]map[string]bool)}

	server := asynq.NewServerFromRedisClient(old, asynq.Config{
		Concurrency: 2, Queues: map[string]int{queue: 1}, Logger: quiet{}, LogLevel: asynq.FatalLevel, TaskCheckInterval: 5 * time.Millisecond, DelayedTaskCheckInterval: 50 * time.Millisecond,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 500 * time.Millisecond },
	})
	must(t, server.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		id := task.ResultWriter().TaskID()
		return l.run(id, effectKey(queue, id), false)
	})))
	t.Cleanup(server.Shutdown)

	w, err := worker.New(here, worker.Config{Queues: map[string]worker.Queue{queue: {}}, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	for _, kind := range kinds {
		w.HandleKind(kind, signalbox.HandlerFunc(func(_ context.Context, job *signalbox.Job) error { return l.run(job.ID, job.EffectKey(), true) }), worker.Retry(worker.Constant(100*time.Millisecond)))
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	// The producer goes on while the movers run.
	produced := make(chan struct{})
	var archived atomic.Int64
	go func() {
		defer close(produced)
		client, operator := asynq.NewClientFromRedisClient(old), asynq.NewInspectorFromRedisClient(old)
		for i := range total {
			id := fmt.Sprintf("t%06d", i)
			task, opts := taskOf(id, queue)
			l.mu.Lock()
			l.made[id] = task.Type()
			l.mu.Unlock()
			if _, err := client.Enqueue(task, opts...); err != nil {
				t.Errorf("enqueue %s: %v", id, err)
				return
			}
			if task.Type() == "archived" {
				if operator.ArchiveTask(queue, id) == nil { // else it is being moved as a scheduled one
					archived.Add(1)
				}
			}
		}
	}()

	var kills atomic.Int64
	var movers sync.WaitGroup
	for range 3 {
		movers.Go(func() {
			for {
				last := false
				select {
				case <-produced:
					last = true
				default:
				}
				k := &killer{after: rand.N(2) == 0}
				k.left.Store(1 + rand.N(int64(30)))
				a, b := from(), to()
				a.AddHook(k)
				b.AddHook(k)
				m, err := fromasynq.New(a, b, fromasynq.Config{Queues: []string{queue}})
				if err != nil {
					t.Error(err)
					return
				}
				report, err := m.Move(context.Background())
				switch {
				case err != nil && k.left.Load() <= 0:
					kills.Add(1)
				case err != nil && !errors.Is(err, context.Canceled):
					if len(report.Stays) == 0 && report.Total == 0 { // the queue has no task yet
						continue
					}
					t.Error(err)
					return
				case last && report.Moved+report.Ended+report.Gone+report.Active == 0:
					return
				}
			}
		})
	}
	movers.Wait()
	redistest.Eventually(t, func() bool { return l.open() == 0 }, "all tasks have ended")

	ins, err := inspect.New(here, inspect.Config{})
	must(t, err)
	q, err := ins.Queue(t.Context(), queue)
	must(t, err)
	info, err := asynq.NewInspectorFromRedisClient(old).GetQueueInfo(queue)
	must(t, err)
	staged, err := old.HLen(t.Context(), "asynq:{"+queue+"}:signalbox").Result()
	must(t, err)
	lost, doubled, twice := l.open(), 0, 0
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.made {
		if l.ended[id] > 1 {
			doubled++
		}
		if len(l.keys[id]) > 1 {
			twice++
		}
	}
	if n := int(q.Dead+q.Scheduled) + info.Archived + info.Scheduled; n != total/len(kinds) || int64(n) < archived.Load() {
		t.Errorf("%d archived tasks are there, of %d", n, total/len(kinds))
	}
	if lost+doubled+twice+int(staged) > 0 {
		t.Errorf("lost=%d doubled=%d twice=%d staged=%d", lost, doubled, twice, staged)
		return
	}
	t.Logf("come-over: ok tasks=%d here=%d lost=%d doubled=%d twice=%d kills=%d", total, l.here, lost, doubled, twice, kills.Load())
}
