package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/web"
)

type letter struct{}

func (letter) Kind() string { return "letter" }

// Jobs that wait for a batch have a list. They can be cancelled and deleted, and run only if their batch lets them.
func TestBatches(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	p := s.queue("mail", "w")
	sch, err := scheduler.New(s.rdb, scheduler.Config{Namespace: s.namespace})
	s.must(err)
	b, err := sch.Batch(t.Context(), "mail", scheduler.FlowID("news"), scheduler.OnSuccess(letter{}, scheduler.ID("archive")), scheduler.OnEnd(letter{}, scheduler.ID("report")), scheduler.OnFailure(letter{}, scheduler.ID("alert")))
	s.must(err)
	_, err = b.Add(t.Context(), letter{})
	s.must(err)
	s.must(b.Seal(t.Context()))

	h := s.pages(web.Config{Authorize: everybody})
	list := has(t, h, "/jobs?queue=mail&state=awaiting", "Awaiting jobs of mail", "archive", "report", "alert", "Enqueued", "ago")
	if strings.Contains(list, "2255") {
		t.Error("the list has the time due of a job that waits")
	}
	has(t, h, "/job?queue=mail&id=archive", "when its batch lets it run", "for all jobs of batch news to complete")
	if has(t, h, "/jobs?queue=mail", "Ready"); strings.Contains(list, "not known") {
		t.Error("a time isn't known")
	}

	if status, body := ask(t, h, "/act?do=delete&queue=mail&job=alert").pull(); status != http.StatusOK || !strings.Contains(body, "alert is deleted") {
		t.Errorf("%d: %s", status, body)
	}
	if status, body := ask(t, h, "/act?do=cancel&queue=mail&job=report").pull(); status != http.StatusOK || !strings.Contains(body, "report is cancelled") {
		t.Errorf("%d: %s", status, body)
	}
	p.fails(store.Dead, "boom", p.claim(1)[0])
	j, err := s.ins.Job(t.Context(), "mail", "archive")
	if s.must(err); j.State != signalbox.StateCancelled {
		t.Fatalf("%+v", j)
	}
	if status, body := ask(t, h, "/act?do=retry&queue=mail&job=archive").pull(); status != http.StatusConflict || !strings.Contains(body, "Its batch doesn&#39;t let it run again") {
		t.Errorf("%d: %s", status, body)
	}
}
