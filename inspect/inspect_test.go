package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/check"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

func TestMain(m *testing.M) { redistest.Main(m) }

type task struct{}

func (task) Kind() string { return "task" }

func inspector(t *testing.T, rdb redis.UniversalClient, namespace string) *inspect.Inspector {
	t.Helper()
	ins, err := inspect.New(rdb, inspect.Config{Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	return ins
}

// known returns a queue of the namespace that has been used.
func known(t *testing.T, rdb redis.UniversalClient, namespace string) *store.Queue {
	t.Helper()
	q := store.New(rdb, namespace, redistest.Name(t))
	if err := q.Presence().Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := check.Queue(context.Background(), q.Site()); err != nil {
			t.Error(err)
		}
	})
	return q
}

func TestNewNamesEveryMistake(t *testing.T) {
	t.Parallel()
	var none *redis.Client
	_, err := inspect.New(none, inspect.Config{Namespace: "a:b"})
	if !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), "rdb: it is nil") || !strings.Contains(err.Error(), `namespace "a:b"`) {
		t.Errorf("New = %v", err)
	}
}

// A queue that nobody has used can't be paused: its name may be misspelt.
func TestNoSuchQueue(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	namespace := redistest.Name(t)
	ins := inspector(t, rdb, namespace)
	calls := map[string]func(queue string) error{
		"Queue":  func(queue string) error { _, err := ins.Queue(t.Context(), queue); return err },
		"Pause":  func(queue string) error { _, err := ins.Pause(t.Context(), queue); return err },
		"Resume": func(queue string) error { _, err := ins.Resume(t.Context(), queue); return err },
	}
	for name, call := range calls {
		if err := call("mial"); !errors.Is(err, inspect.ErrNoQueue) || !strings.Contains(err.Error(), "there is none") {
			t.Errorf("%s: %v", name, err)
		}
		if err := call("{}"); !errors.Is(err, signalbox.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range 12 {
		if i == 10 { // all queues are named
			if _, err := ins.Queue(t.Context(), "mial"); err == nil || !strings.Contains(err.Error(), "q08, q09. A queue") {
				t.Errorf("with ten queues: %v", err)
			}
		}
		if err := store.New(rdb, namespace, fmt.Sprintf("q%02d", i)).Presence().Register(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for name, call := range calls {
		if err := call("mial"); !errors.Is(err, inspect.ErrNoQueue) || !strings.Contains(err.Error(), "q00, q01") || !strings.Contains(err.Error(), "q09 and 2 more") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := rdb.Exists(t.Context(), "signalbox:{"+namespace+":mial}:settings").Val(); n != 0 {
		t.Error("settings of a queue were written that is not there")
	}
}

// Queues of the same name in two namespaces are different queues, and are paused separately.
func TestQueues(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	here, there := redistest.Name(t)+"-a", redistest.Name(t)+"-b"
	q := known(t, rdb, here)
	if err := store.New(rdb, there, q.Name()).Presence().Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := scheduler.New(rdb, scheduler.Config{Namespace: here})
	if err != nil {
		t.Fatal(err)
	}
	for _, opts := range [][]scheduler.EnqueueOption{{}, {}, {scheduler.After(time.Hour)}} {
		if _, err := s.Enqueue(t.Context(), task{}, append(opts, scheduler.Queue(q.Name()))...); err != nil {
			t.Fatal(err)
		}
	}
	ins := inspector(t, rdb, here)
	if changed, err := ins.Pause(t.Context(), q.Name()); !changed || err != nil {
		t.Errorf("Pause = %v, %v", changed, err)
	}
	if changed, err := ins.Pause(t.Context(), q.Name()); changed || err != nil {
		t.Errorf("a second Pause = %v, %v", changed, err)
	}
	queues, err := ins.Queues(t.Context())
	if err != nil || len(queues) != 1 {
		t.Fatalf("Queues = %+v, %v", queues, err)
	}
	got := queues[0]
	if got.Name != q.Name() || !got.Paused || got.PausedSince.IsZero() || got.Ready != 2 || got.Scheduled != 1 || got.Running != 0 || got.Oldest < 0 {
		t.Errorf("Queues = %+v", got)
	}
	other, err := inspector(t, rdb, there).Queue(t.Context(), q.Name())
	if err != nil || other.Paused || other.Ready != 0 || !other.PausedSince.IsZero() {
		t.Errorf("that of the other namespace is %+v, %v", other, err)
	}
	if changed, err := ins.Resume(t.Context(), q.Name()); !changed || err != nil {
		t.Errorf("Resume = %v, %v", changed, err)
	}
	if one, err := ins.Queue(t.Context(), q.Name()); err != nil || one.Paused {
		t.Errorf("after it: %+v, %v", one, err)
	}
}

// Each state of a job has its own number.
func TestStates(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	namespace, ctx := redistest.Name(t), t.Context()
	q := known(t, rdb, namespace)
	s, err := scheduler.New(rdb, scheduler.Config{Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	enqueue := func(n int, opts ...scheduler.EnqueueOption) {
		t.Helper()
		for range n {
			if _, err := s.Enqueue(ctx, task{}, append(opts, scheduler.Queue(q.Name()))...); err != nil {
				t.Fatal(err)
			}
		}
	}
	enqueue(6)
	if alive, _, err := q.Sessions().Open(ctx, "session", time.Hour); !alive || err != nil {
		t.Fatal(alive, err)
	}
	lane := q.NewLane()
	lane.Next()
	reply, err := q.Sessions().Claim(ctx, lane, &store.ClaimRequest{Session: "session", Want: 6})
	if err != nil || len(reply.Deliveries) != 6 {
		t.Fatal(reply, err)
	}
	var ends []store.Settlement
	for i, outcome := range []store.Outcome{store.Dead, store.Cancelled, store.Cancelled} {
		job := reply.Deliveries[i].Job
		ends = append(ends, store.Settlement{ID: job.ID, Token: job.Token, Outcome: outcome})
	}
	lane.Next()
	if _, err := q.Sessions().Claim(ctx, lane, &store.ClaimRequest{Session: "session", Settle: ends}); err != nil {
		t.Fatal(err)
	}
	enqueue(4)
	enqueue(5, scheduler.After(time.Hour))
	ins := inspector(t, rdb, namespace)
	var got inspect.Queue
	redistest.Eventually(t, func() bool {
		got, err = ins.Queue(ctx, q.Name())
		return err != nil || got.Oldest > 0
	}, "the oldest job has waited")
	if err != nil || got.Oldest > time.Minute {
		t.Errorf("the oldest has waited for %v, %v", got.Oldest, err)
	}
	got.Oldest = 0
	if want := (inspect.Queue{Name: q.Name(), Ready: 4, Scheduled: 5, Running: 3, Dead: 1, Cancelled: 2}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// If another program wrote a strange value there, the result is an error that names the queue, or a pause since 1970.
func TestStrangeSettings(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	namespace := redistest.Name(t)
	a, b := known(t, rdb, namespace), store.New(rdb, namespace, "broken")
	if err := b.Presence().Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	rdb.Set(ctx, "signalbox:{"+namespace+":broken}:settings", "x", 0)
	rdb.HSet(ctx, "signalbox:{"+namespace+":"+a.Name()+"}:settings", "paused", "yes", "layout", layout.Number)
	ins := inspector(t, rdb, namespace)
	queues, err := ins.Queues(ctx)
	if err == nil || !strings.Contains(err.Error(), "broken") || len(queues) != 1 || !queues[0].Paused || queues[0].PausedSince.Unix() != 0 {
		t.Errorf("Queues = %+v, %v", queues, err)
	}
	if _, err := ins.Pause(ctx, "broken"); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("Pause = %v", err)
	}
}

func TestSetRetention(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	namespace := redistest.Name(t)
	q := known(t, rdb, namespace)
	ins := inspector(t, rdb, namespace)
	want := signalbox.Retention{Jobs: 10, Bytes: 256 << 20, Age: time.Hour}
	if err := ins.SetRetention(t.Context(), q.Name(), signalbox.Retention{Jobs: 10, Age: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if got, err := ins.Queue(t.Context(), q.Name()); err != nil || got.Retention != want || got.Paused {
		t.Errorf("%+v, %v", got, err)
	}
	if err := ins.SetRetention(t.Context(), "other", want); !errors.Is(err, inspect.ErrNoQueue) {
		t.Errorf("of a queue that isn't there: %v", err)
	}
	if err := ins.SetRetention(t.Context(), q.Name(), signalbox.Retention{Jobs: -1}); !errors.Is(err, signalbox.ErrInvalid) {
		t.Errorf("of no retention: %v", err)
	}
}

// Completed jobs have a retention of their own, and no other changes with it. A zero one ends it.
func TestSetCompletedRetention(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	namespace := redistest.Name(t)
	q := known(t, rdb, namespace)
	ins := inspector(t, rdb, namespace)
	for _, want := range []signalbox.Retention{{Jobs: 10, Bytes: 256 << 20, Age: time.Hour}, {}} {
		set := want
		set.Bytes = 0
		if err := ins.SetCompletedRetention(t.Context(), q.Name(), set); err != nil {
			t.Fatal(err)
		}
		if got, err := ins.Queue(t.Context(), q.Name()); err != nil || got.CompletedRetention != want || got.Retention != (signalbox.Retention{}) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if err := ins.SetCompletedRetention(t.Context(), "other", signalbox.Retention{}); !errors.Is(err, inspect.ErrNoQueue) {
		t.Errorf("of a queue that isn't there: %v", err)
	}
	if err := ins.SetCompletedRetention(t.Context(), q.Name(), signalbox.Retention{Age: -1}); !errors.Is(err, signalbox.ErrInvalid) {
		t.Errorf("of no retention: %v", err)
	}
}

// Dead jobs are copied to another queue, which need not be there. The empty name ends that.
func TestSetCopyDead(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	namespace := redistest.Name(t)
	q := known(t, rdb, namespace)
	ins := inspector(t, rdb, namespace)
	for _, to := range []string{"graves", "other", ""} {
		if err := ins.SetCopyDead(t.Context(), q.Name(), to); err != nil {
			t.Fatal(err)
		}
		if got, err := ins.Queue(t.Context(), q.Name()); err != nil || got.CopyDead != to || got.CompletedRetention != (signalbox.Retention{}) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if err := ins.SetCopyDead(t.Context(), "other", "graves"); !errors.Is(err, inspect.ErrNoQueue) {
		t.Errorf("of a queue that isn't there: %v", err)
	}
	for _, wrong := range []string{q.Name(), "a b", "{off}"} {
		if err := ins.SetCopyDead(t.Context(), q.Name(), wrong); !errors.Is(err, signalbox.ErrInvalid) {
			t.Errorf("to %q: %v", wrong, err)
		}
	}
}

// A changed queue is listed, even if no producer has listed it yet.
func TestChangedQueueIsListed(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	for name, change := range map[string]func(ins *inspect.Inspector, queue string) error{
		"Pause":  func(ins *inspect.Inspector, q string) error { _, err := ins.Pause(t.Context(), q); return err },
		"Resume": func(ins *inspect.Inspector, q string) error { _, err := ins.Resume(t.Context(), q); return err },
		"SetCompletedRetention": func(ins *inspect.Inspector, q string) error {
			return ins.SetCompletedRetention(t.Context(), q, signalbox.Retention{})
		},
		"SetCopyDead": func(ins *inspect.Inspector, q string) error { return ins.SetCopyDead(t.Context(), q, "graves") },
		"SetRetention": func(ins *inspect.Inspector, q string) error {
			return ins.SetRetention(t.Context(), q, signalbox.Retention{})
		},
	} {
		namespace := redistest.Name(t)
		if err := rdb.HSet(t.Context(), "signalbox:{"+namespace+":q}:settings", "layout", layout.Number).Err(); err != nil {
			t.Fatal(err)
		}
		ins := inspector(t, rdb, namespace)
		if err := change(ins, "q"); err != nil {
			t.Fatal(err)
		}
		if queues, err := ins.Queues(t.Context()); err != nil || len(queues) != 1 || queues[0].Name != "q" {
			t.Errorf("after %s: %+v, %v", name, queues, err)
		}
	}
}

// BenchmarkResume measures from the call of Resume to the start of a handler in an idle worker.
func BenchmarkResume(b *testing.B) {
	rdb := redistest.Start(b).Client()
	queue := redistest.Name(b)
	ctx, stop := context.WithCancel(context.Background())
	started := make(chan time.Time, 1)
	w, err := worker.New(rdb, worker.Config{Queues: worker.Queues{queue: {Concurrency: 1}}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
		started <- time.Now()
		return nil
	})
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}()
	s, err := scheduler.New(rdb, scheduler.Config{})
	if err != nil {
		b.Fatal(err)
	}
	ins, err := inspect.New(rdb, inspect.Config{})
	if err != nil {
		b.Fatal(err)
	}
	enqueue := func() {
		if _, err := s.Enqueue(ctx, task{}, scheduler.Queue(queue)); err != nil {
			b.Fatal(err)
		}
	}
	enqueue()
	<-started
	var longest time.Duration
	b.ResetTimer()
	for range b.N {
		b.StopTimer()
		if _, err := ins.Pause(ctx, queue); err != nil {
			b.Fatal(err)
		}
		enqueue()
		b.StartTimer()
		begin := time.Now()
		if changed, err := ins.Resume(ctx, queue); err != nil || !changed {
			b.Fatal(changed, err)
		}
		longest = max(longest, (<-started).Sub(begin))
	}
	b.ReportMetric(float64(longest.Microseconds())/1000, "max-ms")
}
