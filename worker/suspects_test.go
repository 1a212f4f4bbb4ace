package worker_test

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/worker"
)

var (
	suspectJobs   = flag.Int("suspects.jobs", 48, "how many innocent jobs TestTwoKills and TestBombAmongInnocents have, and how many slots")
	suspectLength = flag.Duration("suspects.length", 3*time.Second, "how long each of them takes")
	suspectTTL    = flag.Duration("suspects.ttl", 2*time.Second, "the session's TTL; the processes must renew it in time also on a loaded machine, and sixteen suspects begin each 5/12 of it")
)

// innocents enqueues jobs that harm nobody.
func (r *rig) innocents(n int) {
	r.Helper()
	r.orders(n, order{Do: "sleep", MS: int(suspectLength.Milliseconds())})
}

// kills kills a process. Its sessions are over at once, not after their TTL.
func (r *rig) kills(c *child) {
	r.Helper()
	c.kill()
	for _, session := range r.rdb.ZRange(r.Context(), r.key("sessions"), 0, -1).Val() {
		if err := r.rdb.ZAddXX(r.Context(), r.key("sessions"), redis.Z{Score: 1, Member: session}).Err(); err != nil {
			r.Fatal(err)
		}
	}
}

// Two processes are killed from outside, and all their jobs are suspects. They have all slots again within two lengths of a job.
func TestTwoKills(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	r := newRig(t)
	n := *suspectJobs
	r.innocents(n)
	for range 2 {
		c := r.child(n, *suspectTTL)
		var first time.Time
		for range n {
			if l := c.await("start"); first.IsZero() {
				first = l.at
			}
		}
		<-time.After(*suspectLength/3 - time.Since(first)) // they are killed while they work
		r.kills(c)
	}
	killed, late := time.Now(), redistest.Lag(t, r.rdb)
	c := r.child(n, *suspectTTL)
	var all time.Duration
	for range n {
		l := c.await("start")
		if l.crashes != store.SuspectAt {
			t.Errorf("job %s has %d crashes, want %d", l.job, l.crashes, store.SuspectAt)
		}
		all = l.at.Sub(killed)
	}
	t.Logf("%d jobs of %v, killed twice: the last one runs again %v after the second kill", n, *suspectLength, all)
	if all-late() > 2**suspectLength {
		t.Errorf("the last one runs again %v after the second kill, want at most two lengths of a job", all)
	}
	r.completed(n)
}

// A job kills its process at once, among many that do nothing wrong. It is dead at its fifth crash. No other job is, and at most sixteen come to
// three crashes, none to four.
func TestBombAmongInnocents(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	r := newRig(t)
	n := *suspectJobs
	r.innocents(n - n/3)
	bomb := r.orders(1, order{Do: "die"})[0]
	r.innocents(n / 3)

	crashes, begun, last := make(map[string]int), time.Now(), time.Time{}
	processes := 0
	for over := false; !over; {
		if processes++; processes > 8 {
			t.Fatalf("processes die on and on; counts %+v", r.counts())
		}
		c, look := r.child(n, *suspectTTL), time.NewTicker(20*time.Millisecond)
		for lives := true; lives && !over; {
			select {
			case l, ok := <-c.lines:
				if lives = ok; ok && l.what == "start" {
					crashes[l.job] = max(crashes[l.job], l.crashes)
					if l.job != bomb {
						last = l.at
					}
				}
			case <-look.C:
				counts := r.counts()
				over = counts.Total.Completed+counts.Dead == int64(n)+1
			}
		}
		look.Stop()
		r.kills(c)
	}
	three := 0
	for id, most := range crashes {
		if id != bomb && most > store.SuspectAt {
			three++
			if most > store.SuspectAt+1 {
				t.Errorf("innocent job %s came to %d crashes", id, most)
			}
		}
	}
	t.Logf("%d jobs of %v and a bomb: %d processes, %d innocent jobs at three crashes, the last one began after %v", n, *suspectLength, processes, three, last.Sub(begun))
	if three > 16 {
		t.Errorf("%d innocent jobs came to three crashes, want at most 16", three)
	}
	if c := r.counts(); c.Dead != 1 || c.Total.Completed != int64(n) || processes != store.CrashLimit+1 || r.job(bomb).Crashes != store.CrashLimit {
		t.Errorf("counts %+v after %d processes, want the bomb dead at its fifth crash, and all others completed", c, processes)
	}
}

// A job that has crashed has not once its handler was called and has returned five times in a row. Deliveries that didn't come to the handler change
// nothing.
func TestGoodDeliveries(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		handler error // what the handler returns until the last delivery
		skip    bool  // a middleware snoozes the job instead
		opts    []worker.Option
		want    int // crashes that the last delivery sees
	}{
		"snoozed":               {handler: signalbox.Snooze(0)},
		"failed":                {handler: errBoom, opts: []worker.Option{worker.Retry(worker.Constant(0))}},
		"snoozed by middleware": {skip: true, want: store.SuspectAt},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.suspectsOf(1, store.SuspectAt)
			var seen []int
			again := func(job *signalbox.Job) bool {
				seen = append(seen, job.Crashes)
				return len(seen) <= store.SurvivedAt
			}
			w := r.worker(1)
			opts := append(tc.opts, worker.With(func(next signalbox.Handler) signalbox.Handler {
				return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
					if again(job) && tc.skip {
						return signalbox.Snooze(0)
					}
					return next.Handle(ctx, job)
				})
			}))
			worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
				if len(seen) <= store.SurvivedAt {
					return tc.handler
				}
				return nil
			}, opts...)
			r.start(w)
			r.completed(1)
			if len(seen) != store.SurvivedAt+1 || seen[store.SurvivedAt-1] != store.SuspectAt || seen[store.SurvivedAt] != tc.want {
				t.Errorf("crashes that the deliveries saw: %v, want %d in the last", seen, tc.want)
			}
		})
	}
}

// A payload that is refused isn't a good delivery: the handler was not called.
func TestRefusedPayloadIsNoGoodDelivery(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(1)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	id := r.add(signalbox.Job{Payload: []byte("[]")})[0]
	raw := []byte(r.record(id))
	raw[2] = 1
	r.put(id, string(raw))
	r.start(w)
	r.until("it was refused", func(c looks.Counts) bool { return c.Total.Retried == 1 })
	if got := r.record(id)[3]; got != raw[3] {
		t.Errorf("the record's flags are %#x, want %#x: it counts a good delivery", got, raw[3])
	}
}

// A codec without the key of a job.
type keyless struct{}

func (keyless) Encoding() string                           { return "sealed" }
func (keyless) Encode(*signalbox.Job, any) ([]byte, error) { return []byte("{}"), nil }
func (keyless) Decode(*signalbox.Job, []byte, any) error {
	return fmt.Errorf("no key: %w", signalbox.ErrUnknownEncoding)
}

// A worker that lacks the key of a job puts it back. That says nothing about what the handler does.
func TestMissingKeyIsNoGoodDelivery(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.config(1)
	c.Codecs = []signalbox.Codec{keyless{}}
	w := r.workerWith(c)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	id := r.add(signalbox.Job{Payload: []byte("{}"), Encoding: "sealed"})[0]
	raw := []byte(r.record(id))
	raw[2] = 1
	r.put(id, string(raw))
	r.start(w)
	r.until("it was put back", func(c looks.Counts) bool { return c.Total.Delayed == 1 })
	if got := r.record(id)[3]; got != raw[3] {
		t.Errorf("the record's flags are %#x, want %#x: it counts a good delivery", got, raw[3])
	}
}
