package worker_test

import (
	"context"
	"testing"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/worker"
)

// If a lease ends while Redis hangs, the log reports it at that time. Work that goes on after the handlers have returned, such as the
// release of a named lock, is not reported as a handler.
func TestLogWhileRedisHangs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	w := r.workerOn(proxy.Client(), r.short(3))
	running, returned := make(chan struct{}, 10), make(chan struct{}, 10)
	released, release := r.gate()
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		running <- struct{}{}
		<-ctx.Done()
		returned <- struct{}{}
		return ctx.Err()
	}, worker.With(func(next signalbox.Handler) signalbox.Handler {
		return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
			defer func() { <-released }()
			return next.Handle(ctx, job)
		})
	}))
	r.add(make([]signalbox.Job, 2)...)
	run := r.start(w)
	for range 2 {
		get(t, running, "the jobs run")
	}
	proxy.Pause()
	for range 2 {
		get(t, returned, "the handlers return when their lease ends")
	}
	r.log.says(t, "the lease was lost", "jobs=2", "cause=.+")
	r.log.says(t, "middleware goes on", `kinds=map\[task:2\]`, `longest=[2-5](\.\d+)?s`)
	if n := r.log.count("handlers ignore"); n != 0 {
		t.Errorf("handlers that returned are blamed %d times", n)
	}
	release()
	proxy.Resume()
	run.cancel()
}
