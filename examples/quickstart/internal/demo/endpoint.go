package demo

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/http"
	"strconv"
	"time"
)

// slowAnswer is how long the endpoint takes to answer one of the deliveries.
const slowAnswer = 5 * time.Second

// An endpoint is the receiver of the webhooks: an HTTP server on loopback that sometimes
// fails.
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

// receive records a request. If the answer is a success, it also records the effect. The
// effect counts even if the answer is lost.
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

// dice rolls an n-sided die. For the same job the result is always the same.
func dice(id string, n uint32) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // never fails
	return int(h.Sum32() % n)
}

// A request is what a worker sends about a delivery.
type request struct {
	id      string
	worker  string
	attempt int
	crashes int
	tick    time.Time // of a heartbeat
}

func parseRequest(r *http.Request) (request, error) {
	req := request{id: r.Header.Get("X-Job"), worker: r.Header.Get("X-Worker")}
	var err1, err2 error
	req.attempt, err1 = strconv.Atoi(r.Header.Get("X-Attempt"))
	req.crashes, err2 = strconv.Atoi(r.Header.Get("X-Crashes"))
	if req.id == "" || r.Header.Get("Idempotency-Key") == "" || req.worker == "" || err1 != nil || err2 != nil {
		return request{}, errors.New("Idempotency-Key, X-Job, X-Worker, X-Attempt and X-Crashes are needed")
	}
	var body struct{ Tick time.Time }
	if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, 64<<10)).Decode(&body); err != nil {
		return request{}, fmt.Errorf("the body: %w", err)
	}
	req.tick = body.Tick.UTC()
	return req, nil
}
