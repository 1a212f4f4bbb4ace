package comeover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/fromasynq"
	"github.com/signalbox-go/signalbox/worker"
)

// partEnv is the environment variable that makes a process of this binary a part of the service.
const partEnv = "SIGNALBOX_TEST_PART"

// A part is a process of the service that is moved, or that moves it. It does what it does until it is killed, or ends by itself when the ledger says that
// there is no more to do.
type part struct {
	Name     string   // asynq, producer, mover or worker
	From, To []string // addresses of the Redis servers: one, or those of a Cluster
	Queue    string
	Ledger   string        // its URL
	Every    time.Duration // how often the producer makes a task
	ends     acks
}

func bePart(text string) error {
	var p part
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	go func() { // the test holds the other end
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	p.ends.part = &p
	switch p.Name {
	case "asynq":
		return p.serve()
	case "producer":
		return p.produce()
	case "mover":
		return p.move()
	case "worker":
		return p.work()
	}
	return fmt.Errorf("no part is called %q", p.Name)
}

// ask makes a call to the ledger, and returns its answer.
func (p *part) ask(what string, values ...string) (string, error) {
	query := make(url.Values)
	for i := 0; i < len(values); i += 2 {
		query.Set(values[i], values[i+1])
	}
	resp, err := http.Post(p.Ledger+"/"+what+"?"+query.Encode(), "", nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the ledger answers %s to %s", resp.Status, what)
	}
	return string(body), err
}

func (p *part) client(addrs []string) redis.UniversalClient {
	return redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs, ContextTimeoutEnabled: true})
}

// run is the handler of both systems.
func (p *part) run(system, id, key string) error {
	run, err := p.ask("run", "id", id, "key", key, "system", system)
	if err != nil {
		return err
	}
	if run == "fail" {
		return errors.New("the first run fails")
	}
	p.ends.returned(id, run)
	return nil
}

// acks tells the ledger when a run that has returned nil is acknowledged: a script that names its task has been run since.
type acks struct {
	part *part
	mu   sync.Mutex
	runs map[string]string // by task
}

func (a *acks) returned(id, run string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.runs == nil {
		a.runs = make(map[string]string)
	}
	a.runs[id] = run
}

func (a *acks) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *acks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (a *acks) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		var named map[string]string
		if name := cmd.Name(); name == "evalsha" || name == "eval" { // but for the heartbeat of asynq, which tells what runs
			if args := cmd.Args(); len(args) < 4 || !strings.HasPrefix(fmt.Sprint(args[3]), "asynq:servers:") {
				named = a.named(args)
			}
		}
		err := next(ctx, cmd)
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		for id, run := range named {
			a.mu.Lock()
			delete(a.runs, id)
			a.mu.Unlock()
			if _, err := a.part.ask("acked", "run", run); err != nil {
				return err
			}
		}
		return err
	}
}

// named returns the runs whose tasks the arguments of a script name.
func (a *acks) named(args []any) map[string]string {
	found := make(map[string]string)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, arg := range args {
		var text string
		switch arg := arg.(type) {
		case string:
			text = arg
		case []byte:
			text = string(arg)
		default:
			continue
		}
		for id, run := range a.runs {
			if strings.Contains(text, id) {
				found[id] = run
			}
		}
	}
	return found
}

func (p *part) serve() error {
	rdb := p.client(p.From)
	rdb.AddHook(&p.ends)
	server := asynq.NewServerFromRedisClient(rdb, asynq.Config{
		Concurrency: 4, Queues: map[string]int{p.Queue: 1}, Logger: quiet{}, LogLevel: asynq.FatalLevel,
		TaskCheckInterval: 5 * time.Millisecond, DelayedTaskCheckInterval: 50 * time.Millisecond,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 500 * time.Millisecond },
	})
	return server.Run(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		id := task.ResultWriter().TaskID()
		return p.run("asynq", id, effectKey(p.Queue, id))
	}))
}

func (p *part) work() error {
	rdb := p.client(p.To)
	rdb.AddHook(&p.ends)
	w, err := worker.New(rdb, worker.Config{
		Queues: worker.Queues{p.Queue: {Concurrency: 4}}, SessionTTL: 6 * time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		w.HandleKind(kind, signalbox.HandlerFunc(func(_ context.Context, job *signalbox.Job) error {
			return p.run("signalbox", job.ID, job.EffectKey())
		}), worker.Retry(worker.Constant(100*time.Millisecond)))
	}
	return w.Run(context.Background())
}

// produce makes a task every p.Every. A task whose producer was killed before the ledger heard that it was made may be there or not.
func (p *part) produce() error {
	rdb := p.client(p.From)
	client, operator := asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb)
	tick := time.NewTicker(p.Every)
	defer tick.Stop()
	for {
		id, err := p.ask("next")
		if err != nil || id == "" {
			return err
		}
		task, opts := taskOf(id, p.Queue)
		if _, err := client.Enqueue(task, opts...); err != nil {
			return fmt.Errorf("enqueue %s: %w", id, err)
		}
		if task.Type() == "archived" {
			_ = operator.ArchiveTask(p.Queue, id) // else it is being moved as a scheduled one
		}
		if _, err := p.ask("made", "id", id); err != nil {
			return err
		}
		<-tick.C
	}
}

// move moves what there is, again and again, until all tasks are made and a call has nothing to do.
func (p *part) move() error {
	m, err := fromasynq.New(p.client(p.From), p.client(p.To), fromasynq.Config{Queues: []string{p.Queue}})
	if err != nil {
		return err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		over, err := p.ask("over")
		if err != nil {
			return err
		}
		report, err := m.Move(context.Background())
		switch {
		case err != nil && !(report.Total == 0 && len(report.Stays) == 0): // the queue has no task yet
			return err
		case err == nil && over == "yes" && report.Moved+report.Ended+report.Gone+report.Active == 0:
			return nil
		}
		<-tick.C
	}
}
