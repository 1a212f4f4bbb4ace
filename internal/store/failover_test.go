package store

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// During a failover calls fail. After it, producers and workers repeat the same calls and everything continues without help. If a
// master is killed, what it answered and did not replicate is lost. What remains is consistent, and nothing is stuck.
func TestFailover(t *testing.T) {
	t.Parallel()
	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		s := redistest.Sentinel(t)
		r := newQueue(t, s.Client())
		lost := r.failover(func() { s.Failover(t) })
		t.Logf("%d jobs lost", lost)
	})
	t.Run("SentinelKill", func(t *testing.T) {
		t.Parallel()
		s := redistest.Sentinel(t)
		r := newQueue(t, s.Client())
		lost := r.failover(func() { s.KillMaster(t) })
		t.Logf("%d jobs lost", lost)
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		c := redistest.ClusterWithReplicas(t)
		r := newQueue(t, c.Client())
		// In an orderly failover nothing that was answered is lost.
		same(t, "jobs lost", r.failover(func() { c.Failover(t, r.keys.Jobs) }), 0)
	})
	t.Run("ClusterKill", func(t *testing.T) {
		t.Parallel()
		c := redistest.ClusterWithReplicas(t)
		r := newQueue(t, c.Client())
		lost := r.failover(func() { c.KillMaster(t, r.keys.Jobs) })
		t.Logf("%d jobs lost", lost)
	})
}

// failover runs producers and workers, and calls do in the middle of the run. It returns how many jobs were enqueued with an answer
// but never done.
func (r *rig) failover(do func()) (lost int) {
	r.t.Helper()
	f := &failoverRun{rig: r, done: make(map[string]int64)}
	var producers, workers sync.WaitGroup
	for range 2 {
		producers.Go(f.produce)
		workers.Go(f.work)
	}
	redistest.Eventually(r.t, func() bool { return f.completed() > 200 }, "it runs")
	do()
	before := f.completed()
	redistest.Eventually(r.t, func() bool { return f.completed() > before+200 }, "it runs on")
	f.enough.Store(true)
	producers.Wait()
	redistest.Eventually(r.t, func() bool {
		c, err := r.Looks().Counts(bg)
		return err == nil && c.Ready+c.Due+c.Running == 0
	}, "nothing is left to do")
	f.over.Store(true)
	workers.Wait()
	for _, id := range f.enqueued {
		if f.done[id] == 0 {
			lost++
		}
	}
	return lost
}

// A failoverRun is the state that producers and workers share.
type failoverRun struct {
	*rig
	enough, over atomic.Bool

	mu       sync.Mutex
	enqueued []string
	done     map[string]int64 // id -> token of the last delivery
}

func (f *failoverRun) completed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.done)
}

// insist repeats a call until it succeeds.
func (f *failoverRun) insist(call func() error) {
	for end := time.Now().Add(30 * time.Second); ; {
		err := call()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			f.t.Errorf("still fails: %v", err)
			f.enough.Store(true)
			f.over.Store(true)
			return
		}
		<-time.After(20 * time.Millisecond)
	}
}

func (f *failoverRun) produce() {
	lane := f.NewLane()
	for !f.enough.Load() {
		names := make([]string, 5)
		items := make([]Item, len(names))
		for i := range items {
			names[i] = NewID()
			items[i] = f.item(names[i], When{}, 0)
		}
		lane.Next()
		f.insist(func() error {
			_, err := f.Enqueue(bg, lane, items)
			return err
		})
		f.mu.Lock()
		f.enqueued = append(f.enqueued, names...)
		f.mu.Unlock()
		<-time.After(time.Millisecond) // leaves the workers some processor time
	}
}

func (f *failoverRun) work() {
	session, lane := "", f.NewLane()
	var settle []Settlement
	for !f.over.Load() {
		if session == "" {
			session, settle = NewID(), nil
			f.insist(func() error {
				_, _, err := f.Sessions().Open(bg, session, 3*time.Second)
				return err
			})
		}
		var reply *ClaimReply
		lane.Next()
		f.insist(func() (err error) {
			reply, err = f.Sessions().Claim(bg, lane, &ClaimRequest{Session: session, Settle: settle, Want: 10, Suspects: true})
			return err
		})
		if reply == nil {
			return
		}
		settle = settle[:0]
		f.mu.Lock()
		for _, d := range reply.Deliveries {
			if last := f.done[d.Job.ID]; d.Job.Token <= last {
				f.t.Errorf("job %s: token %d after %d", d.Job.ID, d.Job.Token, last)
			}
			f.done[d.Job.ID] = d.Job.Token
			settle = append(settle, settlement(d, Completed))
		}
		f.mu.Unlock()
		if !reply.Alive {
			session = ""
			continue
		}
		for _, other := range reply.Expired {
			_, _ = f.Sessions().Reclaim(other, false).Next(bg) // the next hint reports it again
		}
		if len(settle) == 0 {
			_, _, _ = f.Sessions().Renew(bg, session, 3*time.Second, "")
			<-time.After(5 * time.Millisecond)
		} else if _, _, err := f.Sessions().Renew(bg, session, 3*time.Second, ""); err != nil {
			continue // the next call will do it
		}
	}
	f.insist(func() error { _, err := f.Sessions().Close(bg, session, false, lane); return err })
}
