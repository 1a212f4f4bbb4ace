package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// patience bounds the time that a request waits for the lock and works under it.
const patience = 10 * time.Second

// A service answers POST /items.
type service struct {
	items store
	guard Guard
}

func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /items", s.create)
	return mux
}

func (s *service) create(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Name string `json:"name"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&in); err != nil || in.Name == "" {
		answer(w, http.StatusUnprocessableEntity, detail{"want an item with a name"})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	var names []string
	var entered bool
	err := s.guard(ctx, func(ctx context.Context) (err error) {
		entered = true
		names, err = s.items.add(ctx, in.Name)
		return err
	})
	switch {
	case err == nil:
		answer(w, http.StatusCreated, created{names, len(names)})
	case errors.Is(err, errFull):
		answer(w, http.StatusBadRequest, detail{fmt.Sprintf("Cannot create more than %d items.", Limit)})
	case !entered: // nothing has happened: the client may try again
		answer(w, http.StatusServiceUnavailable, detail{"The lock can't be had: " + err.Error()})
	default:
		answer(w, http.StatusInternalServerError, detail{err.Error()})
	}
}

type created struct {
	Items []string `json:"items"`
	Total int      `json:"total"`
}

type detail struct {
	Detail string `json:"detail"`
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // an error means that the client has left
}
