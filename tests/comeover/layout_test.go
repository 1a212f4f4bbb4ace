package comeover

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/fromasynq"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// quiet is a logger of asynq that says nothing: its servers say at each end that they end.
type quiet struct{}

func (quiet) Debug(...any) {}
func (quiet) Info(...any)  {}
func (quiet) Warn(...any)  {}
func (quiet) Error(...any) {}
func (quiet) Fatal(...any) {}

// serve runs a server of asynq until the test ends, or until the function that it returns is called.
func serve(t *testing.T, rdb redis.UniversalClient, queues map[string]int, handle asynq.HandlerFunc) (end func()) {
	t.Helper()
	s := asynq.NewServerFromRedisClient(rdb, asynq.Config{
		Concurrency: 4, Queues: queues, Logger: quiet{}, TaskCheckInterval: 20 * time.Millisecond, DelayedTaskCheckInterval: 50 * time.Millisecond, ShutdownTimeout: 5 * time.Second,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour }, JanitorInterval: time.Hour,
	})
	must(t, s.Start(handle))
	return s.Shutdown
}

// The real library's tasks of each state become jobs, and what can't be moved stays as it was.
func TestRealTasks(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	rdb := srv.Client()
	client, queue := asynq.NewClientFromRedisClient(rdb), redistest.Name(t)
	enqueue := func(kind, payload, id string, opts ...asynq.Option) {
		t.Helper()
		_, err := client.Enqueue(asynq.NewTaskWithHeaders(kind, []byte(payload), map[string]string{"tenant": "acme"}), append(opts, asynq.Queue(queue), asynq.TaskID(id))...)
		must(t, err)
	}
	enqueue("fails", `{"n":1}`, "retry", asynq.MaxRetry(3))
	enqueue("fails", `{"n":2}`, "archived", asynq.MaxRetry(0))
	failed := make(chan struct{}, 2)
	end := serve(t, rdb, map[string]int{queue: 1}, func(context.Context, *asynq.Task) error {
		failed <- struct{}{}
		return errors.New("no luck")
	})
	<-failed
	<-failed
	end()
	due := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	enqueue("ready", `{"n":3}`, "pending", asynq.Timeout(time.Minute), asynq.Retention(time.Hour))
	enqueue("later", `{"n":4}`, "scheduled", asynq.ProcessAt(due), asynq.Unique(time.Hour), asynq.Deadline(due.Add(time.Hour)))
	enqueue("grouped", `{"n":5}`, "grouped", asynq.Group("g"))
	enqueue("text", "no json", "text")

	m, err := fromasynq.New(rdb, rdb, fromasynq.Config{})
	must(t, err)
	plan, err := m.Plan(t.Context())
	must(t, err)
	report, err := m.Move(t.Context())
	must(t, err)
	if plan.Moved != 4 || report.Moved != 4 || report.Groups != 1 || len(report.Stays) != 1 || report.Stays[0].Type != "text" {
		t.Errorf("plan %+v\nreport %+v", plan, report)
	}
	ins, err := inspect.New(rdb, inspect.Config{})
	must(t, err)
	for id, want := range map[string]struct {
		state  signalbox.State
		failed int
	}{"pending": {signalbox.StateScheduled, 0}, "scheduled": {signalbox.StateScheduled, 0}, "retry": {signalbox.StateScheduled, 1}, "archived": {signalbox.StateDead, 1}} {
		job, err := ins.Job(t.Context(), queue, id)
		must(t, err)
		if job.State != want.state && (job.State != signalbox.StateReady || id != "pending") || job.Failed != want.failed || job.Headers["tenant"] != "acme" || want.failed > 0 && job.LastError != "no luck" {
			t.Errorf("%s: %+v", id, job)
		}
		if id == "scheduled" && (!job.DueAt.Equal(due) || job.UniqueKey == "" || !job.Deadline.Equal(due.Add(time.Hour))) || id == "pending" && (job.Timeout != time.Minute || job.Retain != time.Hour) {
			t.Errorf("%s: %+v", id, job)
		}
	}
	left := asynq.NewInspectorFromRedisClient(rdb)
	info, err := left.GetQueueInfo(queue)
	must(t, err)
	if info.Size != 2 || info.Pending != 1 || info.Aggregating != 1 {
		t.Errorf("asynq still has %+v", info)
	}
	// The lock is free: it went with its task.
	if _, err := client.Enqueue(asynq.NewTask("later", []byte(`{"n":4}`)), asynq.Queue(queue), asynq.Unique(time.Hour)); err != nil {
		t.Errorf("the unique lock: %v", err)
	}
}

// A task that is given back runs in asynq as if nothing had been.
func TestRealTaskComesBack(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t).Client()
	client, queue := asynq.NewClientFromRedisClient(rdb), redistest.Name(t)
	for range 2 { // the first goes, and the second has its ID
		_, err := client.Enqueue(asynq.NewTask("k", []byte(`{}`)), asynq.Queue(queue), asynq.TaskID("same"))
		must(t, err)
		m, err := fromasynq.New(rdb, rdb, fromasynq.Config{})
		must(t, err)
		_, err = m.Move(t.Context())
		must(t, err)
	}
	ran := make(chan string, 10)
	end := serve(t, rdb, map[string]int{queue: 1}, func(_ context.Context, task *asynq.Task) error {
		ran <- task.ResultWriter().TaskID()
		return nil
	})
	if id := <-ran; id != "same" {
		t.Error(id)
	}
	end()
	info, err := asynq.NewInspectorFromRedisClient(rdb).GetQueueInfo(queue)
	must(t, err)
	if info.Size != 0 || info.Processed != 1 {
		t.Errorf("%+v", info)
	}
}

// The library's schedulers have entries that can be read.
func TestRealEntries(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	s := asynq.NewSchedulerFromRedisClient(srv.Client(), &asynq.SchedulerOpts{Logger: quiet{}})
	_, err := s.Register("0 3 * * *", asynq.NewTask("report", []byte(`{"of":"all"}`)), asynq.Queue("low"), asynq.MaxRetry(3))
	must(t, err)
	must(t, s.Start())
	t.Cleanup(s.Shutdown)
	m, err := fromasynq.New(srv.Client(), srv.Client(), fromasynq.Config{})
	must(t, err)
	var entries []fromasynq.Entry
	redistest.Eventually(t, func() bool {
		entries, err = m.Entries(t.Context())
		return err == nil && len(entries) == 1
	}, "the scheduler has written its entries")
	e := entries[0]
	if e.Spec != "0 3 * * *" || e.Type != "report" || string(e.Payload) != `{"of":"all"}` || !slices.Equal(e.Options, []string{`Queue("low")`, "MaxRetry(3)"}) || e.Next.Before(time.Now()) {
		t.Errorf("%+v", e)
	}
}
