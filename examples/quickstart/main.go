// Command quickstart delivers a thousand webhooks, with retries, a cron entry, and two worker processes. One of
// the workers is killed during the run.
//
//	go run ./examples/quickstart
//
// It needs only Go: jobs are in a Redis inside its own process. With REDIS_URL it uses a real Redis (redis://,
// rediss:// or unix://), with a queue of its own, which it deletes at the end. The flag -v shows the logs of
// its processes.
//
// This file is the application: the types of its jobs, their handlers, a worker, a scheduler and a producer.
// Package demo in internal/demo has the rest of the demonstration: it receives the webhooks, starts and kills
// processes, and counts what arrived. The exit status is 0 only if all webhooks have arrived, and jobs were
// retried, recovered and ticked.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/examples/quickstart/internal/demo"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// A Delivery is a webhook to deliver.
type Delivery struct {
	URL   string `json:"url"`
	Event string `json:"event"`
	Order int    `json:"order"`
}

// Kind names the job.
func (Delivery) Kind() string { return "webhook.deliver" }

// Validate is called before a Delivery is enqueued, and again before it is handled.
func (d Delivery) Validate() error {
	if d.URL == "" || d.Event == "" {
		return errors.New("a delivery needs a url and an event")
	}
	return nil
}

// A Heartbeat tells a customer that deliveries work. A cron entry sends it.
type Heartbeat struct {
	URL string `json:"url"`
}

// Kind names the job.
func (Heartbeat) Kind() string { return "webhook.heartbeat" }

// leaseTTL is short, so that the jobs of a killed worker are soon run by another. The
// default is 30 s.
const leaseTTL = 2 * time.Second

func main() { demo.Main(app) }

var app = demo.App{Work: work, Schedule: schedule, EnqueueSlow: enqueueSlow, Enqueue: enqueue, LeaseTTL: leaseTTL}

// work runs jobs until ctx ends.
func work(ctx context.Context, p demo.Process) error {
	w, err := worker.New(p.Redis, worker.Config{
		Queues:       worker.Queues{p.Queue: {Concurrency: 5}},
		SessionTTL:   leaseTTL,
		DrainTimeout: 2 * time.Second,
	})
	if err != nil {
		return err
	}
	c := courier{worker: p.Name, http: &http.Client{Timeout: 30 * time.Second}}
	retry := worker.Retry(worker.ExponentialJitter(100*time.Millisecond, 2*time.Second))
	worker.Handle(w, c.deliver, retry)
	worker.Handle(w, c.heartbeat, retry)
	defer context.AfterFunc(p.Hurry, w.Abort)() // a second Ctrl-C doesn't wait for the handlers
	return w.Run(ctx)
}

// schedule enqueues a job every second until ctx ends. Any number of processes may do so: each tick is enqueued
// once.
func schedule(ctx context.Context, p demo.Process) error {
	s, err := scheduler.New(p.Redis, scheduler.Config{})
	if err != nil {
		return err
	}
	err = s.Cron("heartbeat", "@every 1s", Heartbeat{URL: p.Endpoint + "/heartbeat"},
		scheduler.Queue(p.Queue), scheduler.Priority(signalbox.PriorityHigh)) // before the deliveries
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// enqueueSlow enqueues one job.
func enqueueSlow(ctx context.Context, p demo.Process) (id string, err error) {
	s, err := scheduler.New(p.Redis, scheduler.Config{})
	if err != nil {
		return "", err
	}
	r, err := s.Enqueue(ctx, Delivery{URL: p.Endpoint + "/slow", Event: "report.ready"}, scheduler.Queue(p.Queue))
	return r.ID, err
}

// The number of jobs that enqueue enqueues in each way.
const (
	inBulk   = 900
	oneByOne = 79
	later    = 20
)

// enqueue enqueues jobs in three ways, and returns their IDs.
func enqueue(ctx context.Context, p demo.Process) (ids []string, err error) {
	s, err := scheduler.New(p.Redis, scheduler.Config{})
	if err != nil {
		return nil, err
	}
	url := p.Endpoint + "/orders"
	items := make([]scheduler.Item, inBulk)
	for i := range items {
		items[i].Args = Delivery{URL: url, Event: "order.paid", Order: i + 1}
	}
	results, err := s.EnqueueMany(ctx, items, scheduler.Queue(p.Queue))
	if err != nil {
		return nil, err
	}
	for _, r := range results {
		ids = append(ids, r.ID)
	}
	for i := range oneByOne + later {
		opts := []scheduler.EnqueueOption{scheduler.Queue(p.Queue)}
		if i >= oneByOne {
			opts = append(opts, scheduler.After(time.Duration(i-oneByOne+1)*250*time.Millisecond))
		}
		r, err := s.Enqueue(ctx, Delivery{URL: url, Event: "order.shipped", Order: i + 1}, opts...)
		if err != nil {
			return nil, err
		}
		ids = append(ids, r.ID)
	}
	return ids, nil
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

// post makes the request. Its result says what becomes of the job.
func (c *courier) post(ctx context.Context, job *signalbox.Job, url string, body any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return signalbox.Cancel(err) // the next attempt would fail as well
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(b))
	if err != nil {
		return signalbox.Cancel(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", job.EffectKey()) // the same in every delivery of the job
	req.Header.Set("X-Job", job.ID)
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
		return signalbox.Cancel(fmt.Errorf("the endpoint is %s", resp.Status)) // no attempt can succeed
	}
	return fmt.Errorf("the endpoint said %s", resp.Status)
}
