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

// callSizes is a hook of a client. It keeps the sizes of the largest request and of the largest reply, in bytes.
type callSizes struct {
	mu             sync.Mutex
	request, reply int
}

func (*callSizes) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*callSizes) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (c *callSizes) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		reply := 0
		if cmd, ok := cmd.(*redis.Cmd); ok {
			reply = sizeOf(cmd.Val())
		}
		c.mu.Lock()
		c.request, c.reply = max(c.request, sizeOf(cmd.Args())), max(c.reply, reply)
		c.mu.Unlock()
		return err
	}
}

// sizeOf returns how many bytes of text are in arguments or in a reply.
func sizeOf(v any) (n int) {
	switch v := v.(type) {
	case []byte:
		return len(v)
	case string:
		return len(v)
	case []any:
		for _, part := range v {
			n += sizeOf(part)
		}
	}
	return n
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

// There are jobs of 1 MB. If a call claimed a job for each free slot, the reply would take longer on a slow link than the client's
// timeout. So requests and replies have a bound. With -long 500 jobs go over a link of 100 Mbit/s, and no call fails.
func TestLargeJobsOverASlowLink(t *testing.T) {
	t.Parallel()
	jobs, rate, patient := 30, 0, time.Minute
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
	deadline := time.Now().Add(min(10*patience, 2*time.Minute))
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
	if sizes.request > 3*store.MaxBytes || sizes.reply > 3*store.MaxBytes || sizes.reply < 1_000_000 {
		t.Errorf("a call of %d bytes, and a reply of %d", sizes.request, sizes.reply)
	}
}
