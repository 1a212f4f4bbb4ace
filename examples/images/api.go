package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/scheduler"
)

// A reply is what GET /jobs/{ref} returns.
type reply struct {
	State signalbox.State `json:"state"`
	Done  int64           `json:"done,omitempty"`
	Total int64           `json:"total,omitempty"`
	Files []string        `json:"files,omitempty"` // once it has completed
}

// maxImage is how many bytes an image may have.
const maxImage = 10 << 20

// api returns the service for browsers. POST /images has thumbnails made of the image in its body, GET /jobs/{ref} says how far they are, and
// GET /files/{name} has one of them.
func api(s *scheduler.Scheduler, folder string, widths []int) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /images", func(w http.ResponseWriter, r *http.Request) {
		file, err := keep(folder, http.MaxBytesReader(w, r.Body, maxImage))
		if err != nil {
			http.Error(w, "the image can't be kept", http.StatusBadRequest)
			return
		}
		ref, err := enqueue(r.Context(), s, file, widths)
		if err != nil {
			http.Error(w, "try again later", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Location", "/jobs/"+ref.String())
		w.WriteHeader(http.StatusAccepted)
	})
	mux.HandleFunc("GET /jobs/{ref...}", func(w http.ResponseWriter, r *http.Request) {
		ref, err := scheduler.ParseRef(r.PathValue("ref"))
		if err != nil {
			http.Error(w, "there is no such job", http.StatusNotFound)
			return
		}
		st, err := s.Status(r.Context(), ref)
		switch {
		case errors.Is(err, scheduler.ErrNotFound):
			http.Error(w, "there is no such job", http.StatusNotFound)
			return
		case err != nil:
			http.Error(w, "try again later", http.StatusServiceUnavailable)
			return
		}
		out := reply{State: st.State}
		if st.Progress != nil {
			out.Done, out.Total = st.Progress.Done, st.Progress.Total
		}
		if st.State == signalbox.StateCompleted {
			made, err := scheduler.ReadResult[Made](st)
			if err != nil {
				http.Error(w, "the result can't be read", http.StatusInternalServerError)
				return
			}
			out.Files = made.Files
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out) // the client is gone if it fails
	})
	mux.HandleFunc("GET /files/{name}", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, os.DirFS(folder), r.PathValue("name"))
	})
	return mux
}

// keep writes an image into a folder, and returns the name of its file.
func keep(folder string, body io.Reader) (name string, err error) {
	f, err := os.CreateTemp(folder, "image-")
	if err != nil {
		return "", err
	}
	_, err = io.Copy(f, body)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return filepath.Base(f.Name()), nil
}
