package outboxsql

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/check"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/outbox"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// The jobs of a service: mails have no order, hooks have one, a report runs until the test lets it end, a tick is of a cron entry.
type (
	mail   struct{ N int }
	hook   struct{ N int }
	report struct{ N int }
	tick   struct{ Entry string }
	broken struct{}
)

func (mail) Kind() string   { return "mail" }
func (hook) Kind() string   { return "hook" }
func (report) Kind() string { return "report" }
func (tick) Kind() string   { return "tick" }
func (broken) Kind() string { return "broken" }

// A service uses all that keeps something in Redis: an outbox, a cron entry, a lock, unique keys, and jobs that run. The tests of the steps in docs/operations/move.md
// move it to another Redis.
type service struct {
	*database
	said    log // by its relays
	mu      sync.Mutex
	effects map[string]int // how often each job has begun
	hooks   []int          // in the order of their ends
	letGo   chan struct{}  // closed: reports may end
	once    sync.Once      // closes it
	cutOff  bool           // what ends can't say so to Redis any more
	again   []string       // which effects of the jobs that ran at the switch; they may come twice
	mails   int
	sent    int // hooks
}

func newService(t *testing.T) *service {
	return &service{database: open(t, outbox.SQLite), effects: make(map[string]int), letGo: make(chan struct{})}
}

// effectOf is the name of a job's effect.
func effectOf(kind string, n int) string { return fmt.Sprint(kind, " ", n) }

// tickOf is that of a job of a cron entry.
func tickOf(entry string, at time.Time) string { return fmt.Sprint("tick ", entry, " ", at.Unix()) }

func (s *service) effect(job *signalbox.Job, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.effects[effectOf(job.Kind, n)]++
	if job.Kind == "hook" {
		s.hooks = append(s.hooks, n)
	}
}

func (s *service) count(kind string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, times := range s.effects {
		if len(name) > len(kind) && name[:len(kind)+1] == kind+" " {
			n += times
		}
	}
	return n
}

// write commits transactions with so many mails and hooks.
func (s *service) write(n int) {
	s.t.Helper()
	box := s.box(outbox.Config{Ordered: true})
	for range n {
		s.in(func(tx *sql.Tx) error {
			_, err := box.Enqueue(bg, tx, mail{s.mails})
			_, hookErr := box.Enqueue(bg, tx, hook{s.sent}, scheduler.Serial("hooks"))
			return errors.Join(err, hookErr)
		})
		s.mails, s.sent = s.mails+1, s.sent+1
	}
}

// work runs a worker until stop is called.
func (s *service) work(rdb redis.UniversalClient) (stop func()) {
	s.t.Helper()
	w, err := worker.New(rdb, worker.Config{
		Queues: worker.Queues{"default": {Concurrency: 10}}, SessionTTL: 3 * time.Second, DrainTimeout: 2 * time.Second,
		Logger: slog.New(slog.NewTextHandler(s.t.Output(), nil)),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, m mail) error { s.effect(job, m.N); return nil })
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, h hook) error { s.effect(job, h.N); return nil })
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, in tick) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.effects[tickOf(in.Entry, job.ScheduledAt)]++
		return nil
	})
	worker.Handle(w, func(context.Context, *signalbox.Job, broken) error { return errors.New("no such address") })
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, r report) error {
		s.effect(job, r.N)
		select {
		case <-s.letGo:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return s.running(w.Run)
}

// tick runs a scheduler with the service's cron entries until stop is called.
func (s *service) schedule(rdb redis.UniversalClient) (stop func()) {
	s.t.Helper()
	c := s.scheduler(rdb)
	for _, name := range []string{"sync", "paused"} {
		if err := c.Cron(name, "@every 1s", tick{name}, scheduler.Missed(scheduler.RunAll(1000))); err != nil {
			s.t.Fatal(err)
		}
	}
	return s.running(c.Run)
}

func (s *service) scheduler(rdb redis.UniversalClient) *scheduler.Scheduler {
	s.t.Helper()
	c, err := scheduler.New(rdb, scheduler.Config{Logger: slog.New(slog.NewTextHandler(s.t.Output(), nil))})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

func (s *service) running(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(bg)
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && !s.cutOff {
			s.t.Error(err)
		}
	})
	s.t.Cleanup(stop)
	return stop
}

func (s *service) inspector(rdb redis.UniversalClient) *inspect.Inspector {
	s.t.Helper()
	ins, err := inspect.New(rdb, inspect.Config{})
	if err != nil {
		s.t.Fatal(err)
	}
	return ins
}

// life is what runs of a service on one Redis.
type life struct {
	*service
	rdb                 redis.UniversalClient
	ins                 *inspect.Inspector
	relay, work, cron   func() // end it
	token               int64  // of the lock that was released last
	unique, dead, later string // IDs of jobs
}

// begin has the service run on a Redis until it has everything there that can be there.
func (s *service) begin(rdb redis.UniversalClient) *life {
	s.t.Helper()
	l := s.on(rdb)
	s.write(30)
	c := s.scheduler(rdb)
	put := func(args signalbox.Args, opts ...scheduler.EnqueueOption) string {
		s.t.Helper()
		r, err := c.Enqueue(bg, args, opts...)
		if err != nil {
			s.t.Fatal(err)
		}
		return r.ID
	}
	l.unique = put(mail{1000}, scheduler.Unique("month", scheduler.Window(time.Hour)))
	l.later = put(mail{1001}, scheduler.After(time.Hour))
	l.dead = put(broken{}, scheduler.MaxAttempts(1))
	put(report{1})
	if err := l.ins.SetLimits(bg, "default", signalbox.Limits{Running: 50}); err != nil {
		s.t.Fatal(err)
	}
	redistest.Eventually(s.t, func() bool {
		q, err := l.ins.Queue(bg, "default")
		return err == nil && s.count("mail") == 31 && s.count("hook") == 30 && s.count("report") == 1 && q.Dead == 1 && s.count("tick") > 1
	}, "it doesn't run")
	redistest.Eventually(s.t, func() bool {
		_, err := l.ins.PauseEntry(bg, "default", "paused")
		return err == nil
	}, "the entry isn't there")
	return l
}

// on has the service run on a Redis.
func (s *service) on(rdb redis.UniversalClient) *life {
	s.t.Helper()
	l := &life{service: s, rdb: rdb, ins: s.inspector(rdb)}
	l.work, l.cron = s.work(rdb), s.schedule(rdb)
	l.relay = s.relay(rdb, outbox.RelayConfig{Logger: slog.New(&s.said)})
	l.locks()
	return l
}

// locks takes a lock, and releases it.
func (l *life) locks() {
	l.t.Helper()
	locker, err := lock.New(l.rdb, lock.Config{})
	if err != nil {
		l.t.Fatal(err)
	}
	held, err := locker.Acquire(bg, "books")
	if err != nil {
		l.t.Fatal(err)
	}
	l.token = held.Token()
	if err := held.Release(bg); err != nil {
		l.t.Fatal(err)
	}
}

// moved checks what the runbook promises, once the service runs on the other Redis. repeats is how often a report has begun.
func (l *life) moved(old *life, repeats int) {
	l.t.Helper()
	l.once.Do(func() { close(l.letGo) })
	l.write(10)
	redistest.Eventually(l.t, func() bool {
		q, err := l.ins.Queue(bg, "default")
		return err == nil && l.count("mail") >= l.mails+1 && l.count("hook") >= l.sent && q.Running == 0 && settled(l.database, 0)
	}, "it doesn't run on the other Redis")
	l.mu.Lock()
	for name, times := range l.effects {
		want := map[bool]int{true: repeats, false: 1}[name == "report 1"]
		if times != want && (times != 2 || !slices.Contains(l.again, name)) {
			l.t.Errorf("%s: %d times, want %d", name, times, want)
		}
	}
	if !slices.IsSorted(l.hooks) {
		l.t.Errorf("hooks out of order: %v", l.hooks)
	}
	l.mu.Unlock()
	if l.said.has("ERROR") || l.said.has("WARN") {
		l.t.Errorf("the relay said:\n%s", &l.said)
	}
	if l.token <= old.token {
		l.t.Errorf("the lock has token %d, and had %d before", l.token, old.token)
	}
	for id, want := range map[string]signalbox.State{old.dead: signalbox.StateDead, old.later: signalbox.StateScheduled} {
		if job, err := l.ins.Job(bg, "default", id); err != nil || job.State != want {
			l.t.Errorf("job %s is %s, %v; want %s", id, job.State, err, want)
		}
	}
	if q, err := l.ins.Queue(bg, "default"); err != nil || q.Limits.Running != 50 {
		l.t.Errorf("limits: %+v, %v", q.Limits, err)
	}
	if r, err := l.scheduler(l.rdb).Enqueue(bg, mail{1002}, scheduler.Unique("month", scheduler.Window(time.Hour))); err != nil || r.Existing != old.unique {
		l.t.Errorf("a second job in the window of a unique key: %+v, %v", r, err)
	}
	if e, err := l.ins.Entry(bg, "default", "paused"); err != nil || !e.Paused {
		l.t.Errorf("the paused entry: %+v, %v", e, err)
	}
	if err := check.Queue(bg, store.New(l.rdb, "", "default").Site()); err != nil {
		l.t.Error(err)
	}
	l.ticks()
}

// ticks checks that the entry which ticks each second has had a job for each second, one of them no earlier than now: none is lost, also of those that came while
// nobody ran.
func (l *life) ticks() {
	l.t.Helper()
	now := time.Now().Unix()
	seconds := func() (at []int64) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for name := range l.effects {
			var tick int64
			if n, err := fmt.Sscanf(name, "tick sync %d", &tick); n == 1 && err == nil {
				at = append(at, tick)
			}
		}
		slices.Sort(at)
		return at
	}
	redistest.Eventually(l.t, func() bool { at := seconds(); return len(at) > 0 && at[len(at)-1] >= now }, "no tick comes")
	at := seconds()
	for i := 1; i < len(at); i++ {
		if at[i] != at[i-1]+1 {
			l.t.Errorf("ticks are missing: %v", at)
			break
		}
	}
}

// pass exports a queue, and imports the file on another Redis.
func (s *service) pass(from, to *inspect.Inspector, o inspect.Importing) {
	s.t.Helper()
	var file bytes.Buffer
	out, err := from.Export(bg, "default", &file, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	in, err := to.Import(bg, "default", &file, o)
	if err != nil || in.Past != out.Past || in.Done != out.Jobs {
		s.t.Fatalf("%+v was exported, and %+v imported: %v", out, in, err)
	}
}

func (l *life) pause() {
	l.t.Helper()
	if _, err := l.ins.Pause(bg, "default"); err != nil {
		l.t.Fatal(err)
	}
}

func (l *life) resume() {
	l.t.Helper()
	if _, err := l.ins.Resume(bg, "default"); err != nil {
		l.t.Fatal(err)
	}
}

// The steps by files. The report can't be waited for: it runs again.
func TestMoveByExport(t *testing.T) {
	t.Parallel()
	s := newService(t)
	old := s.begin(redistest.New(t).Client())
	old.relay()
	old.cron()
	s.write(5)
	old.pause()
	old.work() // it gives the report back
	rdb := redistest.New(t).Client()
	s.pass(old.ins, s.inspector(rdb), inspect.Importing{Settings: true})
	l := s.on(rdb)
	l.resume()
	redistest.Eventually(t, func() bool { return s.count("report") == 2 }, "the report doesn't run again")
	l.moved(old, 2)
}

// running has the names of the effects of the jobs that run, as their Redis says.
func running(t *testing.T, ins *inspect.Inspector) (names []string) {
	t.Helper()
	for job, err := range ins.Jobs(bg, "default", inspect.Filter{State: signalbox.StateRunning}) {
		var args struct {
			N     int
			Entry string
		}
		if err := errors.Join(err, json.Unmarshal(job.Payload, &args)); err != nil {
			t.Fatal(err)
		}
		name := effectOf(job.Kind, args.N)
		if job.Kind == "tick" {
			name = tickOf(args.Entry, job.DueAt)
		}
		names = append(names, name)
	}
	return names
}

// The steps by replication. Rows are committed, and ticks come, all the time. What runs at the switch, the report for one, runs again.
func TestMoveByReplication(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]bool{"after a pause": true, "while a job runs": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			first, second := redistest.New(t), redistest.New(t)
			old := s.begin(first.Client())
			admin, other := first.Client(), second.Client()
			replicaOf := func(rdb redis.UniversalClient, host, port string) {
				t.Helper()
				if err := rdb.Do(bg, "REPLICAOF", host, port).Err(); err != nil {
					t.Fatal(err)
				}
			}
			follow := func(rdb redis.UniversalClient, addr string) {
				t.Helper()
				host, port, err := net.SplitHostPort(addr)
				if err != nil {
					t.Fatal(err)
				}
				replicaOf(rdb, host, port)
			}
			follow(other, first.Addr())
			says := func(rdb redis.UniversalClient, field string) string {
				info, err := rdb.Info(bg, "replication").Result()
				if err != nil {
					t.Fatal(err)
				}
				_, value, _ := strings.Cut(info, field+":")
				value, _, _ = strings.Cut(value, "\r\n")
				return value
			}
			redistest.Eventually(t, func() bool { return says(other, "master_link_status") == "up" }, "no replica")
			s.write(5)
			repeats := 2
			if wait {
				repeats = 1
				old.pause()
				s.once.Do(func() { close(s.letGo) })
				redistest.Eventually(t, func() bool { q, err := old.ins.Queue(bg, "default"); return err == nil && q.Running == 0 }, "a job runs")
			}
			if err := admin.Do(bg, "CLIENT", "PAUSE", "30000", "WRITE").Err(); err != nil {
				t.Fatal(err)
			}
			redistest.Eventually(t, func() bool { return says(admin, "master_repl_offset") == says(other, "slave_repl_offset") }, "it lags")
			replicaOf(other, "NO", "ONE")
			s.again = running(t, s.inspector(other))
			if wait && len(s.again) > 0 {
				t.Fatalf("these jobs run though the queue was paused: %v", s.again)
			}
			follow(admin, second.Addr())
			s.write(5)
			old.relay()
			old.cron()
			s.cutOff = true
			old.work() // it can't give the report back
			s.cutOff = false
			l := s.on(second.Client())
			if wait {
				l.resume()
			}
			redistest.Eventually(t, func() bool { return s.count("report") == repeats }, "the report doesn't run again")
			l.moved(old, repeats)
			redistest.Eventually(t, func() bool { return says(admin, "master_link_status") == "up" }, "the old one doesn't follow: there is no way back")
		})
	}
}

// The steps by running it empty. The report ends on the old Redis.
func TestMoveByRunningItEmpty(t *testing.T) {
	t.Parallel()
	s := newService(t)
	old := s.begin(redistest.New(t).Client())
	rdb := redistest.New(t).Client()
	l := &life{service: s, rdb: rdb, ins: s.inspector(rdb), work: s.work(rdb)}
	redistest.Eventually(t, func() bool { return l.ins.SetLimits(bg, "default", signalbox.Limits{Running: 50}) == nil }, "the worker isn't there") // by hand
	old.relay()
	old.cron()
	s.write(5)
	if _, err := s.scheduler(rdb).Enqueue(bg, mail{1003}); err != nil { // a producer on the new one
		t.Fatal(err)
	}
	s.once.Do(func() { close(s.letGo) })
	redistest.Eventually(t, func() bool {
		q, err := old.ins.Queue(bg, "default")
		return err == nil && q.Running+q.Ready == 0 && s.count("mail") == 32
	}, "the old queue doesn't become empty")
	old.pause()
	s.pass(old.ins, l.ins, inspect.Importing{})
	l.relay, l.cron = s.relay(rdb, outbox.RelayConfig{Logger: slog.New(&s.said)}), s.schedule(rdb)
	l.locks()
	old.work()
	l.moved(old, 1)
}
