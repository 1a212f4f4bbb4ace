package scheduler

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

var cronEntries = flag.Int("cron.entries", 2000, "how many entries of TestCrowdOnRedis are due at the same second")

// crowd registers n entries that are all due in the same second.
func crowd(t testing.TB, s *Scheduler, n int, due time.Time, queue string) {
	t.Helper()
	spec := fmt.Sprintf("%d %d %d * * *", due.Second(), due.Minute(), due.Hour())
	for i := range n {
		if err := s.Cron(fmt.Sprint("e", i), spec, note{i}, Queue(queue)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCrowd: 20,000 entries are due at the same second, in three processes. All are enqueued, in few calls.
func TestCrowd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		entries int
		delay   time.Duration
	}{
		"20,000 at round trips of 100 ms": {20_000, 100 * time.Millisecond},
		"1,000 at round trips of 400 ms":  {1_000, 400 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				f := newFakeServer()
				f.delay = c.delay
				due := time.Now().UTC().Truncate(time.Minute).Add(time.Minute)
				var processes []*process
				for range 3 {
					p := startFake(t, ctx, map[string]*fakeServer{"q": f})
					crowd(t, p.Scheduler, c.entries, due, "q")
					processes = append(processes, p)
				}
				time.Sleep(time.Until(due) + time.Minute)
				synctest.Wait()
				fired := f.counts()
				f.set(func() {
					if len(f.names) != c.entries || len(fired) != c.entries {
						t.Errorf("%d ticks of %d entries, want %d", len(f.names), len(fired), c.entries)
					}
					if least := 3 * c.entries / ticksPerCall; f.calls > 2*least || f.most > ticksPerCall {
						t.Errorf("%d calls, with up to %d ticks", f.calls, f.most)
					}
				})
				for _, p := range processes {
					if p.log.Len() > 0 {
						t.Errorf("log: %s", &p.log)
					}
				}
			})
		})
	}
}

// counts returns how many ticks of each entry were fired.
func (f *fakeServer) counts() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := make(map[string]int)
	for _, name := range f.names {
		n[name]++
	}
	return n
}

// TestLatenessGoesRound: if more ticks are due than can be enqueued in time, it isn't always the same entry that is
// late.
func TestLatenessGoesRound(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		const entries = 10_000 // a third of them can be enqueued in time
		f := newFakeServer()
		f.delay = 1500 * time.Millisecond
		p := startFake(t, ctx, map[string]*fakeServer{"q": f})
		for i := range entries {
			p.cron(t, fmt.Sprint("e", i), "0 * * * * *", "q")
		}
		time.Sleep(6*time.Minute + 30*time.Second)
		fired := f.counts()
		counts := slices.Sorted(maps.Values(fired))
		if len(fired) != entries || counts[len(counts)-1]-counts[0] > 1 {
			t.Errorf("%d of %d entries were enqueued, %d to %d times in six minutes", len(fired), entries, counts[0], counts[len(counts)-1])
		}
	})
}

// TestLargeTicksGoInSmallCalls: the size of a call in bytes is bounded.
func TestLargeTicksGoInSmallCalls(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		p := startFake(t, ctx, map[string]*fakeServer{"q": f})
		for i := range 20 {
			if err := p.Cron(fmt.Sprint("e", i), "@every 1m", bulky{make([]byte, 200<<10)}, Queue("q")); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(90 * time.Second)
		f.set(func() {
			if len(f.fired) != 20 || f.most != 3 {
				t.Errorf("%d ticks, up to %d in a call", len(f.fired), f.most)
			}
		})
	})
}

type bulky struct{ B []byte }

func (bulky) Kind() string { return "bulky" }

// TestCrowdOnRedis: on a real Redis, entries in three schedulers are due in the same second.
func TestCrowdOnRedis(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	testCrowd(t, *cronEntries, nil)
}

// TestCrowdFarAway: the same with round trips of 400 ms.
func TestCrowdFarAway(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	testCrowd(t, 300, func(o *redis.UniversalOptions) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return &farConn{Conn: conn}, err
		}
	})
}

// A farConn is a connection with round trips of 400 ms.
type farConn struct {
	net.Conn
	asked atomic.Bool // a call is in flight
}

func (c *farConn) Write(b []byte) (int, error) {
	if !c.asked.Swap(true) {
		time.Sleep(400 * time.Millisecond) // the distance is what the test is about
	}
	return c.Conn.Write(b)
}

func (c *farConn) Read(b []byte) (int, error) {
	c.asked.Store(false)
	return c.Conn.Read(b)
}

func testCrowd(t *testing.T, entries int, change func(*redis.UniversalOptions)) {
	srv := redistest.Start(t)
	if !srv.Real() { // its scripts are slow
		entries /= 10
	}
	q := store.New(srv.Client(), "", redistest.Name(t))
	now, err := q.Now(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	due := now.UTC().Truncate(time.Second).Add(time.Duration(6+entries/2000) * time.Second) // when all are registered
	var log lockedBuffer
	late := redistest.Lag(t, srv.Client())
	for range 3 {
		s, err := New(srv.ClientWith(change), Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		crowd(t, s, entries, due, q.Name())
		defer run(t, s)()
	}
	redistest.Eventually(t, func() bool {
		now, err := q.Now(context.Background())
		return err == nil && now.After(due)
	}, "the ticks are due")
	for begin, before := time.Now(), late(); ; <-time.After(10 * time.Millisecond) {
		// On a busy machine calls take longer than their timeouts, and ticks are late. The log says so, and all ticks are enqueued.
		if strings.Contains(log.String(), "scheduler: ") && late() < tickTimeout/2 {
			t.Fatalf("log: %s", log.String())
		}
		counts, err := q.Looks().Counts(context.Background())
		if err == nil && counts.Ready >= int64(entries) {
			break
		}
		if took := time.Since(begin) - (late() - before); took > 20*time.Second {
			t.Fatalf("%d of %d ticks are enqueued, %v", counts.Ready, entries, err)
		}
	}
	if got := len(claimAll(t, q)); got != entries {
		t.Errorf("%d jobs for %d ticks", got, entries)
	}
}

// A lockedBuffer is a buffer for several writers.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Len()
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
