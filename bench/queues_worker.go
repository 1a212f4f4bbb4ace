package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/worker"
)

// queuesEnv makes this program the worker of many queues. It has the topology, the addresses of the servers, and the number of
// timed jobs.
const queuesEnv = "SIGNALBOX_BENCH_QUEUES"

// queuesTTL is the TTL of the worker's sessions, so short that each is renewed several times in a run.
const queuesTTL = 6 * time.Second

// workQueues is what such a process does. It is ready when a job of each queue is held, and reports when all timed
// jobs have run.
func workQueues(ctx context.Context, task string, out io.Writer) (err error) {
	var topology, addrs string
	var n int
	if _, err := fmt.Sscan(task, &topology, &addrs, &n); err != nil {
		return fmt.Errorf("%s: %w", queuesEnv, err)
	}
	dial, ok := topologies[topology]
	if !ok {
		return fmt.Errorf("%s: there is no topology %q", queuesEnv, topology)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rdb := dial(strings.Split(addrs, ","))
	defer func() { err = errors.Join(err, rdb.Close()) }()

	o := &observer{release: make(chan struct{})}
	cfg := worker.Config{Queues: worker.Queues{}, SessionTTL: queuesTTL, Logger: slog.New(o)}
	for i := range manyQueues {
		cfg.Queues[queueName(i)] = worker.Queue{}
	}
	w, err := worker.New(rdb, cfg)
	if err != nil {
		return err
	}
	held, ran := newTally(manyQueues), newTally(n)
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ hold) error {
		held.ran()
		return o.hold(ctx)
	})
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, in timed) error {
		o.started(ctx, time.Since(in.At))
		ran.ran()
		return nil
	})
	running, end := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := w.Run(running)
		end(fmt.Errorf("the worker ended: %w", err))
		ended <- err
	}()
	_, err = held.wait(running)
	if err == nil {
		err = json.NewEncoder(out).Encode(true)
	}
	if err == nil {
		_, err = ran.wait(running)
	}
	report := o.report()
	report.Timeouts = rdb.PoolStats().Timeouts
	close(o.release)
	end(nil)
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(report)
}

// An observer sees how handlers fare, and what their worker says. It is the handler of the worker's logger.
type observer struct {
	release chan struct{} // is closed when the held jobs may end

	mu   sync.Mutex
	seen queuesReport
}

// hold returns when it may, or when its context has ended.
func (o *observer) hold(ctx context.Context) error {
	select {
	case <-o.release:
		return nil
	case <-ctx.Done():
		o.mu.Lock()
		defer o.mu.Unlock()
		o.seen.Ended++
		return context.Cause(ctx)
	}
}

// started notes the start of a handler.
func (o *observer) started(ctx context.Context, after time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen.Starts = append(o.seen.Starts, float64(after)/float64(time.Millisecond))
	if ctx.Err() != nil {
		o.seen.Ended++
	}
}

func (o *observer) report() queuesReport {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen
}

// poolWarning is in what a worker says at its start of a pool that is small for its queues. The default one is.
const poolWarning = "pool is smaller"

// Handle keeps warnings, and whatever has an error in it.
func (o *observer) Handle(_ context.Context, r slog.Record) error {
	text, failed := r.Message, false
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "error" {
			failed, text = true, text+": "+a.Value.String()
		}
		return true
	})
	if (r.Level >= slog.LevelWarn || failed) && !strings.Contains(text, poolWarning) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.seen.Said = append(o.seen.Said, text)
	}
	return nil
}

func (*observer) Enabled(context.Context, slog.Level) bool { return true }
func (o *observer) WithAttrs([]slog.Attr) slog.Handler     { return o }
func (o *observer) WithGroup(string) slog.Handler          { return o }
