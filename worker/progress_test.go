package worker_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/worker"
)

// The last report of a job is shown within a second, and goes with its delivery. A job that ends, and one that reports nothing, has none.
func TestProgressIsShown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := r.config(3)
	cfg.SessionTTL = time.Hour // no renewal helps
	w := r.workerWith(cfg)
	release, open := r.gate()
	more := make(chan struct{})
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, in task) error {
		switch in.N {
		case 0:
			signalbox.Progress(ctx, 1, 10, "first")
			signalbox.Progress(context.WithoutCancel(ctx), int64(2), int64(10), strings.Repeat("a", signalbox.MaxProgressNote-1)+"\u00e9")
			<-more
			signalbox.Progress(ctx, -3, -4, "\xff")
		case 1:
			signalbox.Progress(ctx, 5, 0, "")
			<-more
			return nil
		}
		<-release
		return nil
	})
	signalbox.Progress(t.Context(), 1, 1, "of no delivery")
	r.start(w)
	begin := r.rdb.Time(context.Background()).Val().Add(-5 * time.Millisecond)
	ids := r.add(make([]signalbox.Job, 3)...)
	var p, other *inspect.Progress
	redistest.Eventually(t, func() bool {
		all := r.running()
		p, other = all[ids[0]].Progress, all[ids[1]].Progress
		return p != nil && other != nil
	}, "two jobs have progress")
	if p.Done != 2 || p.Total != 10 || p.Note != strings.Repeat("a", signalbox.MaxProgressNote-1) || p.At.Before(begin) || p.At.After(r.rdb.Time(context.Background()).Val().Add(5*time.Millisecond)) {
		t.Errorf("%+v", p)
	}
	if other.Done != 5 || other.Total != 0 || other.Note != "" {
		t.Errorf("%+v", other)
	}
	if p := r.running()[ids[2]].Progress; p != nil {
		t.Errorf("a job that says nothing has %+v", p)
	}
	close(more)
	redistest.Eventually(t, func() bool {
		job, err := r.inspector().Job(context.Background(), r.name(), ids[0])
		return err == nil && job.Progress != nil && job.Progress.Done == 0 && job.Progress.Total == 0 && job.Progress.Note == "?"
	}, "the next report is shown")
	kept, err := r.queue.Looks().Leases(context.Background())
	if err != nil || len(kept) != 1 {
		t.Fatal(kept, err)
	}
	if all, err := r.queue.Sessions().Progress(context.Background(), kept[0].Session); err != nil || len(all) != 1 {
		t.Errorf("Redis has %+v, %v: only one job that has reported still runs", all, err)
	}
	open()
	r.completed(3)
}

// A thousand running jobs that report a thousand times a second each cost Redis one write a second.
func TestProgressIsOneWriteASecond(t *testing.T) {
	t.Parallel()
	const jobs, writes = 1000, 4
	s := redistest.New(t)
	rdb := s.Client()
	if err := rdb.ConfigSet(t.Context(), "notify-keyspace-events", "K$gx").Err(); err != nil {
		t.Fatal(err)
	}
	r := newRigOn(t, rdb)
	written := rdb.PSubscribe(t.Context(), "__keyspace@*__:"+strings.ReplaceAll(r.key("progress"), "{", "?")+"*")
	t.Cleanup(func() { _ = written.Close() })
	if _, err := written.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	events := written.Channel()
	w := r.workerWith(r.config(jobs))
	release, open := r.gate()
	var reports atomic.Int64
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, in task) error {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for at := 0; ; {
			select {
			case <-release:
				return nil
			case <-tick.C:
			}
			for range 50 {
				at++
				signalbox.Progress(ctx, at, 1_000_000, "rows")
			}
			reports.Add(50)
		}
	})
	r.start(w)
	began := time.Now()
	r.add(make([]signalbox.Job, jobs)...)
	r.until("all run", func(c looks.Counts) bool { return c.Running == jobs })
	set := func() {
		t.Helper()
		for {
			select {
			case m := <-events:
				if m.Payload == "set" {
					return
				}
			case <-time.After(patience):
				t.Fatal("no progress is written")
			}
		}
	}
	for range writes {
		set()
	}
	took, made := time.Since(began), reports.Load()
	if took < writes*time.Second {
		t.Errorf("%d reports were written %d times in %v: more than once a second", made, writes, took)
	}
	leases, err := r.queue.Looks().Leases(context.Background())
	if err != nil || len(leases) != 1 {
		t.Fatal(leases, err)
	}
	if all, err := r.queue.Sessions().Progress(context.Background(), leases[0].Session); err != nil || len(all) != jobs {
		t.Errorf("Redis has the progress of %d jobs, %v", len(all), err)
	}
	t.Logf("%d reports in %v, %d writes", made, took, writes)
	open()
	r.completed(jobs)
}

// Progress of a job that has said something once lasts as long as the job runs, and not longer than its session.
func TestProgressLasts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.workerWith(r.short(1))
	release, open := r.gate()
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		signalbox.Progress(ctx, 1, 2, "halves")
		<-release
		return nil
	})
	run := r.start(w)
	id := r.addOne(signalbox.Job{})
	shown := func() bool { return r.running()[id].Progress != nil }
	redistest.Eventually(t, shown, "it is shown")
	leases, err := r.queue.Looks().Leases(context.Background())
	if err != nil || len(leases) != 1 {
		t.Fatal(leases, err)
	}
	left := func() time.Duration {
		return r.rdb.PTTL(context.Background(), r.key("progress")+":"+leases[0].Session).Val()
	}
	last := left()
	if last <= 0 || last > shortTTL {
		t.Errorf("it expires in %v", last)
	}
	redistest.Eventually(t, func() bool {
		now := left()
		longer := now > last
		last = now
		return longer
	}, "it is prolonged")
	if !shown() {
		t.Error("it is shown no longer, and the job runs")
	}
	open()
	r.completed(1)
	run.stop()
	keys, err := r.rdb.Keys(context.Background(), r.key("progress")+"*").Result()
	if err != nil || len(keys) > 0 {
		t.Errorf("the worker has ended, and left %v, %v", keys, err)
	}
}
