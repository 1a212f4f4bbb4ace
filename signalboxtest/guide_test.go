package signalboxtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/embedded"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/middleware"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/signalboxtest"
	"github.com/signalbox-go/signalbox/worker"
)

// The code of docs/testing.md.

func TestSignUp(t *testing.T) {
	jobs := signalboxtest.New(t)
	s, err := scheduler.New(jobs.Client(), scheduler.Config{})
	if err != nil {
		t.Fatal(err)
	}

	if err := NewService(s).SignUp(t.Context(), 42); err != nil {
		t.Fatal(err)
	}

	job := signalboxtest.One[Welcome](jobs)
	if job.Args.UserID != 42 || job.Queue != "mail" || job.ScheduledAt.Sub(job.EnqueuedAt) != time.Hour {
		t.Errorf("enqueued %+v with %+v", job.Job, job.Args)
	}
}

// newWorker returns a worker with the program's handlers.
func newWorker(t *testing.T, jobs *signalboxtest.Jobs) *worker.Worker {
	t.Helper()
	w, err := worker.New(jobs.Client(), worker.Config{Queues: worker.Queues{"default": {}, "mail": {}}})
	if err != nil {
		t.Fatal(err)
	}
	register(w)
	return w
}

func TestMailServerAway(t *testing.T) {
	jobs := signalboxtest.New(t)
	w := newWorker(t, jobs)

	v := jobs.Work(t.Context(), w, jobs.NewJob(Welcome{UserID: 42}, scheduler.Queue("mail")))
	if v.Outcome != signalbox.OutcomeRetried || v.Delay > time.Second || !errors.Is(v.Err, errAway) {
		t.Error(v)
	}
	v = jobs.Work(t.Context(), w, v.Next)
	if v.Outcome != signalbox.OutcomeCompleted {
		t.Error(v)
	}
}

func TestLastAttempt(t *testing.T) {
	jobs := signalboxtest.New(t)
	w := newWorker(t, jobs)
	job := jobs.NewJob(Welcome{UserID: 42}, scheduler.MaxAttempts(1))
	v := jobs.Work(t.Context(), w, job)
	if v.Outcome != signalbox.OutcomeDead || v.Next.LastError != "the mail server is away" {
		t.Error(v)
	}
}

// origin says where a call comes from.
func origin(ctx context.Context) string {
	job, ok := signalbox.FromContext(ctx)
	if !ok {
		return "no job"
	}
	return fmt.Sprintf("job %s of queue %s", job.ID, job.Queue)
}

func TestOrigin(t *testing.T) {
	ctx := signalbox.NewContext(t.Context(), &signalbox.Job{ID: "7", Queue: "mail"})
	if got := origin(ctx); got != "job 7 of queue mail" {
		t.Error(got)
	}
}

func TestDeath(t *testing.T) {
	jobs := signalboxtest.New(t)
	var dead []string
	w, err := worker.New(jobs.Client(), worker.Config{
		OnDead: func(_ context.Context, f worker.Failure) { dead = append(dead, f.Job.Kind+": "+f.Err.Error()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	register(w)
	v := jobs.Work(t.Context(), w, jobs.NewJob(Welcome{UserID: 42}, scheduler.MaxAttempts(1)))
	if v.Outcome != signalbox.OutcomeDead || len(dead) != 1 {
		t.Error(v, dead)
	}
}

func TestOldPayload(t *testing.T) {
	jobs := signalboxtest.New(t)
	w := newWorker(t, jobs)
	job := jobs.NewJob(Welcome{UserID: 42})
	job.Payload = []byte(`{"UserID": "forty-two"}`)
	v := jobs.Work(t.Context(), w, job)
	if _, refused := errors.AsType[*signalbox.PayloadError](v.Err); !refused {
		t.Error(v)
	}
}

func TestMissedTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs := signalboxtest.New(t)
		s, err := scheduler.New(jobs.Client(), scheduler.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Cron("daily", "0 9 * * *", Welcome{UserID: 7}, scheduler.Missed(scheduler.RunOnce)); err != nil {
			t.Fatal(err)
		}
		runs := func(d time.Duration) {
			ctx, stop := context.WithTimeout(t.Context(), d)
			defer stop()
			_ = s.Run(ctx)
		}
		runs(12 * time.Hour) // one tick
		time.Sleep(3 * 24 * time.Hour)
		runs(time.Minute) // of the three that were missed, the last one is made up for
		if ticks := signalboxtest.All[Welcome](jobs); len(ticks) != 2 || ticks[1].ScheduledAt.UTC().Day() != 4 {
			t.Errorf("%d ticks: %+v", len(ticks), ticks)
		}
	})
}

func TestWeekly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs := signalboxtest.New(t)
		s, err := scheduler.New(jobs.Client(), scheduler.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Cron("weekly", "0 9 * * MON", Welcome{UserID: 7}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go s.Run(ctx)

		time.Sleep(14 * 24 * time.Hour)
		if ticks := signalboxtest.All[Welcome](jobs); len(ticks) != 2 {
			t.Errorf("%d ticks in two weeks", len(ticks))
		}

		w := newWorker(t, jobs)
		for len(jobs.Waiting()) > 0 { // the first attempt fails
			jobs.WorkAll(ctx, w)
			time.Sleep(time.Second)
		}
	})
}

type Bill struct{ UserID int }

func (Bill) Kind() string { return "user.bill" }

func bill(context.Context, *signalbox.Job, Bill) error { return nil }

func TestUserIsLocked(t *testing.T) {
	jobs := signalboxtest.New(t)
	w, err := worker.New(jobs.Client(), worker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	worker.Handle(w, bill, worker.LockBy(jobs.Locker(), func(in Bill) string { return fmt.Sprintf("user:%d", in.UserID) }))

	// Somebody else holds the lock.
	held, err := jobs.Locker().TryAcquire(t.Context(), middleware.KeyPrefix+"user:42")
	if err != nil {
		t.Fatal(err)
	}
	v := jobs.Work(t.Context(), w, jobs.NewJob(Bill{UserID: 42}))
	if v.Outcome != signalbox.OutcomeSnoozed || !errors.Is(v.Err, lock.ErrHeld) {
		t.Error(v)
	}
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v := jobs.Work(t.Context(), w, v.Next); v.Outcome != signalbox.OutcomeCompleted {
		t.Error(v)
	}
}

func TestSignUpWithoutRedis(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{})
	rdb.Close() // each call fails
	s, err := scheduler.New(rdb, scheduler.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := NewService(s).SignUp(t.Context(), 42); err == nil {
		t.Error("no error")
	}
}

func TestOnEmbedded(t *testing.T) {
	srv, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	s, err := scheduler.New(rdb, scheduler.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := NewService(s).SignUp(t.Context(), 42); err != nil {
		t.Fatal(err)
	}
}

// TestGuide: each piece of Go code in docs/testing.md is in this file, among the examples, or in tests/outboxsql if it needs a database: there it is compiled.
func TestGuide(t *testing.T) {
	unindented := func(s string) string {
		lines := strings.Split(strings.TrimSpace(s), "\n")
		for i := range lines {
			lines[i] = strings.TrimSpace(lines[i])
		}
		return strings.Join(lines, "\n")
	}
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	code := "\n" + unindented(read("guide_test.go")) + "\n" + unindented(read("example_test.go")) + "\n" +
		unindented(read(filepath.Join("..", "tests", "outboxsql", "rows_test.go"))) + "\n"
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(filepath.Join("..", "docs", "testing.md")), -1)
	if len(blocks) < 5 {
		t.Errorf("docs/testing.md has %d blocks of Go code; are the others not seen?", len(blocks))
	}
	for _, b := range blocks {
		for piece := range strings.SplitSeq(b[1], "// ...\n") {
			if !strings.Contains(code, "\n"+unindented(piece)+"\n") {
				t.Errorf("this code of docs/testing.md is compiled nowhere:\n%s", piece)
			}
		}
	}
}
