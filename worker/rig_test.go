package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/check"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/internal/wire"
	"github.com/signalbox-go/signalbox/worker"
)

// patience limits every wait for something that should happen at once, or after a lease.
const patience = 20 * time.Second

// task has the arguments of most tests' jobs.
type task struct {
	N int `json:"n"`
}

func (task) Kind() string { return "task" }

// prompt is a limit for what should happen at once. Without the tested cause, a fallback would make it happen later: the end of a
// blocking call after 10 s, or a renewal, which comes every 10 s if a lease is 30 s.
const prompt = 8 * time.Second

// A rig is the queue of one test, with the workers that serve it. When the test ends, the workers are stopped and the store's checker must
// find each job in exactly one state.
type rig struct {
	*testing.T
	rdb   redis.UniversalClient
	queue *store.Queue
	log   *logbook

	mu    sync.Mutex
	lane  *store.Lane
	gates []func()
}

// newRig returns a rig on the server that the tests share.
func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigOn(t, redistest.Start(t).Client())
}

func newRigOn(t *testing.T, rdb redis.UniversalClient) *rig {
	t.Helper()
	q := store.New(rdb, "", redistest.Name(t))
	r := &rig{T: t, rdb: rdb, queue: q, lane: q.NewLane(), log: &logbook{}}
	t.Cleanup(func() {
		if err := check.Queue(context.Background(), q.Site()); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("log of the workers:\n%s", r.log)
		}
	})
	return r
}

// name is the queue's name.
func (r *rig) name() string { return r.queue.Name() }

// add enqueues jobs, all in one call, and returns their IDs. It fills in a kind, an ID and a payload where they are missing.
func (r *rig) add(jobs ...signalbox.Job) []string {
	r.Helper()
	return r.addWhen(store.When{}, jobs...)
}

func (r *rig) addWhen(when store.When, jobs ...signalbox.Job) []string {
	r.Helper()
	ids := make([]string, len(jobs))
	items := make([]store.Item, len(jobs))
	for i := range jobs {
		job := jobs[i]
		if job.Kind == "" {
			job.Kind = task{}.Kind()
		}
		if job.ID == "" {
			job.ID = store.NewID()
		}
		if job.Payload == nil {
			job.Payload = fmt.Appendf(nil, `{"n":%d}`, i)
		}
		item, err := store.NewItem(&job, when)
		if err != nil {
			r.Fatal(err)
		}
		ids[i], items[i] = job.ID, item
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for part := range slices.Chunk(items, store.MaxBatch) {
		r.lane.Next()
		if _, err := r.queue.Enqueue(context.Background(), r.lane, part); err != nil {
			r.Fatal(err)
		}
	}
	return ids
}

// addOne enqueues one job.
func (r *rig) addOne(job signalbox.Job) string { r.Helper(); return r.add(job)[0] }

// config is a worker's configuration for the rig's queue only. Its lease is long. So no lease ends because of a loaded machine, in tests
// that are about something else.
func (r *rig) config(slots int) worker.Config {
	return worker.Config{
		Queues:     worker.Queues{r.name(): {Concurrency: slots}},
		SessionTTL: 30 * time.Second,
		Logger:     slog.New(r.log),
	}
}

// brief is config with the shortest lease, for tests of what happens when a lease ends. On a busy machine it may end at any time, so these
// tests must expect that.
func (r *rig) brief(slots int) worker.Config { return r.lease(slots, time.Second) }

// short is config with a lease that a test can wait for. It ends only after four seconds without a renewal, which doesn't happen even on a
// busy machine.
func (r *rig) short(slots int) worker.Config { return r.lease(slots, shortTTL) }

const shortTTL = 6 * time.Second

func (r *rig) lease(slots int, ttl time.Duration) worker.Config {
	cfg := r.config(slots)
	cfg.SessionTTL = ttl
	return cfg
}

// renewals returns a function that waits until the lease of the queue's only session would have ended without a renewal.
func (r *rig) renewals() (wait func()) {
	r.Helper()
	ctx := context.Background()
	sessions := r.rdb.ZRangeWithScores(ctx, r.key("sessions"), 0, -1).Val()
	if len(sessions) != 1 {
		r.Fatalf("%d sessions", len(sessions))
	}
	return func() {
		r.Helper()
		redistest.Eventually(r.T, func() bool {
			return r.rdb.Time(ctx).Val().UnixMicro() > int64(sessions[0].Score)
		}, "the lease is over, or was renewed")
	}
}

// worker returns a worker of the rig's queue.
func (r *rig) worker(slots int) *worker.Worker { r.Helper(); return r.workerWith(r.config(slots)) }

func (r *rig) workerWith(cfg worker.Config) *worker.Worker {
	r.Helper()
	return r.workerOn(r.rdb, cfg)
}

func (r *rig) workerOn(rdb redis.UniversalClient, cfg worker.Config) *worker.Worker {
	r.Helper()
	w, err := worker.New(rdb, cfg)
	if err != nil {
		r.Fatal(err)
	}
	return w
}

// A run is a call of Worker.Run.
type run struct {
	t      *testing.T
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// start runs the worker until the test ends or stop is called.
func (r *rig) start(w *worker.Worker) *run { return r.startUnder(context.Background(), w) }

// ready waits until a worker has inspected Redis and claims. Tests measure times from here on.
func (r *rig) ready() {
	r.Helper()
	redistest.Eventually(r.T, func() bool { return r.log.count("the worker is ready") > 0 }, "the worker is ready")
}

func (r *rig) startUnder(ctx context.Context, w *worker.Worker) *run {
	ctx, cancel := context.WithCancel(ctx)
	run := &run{t: r.T, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(run.done)
		run.err = w.Run(ctx)
	}()
	r.Cleanup(func() {
		cancel()
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, open := range r.gates {
			open()
		}
		<-run.done
	})
	return run
}

// gate returns a function at which handlers wait until open is called, or until the test ends.
func (r *rig) gate() (wait <-chan struct{}, open func()) {
	ch := make(chan struct{})
	open = sync.OnceFunc(func() { close(ch) })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gates = append(r.gates, open)
	return ch, open
}

// stop ends Run's context and checks that Run returns nil in time.
func (run *run) stop() {
	run.t.Helper()
	run.cancel()
	if err := run.wait(); err != nil {
		run.t.Errorf("Run = %v, want nil", err)
	}
}

// wait waits for Run to return.
func (run *run) wait() error {
	run.t.Helper()
	select {
	case <-run.done:
		return run.err
	case <-time.After(patience):
		run.t.Fatal("Run does not return")
		return nil
	}
}

// counts returns the queue's current counts.
func (r *rig) counts() looks.Counts {
	r.Helper()
	c, err := r.queue.Looks().Counts(context.Background())
	if err != nil {
		r.Fatal(err)
	}
	return c
}

// until waits until cond accepts the queue's counts.
func (r *rig) until(what string, cond func(c looks.Counts) bool) {
	r.Helper()
	var last looks.Counts
	var failed error
	end := time.Now().Add(patience)
	for time.Now().Before(end) {
		last, failed = r.queue.Looks().Counts(context.Background())
		if failed == nil && cond(last) {
			return
		}
		<-time.After(5 * time.Millisecond)
	}
	r.Fatalf("still not so: %s; the queue's counts: %+v %v", what, last, failed)
}

// completed waits until that many jobs have completed and none waits or runs.
func (r *rig) completed(n int) {
	r.Helper()
	r.until(fmt.Sprintf("%d jobs are completed", n), func(c looks.Counts) bool {
		return c.Total.Completed == int64(n) && c.Ready+c.Due+c.Running == 0
	})
}

// key returns the name of one of the queue's keys.
func (r *rig) key(kind string) string { return "signalbox:{default:" + r.name() + "}:" + kind }

// record returns a job's record as it is in Redis.
func (r *rig) record(id string) string {
	r.Helper()
	raw, err := r.rdb.HGet(context.Background(), r.key("jobs"), id).Result()
	if err != nil {
		r.Fatalf("the record of %s: %v", id, err)
	}
	return raw
}

// job returns a job as its record has it.
func (r *rig) job(id string) signalbox.Job {
	r.Helper()
	job := signalbox.Job{ID: id}
	if err := wire.Decode([]byte(r.record(id)), &job); err != nil {
		r.Fatal(err)
	}
	return job
}

// put writes a record, and replaces an existing one.
func (r *rig) put(id, record string) {
	r.Helper()
	if err := r.rdb.HSet(context.Background(), r.key("jobs"), id, record).Err(); err != nil {
		r.Fatal(err)
	}
}

// get receives a value, and fails the test if none comes in time.
func get[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("still not so after %v: %s", patience, what)
		panic("unreachable")
	}
}

// payload encodes arguments.
func payload(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// A logbook is a slog.Handler that keeps all entries.
type logbook struct {
	mu      sync.Mutex
	entries []string
}

func (l *logbook) Enabled(context.Context, slog.Level) bool { return true }

func (l *logbook) Handle(_ context.Context, rec slog.Record) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s", rec.Time.Format("05.000"), rec.Level, rec.Message)
	rec.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, b.String())
	return nil
}

func (l *logbook) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l *logbook) WithGroup(string) slog.Handler      { return l }

// count returns how many entries contain all parts.
func (l *logbook) count(parts ...string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, e := range l.entries {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(e, p) }) {
			n++
		}
	}
	return n
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.entries[max(0, len(l.entries)-60):], "\n")
}

var errBoom = errors.New("boom")
