package signalbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/signalboxtest"
	"github.com/signalbox-go/signalbox/worker"
)

// FromContext finds the job of a delivery, through contexts that were made from its own, and allocates nothing.
//
// Not parallel: it measures.
func TestFromContext(t *testing.T) {
	job := &signalbox.Job{ID: "7", Queue: "mail"}
	ctx, cancel := context.WithCancel(signalbox.NewContext(t.Context(), job))
	defer cancel()
	if got, ok := signalbox.FromContext(ctx); !ok || got != job {
		t.Errorf("%v, %v", got, ok)
	}
	if n := testing.AllocsPerRun(100, func() { signalbox.FromContext(ctx) }); n != 0 {
		t.Errorf("it allocates %v times", n)
	}
	for name, ctx := range map[string]context.Context{
		"no delivery":              t.Context(),
		"a delivery without a job": signalbox.NewContext(t.Context(), nil),
	} {
		if got, ok := signalbox.FromContext(ctx); ok || got != nil {
			t.Errorf("%s: %v, %v", name, got, ok)
		}
	}
}

// With a context that belongs to no delivery, OnSettled returns false.
func TestOnSettledElsewhere(t *testing.T) {
	t.Parallel()
	if signalbox.OnSettled(t.Context(), func(signalbox.Settled) {}) {
		t.Error("it will be called")
	}
}

// A middleware learns how deliveries ended in Redis, not only what handlers returned. This one counts dead jobs. A test
// of it needs no server.
func ExampleOnSettled() {
	dead := 0
	countDead := func(next signalbox.Handler) signalbox.Handler {
		return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
			signalbox.OnSettled(ctx, func(s signalbox.Settled) {
				if s.Outcome == signalbox.OutcomeDead {
					dead++
					fmt.Println("dead:", job.Kind, "-", s.Err)
				}
			})
			return next.Handle(ctx, job)
		})
	}
	t := &testing.T{} // yours
	jobs := signalboxtest.New(t)
	w, err := worker.New(jobs.Client(), worker.Config{Logger: quiet})
	if err != nil {
		fmt.Println(err)
		return
	}
	w.Use(countDead)
	worker.Handle(w, func(context.Context, *signalbox.Job, Welcome) error { return errors.New("mail server busy") })
	jobs.Work(context.Background(), w, jobs.NewJob(Welcome{UserID: 42}, scheduler.MaxAttempts(1)))
	fmt.Println(dead)
	// Output:
	// dead: email.welcome - mail server busy
	// 1
}
