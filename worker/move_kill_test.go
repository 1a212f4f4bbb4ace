package worker_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/looks"
)

// Processes work two queues, and one after the other is killed. Meanwhile jobs are moved from each queue to the other, and many moves end
// halfway. When all moves have been ended, each job has completed once, in one of the queues.
func TestMovesUnderLoad(t *testing.T) {
	t.Parallel()
	const slots = 10
	queues := []*rig{newRig(t), newRig(t)}
	ins := queues[0].inspector()
	start := func(i int) *child { return queues[i%2].child(slots, 2*time.Second) }
	children := make([]*child, 3)
	for i := range children {
		children[i] = start(i)
	}
	var mu sync.Mutex
	var ids []string
	more := func() { // jobs wait in both queues, however long it takes to move some
		for _, q := range queues {
			if q.counts().Ready < 50 {
				some := q.orders(100, order{Do: "sleep", MS: 200})
				mu.Lock()
				ids = append(ids, some...)
				mu.Unlock()
			}
		}
	}
	some := func() string { // one of the last ones
		mu.Lock()
		defer mu.Unlock()
		return ids[len(ids)-1-rand.N(min(len(ids), 200))]
	}
	more()
	move := func(ctx context.Context, id string, from int) (moved, late bool) { // late: Redis didn't answer in time, so it isn't known
		to := inspect.Move{To: queues[1-from].name()}
		_, err := ins.Do(ctx, queues[from].name(), id, to)
		if late = errors.Is(err, os.ErrDeadlineExceeded); err != nil && !late && ctx.Err() == nil && !errors.Is(err, inspect.ErrState) && !errors.Is(err, inspect.ErrNoJob) && !errors.Is(err, inspect.ErrTaken) {
			t.Errorf("%s: %v", id, err)
		}
		return err == nil, late
	}
	for _, c := range children {
		get(t, c.lines, "a job runs")
	}
	var movers sync.WaitGroup
	moved, killed := 0, make(chan struct{})
	for range 3 {
		movers.Go(func() {
			for {
				select {
				case <-killed:
					return
				default:
				}
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if rand.N(2) == 0 {
					ctx, cancel = context.WithTimeout(ctx, rand.N(10*time.Millisecond))
				}
				if is, _ := move(ctx, some(), rand.N(2)); is {
					mu.Lock()
					moved++
					mu.Unlock()
				}
				cancel()
			}
		})
	}
	for i := range children {
		redistest.Eventually(t, func() bool {
			more()
			mu.Lock()
			defer mu.Unlock()
			return moved >= 10*(i+1)
		}, "jobs are moved")
		children[i].kill()
		children[i] = start(i)
	}
	close(killed)
	movers.Wait()
	for from := range queues {
		for _, id := range ids {
			for late := true; late; { // ends what was left halfway
				_, late = move(t.Context(), id, from)
			}
		}
	}
	done := make([]looks.Counts, len(queues))
	for i, q := range queues {
		q.until("all jobs have ended", func(c looks.Counts) bool { done[i] = c; return c.Ready+c.Due+c.Running == 0 })
	}
	if sum := done[0].Total.Completed + done[1].Total.Completed; sum != int64(len(ids)) {
		t.Errorf("%d jobs have completed, want %d: %+v", sum, len(ids), done)
	}
	for i, q := range queues {
		if left := q.rdb.HLen(t.Context(), q.key("jobs")).Val(); left != 0 {
			t.Errorf("%d jobs are left in queue %d", left, i)
		}
	}
	t.Logf("%d moves: %+v", moved, done)
	if done[0].Total.Deleted == 0 || done[1].Total.Deleted == 0 {
		t.Error("jobs were moved in one direction only")
	}
}
