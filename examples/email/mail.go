package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// A Welcome is the mail to somebody who has signed up.
type Welcome struct {
	Address string `json:"address"`
}

// Kind names the job.
func (Welcome) Kind() string { return "email.welcome" }

// Validate is called before a Welcome is enqueued, and again before it is handled.
func (w Welcome) Validate() error {
	if !strings.Contains(w.Address, "@") {
		return fmt.Errorf("%q is no address", w.Address)
	}
	return nil
}

// signUp has a welcome sent. Who signs up twice within a day, as by a double click, gets one mail.
func signUp(ctx context.Context, s *scheduler.Scheduler, address string) (isNew bool, err error) {
	r, err := s.Enqueue(ctx, Welcome{Address: address}, scheduler.UniqueBy(scheduler.Window(24*time.Hour)))
	return r.New, err
}

// A mailer sends mails by the API of a provider.
type mailer struct {
	url  string
	http *http.Client
}

// welcome sends a Welcome. A reply of the provider becomes the outcome of the job:
//
//   - 429 or 503 with Retry-After: no job of the queue starts before that time, since the limit is that of our account.
//   - Any other 4xx: no other attempt would mend it. The job is dead at once, and waits for a person.
//   - Anything else: a failed attempt, which is retried later and later.
func (m *mailer) welcome(ctx context.Context, job *signalbox.Job, in Welcome) error {
	body, err := json.Marshal(map[string]string{"to": in.Address, "subject": "Welcome!"})
	if err != nil {
		return signalbox.Dead(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url, bytes.NewReader(body))
	if err != nil {
		return signalbox.Dead(err)
	}
	// A job can be delivered twice, as after a crash. By this key the provider knows the mail that it has sent.
	req.Header.Set("Idempotency-Key", job.EffectKey())
	resp, err := m.http.Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	err = fmt.Errorf("the provider says %s", resp.Status)
	switch code := resp.StatusCode; {
	case code < 300:
		return nil
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // without a number it is 0: then the retry policy decides
		return signalbox.RetryAllAfter(time.Duration(seconds)*time.Second, err)
	case code >= 400 && code < 500:
		return signalbox.Dead(err)
	}
	return err
}

// work sends mails until ctx ends.
func work(ctx context.Context, rdb redis.UniversalClient, namespace string, m *mailer) error {
	w, err := worker.New(rdb, worker.Config{
		Namespace: namespace,
		Queues:    worker.Queues{signalbox.DefaultQueue: {Concurrency: 4}},
	})
	if err != nil {
		return err
	}
	worker.Handle(w, m.welcome)
	return w.Run(ctx)
}
