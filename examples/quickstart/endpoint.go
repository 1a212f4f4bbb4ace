package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// slowAnswer is how long the endpoint takes for one of the deliveries.
const slowAnswer = 5 * time.Second

// An endpoint is the receiver of the webhooks: an HTTP server on loopback, with whims.
type endpoint struct {
	url    string
	ledger *ledger
	server *http.Server
	done   chan struct{}
}

func startEndpoint() (*endpoint, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	e := &endpoint{url: "http://" + l.Addr().String(), ledger: newLedger(), done: make(chan struct{})}
	e.server = &http.Server{Handler: e.handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(e.done)
		_ = e.server.Serve(l) // it ends with close
	}()
	return e, nil
}

func (e *endpoint) close() {
	_ = e.server.Close()
	<-e.done
}

func (e *endpoint) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		e.receive(w, r, func(req request, first bool) int {
			if first && dice(req.id, 5) == 0 {
				return http.StatusServiceUnavailable
			}
			time.Sleep(time.Duration(15+dice(req.id, 30)) * time.Millisecond)
			return http.StatusNoContent
		})
	})
	mux.HandleFunc("POST /slow", func(w http.ResponseWriter, r *http.Request) {
		e.receive(w, r, func(request, bool) int {
			time.Sleep(slowAnswer)
			return http.StatusNoContent
		})
	})
	mux.HandleFunc("POST /heartbeat", func(w http.ResponseWriter, r *http.Request) {
		e.receive(w, r, func(request, bool) int { return http.StatusNoContent })
	})
	return mux
}

// receive enters a request into the ledger, and its effect if the answer is a good one. The
// effect is there even if nobody hears the answer.
func (e *endpoint) receive(w http.ResponseWriter, r *http.Request, answer func(req request, first bool) int) {
	req, err := parseRequest(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	status := answer(req, e.ledger.begin(req))
	e.ledger.end(req, status < 300)
	w.WriteHeader(status)
}

// dice throws an n-sided die that always falls the same way for a job.
func dice(id string, n uint32) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // never fails
	return int(h.Sum32() % n)
}

// A request is what a worker says of a delivery.
type request struct {
	id      string
	worker  string
	attempt int
	crashes int
	tick    time.Time // of a heartbeat
}

func parseRequest(r *http.Request) (request, error) {
	req := request{id: r.Header.Get("Idempotency-Key"), worker: r.Header.Get("X-Worker")}
	var err1, err2 error
	req.attempt, err1 = strconv.Atoi(r.Header.Get("X-Attempt"))
	req.crashes, err2 = strconv.Atoi(r.Header.Get("X-Crashes"))
	if req.id == "" || req.worker == "" || err1 != nil || err2 != nil {
		return request{}, errors.New("Idempotency-Key, X-Worker, X-Attempt and X-Crashes are needed")
	}
	var body struct{ Tick time.Time }
	if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, 64<<10)).Decode(&body); err != nil {
		return request{}, fmt.Errorf("the body: %w", err)
	}
	req.tick = body.Tick.UTC()
	return req, nil
}

// A ledger is what the endpoint knows: nothing in it comes from the queue but what the
// requests said.
type ledger struct {
	mu      sync.Mutex
	changed chan struct{} // closed at the next change
	jobs    map[string]*entry
	open    map[string]int     // requests under way, by worker
	ticks   map[time.Time]bool // in UTC: the times that heartbeats were for
	sums    counts
}

// An entry is one job.
type entry struct {
	requests  int
	effects   int
	retried   bool
	recovered bool
}

// counts are the ledger's sums; of jobs, if nothing else is said.
type counts struct {
	delivered  int // other than heartbeats
	heartbeats int
	refused    int // requests answered with a 503
	ticks      int // different times that heartbeats were for
	doubled    int // heartbeats for a time that had one
	retried    int
	recovered  int
	duplicated int // effects beyond one per job
}

func newLedger() *ledger {
	return &ledger{
		changed: make(chan struct{}), jobs: make(map[string]*entry),
		open: make(map[string]int), ticks: make(map[time.Time]bool),
	}
}

// begin enters a request and reports whether it is the job's first.
func (l *ledger) begin(r request) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[r.id]
	if e == nil {
		e = &entry{}
		l.jobs[r.id] = e
	}
	e.requests++
	l.open[r.worker]++
	l.change()
	return e.requests == 1
}

// end enters what became of it.
func (l *ledger) end(r request, effect bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[r.worker]--
	l.change()
	if !effect {
		l.sums.refused++
		return
	}
	e := l.jobs[r.id]
	e.effects++
	switch {
	case e.effects > 1:
		l.sums.duplicated++
	case r.tick.IsZero():
		l.sums.delivered++
	default:
		l.sums.heartbeats++
		if l.ticks[r.tick] {
			l.sums.doubled++
		} else {
			l.ticks[r.tick] = true
			l.sums.ticks++
		}
	}
	if r.attempt > 1 && !e.retried {
		e.retried = true
		l.sums.retried++
	}
	if r.crashes > 0 && !e.recovered {
		e.recovered = true
		l.sums.recovered++
	}
}

func (l *ledger) change() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// await waits until cond is true, and looks again after each change.
func (l *ledger) await(ctx context.Context, cond func() bool) error {
	for {
		l.mu.Lock()
		changed := l.changed
		l.mu.Unlock()
		if cond() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (l *ledger) counts() counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sums
}

// inFlight is how many requests of a worker are under way.
func (l *ledger) inFlight(worker string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open[worker]
}

// entry is what is known of a job.
func (l *ledger) entry(id string) entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.jobs[id]; e != nil {
		return *e
	}
	return entry{}
}

// missing counts the jobs that had no effect.
func (l *ledger) missing(ids []string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, id := range ids {
		if e := l.jobs[id]; e == nil || e.effects == 0 {
			n++
		}
	}
	return n
}

// missedTicks counts the seconds between the first heartbeat's and the last one's that none was for.
func (l *ledger) missedTicks() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	var first, last time.Time
	for t := range l.ticks {
		if first.IsZero() || t.Before(first) {
			first = t
		}
		if t.After(last) {
			last = t
		}
	}
	if first.IsZero() {
		return 0
	}
	return int(last.Sub(first)/time.Second) + 1 - len(l.ticks)
}

func (l *ledger) progress(jobs int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("delivered %d of %d, refused %d, retried %d, recovered %d, ticks %d; in flight: worker-1 %d, worker-2 %d",
		l.sums.delivered, jobs, l.sums.refused, l.sums.retried, l.sums.recovered, l.sums.ticks, l.open["worker-1"], l.open["worker-2"])
}
