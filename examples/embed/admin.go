package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/health"
	"github.com/signalbox-go/signalbox/inspect"
)

// internalHandler is for the orchestrator, Prometheus and operators. It has an address of its own, which clients don't reach, and
// which answers until the jobs have ended.
func (s *service) internalHandler(metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", health.Live(s.worker, s.jobs))              // 503: a restart helps
	mux.Handle("GET /readyz", health.Ready(&s.stopping, s.worker, s.jobs)) // 503: it can't do its work now
	mux.Handle("GET /metrics", metrics)
	for pattern, f := range map[string]http.HandlerFunc{
		"GET /queues":                           s.listQueues,
		"GET /queues/{queue}/dead":              s.listDead,
		"GET /queues/{queue}/stats":             s.queueStats,
		"POST /queues/{queue}/pause":            s.pauseQueue,
		"POST /queues/{queue}/resume":           s.resumeQueue,
		"POST /queues/{queue}/jobs/{id}/retry":  s.act(inspect.Retry{}),
		"POST /queues/{queue}/jobs/{id}/cancel": s.act(inspect.Cancel{Why: "by an operator"}),
	} {
		mux.Handle(pattern, s.operatorsOnly(f))
	}
	return mux
}

// operatorsOnly asks for the token. Without one in the settings, nobody is an operator.
func (s *service) operatorsOnly(next http.Handler) http.Handler {
	want := sha256.Sum256([]byte("Bearer " + s.adminToken))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		if s.adminToken == "" || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			refuse(w, http.StatusUnauthorized, "send the token of operators")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// A queue is what operators see of one.
type queue struct {
	Name      string  `json:"name"`
	Paused    bool    `json:"paused"`
	Ready     int64   `json:"ready"`
	Scheduled int64   `json:"scheduled"`
	Running   int64   `json:"running"`
	Dead      int64   `json:"dead"`
	Cancelled int64   `json:"cancelled"`
	Oldest    float64 `json:"oldest_seconds"` // how long the oldest job that could run has waited
}

func (s *service) listQueues(w http.ResponseWriter, r *http.Request) {
	all, err := s.inspect.Queues(r.Context())
	list := []queue{}
	for _, q := range all {
		list = append(list, queue{q.Name, q.Paused, q.Ready, q.Scheduled, q.Running, q.Dead, q.Cancelled, q.Oldest.Seconds()})
	}
	s.answer(w, r, list, err)
}

// A deadJob is what operators see of one: not its arguments, which may be private.
type deadJob struct {
	ID        string    `json:"id"`
	Kind      string    `json:"kind"`
	EndedAt   time.Time `json:"ended_at"`
	Attempts  int       `json:"attempts"`
	LastError string    `json:"last_error"`
	Cursor    string    `json:"cursor"` // ?after=... goes on behind it
}

func (s *service) listDead(w http.ResponseWriter, r *http.Request) {
	f := inspect.Filter{State: signalbox.StateDead, Kind: r.FormValue("kind"), After: r.FormValue("after"), Limit: 50}
	list := []deadJob{}
	for job, err := range s.inspect.Jobs(r.Context(), r.PathValue("queue"), f) {
		if err != nil {
			s.answer(w, r, nil, err)
			return
		}
		list = append(list, deadJob{job.ID, job.Kind, job.EndedAt, job.Failed, job.LastError, job.Cursor})
	}
	s.answer(w, r, list, nil)
}

// stats are what happened to the jobs of a queue.
type stats struct {
	Since     time.Time `json:"since"`
	Enqueued  int64     `json:"enqueued"`
	Completed int64     `json:"completed"`
	Retried   int64     `json:"retried"`
	Dead      int64     `json:"dead"`
	WaitP95   float64   `json:"wait_p95_seconds"`
	RunP95    float64   `json:"run_p95_seconds"`
}

// queueStats says what happened in the last three hours. The times come with a delay of ten seconds.
func (s *service) queueStats(w http.ResponseWriter, r *http.Request) {
	all, err := s.inspect.Stats(r.Context(), r.PathValue("queue"), inspect.ByMinute)
	sum := stats{Since: all.At}
	var wait, run inspect.Histogram
	for i, b := range all.Buckets {
		if i == 0 {
			sum.Since = b.Start
		}
		sum.Enqueued += b.Enqueued
		sum.Completed += b.Completed
		sum.Retried += b.Retried
		sum.Dead += b.Dead
		wait, run = wait.Plus(b.Wait), run.Plus(b.Run)
	}
	sum.WaitP95, sum.RunP95 = wait.Quantile(0.95).Seconds(), run.Quantile(0.95).Seconds()
	s.answer(w, r, sum, err)
}

func (s *service) pauseQueue(w http.ResponseWriter, r *http.Request) {
	changed, err := s.inspect.Pause(r.Context(), r.PathValue("queue"))
	s.answer(w, r, map[string]bool{"changed": changed}, err)
}

func (s *service) resumeQueue(w http.ResponseWriter, r *http.Request) {
	changed, err := s.inspect.Resume(r.Context(), r.PathValue("queue"))
	s.answer(w, r, map[string]bool{"changed": changed}, err)
}

// act does something to one job.
func (s *service) act(a inspect.Action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		was, err := s.inspect.Do(r.Context(), r.PathValue("queue"), r.PathValue("id"), a)
		s.answer(w, r, map[string]signalbox.State{"was": was}, err)
	}
}

func (s *service) answer(w http.ResponseWriter, r *http.Request, body any, err error) {
	switch {
	case err == nil:
		reply(w, http.StatusOK, body)
	case errors.Is(err, inspect.ErrNoJob), errors.Is(err, inspect.ErrNoQueue):
		refuse(w, http.StatusNotFound, err.Error())
	case errors.Is(err, inspect.ErrState):
		refuse(w, http.StatusConflict, err.Error())
	case errors.Is(err, signalbox.ErrInvalid):
		refuse(w, http.StatusBadRequest, err.Error())
	default:
		s.fail(w, r, err)
	}
}
