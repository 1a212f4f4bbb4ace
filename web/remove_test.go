package web_test

import (
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/web"
)

// A worker is made quiet, takes jobs again, and ends. Who sees only some queues can do none of it.
func TestWorkerActions(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.queue("mail", "w:1")
	log := &journal{}
	h := s.pages(web.Config{Authorize: everybody, Logger: slog.New(slog.NewTextHandler(log, nil))})
	some := s.pages(web.Config{Authorize: everybody, Logger: slog.New(slog.DiscardHandler), Queues: func(*http.Request) web.Scope {
		return web.Scope{Queue: func(string) bool { return true }}
	}})
	strict := s.pages(web.Config{Authorize: func(_ *http.Request, a web.Action) error {
		if a.What == web.Stop && a.Worker == "w:1" && a.Queue == "" {
			return errors.New("ask first")
		}
		return nil
	}, Logger: slog.New(slog.DiscardHandler)})
	worker := func() inspect.Worker {
		t.Helper()
		all, err := s.ins.Workers(t.Context())
		s.must(err)
		if len(all) != 1 {
			t.Fatalf("%d workers", len(all))
		}
		return all[0]
	}
	if body := has(t, some, "/workers", "w:1"); strings.Contains(body, "do=quiet") {
		t.Error("a user who sees some queues has a lever of a worker")
	}
	if body := has(t, strict, "/workers", "do=quiet"); strings.Contains(body, "do=stop") {
		t.Error("the page has a lever that is not the user's")
	}
	has(t, h, "/workers", "do=quiet&amp;worker=w%3A1", "do=stop&amp;worker=w%3A1")
	form := ask(t, h, "/act?do=stop&worker=w:1")
	for name, x := range map[string]struct {
		h      http.Handler
		change func(*http.Request)
		status int
	}{
		"some queues":   {some, func(*http.Request) {}, 404},
		"not the right": {strict, func(*http.Request) {}, 403},
		"another site":  {h, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
	} {
		if status, body := (lever{t, x.h, form.Values}).pull(x.change); status != x.status || worker().Stopping {
			t.Errorf("%s: %d, %s", name, status, body)
		}
	}
	for _, form := range []url.Values{{"do": {"stop"}, "worker": {"w:1"}, "queue": {"mail"}}, {"do": {"pause"}, "worker": {"w:1"}}} {
		if status, body := (lever{t, h, form}).pull(); status != http.StatusBadRequest || worker().Stopping {
			t.Errorf("%v: %d, %s", form, status, body)
		}
	}
	if status, _, _ := get(t, h, "/act?do=stop&worker=none"); status != http.StatusNotFound {
		t.Errorf("a worker that isn't there: %d", status)
	}
	for _, x := range []struct {
		do, says string
		is       func(w inspect.Worker) bool
	}{
		{"quiet", "takes no more jobs", func(w inspect.Worker) bool { return w.Quiet }},
		{"unquiet", "takes jobs again", func(w inspect.Worker) bool { return !w.Quiet }},
		{"stop", "was told to end", func(w inspect.Worker) bool { return w.Stopping }},
	} {
		form := ask(t, h, "/act?do="+x.do+"&worker=w:1")
		if status, body := form.pull(); status != http.StatusOK || !strings.Contains(body, x.says) || !x.is(worker()) {
			t.Errorf("%s: %d, %s; %+v", x.do, status, body, worker())
		}
		if status, body := form.pull(); status != http.StatusConflict {
			t.Errorf("%s again: %d, %s", x.do, status, body)
		}
	}
	if text := log.String(); !strings.Contains(text, "do=stop") || !strings.Contains(text, "worker=w:1") {
		t.Errorf("the log: %s", text)
	}
}

// A queue without jobs and workers is removed. What keeps it is said to those who see all queues.
func TestRemoveQueue(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.queue("mail", "w").states("k", "acme", "boom", signalbox.Job{})
	s.must(store.New(s.rdb, s.namespace, "old").Presence().Register(t.Context()))
	s.must(s.ins.SetSlots(t.Context(), "old", 5))
	quiet := slog.New(slog.DiscardHandler)
	h := s.pages(web.Config{Authorize: everybody, Logger: quiet})
	some := s.pages(web.Config{Authorize: everybody, Logger: quiet, Queues: func(*http.Request) web.Scope {
		return web.Scope{Queue: func(name string) bool { return name == "old" }}
	}})
	if body := has(t, h, "/queue?name=mail", "do=pause"); strings.Contains(body, "do=remove") {
		t.Error("a queue with jobs can be removed")
	}
	if status, _, _ := get(t, h, "/act?do=remove&queue=mail"); status != http.StatusConflict {
		t.Errorf("the page that asks, of a queue with jobs: %d", status)
	}
	has(t, h, "/queue?name=old", "do=remove")
	if status, body := ask(t, h, "/act?do=remove&queue=old").pull(); status != http.StatusConflict || !strings.Contains(body, "slots") {
		t.Errorf("a queue with a setting: %d, %s", status, body)
	}
	if status, body := ask(t, some, "/act?do=remove&queue=old").pull(); status != http.StatusConflict || strings.Contains(body, "slots") {
		t.Errorf("for who sees some queues: %d, %s", status, body)
	}
	s.must(s.ins.SetSlots(t.Context(), "old", 0))
	form := ask(t, h, "/act?do=remove&queue=old")
	for i, want := range []int{http.StatusOK, http.StatusNotFound} {
		if status, body := form.pull(); status != want {
			t.Errorf("form %d: %d, %s", i, status, body)
		}
	}
	if _, err := s.ins.Queue(t.Context(), "old"); !errors.Is(err, inspect.ErrNoQueue) {
		t.Errorf("after that: %v", err)
	}
}

// The doctor repairs a queue for those who see all queues, and says how much.
func TestRepair(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.queue("bad", "w").put(signalbox.Job{ID: "lost", Kind: "k", MaxAttempts: 1}, store.When{})
	s.must(s.rdb.LRem(t.Context(), "signalbox:{"+s.namespace+":bad}:ready:normal", 0, "lost").Err())
	quiet := slog.New(slog.DiscardHandler)
	h := s.pages(web.Config{Authorize: everybody, Logger: quiet})
	if body := has(t, h, "/doctor?queue=bad"); strings.Contains(body, "do=repair") {
		t.Error("a queue that nobody has looked at can be repaired")
	}
	has(t, h, "/doctor?queue=bad&look=yes", "1 finding", "do=repair&amp;queue=bad")
	form := ask(t, h, "/act?do=repair&queue=bad")
	some := s.pages(web.Config{Authorize: everybody, Logger: quiet, Queues: func(*http.Request) web.Scope {
		return web.Scope{Queue: func(string) bool { return true }}
	}})
	if status, body := (lever{t, some, form.Values}).pull(); status != http.StatusNotFound {
		t.Errorf("for who sees some queues: %d, %s", status, body)
	}
	if r, err := s.ins.Doctor(t.Context(), "bad", inspect.Checkup{}); err != nil || r.Found != 1 {
		t.Errorf("it was repaired: %+v, %v", r, err)
	}
	for i, want := range []int{http.StatusOK, http.StatusConflict} {
		if status, body := form.pull(); status != want || i == 0 && !strings.Contains(body, "bad has 1 finding, and 1 repaired") {
			t.Errorf("form %d: %d, %s", i, status, body)
		}
	}
	if r, err := s.ins.Doctor(t.Context(), "bad", inspect.Checkup{}); err != nil || r.Found != 0 {
		t.Errorf("after that: %+v, %v", r, err)
	}
}
