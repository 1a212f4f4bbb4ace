package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// sessionTTL is short, so that the jobs of a killed worker are soon run by another. The
// default is 30 s.
const sessionTTL = 2 * time.Second

// A Delivery is a webhook to deliver.
type Delivery struct {
	URL   string `json:"url"`
	Event string `json:"event"`
	Order int    `json:"order"`
}

// Kind names the job.
func (Delivery) Kind() string { return "webhook.deliver" }

// A Heartbeat tells a customer that deliveries work. It is sent by a cron entry.
type Heartbeat struct {
	URL string `json:"url"`
}

// Kind names the job.
func (Heartbeat) Kind() string { return "webhook.heartbeat" }

// runWorker takes jobs out and runs them until ctx ends.
func runWorker(ctx context.Context, rdb redis.UniversalClient, name, queue string) error {
	w, err := worker.New(rdb, worker.Config{
		Queues:       worker.Queues{queue: {Concurrency: 5}},
		SessionTTL:   sessionTTL,
		DrainTimeout: 2 * time.Second,
	})
	if err != nil {
		return err
	}
	c := courier{worker: name, http: &http.Client{Timeout: 30 * time.Second}}
	retry := worker.Retry(worker.ExponentialJitter(100*time.Millisecond, 2*time.Second))
	worker.Handle(w, c.deliver, retry)
	worker.Handle(w, c.heartbeat, retry)
	return w.Run(ctx)
}

// runScheduler puts a job in every second until ctx ends. Any number of processes may do so: each
// tick is enqueued once.
func runScheduler(ctx context.Context, rdb redis.UniversalClient, queue, url string) error {
	s, err := scheduler.New(rdb, scheduler.Config{})
	if err != nil {
		return err
	}
	err = s.Cron("heartbeat", "@every 1s", Heartbeat{URL: url},
		scheduler.Queue(queue), scheduler.Priority(signalbox.PriorityHigh)) // ahead of the deliveries
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// A courier has what the handlers need.
type courier struct {
	worker string
	http   *http.Client
}

func (c *courier) deliver(ctx context.Context, job *signalbox.Job, in Delivery) error {
	return c.post(ctx, job, in.URL, in)
}

func (c *courier) heartbeat(ctx context.Context, job *signalbox.Job, in Heartbeat) error {
	return c.post(ctx, job, in.URL, map[string]time.Time{"tick": job.ScheduledAt})
}

// post makes the request. Its result decides what becomes of the job.
func (c *courier) post(ctx context.Context, job *signalbox.Job, url string, body any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return signalbox.Cancel(err) // it would fail the next time too
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(b))
	if err != nil {
		return signalbox.Cancel(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", job.ID) // the same in every delivery of the job
	req.Header.Set("X-Worker", c.worker)
	req.Header.Set("X-Attempt", strconv.Itoa(job.Attempt))
	req.Header.Set("X-Crashes", strconv.Itoa(job.Crashes))
	resp, err := c.http.Do(req)
	if err != nil {
		return err // a failed attempt: the job is retried
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)); err != nil {
		return err
	}
	switch {
	case resp.StatusCode < 300:
		return nil
	case resp.StatusCode == http.StatusGone:
		return signalbox.Cancel(fmt.Errorf("the endpoint is %s", resp.Status)) // never again
	}
	return fmt.Errorf("the endpoint said %s", resp.Status)
}
