package worker_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/worker"
)

func testPriorities(r *rig) {
	r.add(
		signalbox.Job{ID: "low-1", Priority: signalbox.PriorityLow}, signalbox.Job{ID: "normal-1"},
		signalbox.Job{ID: "high-1", Priority: signalbox.PriorityHigh}, signalbox.Job{ID: "low-2", Priority: signalbox.PriorityLow},
		signalbox.Job{ID: "high-2", Priority: signalbox.PriorityHigh}, signalbox.Job{ID: "normal-2"},
	)
	if got := r.sequence(6); got != "high-1 high-2 normal-1 normal-2 low-1 low-2" {
		r.Errorf("they ran as %s", got)
	}
}

func testOrder(r *rig) {
	var want []string
	for i := range 30 {
		want = append(want, r.addOne(signalbox.Job{ID: fmt.Sprint("job-", i)}))
	}
	if got := r.sequence(30); got != strings.Join(want, " ") {
		r.Errorf("first in, first out; they ran as %s", got)
	}
}

// sequence works the queue with one slot and returns the IDs in the order in which they ran.
func (r *rig) sequence(n int) string {
	w := r.worker(1)
	ran := make(chan string, n)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		ran <- job.ID
		return nil
	})
	r.start(w)
	ids := make([]string, n)
	for i := range ids {
		ids[i] = get(r.T, ran, "the next job runs")
	}
	r.completed(n)
	return strings.Join(ids, " ")
}

func testDue(r *rig) {
	w := r.worker(100)
	type start struct{ at, due time.Time }
	const n = 50
	starts := make(chan start, n)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		starts <- start{time.Now(), job.ScheduledAt}
		return nil
	})
	r.start(w)
	r.ready()
	lag := redistest.Lag(r.T, r.rdb)
	for i := range n {
		r.addWhen(store.When{After: time.Duration(i*7%n+1) * 10 * time.Millisecond}, signalbox.Job{})
	}
	worst := time.Duration(0)
	for range n {
		s := get(r.T, starts, "the next due job runs")
		late := s.at.Sub(s.due)
		if late < 0 {
			r.Errorf("a job began %v early", -late)
		}
		worst = max(worst, late)
	}
	r.Logf("the latest of %d due jobs began %v late", n, worst)
	if worst-lag() > time.Second {
		r.Errorf("a due job began %v late", worst)
	}
	r.completed(n)
}
