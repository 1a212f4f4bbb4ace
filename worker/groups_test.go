package worker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// entry is a job of a serial group: number N of its group.
type entry struct {
	Group string `json:"group"`
	N     int    `json:"n"`
}

func (entry) Kind() string { return "entry" }

// Two workers run the jobs of serial groups one at a time and in order, retries included.
func TestSerialGroups(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const groups, each = 5, 20
	var mu sync.Mutex
	running, next := make(map[string]int), make(map[string]int)
	handle := func(_ context.Context, job *signalbox.Job, e entry) error {
		mu.Lock()
		defer mu.Unlock()
		running[e.Group]++
		if job.Group != e.Group || !job.Serial {
			t.Errorf("a job of group %s says that it is of %q, serial %v", e.Group, job.Group, job.Serial)
		}
		if running[e.Group] > 1 {
			t.Errorf("%d jobs of group %s run", running[e.Group], e.Group)
		}
		if e.N != next[e.Group] {
			t.Errorf("job %d of group %s runs, want %d", e.N, e.Group, next[e.Group])
		}
		mu.Unlock()
		runtime.Gosched() // others may run now
		mu.Lock()
		running[e.Group]--
		if e.N%7 == 3 && job.Attempt == 1 {
			return errors.New("once more")
		}
		next[e.Group]++
		return nil
	}
	s, err := scheduler.New(r.rdb, scheduler.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for n := range each {
		for g := range groups {
			group := fmt.Sprint("customer-", g)
			if _, err := s.Enqueue(t.Context(), entry{group, n}, scheduler.Queue(r.name()), scheduler.Serial(group)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 2 {
		w := r.worker(4)
		worker.Handle(w, handle, worker.Retry(worker.Constant(time.Millisecond)))
		r.start(w)
	}
	r.until("all have completed", func(c looks.Counts) bool { return c.Total.Completed == groups*each })
}

// A job that waits for its turn costs no calls, and runs as soon as the one before it has ended.
func TestSerialGoesOnAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	wait, open := r.gate()
	began := make(chan int, 2)
	handle := func(_ context.Context, _ *signalbox.Job, e entry) error {
		began <- e.N
		if e.N == 0 {
			<-wait
		}
		return nil
	}
	for range 2 {
		w := r.worker(2)
		worker.Handle(w, handle)
		r.start(w)
	}
	s, err := scheduler.New(r.rdb, scheduler.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 2 {
		if _, err := s.Enqueue(t.Context(), entry{"a", n}, scheduler.Queue(r.name()), scheduler.Serial("a")); err != nil {
			t.Fatal(err)
		}
	}
	if n := get(t, began, "the first job"); n != 0 {
		t.Fatalf("job %d runs first", n)
	}
	open()
	if n := get(t, began, "the next job"); n != 1 {
		t.Fatalf("job %d runs next", n)
	}
}

// Two workers run the jobs of serial groups that yield one at a time, though jobs fail and wait for their retries meanwhile, and some workers' jobs are put
// back.
func TestSerialGroupsThatYield(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const groups, each = 5, 20
	var mu sync.Mutex
	running, order := make(map[string]int), make(map[string][]int)
	handle := func(_ context.Context, job *signalbox.Job, e entry) error {
		mu.Lock()
		running[e.Group]++
		if running[e.Group] > 1 {
			t.Errorf("%d jobs of group %s run", running[e.Group], e.Group)
		}
		mu.Unlock()
		runtime.Gosched() // others may run now
		mu.Lock()
		defer mu.Unlock()
		running[e.Group]--
		if e.N == 0 && len(order[e.Group]) < each-1 { // until the others have run
			return signalbox.Snooze(time.Millisecond)
		}
		if e.N%7 == 3 && job.Attempt == 1 {
			return signalbox.RetryAfter(time.Millisecond, errors.New("once more"))
		}
		order[e.Group] = append(order[e.Group], e.N)
		return nil
	}
	s, err := scheduler.New(r.rdb, scheduler.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for n := range each {
		for g := range groups {
			if _, err := s.Enqueue(t.Context(), entry{fmt.Sprint("g", g), n}, scheduler.Queue(r.name()), scheduler.Serial(fmt.Sprint("g", g)), scheduler.YieldOnRetry()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 2 {
		w := r.worker(10)
		worker.Handle(w, handle)
		r.start(w)
	}
	r.until("all have completed", func(c looks.Counts) bool { return c.Total.Completed == groups*each })
	mu.Lock()
	defer mu.Unlock()
	for g, ns := range order {
		if len(ns) != each || ns[each-1] != 0 {
			t.Errorf("group %s ran %v; want job 0 last: the others don't wait for it", g, ns)
		}
	}
}
