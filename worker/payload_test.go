package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/internal/wire"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/middleware"
	"github.com/signalbox-go/signalbox/worker"
)

// addFailed enqueues a job that has already failed the given number of times. No worker may run yet.
func (r *rig) addFailed(failed int, job signalbox.Job) string {
	r.Helper()
	id := r.addOne(job)
	record, err := wire.Fail([]byte(r.record(id)), failed, "of another reason")
	if err != nil {
		r.Fatal(err)
	}
	r.put(id, string(record))
	return id
}

// A payload that no handler accepts is tried for a while, since a new release may be on its way. Then the job is dead. It doesn't use up
// 25 attempts. The kind's own policy would retry at once, and isn't asked.
func TestRefusedPayloadIsTriedFiveTimes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(10)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
		r.Error("the handler ran")
		return nil
	}, worker.Retry(soon))
	bad := signalbox.Job{Payload: []byte(`{"n":"x"}`)}
	var ids []string
	for failed := range 5 {
		ids = append(ids, r.addFailed(failed, bad))
	}
	begin := time.Now()
	r.start(w)
	r.until("one is dead, four are tried again", func(c looks.Counts) bool { return c.Dead == 1 && c.Due == 4 })
	for failed, id := range ids {
		job := r.job(id)
		if !strings.Contains(job.LastError, "task.N") {
			r.Errorf("last error %q", job.LastError)
		}
		if failed == 4 {
			continue
		}
		most := min(time.Minute<<failed, 8*time.Minute)
		if d := job.ScheduledAt.Sub(begin); d < most/2-time.Second || d > most+patience {
			r.Errorf("attempt %d is followed by another in %v, want %v to %v", failed+1, d, most/2, most)
		}
	}
	if r.log.count("ERROR", "its payload was refused too often", ids[4], "task.N") != 1 {
		r.Error("the log doesn't say why the job is dead")
	}
}

// If a job's own limit of attempts is lower, it counts instead. Other errors have no limit of five.
func TestRefusalsAndOtherErrors(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(10)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return errBoom }, worker.Retry(func(int, error) time.Duration { return time.Hour }))
	w.HandleKind("own.decoder", signalbox.HandlerFunc(func(context.Context, *signalbox.Job) error {
		return &signalbox.PayloadError{Err: errBoom}
	}))
	few := r.addOne(signalbox.Job{MaxAttempts: 1, Payload: []byte(`null`)})
	ordinary := r.addFailed(10, signalbox.Job{})
	own := r.addFailed(4, signalbox.Job{Kind: "own.decoder"})
	r.start(w)
	r.until("two are dead, one is tried again", func(c looks.Counts) bool { return c.Dead == 2 && c.Due == 1 })
	if job := r.job(ordinary); job.Attempt != 12 || job.LastError != "boom" {
		r.Errorf("an ordinary failure: %+v", job)
	}
	if r.log.count("ERROR", "attempts are used up", few, "null") != 1 || r.log.count("ERROR", "refused too often", own) != 1 {
		r.Error("the log doesn't say why the jobs are dead")
	}
}

// Strict can be set for a kind, and for a whole worker.
func TestStrictHandlers(t *testing.T) {
	t.Parallel()
	renamed := signalbox.Job{MaxAttempts: 1, Payload: []byte(`{"number":1}`)}
	for name, c := range map[string]struct {
		worker bool
		opts   []worker.Option
		dead   bool
	}{
		"neither":    {},
		"the kind":   {opts: []worker.Option{worker.Strict()}, dead: true},
		"the worker": {worker: true, dead: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			cfg := r.config(1)
			cfg.Strict = c.worker
			w := r.workerWith(cfg)
			worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil }, c.opts...)
			w.HandleKind("untyped", signalbox.HandlerFunc(func(context.Context, *signalbox.Job) error { return nil }))
			r.start(w)
			id := r.addOne(renamed)
			r.addOne(signalbox.Job{Kind: "untyped", Payload: renamed.Payload})
			r.until("both have ended", func(c looks.Counts) bool { return c.Dead+c.Total.Completed == 2 })
			if got := r.counts().Dead == 1; got != c.dead {
				r.Errorf("dead: %v, want %v", got, c.dead)
			}
			if c.dead && !strings.Contains(r.job(id).LastError, `a field "number"`) {
				r.Errorf("last error %q", r.job(id).LastError)
			}
		})
	}
}

// counted counts how often its payloads are decoded, by account.
type counted struct{ account string }

var decodes sync.Map // of string to *atomic.Int32

func (counted) Kind() string { return "counted" }

func (c *counted) UnmarshalJSON(raw []byte) error {
	n, _ := decodes.LoadOrStore(string(raw), new(atomic.Int32))
	n.(*atomic.Int32).Add(1)
	return json.Unmarshal(raw, &c.account)
}

// LockBy names the lock after the arguments. They are decoded once for the lock and the handler, and for two locks as well. They are
// decoded again only if a middleware between them passes on another job.
func TestLockBy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		between signalbox.Middleware
		want    int32
	}{
		"nothing between": {signalbox.Chain(), 1},
		"another job": {func(next signalbox.Handler) signalbox.Handler {
			return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
				changed := *job
				return next.Handle(ctx, &changed)
			})
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			account := redistest.Name(t)
			w := r.worker(1)
			worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, args counted) error {
				if l, _ := lock.FromContext(ctx); l == nil || l.Key() != "signalbox:lock:inner:"+account || args.account != account {
					r.Errorf("runs under %v", l)
				}
				if r.rdb.Exists(ctx, "signalbox:lock:outer:"+account).Val() != 1 {
					r.Error("not under both locks")
				}
				return nil
			},
				worker.LockBy(newLocker(r.rdb), func(args counted) string { return "outer:" + args.account }),
				worker.LockBy(newLocker(r.rdb), func(args counted) string { return "inner:" + args.account }),
				worker.With(c.between))
			r.start(w)
			raw := payload(account)
			r.addOne(signalbox.Job{Kind: "counted", Payload: raw})
			r.completed(1)
			if n, _ := decodes.Load(string(raw)); n.(*atomic.Int32).Load() != c.want {
				r.Errorf("decoded %d times, want %d", n.(*atomic.Int32).Load(), c.want)
			}
		})
	}
}

// before returns an option that calls f first. The type of the value that an option changes has no name here.
func before[C any](opt func(C), f func()) func(C) {
	return func(c C) { f(); opt(c) }
}

// Jobs that run at the same time have separate locks, even if the slice of options has spare capacity.
func TestLockByAtTheSameTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	other, handled := r.gate()
	var locked atomic.Int32
	opts := append(make([]middleware.LockOption, 0, 8), before(middleware.MaxWait(0), func() {
		if locked.Add(1) == 1 {
			<-other // meanwhile another job names its lock, is handled and gives the lock back
		}
	}))
	outside := func(next signalbox.Handler) signalbox.Handler {
		return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
			defer handled()
			return next.Handle(ctx, job)
		})
	}
	w := r.worker(2)
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, args task) error {
		if l, _ := lock.FromContext(ctx); l == nil || l.Key() != fmt.Sprintf("signalbox:lock:%s:%d", r.name(), args.N) {
			r.Errorf("job %d runs under %v", args.N, l)
		}
		return nil
	}, worker.With(outside), worker.LockBy(newLocker(r.rdb), func(args task) string { return fmt.Sprintf("%s:%d", r.name(), args.N) }, opts...))
	r.start(w)
	r.add(make([]signalbox.Job, 2)...)
	r.completed(2)
}

// If arguments are refused, that happens before the lock is requested.
func TestLockByRefusesFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(1)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil },
		worker.LockBy(newLocker(r.rdb), func(task) string {
			r.Error("the lock is named")
			return "x"
		}))
	r.start(w)
	id := r.addOne(signalbox.Job{MaxAttempts: 1, Payload: []byte(`null`)})
	r.until("it is dead", func(c looks.Counts) bool { return c.Dead == 1 })
	if job := r.job(id); !strings.Contains(job.LastError, "null") {
		r.Errorf("last error %q", job.LastError)
	}
}

func TestMistakesOfTypedOptions(t *testing.T) {
	t.Parallel()
	locker := newLocker(unused(t))
	byTask := func(task) string { return "x" }
	handle := signalbox.HandlerFunc(func(context.Context, *signalbox.Job) error { return nil })
	for want, f := range map[string]func(w *worker.Worker){
		"LockBy without a locker":             func(*worker.Worker) { worker.LockBy(nil, byTask) },
		"LockBy without a locker or a":        func(*worker.Worker) { worker.LockBy[task](locker, nil) },
		"with LockBy for arguments of type w": func(w *worker.Worker) { w.HandleKind("k", handle, worker.LockBy(locker, byTask)) },
		"for kind other with LockBy": func(w *worker.Worker) {
			worker.Handle(w, func(context.Context, *signalbox.Job, other) error { return nil }, worker.LockBy(locker, byTask))
		},
		"HandleKind with Strict": func(w *worker.Worker) { w.HandleKind("k", handle, worker.Strict()) },
	} {
		w, err := worker.New(unused(t), worker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if got := panicOf(func() { f(w) }); !strings.Contains(got, want) {
			t.Errorf("panic %q, want one with %q", got, want)
		}
	}
}

type other struct{}

func (other) Kind() string { return "other" }

// newLocker is like lock.New, with an optional Config that must be valid.
func newLocker(rdb lock.Client, c ...lock.Config) *lock.Redis {
	l, err := lock.New(rdb, append(c, lock.Config{})[0])
	if err != nil {
		panic(err)
	}
	return l
}
