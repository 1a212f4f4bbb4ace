package store

import (
	"fmt"
	"sync"
	"testing"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

// BenchmarkClaimSettle is the ceiling of a worker: two lanes that settle what they claimed before
// and claim anew, with no handlers. An operation is a job; jobs have 100 bytes of payload.
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
		reply, err := r.Claim(bg, lane, req)
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

// BenchmarkEnqueue puts jobs in through two lanes. An operation is a job.
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

func perSecond(b *testing.B) {
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}
