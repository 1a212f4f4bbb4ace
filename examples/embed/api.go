package main

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/http"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/scheduler"
)

// apiHandler is the API for clients.
func (s *service) apiHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /reports", s.postReport)
	mux.HandleFunc("GET /reports/{id}", s.getReport)
	mux.HandleFunc("GET /reports/{id}/rows", s.getRows)
	mux.HandleFunc("DELETE /reports/{id}", s.cancelReport)
	return mux
}

// A status says how far a report is.
type status struct {
	ID string `json:"id"`
	// State is "done", a state of the job, or "lost": no job is there, and the client should post the report again.
	State string `json:"state"`
	// Waits says why the job isn't running.
	Waits string `json:"waits,omitempty"`
}

const (
	stateDone = "done"
	stateLost = "lost"
)

// postReport takes a report. It may be called again with the same report, and should be after an error: the report is made once. A
// report whose job is dead or cancelled is begun again.
func (s *service) postReport(w http.ResponseWriter, r *http.Request) {
	var want Report
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4<<10))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&want); err != nil {
		refuse(w, http.StatusBadRequest, "the body must be a report in JSON: id, account and month")
		return
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		refuse(w, http.StatusBadRequest, "the body must be one report")
		return
	}
	if err := want.Validate(); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	// Redis has no transaction with our files. So record the wish first, and enqueue from it. If this process dies in between, the
	// client has no answer, and posts again.
	got, err := s.files.create(want)
	switch {
	case err != nil:
		s.fail(w, r, err)
		return
	case got != want:
		refuse(w, http.StatusConflict, "the id names another report")
		return
	case s.files.done(want.ID):
		reply(w, http.StatusOK, status{ID: want.ID, State: stateDone})
		return
	}
	// An ID names one live job. If it is scheduled, ready or running, nothing changes.
	res, err := s.jobs.Enqueue(r.Context(), want, scheduler.ID(want.ID))
	if err != nil {
		// It may be enqueued, if the error is a *scheduler.UncertainError. To post again is right in any case: the ID keeps a second job
		// out while the first lives, and a report that is done is not made again.
		s.fail(w, r, err)
		return
	}
	state := signalbox.StateReady
	if !res.New {
		state = res.State
	}
	w.Header().Set("Location", "/reports/"+want.ID)
	reply(w, http.StatusAccepted, status{ID: want.ID, State: string(state)})
}

func (s *service) getReport(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if !s.known(w, r, id) {
		return
	}
	st := status{ID: id, State: stateDone}
	if !s.files.done(id) {
		job, err := s.inspect.Job(r.Context(), queueReports, id)
		switch {
		case err == nil:
			st.State, st.Waits = string(job.State), job.Waits
		case !errors.Is(err, inspect.ErrNoJob) && !errors.Is(err, inspect.ErrNoQueue):
			s.fail(w, r, err)
			return
		case !s.files.done(id): // it wasn't done in between
			st.State = stateLost
		}
	}
	reply(w, http.StatusOK, st)
}

func (s *service) getRows(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if !s.known(w, r, id) {
		return
	}
	if !s.files.done(id) {
		refuse(w, http.StatusNotFound, "the report is not done")
		return
	}
	w.Header().Set("Content-Type", "text/csv")
	http.ServeFileFS(w, r, s.files.FS(), id+"/"+fileRows)
}

// cancelReport ends the job, also while it runs: then its handler's context ends within a second.
func (s *service) cancelReport(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if !s.known(w, r, id) {
		return
	}
	if s.files.done(id) {
		refuse(w, http.StatusConflict, "the report is done")
		return
	}
	_, err := s.inspect.Do(r.Context(), queueReports, id, inspect.Cancel{Why: "by the client"})
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, inspect.ErrNoJob), errors.Is(err, inspect.ErrNoQueue), errors.Is(err, inspect.ErrState):
		refuse(w, http.StatusConflict, "the report is not being made")
	default:
		s.fail(w, r, err)
	}
}

// known answers with 404 unless a report with this ID was asked for.
func (s *service) known(w http.ResponseWriter, r *http.Request, id string) bool {
	err := fs.ErrNotExist
	if validName.MatchString(id) {
		_, err = s.files.request(id)
	}
	switch {
	case err == nil:
		return true
	case errors.Is(err, fs.ErrNotExist):
		refuse(w, http.StatusNotFound, "no such report")
	default:
		s.fail(w, r, err)
	}
	return false
}

// fail answers that something is wrong here, and nothing is with the request. The client gets no details: they are for the log.
func (s *service) fail(w http.ResponseWriter, r *http.Request, err error) {
	slog.ErrorContext(r.Context(), "a request failed", "route", r.Pattern, "error", err)
	w.Header().Set("Retry-After", "1")
	refuse(w, http.StatusServiceUnavailable, "try again")
}

func refuse(w http.ResponseWriter, code int, why string) {
	reply(w, code, map[string]string{"error": why})
}

func reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // an error means that the client has left
}
