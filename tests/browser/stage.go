package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/web"
	"github.com/signalbox-go/signalbox/worker"
)

const (
	namespace = "shop"
	patience  = 30 * time.Second
	hostile   = `"><script>alert(1)</script><img/src=x/onerror=alert(1)>'&amp;../?#%00` // also a name: printable ASCII without spaces
)

// A stage is a small shop: a Redis, workers of which one was killed, and the pages over it.
type stage struct {
	rdb   *redis.Client
	ins   *inspect.Inspector
	sched *scheduler.Scheduler
	url   string
	ends  []func()
}

// close ends what the stage has started, the last first.
func (s *stage) close() {
	for i := len(s.ends) - 1; i >= 0; i-- {
		s.ends[i]()
	}
}

// A task is a kind of job. Text is its argument.
type task struct {
	Text string `json:"text"`
}

type (
	send    task // completes
	bounce  task // fails
	encode  task // goes on after the end of its context
	convert task // runs until it is told to end
	render  task // nobody has a handler for it
)

func (send) Kind() string    { return "mail.send" }
func (bounce) Kind() string  { return "mail.bounce" }
func (encode) Kind() string  { return "media.encode" }
func (convert) Kind() string { return "tenant.import" }
func (render) Kind() string  { return "pdf.render" }

// newStage starts the shop, and waits until each trouble that the pages are to show is there.
func newStage(ctx context.Context, dir string) (_ *stage, err error) {
	s := &stage{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if err := s.startRedis(ctx, dir); err != nil {
		return nil, err
	}
	if s.ins, err = inspect.New(s.rdb, inspect.Config{Namespace: namespace, Operator: "browser"}); err != nil {
		return nil, err
	}
	if s.sched, err = scheduler.New(s.rdb, scheduler.Config{Namespace: namespace, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		return nil, err
	}
	for _, act := range []func(context.Context) error{s.fill, s.batches, s.settings, s.startWorker, s.startCron, s.killWorker, s.locks, s.await, s.serve} {
		if err := act(ctx); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// startRedis starts a server on a socket in a folder.
func (s *stage) startRedis(ctx context.Context, dir string) error {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return servertest.ErrMissing{Program: "redis-server", Package: "redis-server"}
	}
	socket := filepath.Join(dir, "redis.sock")
	cmd := exec.Command(path, "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no", "--dir", dir)
	ended, err := servertest.Start(cmd)
	if err != nil {
		return err
	}
	s.ends = append(s.ends, func() { _ = cmd.Process.Kill(); <-ended })
	s.rdb = redis.NewClient(&redis.Options{Network: "unix", Addr: socket, ContextTimeoutEnabled: true})
	s.ends = append(s.ends, func() { _ = s.rdb.Close() })
	return until(ctx, "Redis answers", func() bool { return s.rdb.Ping(ctx).Err() == nil })
}

// until waits until cond holds.
func until(ctx context.Context, what string, cond func() bool) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if cond() {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return fmt.Errorf("after %v it isn't so that %s", patience, what)
}

// startWorker runs the worker that lives.
func (s *stage) startWorker(ctx context.Context) error {
	w, err := worker.New(s.rdb, worker.Config{
		Namespace: namespace, StuckAfter: 200 * time.Millisecond, DrainTimeout: -1, Logger: slog.New(slog.DiscardHandler),
		Queues: worker.Queues{"mail": {Concurrency: 4}, "media": {Concurrency: 1}, "tenants": {Concurrency: 2}, "reports": {Concurrency: 2}, "news": {Concurrency: 2}, hostile: {Concurrency: 1}},
	})
	if err != nil {
		return err
	}
	release := make(chan struct{})
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, a send) error { return signalbox.SetResult(ctx, a) })
	worker.Handle(w, func(_ context.Context, _ *signalbox.Job, a bounce) error { return errors.New(a.Text) })
	worker.Handle(w, func(context.Context, *signalbox.Job, encode) error { <-release; return nil })
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ convert) error { <-ctx.Done(); return ctx.Err() })
	s.run(ctx, w.Run, func() { close(release) })
	return nil
}

// run runs something until the stage ends. before is called when it is to end.
func (s *stage) run(ctx context.Context, run func(context.Context) error, before func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := run(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "web:", err)
		}
	}()
	s.ends = append(s.ends, func() { before(); cancel(); <-ended })
}

// startCron runs a scheduler with entries.
func (s *stage) startCron(ctx context.Context) error {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		return err
	}
	err = errors.Join(
		s.sched.Cron("digest", "0 9 * * *", send{"digest"}, scheduler.Queue("mail"), scheduler.In(berlin)),
		s.sched.Cron("invoices", "30 2 1 * *", render{"invoices"}, scheduler.Queue("pdf")),
		s.sched.Cron("sweep", "@every 10m", render{"sweep"}, scheduler.Queue("reports")),
		s.sched.Cron("heartbeat", "@every 1s", send{"heartbeat"}, scheduler.Queue("mail")),
	)
	s.run(ctx, s.sched.Run, func() {})
	return err
}

// settings sets what operators set.
func (s *stage) settings(ctx context.Context) error {
	_, err := s.ins.Pause(ctx, "reports")
	_, errHold := s.ins.HoldBack(ctx, "tenants", "acme", time.Hour)
	_, errGroup := s.ins.PauseGroup(ctx, "tenants", "umbrella")
	return errors.Join(err, errHold, errGroup,
		s.ins.SetCompletedRetention(ctx, "mail", signalbox.Retention{Jobs: 1000}),
		s.ins.SetGroupLimits(ctx, "tenants", signalbox.Limits{Running: 1}),
		s.ins.SetLimitsOf(ctx, "tenants", "initech", signalbox.Limits{Rate: signalbox.Rate{Jobs: 2, Per: time.Minute}}),
		s.ins.SetMaxLength(ctx, "pdf", 30),
	)
}

// fill enqueues jobs of each state.
func (s *stage) fill(ctx context.Context) error {
	var errs []error
	put := func(queue, id string, args signalbox.Args, opts ...scheduler.EnqueueOption) {
		_, err := s.sched.Enqueue(ctx, args, append([]scheduler.EnqueueOption{scheduler.Queue(queue), scheduler.ID(id)}, opts...)...)
		errs = append(errs, err)
	}
	for i := range 60 {
		put("mail", fmt.Sprintf("welcome-%02d", i), send{"hello"}, scheduler.Header("tenant", "acme"))
	}
	for i := range 12 {
		put("mail", fmt.Sprintf("bounced-%02d", i), bounce{"upstream said 503: try again later, request 8812" + strings.Repeat("0", i)}, scheduler.MaxAttempts(1))
		put("mail", fmt.Sprintf("retried-%02d", i), bounce{"connection refused"}, scheduler.MaxAttempts(25)) // not dead before the end, also on a slow machine
		put("pdf", fmt.Sprintf("page-%02d", i), render{"a page"})
		put("reports", fmt.Sprintf("report-%02d", i), render{"a report"})
		for _, g := range []string{"acme", "globex", "initech", "umbrella"} {
			put("tenants", fmt.Sprintf("%s-%02d", g, i), convert{g}, scheduler.Group(g))
		}
	}
	for i := range 55 { // more than a page of a list has
		put("mail", fmt.Sprintf("later-%02d", i), send{"later"}, scheduler.After(time.Duration(i+1)*time.Hour))
	}
	put("media", "film-1", encode{"a film"}, scheduler.Timeout(time.Second))
	put("media", "film-2", encode{"the next one"})
	put(hostile, hostile, bounce{strings.Repeat(hostile+" \u202e\u2066<!--</pre></svg>\x00", 20)}, scheduler.MaxAttempts(1))
	put(hostile, "ends-well", send{hostile}, scheduler.Group(hostile), scheduler.Header(hostile, hostile))
	return errors.Join(errs...)
}

// batches makes batches: one whose members end in each way, one with names that are hostile, and two that nobody has sealed.
func (s *stage) batches(ctx context.Context) error {
	for _, b := range []struct {
		queue, id string
		sealed    bool
	}{{"news", "spring", true}, {"news", "summer", false}, {"news", "autumn", false}, {hostile, hostile[:60], true}} {
		batch, err := s.sched.Batch(ctx, b.queue, scheduler.FlowID(b.id), scheduler.FlowTimeout(24*time.Hour),
			scheduler.OnSuccess(send{"archive"}, scheduler.ID(b.id+"-archive")), scheduler.OnEnd(send{"report"}, scheduler.ID(b.id+"-report")), scheduler.OnFailure(send{"alert"}, scheduler.ID(b.id+"-alert")))
		if err != nil {
			return err
		}
		var items []scheduler.Item
		for i := range 6 {
			items = append(items, scheduler.Item{Args: send{"later"}, Options: []scheduler.EnqueueOption{scheduler.After(time.Hour)}})
			if b.sealed && i < 3 {
				items = append(items, scheduler.Item{Args: send{"hello"}}, scheduler.Item{Args: bounce{fmt.Sprintf("no such address, request %d: %s", 4711+i, b.id)}, Options: []scheduler.EnqueueOption{scheduler.MaxAttempts(1)}})
			}
		}
		for _, res := range batch.AddSeq(ctx, slices.Values(items)) {
			if res.Err != nil {
				return res.Err
			}
		}
		if b.sealed {
			if err := batch.Seal(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// killWorker has a process run a job, and kills it.
func (s *stage) killWorker(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if _, err := s.sched.Enqueue(ctx, convert{"its worker dies"}, scheduler.Queue("video"), scheduler.ID("clip-1")); err != nil {
		return err
	}
	cmd := exec.Command(self, "-worker", s.rdb.Options().Addr)
	cmd.Stderr = os.Stderr
	ended, err := servertest.Start(cmd)
	if err != nil {
		return err
	}
	err = until(ctx, "the worker that is to be killed runs its job", func() bool {
		q, err := s.ins.Queue(ctx, "video")
		return err == nil && q.Running == 1
	})
	_ = cmd.Process.Kill()
	<-ended
	return err
}

// runVictim is the process that is killed.
func runVictim(ctx context.Context, socket string) error {
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, ContextTimeoutEnabled: true})
	defer rdb.Close()
	w, err := worker.New(rdb, worker.Config{Namespace: namespace, SessionTTL: time.Second, Queues: worker.Queues{"video": {Concurrency: 1}}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ convert) error { <-ctx.Done(); return ctx.Err() })
	return w.Run(ctx)
}

// locks takes some locks, and keeps them.
func (s *stage) locks(ctx context.Context) error {
	locker, err := lock.New(s.rdb, lock.Config{TTL: time.Hour, Owner: "billing-7f9c"})
	if err != nil {
		return err
	}
	for _, key := range []string{"ledger:eu", "ledger:us", "migration"} {
		held, err := locker.TryAcquire(ctx, key)
		if err != nil {
			return err
		}
		s.ends = append(s.ends, func() { _ = held.Release(ctx) })
	}
	return nil
}

// await waits until the troubles are there.
func (s *stage) await(ctx context.Context) error {
	return until(ctx, "jobs have died and completed, a handler is stuck, and a worker is gone", func() bool {
		mail, err := s.ins.Queue(ctx, "mail")
		if err != nil || mail.Dead < 12 || mail.Completed < 60 || mail.Scheduled < 12 {
			return false
		}
		bad, err := s.ins.Queue(ctx, hostile)
		if err != nil || bad.Dead < 1 {
			return false
		}
		for queue, id := range map[string]string{"news": "spring", hostile: hostile[:60]} {
			if f, err := s.ins.Flow(ctx, queue, id); err != nil || f.Dead < 3 || f.Completed < 3 {
				return false
			}
		}
		workers, err := s.ins.Workers(ctx)
		stuck, gone := false, false
		for _, w := range workers {
			for _, j := range w.Running {
				stuck = stuck || j.Stuck != nil
			}
			for _, x := range w.Sessions {
				gone = gone || x.Left < 0
			}
		}
		return err == nil && stuck && gone
	})
}

// serve serves the pages under a prefix.
func (s *stage) serve(ctx context.Context) error {
	pages, err := web.New(s.ins, web.Config{
		Title: namespace, Show: func(*http.Request) bool { return true }, Authorize: func(*http.Request, web.Action) error { return nil }, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/ops/signalbox/", pages)
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.url = "http://" + l.Addr().String() + "/ops/signalbox/"
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: patience}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = srv.Serve(l) }()
	s.ends = append(s.ends, func() { _ = srv.Close(); <-ended })
	return nil
}
