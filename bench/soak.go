package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// What a soak keeps: each bound is reached early in a run of ten million jobs.
var soakKeeps = struct{ completed, ended signalbox.Retention }{
	completed: signalbox.Retention{Jobs: 20_000, Bytes: 16 << 20, Age: time.Hour},
	ended:     signalbox.Retention{Jobs: 10_000, Bytes: 16 << 20, Age: time.Hour},
}

const (
	soakAhead   = 20_000 // at most so many jobs are enqueued and not done
	soakBatch   = 1_000  // jobs enqueued in one call
	soakDead    = 500    // one job of so many dies
	soakSlots   = 100
	soakSamples = 400 // rows of the file, about
)

// A sample is one row of a soak.
type sample struct {
	seconds  float64
	done     int64
	redis    float64 // used_memory, in bytes
	heap     float64 // of this process, live and not yet collected, in bytes
	resident float64 // of this process, in bytes
}

// soak puts n jobs through one queue that keeps completed and dead jobs and has statistics, and writes to folder how much memory Redis and
// this process used meanwhile: soak.csv and soak.svg.
func soak(ctx context.Context, srv *server, n int, folder string, progress io.Writer) (err error) {
	rdb := redis.NewClient(&redis.Options{Addr: srv.addr, ContextTimeoutEnabled: true})
	defer rdb.Close()
	s, err := scheduler.New(rdb, scheduler.Config{Logger: silent})
	if err != nil {
		return err
	}
	w, err := worker.New(rdb, worker.Config{Logger: silent, Queues: worker.Queues{signalbox.DefaultQueue: {
		Concurrency: soakSlots, Retention: soakKeeps.ended, CompletedRetention: soakKeeps.completed,
	}}})
	if err != nil {
		return err
	}
	var done atomic.Int64
	room := make(chan struct{}, soakAhead/soakBatch)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
		k := done.Add(1)
		if k%soakBatch == 0 {
			<-room
		}
		if k%soakDead == 0 {
			return signalbox.Dead(errors.New("one of so many"))
		}
		return nil
	})
	ctx, stop := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := w.Run(ctx)
		stop(fmt.Errorf("the worker ended: %w", err))
		ended <- err
	}()
	go func() {
		items := jobs(soakBatch)
		for k := 0; k < n; k += soakBatch {
			select {
			case room <- struct{}{}:
			case <-ctx.Done():
				return
			}
			if err := enqueueMany(ctx, s, items); err != nil {
				stop(err)
				return
			}
		}
	}()
	samples, err := watchSoak(ctx, srv, &done, int64(n), progress)
	stop(nil)
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	return errors.Join(writeSamples(filepath.Join(folder, "soak.csv"), samples), os.WriteFile(filepath.Join(folder, "soak.svg"), plot(samples, n), 0o644))
}

// watchSoak samples until n jobs are done.
func watchSoak(ctx context.Context, srv *server, done *atomic.Int64, n int64, progress io.Writer) (samples []sample, err error) {
	begun, every := time.Now(), max(n/soakSamples, 1)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for next := int64(0); ; {
		k := done.Load()
		if k >= next || k >= n {
			info, err := srv.info(ctx, "memory")
			if err != nil {
				return nil, err
			}
			used, err := strconv.ParseFloat(info["used_memory"], 64)
			if err != nil {
				return nil, err
			}
			resident, err := residentBytes()
			if err != nil {
				return nil, err
			}
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			samples = append(samples, sample{time.Since(begun).Seconds(), k, used, float64(m.HeapAlloc), resident})
			if k*10/n > (next-every)*10/n || k >= n {
				fmt.Fprintf(progress, "%11d jobs after %4.0f s: Redis %5.1f MiB, this process %5.1f MiB\n", k, time.Since(begun).Seconds(), used/(1<<20), resident/(1<<20))
			}
			next = k + every
		}
		if k >= n {
			return samples, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// residentBytes returns how much memory of this process is in RAM.
func residentBytes() (float64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, fmt.Errorf("a soak reads /proc, so it needs Linux: %w", err)
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc/self/statm has %d fields, want 7", len(fields))
	}
	pages, err := strconv.ParseFloat(fields[1], 64)
	return pages * float64(os.Getpagesize()), err
}
