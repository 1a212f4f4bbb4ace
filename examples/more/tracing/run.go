package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox"
)

// A request is one of the demonstration's requests, with its result.
type request struct {
	path string
	accepted
}

// run runs the whole demonstration. When hurry has ended, the workers don't wait for their handlers. An empty
// redisURL means a Redis in this process.
func run(ctx, hurry context.Context, out io.Writer, redisURL string) (sum summary, err error) {
	whole := ctx
	defer func() {
		if whole.Err() != nil {
			err = errors.Join(context.Cause(whole), err)
		}
	}()
	seen := true
	if err := findCollector(ctx); err != nil {
		seen = false
		fmt.Fprintf(os.Stderr, "tracing: %v\n"+
			"tracing: start one (docker compose up -d), or set %s; the jobs run all the same\n", err, envEndpoint)
	}
	stopTracing, err := startTracing(ctx, "shop-web", "web")
	if err != nil {
		return summary{}, err
	}
	defer func() {
		if stop := stopTracing(); stop != nil && seen {
			fmt.Fprintf(os.Stderr, "tracing: spans were lost: %v\n", stop)
			seen = false
		}
		if !seen {
			sum.traces = 0
		}
	}()

	// The jobs are in a Redis. Two processes tick the cron entry: this one, which is also the web service, and
	// another one. A third one is the worker.
	db, err := connect(ctx, out, redisURL)
	if err != nil {
		return summary{}, err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	events := newLedger()
	crew := newCrew(ctx, hurry, db.url, db.queue, events)
	defer crew.stopAll()
	ctx = crew.ctx // ends when a process ends by itself
	crew.start("scheduler", "scheduler-1")
	first := crew.start("worker", "worker-1")

	s, err := newScheduler(db.rdb, db.queue)
	if err != nil {
		return summary{}, err
	}
	ticking, stopTicking := context.WithCancel(ctx)
	ticked := make(chan error, 1)
	go func() { ticked <- s.Run(ticking) }()
	defer func() {
		stopTicking()
		err = errors.Join(err, <-ticked)
	}()
	web, err := serve(&service{s, db.queue})
	if err != nil {
		return summary{}, err
	}
	defer web.close()

	// One request for each kind of job, and one more for the job that waits for a lock.
	var requests []request
	for _, path := range []string{"/orders", "/payments", "/reports", "/reports", "/newsletters", "/reminders", "/refunds"} {
		r, err := web.post(ctx, path)
		if err != nil {
			return summary{}, err
		}
		requests = append(requests, r)
	}
	if err := allEnded(ctx, events, requests); err != nil {
		return summary{}, err
	}
	if _, err := events.await(ctx, 2, "ticks", func(e event) bool { return e.What == done && e.Kind == stock.Kind(stock{}) }); err != nil {
		return summary{}, err
	}
	first.stop()

	// One more job, whose worker is killed. It has begun the job, and has since finished another one: so Redis
	// already has the span of the job in progress.
	victim := crew.start("worker", "worker-2")
	long, err := web.post(ctx, "/exports")
	if err != nil {
		return summary{}, err
	}
	requests = append(requests, long)
	if _, err := events.await(ctx, 1, "the export to begin", func(e event) bool { return e.What == started && e.Job == long.Jobs[0] }); err != nil {
		return summary{}, err
	}
	before := len(events.find(doneBy("worker-2")))
	if _, err := events.await(ctx, before+2, "other jobs of the export's worker", doneBy("worker-2")); err != nil {
		return summary{}, err
	}
	if err := victim.kill(); err != nil {
		return summary{}, err
	}
	fmt.Fprintf(out, "tracing: worker-2 is killed; its job runs again when its lease of %v is over\n", sessionTTL)
	last := crew.start("worker", "worker-3")
	if err := allEnded(ctx, events, requests); err != nil {
		return summary{}, err
	}
	last.stop()
	if err := context.Cause(ctx); err != nil {
		return summary{}, err
	}
	if seen {
		links(out, requests, events)
	}
	return summarise(requests, events), nil
}

// allEnded waits until every job of the requests is done, or has failed for good.
func allEnded(ctx context.Context, l *ledger, requests []request) error {
	var ids []string
	for _, r := range requests {
		ids = append(ids, r.Jobs...)
	}
	_, err := l.await(ctx, len(ids), "jobs to end", func(e event) bool {
		return slices.Contains(ids, e.Job) && (e.What == done || e.What == failed && e.Kind == refund.Kind(refund{}))
	})
	return err
}

func doneBy(name string) func(event) bool {
	return func(e event) bool { return e.What == done && e.Worker == name }
}

// The values of event.What.
const (
	started = "started"
	done    = "done"
	failed  = "failed"
	snoozed = "snoozed"
)

// outcome returns the value for a handler's result.
func outcome(err error) string {
	var snooze *signalbox.SnoozeError
	switch {
	case err == nil:
		return done
	case errors.As(err, &snooze):
		return snoozed
	}
	return failed
}

// defaultQuery is the address of Jaeger's pages, unless JAEGER_URL has another.
const defaultQuery = "http://localhost:16686"

// links prints links to the trace of each request, and of each job with its own trace.
func links(out io.Writer, requests []request, l *ledger) {
	base := os.Getenv("JAEGER_URL")
	if base == "" {
		base = defaultQuery
	}
	link := func(what, id, trace string) {
		fmt.Fprintf(out, "  %-12s %s/trace/%s  %s\n", what, strings.TrimSuffix(base, "/"), trace, id)
	}
	for _, r := range requests {
		if r.Trace == "" { // OpenTelemetry is switched off
			continue
		}
		what := strings.TrimPrefix(r.path, "/")
		link(what, strings.Join(r.Jobs, " "), r.Trace)
		for _, id := range r.Jobs {
			if trace := l.traceOf(id); trace != "" && trace != r.Trace {
				link("  and", id, trace)
			}
		}
	}
	for _, e := range l.find(func(e event) bool { return e.What == done && e.Kind == stock.Kind(stock{}) && e.Trace != "" }) {
		link("stock", e.Job, e.Trace)
	}
}

// traceOf returns the trace of the job's last delivery, or "".
func (l *ledger) traceOf(job string) string {
	trace := ""
	for _, e := range l.find(func(e event) bool { return e.Job == job }) {
		trace = e.Trace
	}
	return trace
}

// A site runs the service on a port.
type site struct {
	url    string
	server *http.Server
	client *http.Client
	done   chan struct{}
}

func serve(s *service) (*site, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &site{
		url:    "http://" + l.Addr().String(),
		server: &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second},
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
		done:   make(chan struct{}),
	}
	go func() {
		defer close(w.done)
		_ = w.server.Serve(l) // returns after close
	}()
	return w, nil
}

func (w *site) close() {
	_ = w.server.Close()
	<-w.done
}

func (w *site) post(ctx context.Context, path string) (request, error) {
	r := request{path: path}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+path, http.NoBody)
	if err != nil {
		return r, err
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		return r, fmt.Errorf("POST %s: %s: %s", path, resp.Status, body)
	}
	return r, json.NewDecoder(resp.Body).Decode(&r.accepted)
}
