package worker_test

import (
	"context"
	"flag"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/worker"
)

var sharesDuration = flag.Duration("shares.duration", 0, "how long TestSharesUnderLoad runs each scene; 0: it is skipped")

// A crowd has the queues of a worker that share its room, and counts what starts.
type crowd struct {
	t    *testing.T
	rigs []*rig
	cfg  worker.Config

	mu     sync.Mutex
	starts []string // queues, in the order of their starts
}

// newCrowd returns one with the queues of as many configs, on a server.
func newCrowd(t *testing.T, server *redistest.Server, concurrency int, queues ...worker.Queue) *crowd {
	c := &crowd{t: t}
	for i, q := range queues {
		r := newRigOn(t, server.Client())
		c.rigs = append(c.rigs, r)
		if i == 0 {
			c.cfg = r.config(0)
			clear(c.cfg.Queues)
		}
		c.cfg.Queues[r.name()] = q
	}
	c.cfg.Concurrency = concurrency
	return c
}

// worker returns the worker. Its handlers take so long.
func (c *crowd) worker(takes time.Duration) *worker.Worker {
	w := c.rigs[0].workerWith(c.cfg)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		c.mu.Lock()
		c.starts = append(c.starts, job.Queue)
		c.mu.Unlock()
		if takes > 0 {
			<-time.After(takes)
		}
		return nil
	})
	return w
}

// of counts the starts of each queue from one start to another.
func (c *crowd) of(from, to int) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := make([]int, len(c.rigs))
	for i, r := range c.rigs {
		for _, queue := range c.starts[min(from, len(c.starts)):min(to, len(c.starts))] {
			if queue == r.name() {
				n[i]++
			}
		}
	}
	return n
}

func (c *crowd) started() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.starts)
}

// While all queues have jobs, each has its share of the starts. When one has none left, the others have all.
func TestSharesOfQueues(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	for name, s := range map[string]struct {
		concurrency int
		takes       time.Duration
		queues      []worker.Queue
		want        []int // of 2,000 starts
	}{
		"weights":             {10, time.Millisecond, []worker.Queue{{Weight: 6}, {Weight: 3}, {}}, []int{1200, 600, 200}},
		"weights, at once":    {10, 0, []worker.Queue{{Weight: 3}, {}}, []int{1500, 500}},
		"ranks":               {10, time.Millisecond, []worker.Queue{{Rank: 3}, {Rank: 2}, {}}, []int{1900, 50, 50}},
		"ranks, few slots":    {10, time.Millisecond, []worker.Queue{{Rank: 2, Concurrency: 10}, {Concurrency: 10}}, []int{1900, 100}},
		"weights in one rank": {10, time.Millisecond, []worker.Queue{{Rank: 2, Weight: 3}, {Rank: 2}, {}}, []int{1425, 475, 100}},
		"weights, one place":  {1, 0, []worker.Queue{{Weight: 3}, {Weight: 1}, {}, {}}, []int{1000, 333, 333, 333}},
		"ranks, one place":    {1, 0, []worker.Queue{{Rank: 2}, {}, {}}, []int{1900, 50, 50}},
		"ranks, one slot":     {1, 0, []worker.Queue{{Rank: 2, Concurrency: 1}, {Concurrency: 1}}, []int{1900, 100}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCrowd(t, server, s.concurrency, s.queues...)
			const starts = 2000
			for _, r := range c.rigs {
				r.add(make([]signalbox.Job, starts+200)...)
			}
			c.rigs[0].start(c.worker(s.takes))
			redistest.Eventually(t, func() bool { return c.started() >= starts+100 }, "the jobs start")
			got := c.of(100, 100+starts) // the first claims are made while the sessions of some queues are not open yet
			for i, n := range got {
				if spare := s.want[i]/20 + 5; n < s.want[i]-spare || n > s.want[i]+spare {
					t.Errorf("%v of %d starts, want %v", got, starts, s.want)
					break
				}
			}
			for _, r := range c.rigs {
				r.completed(starts + 200)
			}
		})
	}
}

// A queue of the highest rank that is paused holds nobody up. Its jobs run when it is resumed.
func TestSharesOfAPausedQueue(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, redistest.New(t), 2, worker.Queue{Rank: 2}, worker.Queue{})
	high, low := c.rigs[0], c.rigs[1]
	if _, err := high.queue.Settings().Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	const jobs = 500
	high.add(make([]signalbox.Job, jobs)...)
	low.add(make([]signalbox.Job, jobs)...)
	c.rigs[0].start(c.worker(0))
	low.completed(jobs)
	if n := c.of(0, c.started())[0]; n > 0 {
		t.Errorf("%d jobs of the paused queue have started", n)
	}
	low.add(make([]signalbox.Job, jobs)...)
	if _, err := high.queue.Settings().Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	high.completed(jobs)
	low.completed(2 * jobs)
}

// A worker with shares makes no calls while it has nothing to do, and a new job starts at once, also that of the lowest rank.
func TestIdleWorkerWithShares(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	c := newCrowd(t, server, 4, worker.Queue{Rank: 2, Weight: 5}, worker.Queue{})
	proxy := redistest.NewProxy(t, server.Addr())
	w := c.rigs[0].workerOn(proxy.Client(), c.cfg)
	ran := make(chan string, 1)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error { ran <- job.Queue; return nil })
	c.rigs[0].start(w)
	for range 3 {
		for _, r := range slices.Backward(c.rigs) {
			r.addOne(signalbox.Job{})
			if queue := get(t, ran, "the job runs"); queue != r.name() {
				t.Errorf("a job of %s, want %s", queue, r.name())
			}
		}
	}
	for _, r := range c.rigs {
		r.completed(3)
	}
	isCall := func(cmd []string) bool { return strings.HasPrefix(strings.ToUpper(cmd[0]), "EVAL") }
	before := proxy.Count(isCall)
	<-time.After(time.Second)
	if n := proxy.Count(isCall) - before; n > 3 {
		t.Errorf("%d calls in a second without jobs", n)
	}
}

// TestSharesUnderLoad keeps queues full for a while, and reports each one's share of the starts.
func TestSharesUnderLoad(t *testing.T) {
	if *sharesDuration == 0 {
		t.Skip("give -shares.duration=1m")
	}
	server := redistest.New(t)
	for name, s := range map[string]struct {
		takes  time.Duration
		queues []worker.Queue
		want   []float64
	}{
		"weights":           {2 * time.Millisecond, []worker.Queue{{Weight: 6}, {Weight: 3}, {Weight: 1}}, []float64{.6, .3, .1}},
		"weights, no delay": {0, []worker.Queue{{Weight: 6}, {Weight: 3}, {Weight: 1}}, []float64{.6, .3, .1}},
		"ranks":             {2 * time.Millisecond, []worker.Queue{{Rank: 3}, {Rank: 2}, {Rank: 1}}, []float64{.95, .025, .025}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCrowd(t, server, 20, s.queues...)
			run := c.rigs[0].start(c.worker(s.takes))
			put := make([]int, len(c.rigs))
			fill := func() { // no queue runs out of jobs
				for i, n := range c.of(0, c.started()) {
					if put[i]-n < 20_000 {
						c.rigs[i].add(make([]signalbox.Job, 10_000)...)
						put[i] += 10_000
					}
				}
			}
			for range 2 {
				fill()
			}
			begin, from := time.Now(), c.started()
			for time.Since(begin) < *sharesDuration {
				<-time.After(50 * time.Millisecond)
				fill()
			}
			all := c.started()
			run.stop()
			got := c.of(from, all)
			t.Logf("%d starts: %v", all-from, got)
			for i, n := range got {
				if share := float64(n) / float64(all-from); share < s.want[i]*.95 || share > s.want[i]*1.05 {
					t.Errorf("queue %d has %.4f of the starts, want %.4f", i, share, s.want[i])
				}
			}
			for _, n := range c.of(all-1000, all) {
				if n == 0 {
					t.Error("a queue has none of the last 1,000 starts")
				}
			}
		})
	}
}
