package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// An Event is what a customer hears of by a webhook.
type Event struct {
	Customer string `json:"customer"`
	URL      string `json:"url"`
	Number   int    `json:"number"` // counts the customer's events, from 1
}

// Kind names the job.
func (Event) Kind() string { return "webhook.deliver" }

// rate is how many webhooks a customer gets in a second, at most: tries count as well.
const rate = 20

// publish has events delivered. Those of a customer are in one serial group: one is delivered at a time, in this order. Customers don't wait for each other.
func publish(ctx context.Context, s *scheduler.Scheduler, events []Event) error {
	items := make([]scheduler.Item, len(events))
	for n, e := range events {
		items[n] = scheduler.Item{Args: e, Options: []scheduler.EnqueueOption{scheduler.Serial(e.Customer)}}
	}
	_, err := s.EnqueueMany(ctx, items)
	return err
}

// A courier delivers webhooks.
type courier struct {
	http   *http.Client
	secret []byte
}

// deliver posts an event, signed. A failed one keeps its place: the customer's next event waits until it has been delivered, or is dead.
func (c *courier) deliver(ctx context.Context, job *signalbox.Job, in Event) error {
	body, err := json.Marshal(in)
	if err != nil {
		return signalbox.Dead(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, in.URL, bytes.NewReader(body))
	if err != nil {
		return signalbox.Dead(err)
	}
	req.Header.Set("Webhook-Id", job.EffectKey()) // the same in each try: by it a customer knows what has come before
	req.Header.Set("Webhook-Signature", sign(c.secret, body))
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("the customer's server says %s", resp.Status)
	}
	return nil
}

// sign returns the signature of a body, in hexadecimal.
func sign(secret, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	_, _ = mac.Write(body) // never an error
	return hex.EncodeToString(mac.Sum(nil))
}

// work delivers webhooks until ctx ends.
func work(ctx context.Context, rdb redis.UniversalClient, namespace string, c *courier) error {
	w, err := worker.New(rdb, worker.Config{
		Namespace: namespace,
		Queues: worker.Queues{signalbox.DefaultQueue: {
			Concurrency: 8,
			GroupLimits: signalbox.Limits{Rate: signalbox.Rate{Jobs: rate}},
		}},
	})
	if err != nil {
		return err
	}
	// The first delay is short, since this is a demonstration. The default is 1 s.
	worker.Handle(w, c.deliver, worker.Retry(worker.ExponentialJitter(100*time.Millisecond, 24*time.Hour)))
	return w.Run(ctx)
}
