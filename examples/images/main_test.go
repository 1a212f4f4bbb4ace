package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/examples/internal/stage"
	"github.com/signalbox-go/signalbox/examples/internal/stage/stagetest"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/scheduler"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	redistest.Main(m)
}

// TestRun: each thumbnail is made once, over a restart. It prints what README.md says.
func TestRun(t *testing.T) {
	t.Parallel()
	stagetest.Follows(t, "redis://"+redistest.New(t).Addr(), "images", run)
}

// What is no image is dead at once. What there isn't is 404, whatever its name.
func TestRefused(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t).Client()
	s, err := scheduler.New(rdb, scheduler.Config{})
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.WriteFile(folder+"-secret", []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	service := httptest.NewServer(api(s, folder, widths))
	t.Cleanup(service.Close)
	end := stage.Beside(t.Context(), func(ctx context.Context) error {
		return work(ctx, rdb, "", &studio{folder: folder, made: func(context.Context, int) {}})
	})
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()

	resp, err := service.Client().Post(service.URL+"/images", "image/png", strings.NewReader("no image"))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	job := service.URL + resp.Header.Get("Location")
	err = stage.Until(t.Context(), func() (bool, error) {
		got, err := ask(t.Context(), service.Client(), job)
		return got.State == signalbox.StateDead, err
	})
	if err != nil {
		t.Error(err)
	}
	for _, path := range []string{"/jobs/none", "/jobs/" + scheduler.Ref{Namespace: "default", Queue: "default", ID: "none"}.String(), "/files/none", "/files/..%2F" + folder[strings.LastIndex(folder, "/")+1:] + "-secret"} {
		resp, err := service.Client().Get(service.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusBadRequest || strings.Contains(string(text), "secret") {
			t.Errorf("GET %s: %s: %s", path, resp.Status, text)
		}
	}
}

// A result that isn't as it should be is a problem.
func TestProblem(t *testing.T) {
	t.Parallel()
	good := result{made: 10, before: 4, shown: 3, files: 10}
	if err := good.Problem(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(r *result){
		"one is missing":      func(r *result) { r.made-- },
		"made again":          func(r *result) { r.twice++ },
		"no restart":          func(r *result) { r.before = 10 },
		"no progress":         func(r *result) { r.shown = 0 },
		"not in the result":   func(r *result) { r.files-- },
		"none before restart": func(r *result) { r.before = 0 },
	} {
		bad := good
		spoil(&bad)
		if bad.Problem() == nil {
			t.Errorf("%s: no problem", name)
		}
	}
}
