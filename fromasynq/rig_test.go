package fromasynq_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/fromasynq"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

// A task is one that is written as asynq writes it. The module tests compares that with the library itself.
type task struct {
	id, kind, payload, state string
	at                       time.Time // its score, or since when it waits
	retry, retried           uint64
	lastError                string
	timeout, deadline        uint64
	retention                uint64
	unique                   time.Duration
	headers                  map[string]string
}

// A rig is a queue of asynq and the queue of the same name here.
type rig struct {
	t     *testing.T
	rdb   redis.UniversalClient
	queue string
	ins   *inspect.Inspector
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return rigOn(t, redistest.Start(t).Client())
}

func rigOn(t *testing.T, rdb redis.UniversalClient) *rig {
	t.Helper()
	ins, err := inspect.New(rdb, inspect.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, rdb: rdb, queue: redistest.Name(t), ins: ins}
	t.Cleanup(func() {
		keys, err := rdb.Keys(context.Background(), "asynq:{"+r.queue+"}:*").Result()
		if err == nil && len(keys) > 0 {
			err = rdb.Del(context.Background(), keys...).Err()
		}
		if err == nil {
			err = rdb.SRem(context.Background(), "asynq:queues", r.queue).Err()
		}
		if err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) key(name string) string { return "asynq:{" + r.queue + "}:" + name }

func text(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

func number(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}

// add writes tasks.
func (r *rig) add(tasks ...task) {
	r.t.Helper()
	ctx := r.t.Context()
	r.must(r.rdb.SAdd(ctx, "asynq:queues", r.queue).Err())
	for _, k := range tasks {
		unique := ""
		if k.unique > 0 {
			unique = r.key("unique:" + k.kind + ":" + k.id)
			r.must(r.rdb.Set(ctx, unique, k.id, k.unique).Err())
		}
		msg := text(text(text(text(nil, 1, k.kind), 2, k.payload), 3, k.id), 4, r.queue)
		msg = text(number(number(msg, 5, k.retry), 6, k.retried), 7, k.lastError)
		msg = text(number(number(msg, 8, k.timeout), 9, k.deadline), 10, unique)
		msg = number(msg, 12, k.retention)
		for name, value := range k.headers {
			msg = text(msg, 15, string(text(text(nil, 1, name), 2, value)))
		}
		fields := []any{"msg", msg, "state", k.state}
		if k.state == "pending" {
			fields = append(fields, "pending_since", k.at.UnixNano())
		}
		r.must(r.rdb.HSet(ctx, r.key("t:"+k.id), fields...).Err())
		if k.state == "pending" || k.state == "active" {
			r.must(r.rdb.LPush(ctx, r.key(k.state), k.id).Err())
		} else {
			r.must(r.rdb.ZAdd(ctx, r.key(k.state), redis.Z{Score: float64(k.at.Unix()), Member: k.id}).Err())
		}
	}
}

// mover returns one over these clients.
func (r *rig) mover(from, to redis.UniversalClient, change func(*fromasynq.Config)) *fromasynq.Mover {
	r.t.Helper()
	cfg := fromasynq.Config{Queues: []string{r.queue}}
	if change != nil {
		change(&cfg)
	}
	m, err := fromasynq.New(from, to, cfg)
	r.must(err)
	return m
}

// move moves all tasks.
func (r *rig) move(change func(*fromasynq.Config)) fromasynq.Report {
	r.t.Helper()
	report, err := r.mover(r.rdb, r.rdb, change).Move(r.t.Context())
	r.must(err)
	return report
}

// job returns a job that is here.
func (r *rig) job(id string) inspect.Job {
	r.t.Helper()
	job, err := r.ins.Job(r.t.Context(), r.queue, id)
	r.must(err)
	return job
}

// drain deletes all jobs that are here, as if they had run, and returns their IDs.
func (r *rig) drain() (ids []string) {
	r.t.Helper()
	for _, state := range []signalbox.State{signalbox.StateReady, signalbox.StateScheduled, signalbox.StateDead} {
		var some []string
		for job, err := range r.ins.Jobs(r.t.Context(), r.queue, inspect.Filter{State: state}) {
			if errors.Is(err, inspect.ErrNoQueue) {
				return nil
			}
			r.must(err)
			some = append(some, job.ID)
		}
		for _, id := range some {
			_, err := r.ins.Do(r.t.Context(), r.queue, id, inspect.Delete{})
			r.must(err)
		}
		ids = append(ids, some...)
	}
	return ids
}

// left returns how many keys asynq's queue has that belong to tasks.
func (r *rig) left() (keys []string) {
	r.t.Helper()
	keys, err := r.rdb.Keys(r.t.Context(), r.key("*")).Result()
	r.must(err)
	return keys
}

// errKilled is the error of each call from that on at which a mover is killed.
var errKilled = errors.New("killed")

// A killer fails all calls of the clients that share it from one on: that one is not sent, or its reply is lost.
type killer struct {
	at    int64
	after bool
	calls atomic.Int64
}

func (k *killer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (k *killer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		n := k.calls.Add(1)
		if n > k.at || n == k.at && !k.after {
			cmd.SetErr(errKilled)
			return errKilled
		}
		err := next(ctx, cmd)
		if n == k.at {
			cmd.SetErr(errKilled)
			return errKilled
		}
		return err
	}
}

func (k *killer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if k.calls.Add(1) >= k.at {
			for _, cmd := range cmds {
				cmd.SetErr(errKilled)
			}
			return errKilled
		}
		return next(ctx, cmds)
	}
}

// some returns tasks of all states, n of each.
func some(n int) []task {
	now := time.Now()
	var tasks []task
	for i := range n {
		tasks = append(tasks,
			task{id: fmt.Sprint("p", i), kind: "mail", payload: `{"n":1}`, state: "pending", at: now, retry: 3},
			task{id: fmt.Sprint("s", i), kind: "mail", payload: fmt.Sprintf(`{"n":2,"i":%d}`, i), state: "scheduled", at: now.Add(time.Hour), retry: 3, unique: time.Hour},
			task{id: fmt.Sprint("r", i), kind: "mail", payload: `{"n":3}`, state: "retry", at: now.Add(time.Minute), retry: 3, retried: 2, lastError: "no"},
			task{id: fmt.Sprint("a", i), kind: "mail", payload: `{"n":4}`, state: "archived", at: now.Add(-time.Minute), retry: 3, retried: 3, lastError: "no"})
	}
	return tasks
}
