package worker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/worker"
)

// history returns what happened in all periods of the queue's history.
func (r *rig) history(step looks.Step) (all looks.Period) {
	r.Helper()
	h, err := r.queue.Looks().History(context.Background(), step)
	if err != nil {
		r.Fatal(err)
	}
	for _, p := range h.Periods {
		all.Enqueued += p.Enqueued
		all.Completed += p.Completed
		all.Retried += p.Retried
		all.Delayed += p.Delayed
		all.Returned += p.Returned
		all.Dead += p.Dead
		all.Cancelled += p.Cancelled
		all.Crashed += p.Crashed
		all.Wait.Merge(&p.Wait)
		all.Run.Merge(&p.Run)
	}
	return all
}

// begins begins the queue's history, so that all that follows is in it.
func (r *rig) begins() {
	r.Helper()
	session := store.NewID()
	if alive, _, err := r.queue.Sessions().Open(context.Background(), session, time.Hour); err != nil || !alive {
		r.Fatal(alive, err)
	}
	if _, err := r.queue.Sessions().Close(context.Background(), session, false); err != nil {
		r.Fatal(err)
	}
}

func count(h facts.Histogram) (n int64) {
	for _, k := range h {
		n += k
	}
	return n
}

// above returns how many of the durations are longer than d, which is the bound of a bucket.
func above(h facts.Histogram, d time.Duration) (n int64) {
	for i, k := range h {
		if facts.HistogramBound(i) > d {
			n += k
		}
	}
	return n
}

// When a worker has stopped, Redis has the times of all its deliveries: how long the jobs waited, and how long their handlers ran. A
// delivery that no handler gets has waited and has not run.
func TestTimesOfDeliveries(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.begins()
	const n, most = 40, 32 * time.Millisecond
	r.add(make([]signalbox.Job, n)...)
	r.addOne(signalbox.Job{Kind: "unknown"})
	enqueued := r.rdb.Time(context.Background()).Val()
	redistest.Eventually(t, func() bool { return r.rdb.Time(context.Background()).Val().Sub(enqueued) > most }, "the jobs have waited")
	w := r.worker(8)
	var calls atomic.Int64
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
		if call := calls.Add(1); call <= 4 {
			return signalbox.Snooze(0)
		} else if call <= 8 {
			return errBoom
		}
		<-time.After(most) // what is measured
		return nil
	}, worker.Retry(func(int, error) time.Duration { return 0 }))
	run := r.start(w)
	r.until("all are done", func(c looks.Counts) bool {
		return c.Total.Completed == n && c.Ready+c.Running == 0 && c.Total.Delayed > 4
	})
	run.stop()
	for name, step := range map[string]looks.Step{"minute": looks.Minutes, "hour": looks.Hours} {
		all, c := r.history(step), r.counts()
		if all.Totals != c.Total || all.Retried != 4 {
			t.Errorf("by the %s: %+v, and in all %+v", name, all.Totals, c.Total)
		}
		if got := count(all.Run); got != calls.Load() || got != n+8 {
			t.Errorf("by the %s: %d handlers ran, and %d times are known", name, calls.Load(), got)
		}
		if got, want := count(all.Wait), c.Total.Completed+c.Total.Retried+c.Total.Delayed; got != want {
			t.Errorf("by the %s: %d deliveries, and of %d is known how long they waited", name, want, got)
		}
		if got := above(all.Run, most); got < n || got > n+8 {
			t.Errorf("by the %s: %d handlers ran for longer than %v, want %d", name, got, most, n)
		}
		if got := above(all.Wait, most); got < n+1 {
			t.Errorf("by the %s: %d jobs waited for longer than %v, want %d or more", name, got, most, n+1)
		}
	}
}

// Renewals take the times along. One that is made again, since its reply was lost, adds them once. The client repeats a call three times,
// and then the worker does.
func TestTimesGoWithRenewals(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.begins()
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	w := r.workerOn(proxy.Client(), r.short(4))
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	run := r.start(w)
	const lost = 6
	for n := 10; n <= 20; n += 10 {
		r.add(make([]signalbox.Job, 10)...)
		r.completed(n)
		before := proxy.Count(r.isRenew())
		for range lost {
			proxy.CutReply(r.isRenew(), 1)
		}
		redistest.Eventually(t, func() bool {
			return proxy.Count(r.isRenew()) > before+lost && count(r.history(looks.Minutes).Run) >= int64(n)
		}, "the session is renewed, and the worker hears of it")
	}
	run.stop()
	if all := r.history(looks.Minutes); count(all.Run) != 20 || count(all.Wait) != 20 || all.Completed != 20 {
		t.Errorf("%+v", all)
	}
}

// The reply of the last renewal is lost, and more jobs run before the worker stops: both batches are added, each once.
func TestTimesAfterALostReply(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.begins()
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	w := r.workerOn(proxy.Client(), r.short(4))
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	run := r.start(w)
	r.add(make([]signalbox.Job, 10)...)
	r.completed(10)
	held, _ := proxy.HoldReplies(r.isRenew())
	get(t, held, "the session is renewed") // its reply never comes
	r.add(make([]signalbox.Job, 10)...)
	r.completed(20)
	run.stop()
	if all := r.history(looks.Minutes); count(all.Run) != 20 || count(all.Wait) != 20 || all.Completed != 20 {
		t.Errorf("%+v", all)
	}
}

// The reply to the last call of a worker is lost, and the client makes the call again: its times are added once.
func TestTimesAfterALostClose(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.begins()
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	w := r.workerOn(proxy.Client(), r.patient(4))
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	run := r.start(w)
	r.add(make([]signalbox.Job, 10)...)
	r.completed(10)
	cut := proxy.CutReply(r.isClose(), 1)
	run.stop()
	get(t, cut, "the session is closed")
	if all := r.history(looks.Minutes); count(all.Run) != 10 || count(all.Wait) != 10 {
		t.Errorf("%+v", all)
	}
}

// BenchmarkTimes is what the times of a delivery cost: two counts and a look at the clock.
func BenchmarkTimes(b *testing.B) {
	b.ReportAllocs()
	var wait, run facts.Histogram
	started, now := time.Now(), time.Now()
	for range b.N {
		wait.Add(now.Sub(started))
		run.Add(time.Since(started))
	}
}
