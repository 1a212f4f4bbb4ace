package scheduler

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// A callSpy records how large the calls of scripts are.
type callSpy struct {
	mu          sync.Mutex
	bytes, args []int
}

func (c *callSpy) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *callSpy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (c *callSpy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			bytes := 0
			for _, arg := range cmd.Args() {
				if envelope, ok := arg.([]byte); ok {
					bytes += len(envelope)
				}
			}
			c.mu.Lock()
			c.bytes, c.args = append(c.bytes, bytes), append(c.args, len(cmd.Args()))
			c.mu.Unlock()
		}
		return next(ctx, cmd)
	}
}

// Waiting jobs are combined into calls of at most 1 MiB and 950 jobs. Larger scripts would block other
// clients.
func TestCallsAreBounded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		requests, jobs, size int
		calls                int // at least
	}{
		"large jobs":     {10, 1, 500 << 10, 5},
		"many in chunks": {8, 500, 10, 8}, // a call can't hold two of them
		"larger than it": {2, 1, 1<<20 - 100, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, q, p := proxied(t, nil)
			spy := &callSpy{}
			s.rdb.AddHook(spy)
			p.Pause()
			var all sync.WaitGroup
			c := s.lanes(q.Name())
			for range tc.requests {
				items := many(tc.jobs)
				for i := range items {
					items[i].Args = unencodableArgs{strings.Repeat("x", tc.size)}
				}
				all.Go(func() {
					if _, err := s.EnqueueMany(context.Background(), items, Queue(q.Name())); err != nil {
						t.Error(err)
					}
				})
			}
			redistest.Eventually(t, func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				n := int(c.waiting.Load())
				for _, l := range c.lanes {
					if l.busy {
						for _, r := range l.requests {
							n += len(r.items)
						}
					}
				}
				return n == tc.requests*tc.jobs
			}, "all are in the line or in a call")
			p.Resume()
			all.Wait()
			spy.mu.Lock()
			defer spy.mu.Unlock()
			if len(spy.bytes) < tc.calls {
				t.Errorf("%d calls, want %d or more", len(spy.bytes), tc.calls)
			}
			for i, n := range spy.bytes {
				if n > maxCallBytes+100 || spy.args[i] > 3900 {
					t.Errorf("a call of %d bytes and %d arguments", n, spy.args[i])
				}
			}
			if n := len(claimAll(t, q)); n != tc.requests*tc.jobs {
				t.Errorf("%d jobs", n)
			}
		})
	}
	t.Run("one EnqueueMany", func(t *testing.T) {
		t.Parallel()
		_, q := setup(t)
		rdb := redistest.Start(t).Client()
		spy := &callSpy{}
		rdb.AddHook(spy)
		s := newScheduler(t, rdb)
		items := many(3000)
		for i := range 50 {
			items[i].Args = unencodableArgs{strings.Repeat("x", 100<<10)}
		}
		if _, err := s.EnqueueMany(context.Background(), items, Queue(q.Name())); err != nil {
			t.Fatal(err)
		}
		for i, n := range spy.args {
			if n > 3900 || spy.bytes[i] > maxCallBytes+100 {
				t.Errorf("a call of %d bytes and %d arguments", spy.bytes[i], n)
			}
		}
		if n := len(claimAll(t, q)); n != 3000 {
			t.Errorf("%d jobs", n)
		}
	})
}

// Jobs with groups or unique keys take Redis longer, so a call has at most 160 of them.
func TestCallsOfSpecialJobsAreBounded(t *testing.T) {
	t.Parallel()
	_, q := setup(t)
	rdb := redistest.Start(t).Client()
	spy := &callSpy{}
	rdb.AddHook(spy)
	s := newScheduler(t, rdb)
	items := many(1200)
	if _, err := s.EnqueueMany(context.Background(), items, Queue(q.Name()), Group("g")); err != nil {
		t.Fatal(err)
	}
	for _, r := range s.EnqueueSeq(context.Background(), slices.Values(items), Queue(q.Name()), Serial("s")) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	for i := range items {
		items[i].Options = []EnqueueOption{Unique(strconv.Itoa(i), UntilEnded)}
	}
	if _, err := s.EnqueueMany(context.Background(), items, Queue(q.Name())); err != nil {
		t.Fatal(err)
	}
	for _, n := range spy.args {
		if jobs := (n - 20) / 4; jobs > 206 {
			t.Errorf("a call of some %d jobs", jobs)
		}
	}
}

// TestTicksOfALargeEntry: if Cron accepts an entry, its ticks can be enqueued. The effect key that each
// tick gets counts as part of the size.
func TestTicksOfALargeEntry(t *testing.T) {
	t.Parallel()
	s := newScheduler(t, redistest.Start(t).Client())
	name, queue := strings.Repeat("n", layout.MaxName), strings.Repeat("q", layout.MaxName)
	l := newLoop(s, queue, newFakeServer(), newOutage(s))
	taken, refused := 0, 0
	for size := wire.MaxEnvelope - 1000; size <= wire.MaxEnvelope; size += 20 {
		e, err := s.newEntry(name, "@every 1s", text(strings.Repeat("x", size)), []CronOption{Queue(queue)})
		if err != nil {
			refused++
			continue
		}
		taken++
		if !l.prepare(context.Background(), &ticking{entry: e, next: time.Now()}) {
			t.Errorf("an entry with a payload of %d bytes is taken, and its tick is not", size)
		}
	}
	if taken == 0 || refused == 0 {
		t.Errorf("%d entries were taken, %d refused", taken, refused)
	}
}

// text is a payload of any size.
type text string

func (text) Kind() string { return "text" }
