package worker_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/worker"
)

// callSizes is a hook of a client. It keeps the size of the largest request, in bytes.
type callSizes struct {
	mu      sync.Mutex
	largest int
}

func (*callSizes) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*callSizes) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (c *callSizes) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		n := 0
		for _, arg := range cmd.Args() {
			switch v := arg.(type) {
			case []byte:
				n += len(v)
			case string:
				n += len(v)
			}
		}
		c.mu.Lock()
		c.largest = max(c.largest, n)
		c.mu.Unlock()
		return next(ctx, cmd)
	}
}

// large is the arguments of jobs of 1 MB.
type large struct{ X string }

func (large) Kind() string { return "large" }

// largeJobs enqueues n jobs of 1 MB.
func (r *rig) largeJobs(n int) {
	r.Helper()
	body := payload(large{strings.Repeat("x", 1_000_000)})
	for range n {
		r.addOne(signalbox.Job{Kind: large{}.Kind(), Payload: body})
	}
}

// There are jobs of 1 MB on a slow link. If a call claimed a job for each free slot, the reply would take longer than the client's
// timeout. Still no call fails, and the jobs run as fast as the link permits. With -long there are 500 jobs at 100 Mbit/s.
func TestLargeJobsOverASlowLink(t *testing.T) {
	t.Parallel()
	jobs, rate, patient := 30, 8_000_000, 2500*time.Millisecond
	if *long {
		jobs, rate, patient = 500, 12_500_000, 3*time.Second
	}
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	proxy.Limit(rate)
	sizes := &callSizes{}
	rdb := proxy.ClientWith(func(o *redis.UniversalOptions) { o.ReadTimeout, o.MaxRetries = patient, -1 })
	rdb.AddHook(sizes)
	r := newRig(t)
	r.largeJobs(jobs)
	cfg := r.config(50)
	cfg.SessionTTL = 30 * time.Second
	w := r.workerOn(rdb, cfg)
	retried := make(map[string]bool)
	var mu sync.Mutex
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ large) error {
		mu.Lock()
		defer mu.Unlock()
		if len(retried) < 10 && !retried[job.ID] { // its record goes back
			retried[job.ID] = true
			return errBoom
		}
		return nil
	}, worker.Retry(func(int, error) time.Duration { return 0 }))
	run := r.start(w)
	deadline := time.Now().Add(10 * patience)
	for r.counts().Total.Completed < int64(jobs) && time.Now().Before(deadline) {
		<-time.After(10 * time.Millisecond)
	}
	r.completed(jobs)
	run.stop()
	c := r.counts()
	if c.Total.Crashed != 0 || c.Total.Returned != 0 || c.Total.Retried != 10 {
		t.Errorf("counts %+v, want no crash, no job given back and 10 retries", c.Total)
	}
	if n := r.log.count("a call to Redis failed") + r.log.count("Redis is away"); n != 0 {
		t.Errorf("%d calls failed", n)
	}
	sizes.mu.Lock()
	defer sizes.mu.Unlock()
	if sizes.largest > 3*store.MaxBytes {
		t.Errorf("a call of %d bytes", sizes.largest)
	}
}
