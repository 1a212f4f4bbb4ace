package main

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/worker"
)

// The first byte asks a process to end. The second asks it to end at once.
func TestObey(t *testing.T) {
	t.Parallel()
	stdin, parent := io.Pipe()
	stopped, hurried, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		obey(stdin, func() { close(stopped) }, func() { close(hurried) })
	}()
	for _, ended := range []chan struct{}{stopped, hurried} {
		select {
		case <-ended:
			t.Error("it ends before it is asked")
		default:
		}
		if _, err := parent.Write([]byte{'.'}); err != nil {
			t.Fatal(err)
		}
		<-ended
	}
	if err := parent.Close(); err != nil {
		t.Error(err)
	}
	<-gone
}

// If a worker is asked twice to end, it interrupts its handlers.
func TestSecondCtrlC(t *testing.T) {
	t.Parallel()
	r := startRedis(t)
	queue := redistest.Name(t)
	s, err := newScheduler(r.rdb, queue)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&service{s, queue}).put(t.Context(), []signalbox.Args{export{600}}); err != nil {
		t.Fatal(err)
	}
	w, err := worker.New(r.rdb, worker.Config{
		Queues: worker.Queues{queue: {}}, DrainTimeout: time.Hour, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	began := make(chan struct{})
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ export) error {
		close(began)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	ctx, stop := context.WithCancel(t.Context())
	hurry, hurryUp := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- runWorker(ctx, hurry, w) }()
	<-began
	stop()
	hurryUp()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("the worker ended: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits for its handler")
	}
}
