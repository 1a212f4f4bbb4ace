package store

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

// BenchmarkClaimSettle measures the limit of a worker without handlers: two lanes settle what they claimed before, and claim again. An
// operation is one job. Jobs have 100 bytes of payload.
func BenchmarkClaimSettle(b *testing.B) {
	for _, batch := range []int{10, 50, 100} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			r := newQueue(b, redistest.Start(b).Client())
			r.open()
			r.fill(b.N)
			b.ResetTimer()
			var lanes sync.WaitGroup
			for range 2 {
				lanes.Go(func() { claimAll(b, r, batch) })
			}
			lanes.Wait()
			b.StopTimer()
			perSecond(b)
			same(b, "completed", r.counts().Total.Completed, int64(b.N))
		})
	}
}

func claimAll(b *testing.B, r *rig, batch int) {
	lane := r.NewLane()
	req := &ClaimRequest{Session: r.session, Want: batch}
	for {
		lane.Next()
		reply, err := r.Sessions().Claim(bg, lane, req)
		if err != nil || !reply.Alive || len(reply.Refused) > 0 {
			b.Errorf("%+v, %v", reply, err)
			return
		}
		req.Settle = req.Settle[:0]
		for _, d := range reply.Deliveries {
			req.Settle = append(req.Settle, Settlement{ID: d.Job.ID, Token: d.Job.Token, Outcome: Completed})
		}
		if len(req.Settle) == 0 {
			return
		}
	}
}

// BenchmarkEnqueue enqueues jobs through two lanes. An operation is one job.
func BenchmarkEnqueue(b *testing.B) {
	for _, batch := range []int{1, 50, 1000} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			r := newQueue(b, redistest.Start(b).Client())
			b.ResetTimer()
			var lanes sync.WaitGroup
			for i := range 2 {
				lanes.Go(func() { putAll(b, r, batch, (b.N+i)/2) })
			}
			lanes.Wait()
			b.StopTimer()
			perSecond(b)
			same(b, "ready", r.counts().Ready, int64(b.N))
		})
	}
}

// fill enqueues n jobs.
func (r *rig) fill(n int) {
	r.t.Helper()
	putAll(r.t, r, MaxBatch, n)
}

func putAll(t testing.TB, r *rig, batch, n int) {
	lane := r.NewLane()
	payload := make([]byte, 100)
	items := make([]Item, 0, batch)
	for n > 0 {
		items = items[:0]
		for range min(batch, n) {
			item, err := NewItem(&signalbox.Job{ID: NewID(), Kind: "bench", Payload: payload}, When{})
			if err != nil {
				t.Error(err)
				return
			}
			items = append(items, item)
		}
		lane.Next()
		if _, err := r.Enqueue(bg, lane, items); err != nil {
			t.Error(err)
			return
		}
		n -= len(items)
	}
}

// BenchmarkLargeJobs claims jobs of 1 MB for 1,000 slots, like a lane of a worker. When all slots are taken, all end at once. The calls
// that claim the next jobs settle the ended ones. An operation is one job. It reports how long the longest script blocked Redis. With
// fewer than 2,000 operations the slots are filled at most once.
func BenchmarkLargeJobs(b *testing.B) {
	const slots = 1000
	r := newQueue(b, redistest.New(b).Client())
	r.must(r.rdb.ConfigSet(bg, "slowlog-log-slower-than", "0").Err())
	r.must(r.rdb.ConfigSet(bg, "slowlog-max-len", "100000").Err())
	r.open()
	job := signalbox.Job{Kind: "bench", Payload: make([]byte, 1_000_000)}
	for range b.N {
		job.ID = NewID()
		item, err := NewItem(&job, When{})
		r.must(err)
		r.enqueued(item)
	}
	b.ResetTimer()
	var running, ended []Settlement
	for left := b.N; left+len(running)+len(ended) > 0; {
		if len(running) == slots || left == 0 && len(ended) == 0 {
			running, ended = nil, running
		}
		req := &ClaimRequest{Session: r.session, Settle: ended[:Fit(ended)], Want: min(slots-len(running)-len(ended), MaxBatch)}
		r.lane.Next()
		reply, err := r.Sessions().Claim(bg, r.lane, req)
		r.must(err)
		same(b, "refused", len(reply.Refused), 0)
		ended, left = ended[len(req.Settle):], left-len(reply.Deliveries)
		for _, d := range reply.Deliveries {
			s := settlement(d, Completed)
			s.Size = d.Size()
			running = append(running, s)
		}
	}
	b.StopTimer()
	same(b, "completed", r.counts().Total.Completed, int64(b.N))
	perSecond(b)
	longestScript(b, r)
}

// BenchmarkReclaim takes back 50,000 jobs of a dead session. An operation is all of them.
func BenchmarkReclaim(b *testing.B) {
	const jobs = 50_000
	r := newQueue(b, redistest.New(b).Client())
	r.must(r.rdb.ConfigSet(bg, "slowlog-log-slower-than", "1000").Err())
	r.open()
	for range b.N {
		b.StopTimer()
		r.must(r.rdb.FlushDB(bg).Err())
		r.lane, r.session = r.NewLane(), NewID()
		r.open()
		r.fill(jobs)
		for n := 0; n < jobs; n += len(r.claim(MaxBatch)) {
			continue
		}
		r.expire()
		r.must(r.rdb.SlowLogReset(bg).Err())
		b.StartTimer()
		recovery := r.Sessions().Reclaim(r.session, false)
		for done := false; !done; {
			res, err := recovery.Next(bg)
			r.must(err)
			done = res.Done
		}
		same(b, "ready", r.counts().Ready, jobs)
	}
	longestScript(b, r)
}

// longestScript returns how long the longest script blocked Redis, and the 99th percentile of these times, from the slow log. Redis counts
// the time that other processes have the processor as well. So on a busy machine only the percentile is meaningful.
func longestScript(b *testing.B, r *rig) {
	b.Helper()
	slow, err := r.rdb.SlowLogGet(bg, -1).Result()
	r.must(err)
	var took []time.Duration
	for _, s := range slow {
		if len(s.Args) > 0 && strings.HasPrefix(strings.ToUpper(s.Args[0]), "EVAL") {
			took = append(took, s.Duration)
		}
	}
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "ms/longest-script")
	b.ReportMetric(float64(took[(len(took)*99+99)/100-1].Microseconds())/1000, "ms/p99-script")
}

func perSecond(b *testing.B) {
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}
