package store

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/looks"
)

func TestRunning(t *testing.T) {
	t.Parallel()
	for name, srv := range map[string]func(testing.TB) *rig{
		"single":  onShared,
		"cluster": func(t testing.TB) *rig { return newQueue(t, redistest.Cluster(t).Client()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := srv(t)
			all := numbered("j", MaxBatch+50)
			running, err := r.Looks().Running(bg, all)
			r.must(err)
			same(t, "flags without sessions", len(running), len(all))
			r.put(all[:MaxBatch]...)
			r.put(all[MaxBatch:]...)
			r.open()
			r.claim(2)
			r.session = "s2"
			r.open()
			r.claim(1)
			r.lane.Next()
			_, err = r.Sessions().Claim(bg, r.lane, &ClaimRequest{Session: "s2", Want: MaxBatch})
			r.must(err)
			running, err = r.Looks().Running(bg, append(all, "nobody's"))
			r.must(err)
			for i, is := range running {
				if want := i < MaxBatch+3; is != want {
					t.Errorf("job %d runs: %v", i, is)
				}
			}
			equal(t, "the first", running[:4], []bool{true, true, true, true})
			equal(t, "the last", running[MaxBatch+2:MaxBatch+5], []bool{true, false, false})
			same(t, "nobody's", running[len(all)], false)
		})
	}
}

// The number of questions grows with the IDs and the sessions. The size of a pipeline doesn't.
func TestRunningAsksInBounds(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	for _, r.session = range numbered("s", 50) {
		r.open()
	}
	const most = 20_000
	var largest asked
	r.rdb.AddHook(&largest)
	_, err := r.Looks().Running(bg, numbered("j", 3*MaxBatch))
	r.must(err)
	if largest == 0 || largest > most+100 {
		t.Errorf("%d arguments in a pipeline, want at most about %d", largest, most)
	}
	ctx, cancel := context.WithCancel(bg)
	cancel()
	largest = 0
	if _, err := r.Looks().Running(ctx, numbered("j", 10)); err == nil || largest != 0 {
		t.Errorf("after the end of its context it asks for %d, and returns %v", largest, err)
	}
}

// asked keeps the number of arguments of a client's largest pipeline.
type asked int

func (a *asked) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (a *asked) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (a *asked) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		n := 0
		for _, cmd := range cmds {
			n += len(cmd.Args())
		}
		*a = max(*a, asked(n))
		return next(ctx, cmds)
	}
}

func TestTickEffect(t *testing.T) {
	t.Parallel()
	same(t, "key", TickEffect("", "q", "daily", time.UnixMicro(1750000000000000)), "{q}daily{@1750000000000000}")
	same(t, "key in a namespace", TickEffect("prod", "q", "daily", time.UnixMicro(1)), "{prod:q}daily{@1}")
	same(t, "key in the default one", TickEffect("default", "q", "daily", time.UnixMicro(1)), "{q}daily{@1}")
	seen := map[uint64]bool{}
	for range 1000 {
		n := NewIncarnation()
		if n == 0 || seen[n] {
			t.Fatalf("%d after %d others", n, len(seen))
		}
		seen[n] = true
	}
}

// What a session runs has its kind, with extras before it or without. Records that are too large are not read: that would hold up Redis.
func TestHeldHasKinds(t *testing.T) {
	t.Parallel()
	r := newQueue(t, redistest.New(t).Client())
	r.open()
	items := make([]Item, 2*20+1)
	large := len(items) - 2
	for i := range items {
		job := &signalbox.Job{ID: fmt.Sprintf("j%02d", i), Kind: fmt.Sprint("kind", i), Payload: bytes.Repeat([]byte("p"), 500*i)}
		if i%2 == 1 {
			job.Retain = time.Hour
		}
		if i == large {
			job.Payload = bytes.Repeat([]byte("p"), looks.MaxKindRecord)
		}
		it, err := NewItem(job, When{})
		r.must(err)
		items[i] = it
	}
	r.enqueued(items...)
	same(t, "claimed", len(r.claim(len(items))), len(items))
	all, err := r.Looks().Runs(bg, r.session)
	r.must(err)
	same(t, "held", len(all), len(items))
	for i, v := range all {
		want := fmt.Sprint("kind", i)
		if i == large {
			want = ""
		}
		same(t, v.Job.ID, v.Job.Kind, want)
	}
}
